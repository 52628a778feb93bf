"""Every reduction alone keeps the optimum, and its inverse completes an assignment of that cost."""

import itertools

import numpy as np
import pytest
from solver_cases import optimum, random_network

from autoshard.solver import CostNetwork, Edge, Usage, evaluate
from autoshard.solver.reductions import (
    REDUCTIONS,
    dominated_states,
    follow_all,
    min_plus,
    reduce_network,
    separable_edges,
)
from autoshard.solver.work import FORBIDDEN, FORBIDDEN_FROM, Infeasible, Work, from_network


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


APPLIED = {name: reduction.apply for name, reduction in REDUCTIONS.items()}
APPLIED |= {"nothing": lambda work: None, "all": reduce_network}


@pytest.mark.parametrize("name", APPLIED)
def test_reduction_alone_keeps_the_optimum(name):
    for seed in range(80):
        network = random_network(seed, nodes=5, states=3)
        best = optimum(network)
        try:
            work = from_network(network)
            APPLIED[name](work)
        except Infeasible:
            assert best is None, (name, seed)
            continue
        assert best_of(work, network) == best, (name, seed)


def bijective_network(seed: int) -> CostNetwork:
    """Many edges that let each state go with one partner only, usages that touch, equal amounts."""
    rng = np.random.default_rng(seed)
    n, d = 6, 3
    costs = [rng.integers(0, 30, d) for _ in range(n)]
    edges = []
    for i in range(1, n):
        table = rng.integers(0, 30, (d, d))
        if rng.random() < 0.7:
            allowed = np.zeros((d, d), dtype=bool)
            allowed[np.arange(d), rng.permutation(d)] = True
            table = np.where(allowed, table, 10**15)
        edges.append(Edge(int(rng.integers(0, i)), i, table))
    starts = rng.integers(0, 6, n)
    usages = [[Usage(int(s), int(s) + int(rng.integers(1, 4)), rng.integers(1, 3, d) * 10)] for s in starts]
    return CostNetwork(costs, edges, usages, int(rng.integers(40, 90)))


@pytest.mark.parametrize("name", APPLIED)
def test_reduction_keeps_the_optimum_where_nodes_determine_each_other(name):
    for seed in range(40):
        network = bijective_network(seed)
        best = optimum(network)
        try:
            work = from_network(network)
            APPLIED[name](work)
        except Infeasible:
            assert best is None, (name, seed)
            continue
        assert best_of(work, network) == best, (name, seed)


def test_node_that_a_neighbour_determines_is_merged_with_its_memory():
    only = np.array([[10**15, 7], [5, 10**15]])
    usages = [[Usage(0, 2, np.array([1, 2]))], [Usage(2, 4, np.array([2, 1]))]]
    work = from_network(CostNetwork([np.zeros(2, int)] * 2, [Edge(0, 1, only)], usages, 1))
    assert follow_all(work) == 1
    (left,) = work.nodes()
    # state a of one goes with state 1 - a of the other; both hold the same amounts, so the intervals join
    assert [(h.start, h.stop) for h in work.held[left]] == [(0, 2)]


def test_separable_edge_vanishes():
    table = np.array([1, 5])[:, None] + np.array([0, 2, 9])[None, :]
    work = from_network(CostNetwork([np.zeros(2, int), np.zeros(3, int)], [Edge(0, 1, table)]))
    assert separable_edges(work) == 1 and not work.edges()


def test_parallel_edges_add_up():
    ones = np.ones((1, 1), int)
    work = from_network(CostNetwork([np.zeros(1, int)] * 2, [Edge(0, 1, ones), Edge(1, 0, 3 * ones)]))
    assert work.tables[0][1].tolist() == [[4]]


def test_dominance_respects_memory():
    # state 1 is cheaper but larger: it must stay, and so must state 0
    network = CostNetwork([np.array([5, 1])], [], [[Usage(0, 1, np.array([1, 9]))]], 5)
    work = from_network(network)
    assert dominated_states(work, 0) == 0


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
