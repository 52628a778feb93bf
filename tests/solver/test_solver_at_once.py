"""What is done for thousands of nodes at once says the same as what is done one by one."""

import dataclasses
import itertools
import json
import math
from pathlib import Path

import numpy as np
import pytest
from solver_cases import random_network

from autoshard.deadline import clock
from autoshard.solver import CostNetwork, Edge, Usage, evaluate
from autoshard.solver import judge as judges
from autoshard.solver.completion import Completion
from autoshard.solver.contest.files import _problem, _regular, read_problem
from autoshard.solver.contest.scan import Rows, read_object
from autoshard.solver.dual import passes as duals
from autoshard.solver.dual.flat import flatten
from autoshard.solver.incumbent import Race
from autoshard.solver.local.searcher import Searcher
from autoshard.solver.reductions import Eliminated, Followed, arc_consistency, consistency, eliminate, follow_all
from autoshard.solver.reductions.dominance import comparison, compiled_comparison
from autoshard.solver.reductions.records import range_max
from autoshard.solver.work import FORBIDDEN, Infeasible, Work, from_network


def test_judge_of_arrays_is_evaluate(monkeypatch):
    monkeypatch.setattr(judges, "LARGE", 1)
    rng = np.random.default_rng(0)
    for seed in range(60):
        network = random_network(seed, nodes=6, states=3)
        if not network.edges or not any(network.usages):
            continue
        judge = judges.judge_of(network)
        for _ in range(20):
            chosen = np.array([rng.integers(len(c)) for c in network.costs])
            assert judge(chosen) == evaluate(network, chosen.tolist()), seed


def test_judge_of_arrays_adds_up_costs_that_pass_int64(monkeypatch):
    monkeypatch.setattr(judges, "LARGE", 1)
    big = 10**15 - 1
    network = CostNetwork(
        [np.array([big, -big])] * 20_000, [Edge(0, 1, np.zeros((2, 2), dtype=np.int64))], [(Usage(0, 1, np.ones(2)),)]
    )
    for state in (0, 1):
        chosen = np.full(20_000, state)
        found = judges.judge_of(network)(chosen)
        assert found == evaluate(network, chosen.tolist()) and abs(found.cost or 0) > 2**63


def completed(work: Work, network: CostNetwork, positions: tuple[int, ...]) -> list[int]:
    whole = work.complete({i: int(work.domains[i][x]) for i, x in zip(work.nodes(), positions, strict=True)})
    return [whole[i] for i in range(network.n_nodes)]


def with_partners(network: CostNetwork, seed: int) -> CostNetwork:
    """The network with a third of its square edges allowing one partner per state only."""
    rng = np.random.default_rng(seed)
    edges = []
    for edge in network.edges:
        rows, columns = edge.costs.shape
        if rows == columns and rng.random() < 0.34:
            allowed = np.zeros((rows, columns), dtype=bool)
            allowed[np.arange(rows), rng.permutation(rows)] = True
            edge = dataclasses.replace(edge, costs=np.where(allowed, edge.costs, 10**15))
        edges.append(edge)
    return dataclasses.replace(network, edges=edges)


def test_compiled_completion_is_that_of_the_steps_and_leads_back():
    seen, followed, eliminated = 0, 0, 0
    for seed in range(400):
        network = with_partners(random_network(seed, nodes=7, states=3), seed)
        try:
            work = from_network(network)
            arc_consistency(work)
            follow_all(work)
            for node in work.nodes()[:3]:  # not all, so that something is left to choose
                if len(work.tables[node]) <= 2 and (work.limit is None or not work.held[node]):
                    eliminate(work, node)
        except Infeasible:
            continue
        flat = flatten(work)
        if not flat.n:
            continue
        followed += sum(isinstance(step, Followed) for step in work.trail)
        eliminated += sum(isinstance(step, Eliminated) for step in work.trail)
        completion = Completion(work, flat, network.n_nodes)
        for positions in itertools.islice(itertools.product(*(range(s) for s in flat.sizes)), 20):
            whole = completion.complete(np.array(positions))
            assert whole.tolist() == completed(work, network, positions), seed
            back = completion.positions(whole)
            assert back is not None and back.tolist() == list(positions)
            seen += 1
    assert seen > 200 and followed > 20 and eliminated > 20


