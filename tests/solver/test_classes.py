"""Messages over tables by classes of states are those over the tables themselves, to the last bit."""

from dataclasses import replace

import numpy as np
import pytest

from autoshard.solver.dual import passes as duals
from autoshard.solver.dual.classes import WORTH, classes_of
from autoshard.solver.dual.consistent import make_consistent
from autoshard.solver.dual.fixing import Part, restrict
from autoshard.solver.dual.flat import Flat, flatten
from autoshard.solver.network import IMPOSSIBLE, CostNetwork, Edge
from autoshard.solver.work import from_network

SEEDS = range(30)


def repeating(seed: int) -> Flat:
    """A random network whose tables repeat rows and columns; every other one only says what goes with what."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(2, 40, size=7)
    costs = tuple(rng.integers(0, 1000, size=size) for size in sizes)
    edges = []
    for first in range(7):
        for second in range(first + 1, 7):
            if rng.random() < 0.6:
                of_first = rng.integers(0, rng.integers(1, 7), size=sizes[first])
                of_second = rng.integers(0, rng.integers(1, 7), size=sizes[second])
                small = rng.integers(0, 500, size=(7, 7)) if rng.random() < 0.5 else np.zeros((7, 7), np.int64)
                small = np.where(rng.random((7, 7)) < 0.3, IMPOSSIBLE, small)
                small[:, 0] = small[0, :] = 3  # allowed: the first state of every node goes with all others
                of_first[0] = of_second[0] = 0
                edges.append(Edge(first, second, small[np.ix_(of_first, of_second)]))
    return flatten(from_network(CostNetwork(costs, tuple(edges), ((),) * 7)))


def whole(flat: Flat) -> Flat:
    """The same network without classes."""
    return replace(flat, classes=flat.classes._replace(at=np.zeros_like(flat.classes.at)))


def messages_after(part: Part, passes: int) -> list[np.ndarray]:
    chosen = np.zeros(0)
    for _ in range(passes):
        duals.run_pass(part.dual, True)
        chosen = duals.run_pass(part.dual, False)
    return [part.dual.to_first, part.dual.to_second, chosen, np.array([part.dual.bound, part.dual.quantum])]


@pytest.mark.parametrize("seed", SEEDS)
def test_the_distinct_rows_and_columns_give_the_table(seed: int) -> None:
    flat = repeating(seed)
    classes, first_at, second_at = flat.classes, 0, 0
    for e in range(len(flat.first)):
        d, c = flat.sizes[flat.first[e]], flat.sizes[flat.second[e]]
        if columns := classes.columns[e]:
            small = classes.entries[classes.at[e] : classes.at[e + 1]].reshape(-1, columns)
            of_first, of_second = classes.of_first[first_at:][:d], classes.of_second[second_at:][:c]
            assert (small[np.ix_(of_first, of_second)] == flat.table(e)).all()
            assert WORTH * (d + c + small.size) < d * c
        first_at, second_at = first_at + d, second_at + c


def test_most_of_these_tables_have_classes() -> None:
    assert np.mean([(repeating(seed).classes.columns > 0).mean() for seed in SEEDS]) > 0.5


@pytest.mark.parametrize("seed", SEEDS)
def test_messages_by_classes_are_the_same(seed: int) -> None:
    flat = repeating(seed)
    alive = np.ones(len(flat.unary), dtype=bool)
    assert make_consistent(flat, alive)
    parts = [restrict(Part(duals.start(f), np.arange(len(f.unary))), alive) for f in (flat, whole(flat))]
    for mine, other in zip(*(messages_after(part, 6) for part in parts), strict=True):
        assert np.array_equal(mine, other)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("left", [0.1, 0.5])
def test_in_a_part_of_the_network_as_well(seed: int, left: float) -> None:
    flat = repeating(seed)
    rng = np.random.default_rng(seed)
    alive = rng.random(len(flat.unary)) < left
    alive[flat.offsets[:-1]] = True
    assert make_consistent(flat, alive)
    parts = [restrict(Part(duals.start(f), np.arange(len(f.unary))), alive) for f in (flat, whole(flat))]
    for mine, other in zip(*(messages_after(part, 4) for part in parts), strict=True):
        assert np.array_equal(mine, other)


def test_tables_of_many_distinct_rows_have_none() -> None:
    table = np.arange(400, dtype=np.float64)
    offsets, ends = np.array([0, 20, 40]), (np.array([0]), np.array([1]))
    assert classes_of(offsets, *ends, np.array([0, 400]), table).columns.tolist() == [0]


def test_rows_whose_sums_are_alike_are_told_apart() -> None:
    table = np.tile(np.eye(10), (2, 2)).ravel()
    offsets, ends = np.array([0, 20, 40]), (np.array([0]), np.array([1]))
    classes = classes_of(offsets, *ends, np.array([0, 400]), table)
    assert classes.of_first.tolist() == [*range(10), *range(10)] == classes.of_second.tolist()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("left", [0.1, 0.5])
def test_consistency_by_classes_leaves_the_same_states(seed: int, left: float) -> None:
    flat = repeating(seed)
    rng = np.random.default_rng(seed)
    mine = rng.random(len(flat.unary)) < left
    mine[flat.offsets[:-1]] = True
    other = mine.copy()
    assert make_consistent(flat, mine) == make_consistent(whole(flat), other)
    assert np.array_equal(mine, other)
