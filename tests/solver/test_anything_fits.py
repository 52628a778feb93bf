"""CP-SAT without costs: what it finds is allowed and within the limit; where it says none brute force finds none."""

import signal
import threading
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoshard.solver.engines import feasible
from autoshard.solver.engines.feasible import any_fit
from autoshard.solver.network import IMPOSSIBLE, CostNetwork, Edge, Usage, evaluate


@st.composite
def networks(draw: st.DrawFn) -> CostNetwork:
    """Small networks with forbidden entries and a limit that is often too low."""
    nodes = draw(st.integers(1, 5))
    sizes = [draw(st.integers(1, 3)) for _ in range(nodes)]
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))

    def costs(*shape: int) -> np.ndarray:
        return np.where(rng.random(shape) < 0.4, IMPOSSIBLE, rng.integers(0, 9, shape))

    ends = [sorted(rng.integers(0, 4, 2).tolist()) for _ in range(nodes)]
    usages = [(Usage(a, b + 1, rng.integers(0, 6, size)),) for (a, b), size in zip(ends, sizes, strict=True)]
    pairs = [(int(a), int(b)) for a, b in rng.integers(0, nodes, (4, 2)) if a != b]
    return CostNetwork(
        tuple(costs(size) for size in sizes),
        tuple(Edge(a, b, costs(sizes[a], sizes[b])) for a, b in pairs),
        tuple(usages),
        draw(st.integers(0, 12)),
    )


@settings(max_examples=150)
@given(networks())
def test_it_agrees_with_brute_force(network: CostNetwork) -> None:
    fits = any(evaluate(network, a).feasible for a in product(*(range(len(c)) for c in network.costs)))
    found = any_fit(network, effort=5.0, seconds=10.0)
    assert (found.assignment is not None) is fits
    assert found.none is not fits
    assert found.assignment is None or evaluate(network, found.assignment).feasible


def hard() -> CostNetwork:
    """A random network of fifty nodes with so many forbidden pairs that few or no assignments are left."""
    rng = np.random.default_rng(3)
    pairs = [(a, b) for a in range(50) for b in range(a) if rng.random() < 0.3]
    tables = tuple(Edge(a, b, np.where(rng.random((8, 8)) < 0.25, IMPOSSIBLE, 0)) for a, b in pairs)
    return CostNetwork(tuple(np.zeros(8, np.int64) for _ in range(50)), tables)


def test_what_takes_too_long_is_left_open() -> None:
    found = any_fit(hard(), effort=0.01, seconds=10.0)
    assert found.assignment is None and not found.none


def test_a_network_with_too_many_pairs_is_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feasible, "MOST_LITERALS", 10)
    found = any_fit(hard(), effort=1.0, seconds=10.0)
    assert found.assignment is None and not found.none


def test_the_same_answer_comes_again() -> None:
    rng = np.random.default_rng(7)
    tables = tuple(Edge(a, a + 1, np.where(rng.random((9, 9)) < 0.5, IMPOSSIBLE, 0)) for a in range(19))
    network = CostNetwork(tuple(np.zeros(9, np.int64) for _ in range(20)), tables)
    answers = {any_fit(network, effort=5.0, seconds=20.0).assignment for _ in range(3)}
    assert len(answers) == 1 and None not in answers


class Endless:
    """A solver that runs until it is told to stop."""

    def __init__(self) -> None:
        self.told = threading.Event()

    def solve(self, model: object) -> str:
        return "stopped" if self.told.wait(60) else "never told"

    def stop_search(self) -> None:
        self.told.set()


def test_the_engine_is_stopped_where_the_user_stops_the_search() -> None:
    solver = Endless()
    threading.Timer(0.3, signal.raise_signal, (signal.SIGINT,)).start()
    with pytest.raises(KeyboardInterrupt):
        feasible._solved(solver, None)
    assert solver.told.is_set()
