"""Tables that are kept as rows and columns of smaller ones, and the search of networks that have such tables."""

import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from solver_cases import optimum, random_network

from autoshard.deadline import Deadline
from autoshard.errors import InputError
from autoshard.solver import IMPOSSIBLE, CostNetwork, Edge, Usage, evaluate, solve
from autoshard.solver import large as large_networks
from autoshard.solver.dual.factored import cheapest_way, cheapest_way_across
from autoshard.solver.dual.sequential import Sequential
from autoshard.solver.dual.ways import Way
from autoshard.solver.factored import Factored, total
from autoshard.solver.held_prices import HeldPrices
from autoshard.solver.work import Infeasible

SEEDS = range(12)


def factored(rng: np.random.Generator, rows: int, columns: int) -> Factored:
    base = rng.integers(-3, 30, (4, 3)).astype(np.float64)
    base[rng.random(base.shape) < 0.15] = np.inf
    return Factored(base, rng.integers(0, 4, rows), rng.integers(0, 3, columns), int(rng.integers(1, 4)))


def written_out(table: Factored) -> np.ndarray:
    rows = [[table.base[r, c] * table.scale for c in table.columns] for r in table.rows]
    return np.array([[IMPOSSIBLE if np.isinf(x) else int(x) for x in row] for row in rows], np.int64)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_factored_table_is_read_as_the_whole_one(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for table in (factored(rng, 6, 5), factored(rng, 5, 6).T):
        whole = written_out(table)
        assert table.shape == whole.shape and table.size == whole.size
        assert np.array_equal(np.asarray(table), whole)
        assert np.array_equal(table.T, whole.T)
        assert np.array_equal(table[3], whole[3])
        assert table.item(2, 4) == table[2, 4] == whole[2, 4]
        assert table.min() == whole.min()
        some = np.ix_([0, 2, 2], [4, 1])
        assert np.array_equal(table[some], whole[some])
        assert np.array_equal(table.part(np.array([1, 3]), np.array([0])), whole[np.ix_([1, 3], [0])])
    square = factored(rng, 5, 5)
    assert np.array_equal(square.diagonal(), np.diagonal(written_out(square)))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_sum_of_factored_tables_forbids_what_one_of_them_forbids(seed: int) -> None:
    rng = np.random.default_rng(seed)
    one, other = factored(rng, 6, 5), factored(rng, 6, 5)
    whole = [written_out(table) for table in (one, other, one)]
    forbidden = (np.array(whole) >= IMPOSSIBLE).any(axis=0)
    assert np.array_equal(total([one, other, one]), np.where(forbidden, IMPOSSIBLE, sum(whole)))
    assert np.array_equal(total([one, one]), np.where(whole[0] >= IMPOSSIBLE, IMPOSSIBLE, 2 * whole[0]))


@pytest.mark.parametrize("few", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_messages_are_the_least_over_all_pairs(seed: int, few: bool) -> None:
    rng = np.random.default_rng(seed)
    base = rng.integers(-5, 200, (70, 300)).astype(np.float64)
    base[rng.random(base.shape) < 0.05] = np.inf
    targets = [np.sort(rng.permutation(size)[: 40 + seed % 4]) for size in base.shape]
    for along, sources, table, wanted in (
        (cheapest_way, rng.permutation(70)[: 3 if few else 61], base, targets[1]),
        (cheapest_way_across, rng.permutation(300)[: 9 if few else 290], base.T, targets[0]),
    ):
        values = np.sort(rng.integers(-50, 50 * 10 ** (seed % 3), len(sources)).astype(np.float64))
        expected = (values[:, None] + 2.0 * table[sources]).min(axis=0)[wanted]
        assert np.array_equal(along(base, sources, values, wanted, 2.0, -10.0), expected)


def with_factored_tables(network: CostNetwork) -> CostNetwork:
    """The same network; every table is factored as rows and columns of itself, in a random order."""
    edges = []
    for number, edge in enumerate(network.edges):
        rng = np.random.default_rng(number)
        rows, columns = (rng.permutation(n) for n in edge.costs.shape)
        base = np.where(edge.costs >= IMPOSSIBLE, np.inf, edge.costs)[np.ix_(np.argsort(rows), np.argsort(columns))]
        edges.append(Edge(edge.first, edge.second, Factored(np.ascontiguousarray(base), rows, columns)))
    return replace(network, edges=tuple(edges))


@pytest.mark.parametrize("most", [0, 10**6])
@pytest.mark.parametrize("seed", range(40))
def test_no_assignment_is_cheaper_than_what_a_large_network_is_said_to_cost(
    monkeypatch: pytest.MonkeyPatch, seed: int, most: int
) -> None:
    """Also where what is left never counts as small, so that messages alone prove the bound."""
    monkeypatch.setattr(large_networks, "SMALL_ENTRIES", most)
    network = random_network(seed)
    found, best = solve(with_factored_tables(network)), optimum(network)
    if found.status == "infeasible":
        assert best is None
        return
    if best is not None:
        assert found.lower_bound <= best
    if found.assignment is not None:
        assert evaluate(network, found.assignment).cost == found.cost
        assert best is not None and found.cost is not None and found.cost >= best
    if found.status == "optimal":
        assert found.cost == best
    if most and best is not None and network.edges:
        assert found.status == "optimal"


@pytest.mark.parametrize("proves", [False, True])
@pytest.mark.parametrize("checks", range(0, 160, 4))
def test_time_may_end_at_any_moment_of_a_search_of_a_large_network(
    monkeypatch: pytest.MonkeyPatch, checks: int, proves: bool
) -> None:
    """Also in the midst of the first weighing of messages."""
    network, moments = random_network(4, forbidden=0.0, memory=False, density=0.9), itertools.count()
    monkeypatch.setattr(large_networks, "SMALL_ENTRIES", 0)
    monkeypatch.setattr(large_networks, "clock", lambda: float(next(moments)))
    found = solve(with_factored_tables(network), deadline=Deadline(ends=float(checks), began=0.0), proves=proves)
    best = optimum(network)
    assert best is not None and found.lower_bound <= best


@pytest.mark.parametrize("number", range(4))
def test_ctrl_c_while_states_are_left_out_leaves_none_out(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    network, calls, among = random_network(4, forbidden=0.0, memory=False, density=0.9), itertools.count(), Way.among

    def interrupted(way: Way, *what: Any) -> Way:
        if next(calls) == number:
            raise KeyboardInterrupt
        return among(way, *what)

    monkeypatch.setattr(Way, "among", interrupted)
    run = large_networks._Run(with_factored_tables(network), 0.0, float("inf"), None)
    run.double_pass()
    run.weigh()
    before = run.likely()
    with pytest.raises(KeyboardInterrupt):
        run.messages.narrow([states[:1] for states in run.messages.left])
    assert all(map(np.array_equal, run.likely(), before))


@pytest.mark.parametrize("seed", range(20))
def test_states_that_are_left_out_are_part_of_no_better_assignment(seed: int) -> None:
    network = random_network(seed, memory=False)
    every = [
        (found.cost, x)
        for x in itertools.product(*(range(len(c)) for c in network.costs))
        if (found := evaluate(network, x)).cost is not None
    ]
    if not every or not network.edges:
        return
    run = large_networks._Run(with_factored_tables(network), 0.0, float("inf"), None)
    dearest = max(every)
    run.offer(dearest[1])
    for _ in range(3):
        run.messages.forward()
        run.messages.back()
        run.weigh()
        left = run.left()
        assert left is not None and run.best is not None
        for cost, assignment in every:
            if cost < dearest[0]:
                assert all(state in states for state, states in zip(assignment, left, strict=True))
        assert run.floor <= min(every)[0]
        assert all(state in states for state, states in zip(run.best, left, strict=True))


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("seed", range(40))
def test_a_pass_back_proves_a_bound_and_messages_that_are_weighed_one_at_least_as_high(seed: int, turned: bool) -> None:
    network = random_network(seed, memory=False)
    if turned:  # edges that name the later node first
        edges = tuple(Edge(edge.second, edge.first, edge.costs.T.copy()) for edge in network.edges)
        network = replace(network, edges=edges)
    messages, best = Sequential(with_factored_tables(network), lambda: False), optimum(network)
    try:
        for _ in range(3):
            messages.forward()
            messages.back()
            proved = messages.lower
            assert proved <= messages.weigh() <= (math.inf if best is None else best)
    except Infeasible:
        assert best is None


def test_a_large_network_whose_states_do_not_fit_together_has_no_assignment() -> None:
    never = Factored(np.full((1, 1), np.inf), np.zeros(2, np.int64), np.zeros(3, np.int64))
    network = CostNetwork([np.zeros(2, np.int64), np.zeros(3, np.int64)], [Edge(0, 1, never)])
    found = solve(network)
    assert found.status == "infeasible" and found.assignment is None


def test_a_large_network_within_a_limit_holds_to_it() -> None:
    table = Factored(np.array([[0.0, 1.0], [1.0, 0.0]]), np.array([0, 1]), np.array([0, 1]))
    costs = [np.array([0, 10]), np.array([0, 10])]
    usages = [(Usage(0, 1, np.array([9, 1])),), (Usage(0, 1, np.array([9, 1])),)]
    found = solve(CostNetwork(costs, [Edge(0, 1, table)], usages, 10))
    assert found.cost == 11 and found.peak == 10 and found.lower_bound <= 11


def test_an_assignment_of_no_cost_has_a_gap_to_a_bound_below() -> None:
    """Of three nodes of two states two are in the same one, which costs 2; messages show that nothing is below -2."""
    alike = Factored(2.0 * np.eye(2), np.arange(2), np.arange(2))
    costs = [np.array([-2, -2]), np.zeros(2, np.int64), np.zeros(2, np.int64)]
    found = solve(CostNetwork(costs, [Edge(i, j, alike) for i, j in ((0, 1), (1, 2), (0, 2))]))
    assert (found.status, found.cost, found.lower_bound) == ("optimal", 0, 0)


@pytest.mark.parametrize("start", [[0], [0, 2], [0, -1]])
def test_a_start_that_does_not_fit_a_large_network_is_an_error(start: list[int]) -> None:
    network = CostNetwork([np.zeros(2, np.int64)] * 2, [Edge(0, 1, Factored(np.eye(2), np.arange(2), np.arange(2)))])
    with pytest.raises(InputError, match="a start needs one state index per node"):
        solve(network, starts=[start])


def further(network: CostNetwork) -> CostNetwork:
    """The network with one more node, which costs nothing, and an edge to it."""
    free = np.zeros(2, np.int64)
    edge = Edge(0, network.n_nodes, Factored(np.zeros((1, 2)), np.zeros(len(network.costs[0]), np.int64), np.arange(2)))
    usages = (*(network.usages or [()] * network.n_nodes), ())
    return CostNetwork((*network.costs, free), (*network.edges, edge), usages, network.usage_limit)


@pytest.mark.parametrize("seed", [1, 2, 4])
def test_messages_go_on_in_a_network_with_further_edges_and_back(seed: int) -> None:
    network = with_factored_tables(random_network(seed, memory=False))
    before, more, back = (Sequential(one, lambda: False) for one in (network, further(network), network))
    before.forward()
    before.back()
    assert more.go_on_from(before.standing())
    assert more.weigh() == before.weigh()
    assert not back.go_on_from(more.standing())
    assert back.weigh() == before.weigh()


@pytest.mark.parametrize("most", [0.1, 0.5])
def test_a_step_changes_prices_by_at_most_a_part_of_them(most: float) -> None:
    held = [(Usage(0, 2, np.array([4, 9])),), (Usage(1, 3, np.array([5, 8])),)]
    prices = HeldPrices.of(CostNetwork((np.zeros(2, np.int64),) * 2, (), held, 10))
    assert prices is not None
    prices.begin_with(prices.moments, np.array([1.0, 2.0, 1.0]))
    prices.most_changed = most
    before = prices.prices.slots.current.copy()
    prices.step([1, 1], 10.0, 1000.0)
    assert 0 < np.abs(prices.prices.slots.current - before).sum() <= most * before.sum() * (1 + 1e-12)