def test_positions_are_none_where_a_state_was_dropped():
    network = CostNetwork(
        [np.array([0, 10**15, 3]), np.zeros(2, dtype=np.int64)], [Edge(0, 1, np.array([[0, 5], [0, 0], [7, 1]]))]
    )
    work = from_network(network)
    completion = Completion(work, flatten(work), 2)
    assert completion.positions([1, 0]) is None
    assert completion.positions([2, 1]) is not None
    assert completion.positions([9, 1]) is None


def without_a_state():
    """A network, and its completion when the middle state of the first node was dropped, which costs 1."""
    network = CostNetwork(
        [np.array([2, 1, 5]), np.zeros(2, dtype=np.int64)], [Edge(0, 1, np.array([[0, 5], [0, 0], [7, 1]]))]
    )
    work = from_network(network, [np.array([True, False, True]), None])
    return network, Completion(work, flatten(work), 2)


@pytest.mark.parametrize(("chosen", "positions"), [([1, 0], [0, 0]), ([1, 1], [1, 1]), ([2, 0], [1, 0])])
def test_next_to_an_assignment_a_dropped_state_is_what_is_cheapest_beside_its_neighbours(chosen, positions):
    assert without_a_state()[1].nearest(chosen).tolist() == positions


def test_a_search_begins_next_to_a_start_of_which_reductions_dropped_a_state():
    network, completion = without_a_state()
    race = Race(network, clock(), math.inf, None)
    race.offer([1, 1])
    searcher = Searcher(race, completion, 0, lambda: np.zeros(completion.flat.slots))
    assert searcher.restart()
    assert searcher.field.chosen.tolist() == [1, 1]


def test_arc_consistency_at_once_leaves_what_edge_by_edge_leaves(monkeypatch):
    shrunk = 0
    for seed in range(150):
        network = random_network(seed, nodes=7, states=4)
        rng = np.random.default_rng(seed)
        edges = [
            dataclasses.replace(e, costs=np.where(rng.random(e.costs.shape) < 0.5, 10**15, e.costs))
            for e in network.edges
        ]
        network = dataclasses.replace(network, edges=edges)
        found = []
        for many in (10**9, 0):
            monkeypatch.setattr(consistency, "MANY_EDGES", many)
            try:
                work = from_network(network)
                went = arc_consistency(work)
                found.append((went, [d.tolist() for d in work.domains]))
                shrunk += went > 0
            except Infeasible as reason:
                found.append(str(reason))
        assert found[0] == found[1], seed
    assert shrunk > 20


def test_compiled_comparison_of_states_is_the_plain_one():
    rng = np.random.default_rng(0)
    for _ in range(300):
        d = int(rng.integers(2, 6))
        cost = rng.integers(0, 4, d)
        tables = [rng.integers(0, 3, (d, int(rng.integers(1, 4)))) for _ in range(int(rng.integers(0, 4)))]
        for t in tables:  # each state keeps a partner
            t[:, 1:][rng.random(t[:, 1:].shape) < 0.1] = FORBIDDEN
        assert (compiled_comparison(cost, tables) == comparison(cost, tables)).all()


def test_reparametrised_network_and_its_bound_are_the_priced_network():
    rng = np.random.default_rng(1)
    sizes = rng.integers(1, 5, 8)
    edges = [Edge(i, j, rng.integers(0, 50, (sizes[i], sizes[j]))) for i in range(8) for j in range(i) if i % 3 != j]
    edges[0].costs[0, 0] = 10**15
    usages = [(Usage(i, i + 3, rng.integers(1, 9, sizes[i])),) for i in range(8)]
    flat = flatten(from_network(CostNetwork([rng.integers(0, 50, d) for d in sizes], edges, usages, 12)))
    dual = duals.start(flat)
    duals.set_prices(dual, rng.random(flat.slots))
    for _ in range(3):
        duals.run_pass(dual, True)
        duals.run_pass(dual, False)
    bound, own, rest = duals.reparametrise(dual)
    assert bound == pytest.approx(dual.last) and own.min() >= 0 and rest.min() >= 0
    columns = flat.sizes[flat.second]
    for _ in range(200):
        chosen = np.array([rng.integers(d) for d in flat.sizes])
        pairs = flat.table_at[:-1] + chosen[flat.first] * columns + chosen[flat.second]
        priced = dual.priced[flat.offsets[:-1] + chosen].sum() + flat.tables[pairs].sum() - float(dual.charge)
        assert bound + own[flat.offsets[:-1] + chosen].sum() + rest[pairs].sum() == pytest.approx(priced)


