"""Decoding that looks ahead finds an assignment without forbidden pairs where there is one."""

import itertools

import numpy as np
import pytest

from autoshard.solver import CostNetwork, Edge, Usage, solve
from autoshard.solver.dual import passes as duals
from autoshard.solver.dual.flat import Flat, flatten
from autoshard.solver.local import lookahead
from autoshard.solver.work import Infeasible, from_network


def forbidding(seed: int, n: int, d: int, density: float, share: float, planted: bool = False) -> CostNetwork:
    """Random costs; each pair of nodes has an edge with probability `density`, which forbids `share` of its pairs.

    planted: one assignment stays allowed.
    """
    rng = np.random.default_rng(seed)
    kept = rng.integers(0, d, n)
    edges = []
    for i, j in itertools.combinations(range(n), 2):
        if rng.random() < density:
            forbidden = rng.random((d, d)) < share
            if planted:
                forbidden[kept[i], kept[j]] = False
            edges.append(Edge(i, j, np.where(forbidden, 10**15, rng.integers(0, 20, (d, d)))))
    return CostNetwork([rng.integers(0, 20, d) for _ in range(n)], edges)


def flat_of(network: CostNetwork) -> Flat | None:
    try:
        return flatten(from_network(network))
    except Infeasible:
        return None


@pytest.mark.parametrize("share", [0.3, 0.45, 0.5])
def test_finds_what_exhaustive_search_finds(share):
    found = missing = 0
    for seed in range(60):
        flat = flat_of(forbidding(seed, 6, 3, 0.7, share))
        assert flat is not None
        possible = any(
            np.isfinite(duals.flat_cost(flat, np.array(x))) for x in itertools.product(range(3), repeat=flat.n)
        )
        chosen = lookahead.decode_consistently(duals.start(flat))
        assert (chosen is not None) == possible or not len(flat.first), seed
        if chosen is not None:
            assert np.isfinite(duals.flat_cost(flat, chosen)), seed
            found += 1
        else:
            missing += 1
    assert found > 5 and (missing > 5 or share < 0.4)


def test_messages_lead_it_to_the_optimum_of_a_tree():
    rng = np.random.default_rng(3)
    edges = []
    for i in range(1, 30):
        table = rng.integers(0, 50, (4, 4))
        edges.append(Edge(int(rng.integers(0, i)), i, np.where(rng.random((4, 4)) < 0.2, 10**15, table)))
    network = CostNetwork([rng.integers(0, 50, 4) for _ in range(30)], edges)
    dual = duals.start(flatten(from_network(network)))
    for _ in range(30):
        duals.run_pass(dual, True)
        duals.run_pass(dual, False)
    chosen = lookahead.decode_consistently(dual)
    assert chosen is not None and duals.flat_cost(dual.flat, chosen) == solve(network).cost


def test_dead_ends_lead_to_another_order_of_nodes(monkeypatch):
    """Some of these networks are not decoded in the order of the nodes within two undone choices."""
    attempts = []
    plain = lookahead._decode
    monkeypatch.setattr(lookahead, "_decode", lambda *given: attempts.append(given[0]) or plain(*given))
    monkeypatch.setattr(lookahead, "RESTARTED_AFTER", 2)
    for seed in range(20):
        flat = flat_of(forbidding(seed, 40, 5, 0.12, 0.5, planted=True))
        assert flat is not None
        chosen = lookahead.decode_consistently(duals.start(flat))
        assert chosen is not None and np.isfinite(duals.flat_cost(flat, chosen)), seed
    assert attempts.count(False) == 20 and attempts.count(True) >= 5


def test_large_networks_full_of_forbidden_pairs_are_solved():
    rng = np.random.default_rng(2)
    n, d = 600, 12
    planted = rng.integers(0, d, n)
    edges = []
    for i in range(1, n):
        for j in {max(0, i - 1 - int(rng.exponential(6))), int(rng.integers(0, i)) if rng.random() < 0.15 else i - 1}:
            forbidden = rng.random((d, d)) < 0.65
            forbidden[planted[j], planted[i]] = False
            edges.append(Edge(j, i, np.where(forbidden, 10**15, rng.integers(0, 1000, (d, d)))))
    usages = [(Usage(i, i + 20, rng.integers(1, 9, d)),) for i in range(n)]
    found = solve(CostNetwork([rng.integers(0, 1000, d) for _ in range(n)], edges, usages, 10**6), effort=0.1)
    assert found.cost is not None and found.cost < 10**15
