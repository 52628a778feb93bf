"""Networks of few states of every decision, whose assignments are those of the whole network."""

import numpy as np
import pytest
from solver_cases import random_network

from autoshard.solver import evaluate, solve
from autoshard.solver.few_states import Few, union


def test_a_union_has_the_states_of_all_sets_and_assignments_in_order() -> None:
    one, other = [np.array([1, 4]), np.array([0])], [np.array([4, 2]), np.array([3])]
    found = union([one, other], [[0, 3]])
    assert [states.tolist() for states in found] == [[0, 1, 2, 4], [0, 3]]


@pytest.mark.parametrize("seed", range(20))
def test_a_solution_among_few_states_costs_the_same_in_the_whole_network(seed: int) -> None:
    whole, rng = random_network(seed), np.random.default_rng(seed)
    states = [np.sort(rng.permutation(len(c))[: 1 + len(c) // 2]) for c in whole.costs]
    few = Few(whole, states)
    found = solve(few.network)
    back = few.back(found)
    assert back.proof is None
    if found.assignment is not None:
        assert back.assignment is not None
        assert evaluate(whole, back.assignment).cost == found.cost
        assert few.within([back.assignment]) == [list(found.assignment)]


def test_an_assignment_with_a_state_that_is_left_out_is_none_of_the_few() -> None:
    whole = random_network(3)
    few = Few(whole, [np.array([len(c) - 1]) for c in whole.costs])
    assert few.within([[0] * whole.n_nodes, [len(c) - 1 for c in whole.costs]]) == [[0] * whole.n_nodes]