def test_range_maxima():
    rng = np.random.default_rng(0)
    values = rng.integers(-50, 50, 40)
    start = rng.integers(0, 40, 200)
    stop = np.array([rng.integers(a + 1, 41) for a in start])
    assert range_max(values, start, stop).tolist() == [
        values[a:b].max() for a, b in zip(start.tolist(), stop.tolist(), strict=True)
    ]


TEXT = """{"problem": {"name": "n", "nodes": {"intervals": [[0, 3], [], [2, 5]], "costs": [[1, 2], [3], [4, -5]],
 "usages": [[7, 0], [0], [1, 1000000000000000000000]]}, "edges": {"nodes": [[0, 1], [0, 2]],
 "costs": [[1, 2], [1, 2, 3, 1000000000000000000]]}, "usage_limit": 9}}"""


def same(left: CostNetwork, right: CostNetwork) -> bool:
    return (
        [c.tolist() for c in left.costs] == [c.tolist() for c in right.costs]
        and [(e.first, e.second, e.costs.tolist()) for e in left.edges]
        == [(e.first, e.second, e.costs.tolist()) for e in right.edges]
        and [[(u.start, u.stop, u.amounts.tolist()) for u in own] for own in left.usages]
        == [[(u.start, u.stop, u.amounts.tolist()) for u in own] for own in right.usages]
        and left.usage_limit == right.usage_limit
    )


def test_compiled_reader_reads_what_the_json_library_reads():
    quick = _regular(TEXT.encode(), "file")
    assert quick is not None and quick.name == "n"
    assert same(quick.network, _problem(json.loads(TEXT), Path("file")).network)


@pytest.mark.parametrize(
    "change",
    [
        ("[1, 2], [3]", "[1.5, 2], [3]"), ("[1, 2], [3]", "[1, 2,], [3]"), ("[1, 2], [3]", "[1 2], [3]"),
        ("[1, 2], [3]", "[1, 02], [3]"), ("[1, 2], [3]", "[[1], 2], [3]"), ("[1, 2], [3]", '["1", 2], [3]'),
        ("[1, 2], [3]", "[], [3]"), ("[1, 2], [3]", "[1, 2, 3], [3]"), ("[0, 1], [0, 2]", "[0, 1], [0, 3]"),
        ("[0, 1], [0, 2]", "[0, 1], [0, 2, 1]"), ("[0, 3]", "[0]"), ('"usage_limit": 9', '"usage_limit": -9'),
        ('"usage_limit": 9', '"usage_limit": 9.0'), ('"usage_limit": 9', '"usage_limit": true'),
        ('"edges"', '"edgy"'), ("}}", "}} x"), ("}}", "}"), ('"name": "n"', '"name": "\\u00e9"'),
        ("[1, 2], [3]", "[1, -1000000000000000000000], [3]"), ('"name": "n"', '"name": "n", "name": "m"'),
    ],
)  # fmt: skip
def test_compiled_reader_leaves_what_is_not_regular_to_the_json_library(change):
    text = TEXT.replace(*change, 1)
    assert text != TEXT and _regular(text.encode(), "file") is None


def test_compiled_reader_of_random_lists():
    rng = np.random.default_rng(0)
    for _ in range(50):
        rows = [rng.integers(-(10**12), 10**12, rng.integers(0, 5)).tolist() for _ in range(int(rng.integers(0, 6)))]
        text = json.dumps({"a": rows}, indent=int(rng.integers(0, 3)) or None)
        found = read_object(text.encode())
        assert found is not None and isinstance(found["a"], Rows)
        assert [part.tolist() for part in found["a"].parts()] == rows


def test_large_file_is_read_alike_with_and_without_the_compiled_reader(tmp_path, monkeypatch):
    from autoshard.solver.contest import files as contest

    path = tmp_path / "large.json"
    path.write_text(TEXT)
    plain = read_problem(path)
    monkeypatch.setattr(contest, "LARGE_BYTES", 0)
    monkeypatch.setattr(contest.orjson, "loads", None)  # not asked
    assert same(read_problem(path).network, plain.network)
