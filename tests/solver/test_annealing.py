"""Annealing within a memory limit: what it finds is within the limit, and in small networks it is the optimum."""

import sys
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from autoshard.solver import CostNetwork, Edge, Usage, evaluate
from autoshard.solver.local.annealing import anneal

sys.path.insert(0, str(Path(__file__).parent))
from solver_cases import hard_network, tight

SEEDS = range(6)


def annealed(network: CostNetwork, decisions: int | None = None, seed: int = 0) -> tuple[int, ...] | None:
    """From the first state of everything, with about as much to a step as costs are."""
    nodes = network.n_nodes
    return anneal(network, nodes if decisions is None else decisions, [0] * nodes, 100.0, seed, lambda: True)


def with_followers(network: CostNetwork, room: int) -> CostNetwork:
    """With a node for every edge that holds `room` bytes more where both ends choose the same, as nodes for memory do:
    its first state allows other choices alone, its second one all."""
    costs, edges, usages = list(network.costs), list(network.edges), list(network.usages)
    sizes = [len(c) for c in network.costs]
    for edge in network.edges:
        # one state per choice of the first end, in which the second end chooses another one; then one for all choices
        own, last = len(costs), sizes[edge.first]
        costs.append(np.zeros(last + 1, dtype=np.int64))
        usages.append((Usage(0, 3, np.array([0] * last + [room])),))
        first = np.array([[0 if s in (a, last) else 10**18 for s in range(last + 1)] for a in range(last)])
        second = np.array(
            [[0 if s != b or s == last else 10**18 for s in range(last + 1)] for b in range(sizes[edge.second])]
        )
        edges += [Edge(edge.first, own, first), Edge(edge.second, own, second)]
    return CostNetwork(costs, edges, usages, network.usage_limit)


def optimum(network: CostNetwork, decisions: int) -> int | None:
    """By trying all choices; nodes that follow take what holds least."""
    best: int | None = None
    for chosen in product(*(range(len(c)) for c in network.costs[:decisions])):
        whole = list(chosen)
        for node in range(decisions, network.n_nodes):
            edges = [e for e in network.edges if e.second == node]
            whole.append(
                next(s for s in range(len(network.costs[node])) if all(e.costs[chosen[e.first], s] == 0 for e in edges))
            )
        found = evaluate(network, whole)
        if found.feasible and found.cost is not None and (best is None or found.cost < best):
            best = found.cost
    return best


@pytest.mark.parametrize("seed", SEEDS)
def test_the_optimum_of_a_small_network_is_found(seed: int) -> None:
    network = tight(seed)
    found = annealed(network)
    least = optimum(network, network.n_nodes)
    assert (None if found is None else evaluate(network, found).cost) == least


@pytest.mark.parametrize("seed", SEEDS)
def test_what_nodes_hold_that_follow_is_minded(seed: int) -> None:
    small = tight(seed, nodes=5)
    network = with_followers(small, room=1 + (small.usage_limit or 0) // 6)
    found = annealed(network, small.n_nodes)
    assert (None if found is None else evaluate(network, found).cost) == optimum(network, small.n_nodes)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_found_is_within_the_limit_and_allowed(seed: int) -> None:
    network = hard_network(seed, nodes=40, states=5, forbidden=0.2, room=1.3)
    found = anneal(network, 40, [0] * 40, 40_000.0, seed, lambda: True)
    assert found is not None and evaluate(network, found).feasible


def test_the_same_seed_finds_the_same() -> None:
    network = hard_network(3, nodes=40, states=5, forbidden=0.2, room=1.1)
    assert len({anneal(network, 40, [0] * 40, 40_000.0, 5, lambda: True) for _ in range(2)}) == 1


def test_nothing_is_found_where_nothing_fits() -> None:
    network = CostNetwork([np.array([1, 2])], [], [(Usage(0, 1, np.array([5, 6])),)], 4)
    assert annealed(network) is None


def test_further_rounds_begin_only_while_they_may() -> None:
    asked: list[int] = []
    anneal(tight(1), 7, [0] * 7, 100.0, 0, lambda: bool(asked.append(0)))
    assert len(asked) <= 1
