"""Every reduction alone keeps the optimum, and its inverse completes an assignment of that cost."""

import sys
from pathlib import Path

import numpy as np
import pytest

from autoshard.solver import CostNetwork, Edge, evaluate
from autoshard.solver.reductions import (
    arc_consistency,
    dominated_strategies,
    eliminate,
    fix_single,
    min_plus,
    reduce_network,
    separable_edges,
    usage_consistency,
)
from autoshard.solver.work import FORBIDDEN, FORBIDDEN_FROM, Infeasible, Work, from_network

sys.path.insert(0, str(Path(__file__).parent))
import itertools

from solver_cases import optimum, random_network


def best_of(work: Work, network: CostNetwork) -> int | None:
    """Brute force over what remains, completed and judged on the original network."""
    nodes, best = work.nodes(), None
    for x in itertools.product(*(range(len(work.domains[i])) for i in nodes)):
        position = dict(zip(nodes, x, strict=True))
        kept = work.constant + sum(int(work.cost(i)[position[i]]) for i in nodes)
        kept += sum(int(work.tables[i][j][position[i], position[j]]) for i, j in work.edges())
        choice = work.complete({i: int(work.domains[i][position[i]]) for i in nodes})
        found = evaluate(network, [choice[i] for i in range(network.n_nodes)])
        if kept < FORBIDDEN_FROM:
            assert found.cost == kept  # the reduced network tells the true cost
        if found.feasible:
            best = found.cost if best is None else min(best, found.cost)
    return best


def every_elimination(work: Work) -> None:
    for i in work.nodes():
        if len(work.tables[i]) <= 2 and (work.limit is None or not work.held[i]):
            eliminate(work, i)


def every_single(work: Work) -> None:
    for i in work.nodes():
        if len(work.domains[i]) == 1 and (work.limit is None or not work.held[i]):
            fix_single(work, i)


def every_dominance(work: Work) -> None:
    for i in work.nodes():
        dominated_strategies(work, i)


REDUCTIONS = {
    "nothing": lambda work: None,
    "arc_consistency": arc_consistency,
    "usage_consistency": usage_consistency,
    "separable_edges": separable_edges,
    "dominance": every_dominance,
    "elimination": every_elimination,
    "single": every_single,
    "all": reduce_network,
}


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reduction_alone_keeps_the_optimum(name):
    for seed in range(80):
        network = random_network(seed, nodes=5, strategies=3)
        best = optimum(network)
        try:
            work = from_network(network)
            REDUCTIONS[name](work)
        except Infeasible:
            assert best is None, (name, seed)
            continue
        assert best_of(work, network) == best, (name, seed)


def test_separable_edge_vanishes():
    table = np.array([1, 5])[:, None] + np.array([0, 2, 9])[None, :]
    work = from_network(CostNetwork([np.zeros(2, int), np.zeros(3, int)], [Edge(0, 1, table)]))
    assert separable_edges(work) == 1 and not work.edges()


def test_parallel_edges_add_up():
    ones = np.ones((1, 1), int)
    work = from_network(CostNetwork([np.zeros(1, int)] * 2, [Edge(0, 1, ones), Edge(1, 0, 3 * ones)]))
    assert work.tables[0][1].tolist() == [[4]]


def test_dominance_respects_memory():
    from autoshard.solver import Usage

    # strategy 1 is cheaper but larger: it must stay, and so must strategy 0
    network = CostNetwork([np.array([5, 1])], [], [[Usage(0, 1, np.array([1, 9]))]], 5)
    work = from_network(network)
    assert dominated_strategies(work, 0) == 0


def test_min_plus_keeps_forbidden_entries():
    left = np.array([[1, FORBIDDEN], [FORBIDDEN, FORBIDDEN]])
    right = np.array([[2, FORBIDDEN], [0, 0]])
    assert min_plus(left, right).tolist() == [[3, FORBIDDEN], [FORBIDDEN, FORBIDDEN]]


def test_a_long_chain_of_low_degree_is_solved_by_elimination_alone():
    rng = np.random.default_rng(0)
    costs = [rng.integers(0, 50, 6) for _ in range(300)]
    edges = [Edge(i, i + 1, rng.integers(0, 50, (6, 6))) for i in range(299)]
    work = from_network(CostNetwork(costs, edges))
    reduce_network(work)
    assert not work.nodes()
    choice = work.complete({})
    assert evaluate(CostNetwork(costs, edges), [choice[i] for i in range(300)]).cost == work.constant
