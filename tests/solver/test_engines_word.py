"""No engine's word is a proof: a case in which one ends "complete" above the optimum, and how it is kept from it."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from autoshard.solver import CostNetwork, Usage, evaluate, solve
from autoshard.solver.engines import toulbar2
from autoshard.solver.engines.toulbar2 import Row, told_apart

# Found in a contest network and made smaller: four variables, one row. Strategies 1 and 2 of the first hold the same.
COSTS = [np.array([607961232, 1389625635, 0]), np.array([1, 1]), np.array([4001750, 0]),
         np.array([392423, 4027567, 4027567])]  # fmt: skip
AMOUNTS = ((10616832, 84934656, 84934656), (65568768, 8196096), (524288, 33554432), (262283264, 32785408, 32785408))
LIMIT = 127382792
OPTIMUM = 8029318  # states 2, 1, 0, 1
UPPER = 1282165600
"""Below the cost of state 1, which the search may drop at once; state 2 was lost with it."""

needs_toulbar2 = pytest.mark.skipif(not toulbar2.available(), reason="pytoulbar2 has no wheel for this machine")


@needs_toulbar2
@pytest.mark.parametrize("upper", [None, UPPER, OPTIMUM + 1])
def test_states_that_hold_the_same_are_not_lost(upper: int | None) -> None:
    found = toulbar2.solve_exact(COSTS, [], upper=upper, rows=[Row((0, 1, 2, 3), AMOUNTS, LIMIT)])
    assert found is not None
    assert found.lower == OPTIMUM


def test_amounts_told_apart_allow_the_same_assignments() -> None:
    row = Row((0, 1, 2, 3), AMOUNTS, LIMIT)
    other = told_apart(row)
    for chosen in np.ndindex(*(len(a) for a in AMOUNTS)):
        assert row.holds(chosen) == other.holds(chosen)
    assert all(len(set(own)) == len(own) for own in other.amounts)


def test_the_case_as_a_network_is_solved_and_certified() -> None:
    usages = [(Usage(0, 1, np.array(own)),) for own in AMOUNTS]
    network = CostNetwork(COSTS, [], usages, LIMIT)
    found = solve(network)
    assert (found.status, found.cost, found.lower_bound) == ("optimal", OPTIMUM, OPTIMUM)
    assert evaluate(network, found.assignment or ()).feasible
    assert found.certificate() is not None


@needs_toulbar2
def test_every_thread_gets_the_answer_to_its_own_question() -> None:
    def asked(nodes: int) -> int | None:
        found = toulbar2.solve_exact([np.array([1, 0]), *[np.array([3, 2])] * nodes], [], upper=None)
        return None if found is None else found.lower

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(asked, range(60))) == [2 * nodes for nodes in range(60)]
