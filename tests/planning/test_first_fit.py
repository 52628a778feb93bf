"""A first plan within a memory limit: the limit is tightened until an answer fits."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from autoshard import NotFoundError, OutOfTimeError, solver
from autoshard.deadline import Deadline
from autoshard.planning.fitting import allowed, annealed, doubt, first_fit, fit_by_moments, tightened_fit
from autoshard.planning.no_plan import NoAnswerError
from autoshard.planning.steps import QUICKLY, Step
from autoshard.search_options import SearchOptions
from autoshard.solver.network import CostNetwork, Usage, less_room
from autoshard.solver.solution import Solution, Stopped

NETWORK = CostNetwork((np.array([0, 5]),), (), ((Usage(0, 1, np.array([10, 6])),),), usage_limit=12)
"""Two states that are counted with 10 and 6 bytes."""
HOLD = (13, 9)
"""What they hold with their copies."""


def rooms(network: CostNetwork | None) -> list[int]:
    """The limits that are tried until the second state is the answer."""
    model: Any = SimpleNamespace(schedule=lambda a: a, simulate=lambda a: SimpleNamespace(peak_bytes=HOLD[a[0]]))
    tried: list[int] = []

    def run(room: int, near: Sequence[Sequence[int]]) -> Solution:
        tried.append(room)
        return solver.solve(replace(NETWORK, usage_limit=room))

    found = first_fit(cast(Any, model), 12, [0], run, 9, network)
    assert found is not None
    assert list(found) == [1]
    return tried


def test_by_what_an_answer_holds_beyond_the_limit_the_same_answer_may_come_again_and_again() -> None:
    assert rooms(None) == [12, 11, 10, 9]


def test_where_it_comes_again_by_all_that_it_holds_beside_what_is_counted() -> None:
    assert rooms(NETWORK) == [12, 9]


def tightened(copies: int) -> tuple[Sequence[int] | None, list[int]]:
    """What is found within 1000 bytes where state k costs 100 - k and is counted with 10 k bytes, beside which each
    holds copies; and within how many bytes it was searched.
    """
    states = np.arange(101)
    network = CostNetwork((100 - states,), (), ((Usage(0, 1, 10 * states),),), usage_limit=1000)
    model: Any = SimpleNamespace(
        schedule=lambda a: a, simulate=lambda a: SimpleNamespace(peak_bytes=10 * a[0] + copies)
    )  # fmt: skip
    tried = []

    def run(room: int, near: Sequence[Sequence[int]], step: Step) -> Solution:
        assert step is QUICKLY
        tried.append(room)
        return solver.solve(replace(network, usage_limit=room))

    return tightened_fit(model, 1000, [100], run), tried


@pytest.mark.parametrize("copies", [0, 30, 200, 550, 900])
def test_within_less_than_the_limit_the_cheapest_that_fits_with_its_copies_is_nearly_found(copies: int) -> None:
    found, rooms = tightened(copies)
    assert found is not None
    best = (1000 - copies) // 10
    assert best - 2 <= found[0] <= best
    assert rooms[0] == 1000 - 1000 // 16


def test_where_copies_alone_are_too_much_nothing_is_found_within_less() -> None:
    assert tightened(1001)[0] is None


def by_moments(copies: Callable[[int], int]) -> Sequence[int] | None:
    """What is found within 1000 bytes of two decisions, of which state k costs 100 - k and is counted with 10 k bytes,
    the one decision's at moment 0, the other's at moment 1; beside the first lie the copies that its state makes.
    """
    costs, amounts = 100 - np.arange(101), 10 * np.arange(101)
    network = CostNetwork((costs, costs), (), ((Usage(0, 1, amounts),), (Usage(1, 2, amounts),)))
    model: Any = SimpleNamespace(
        repeats=SimpleNamespace(network=network),
        liveness=SimpleNamespace(points=1),
        live=lambda a: np.array([10 * a[0] + copies(a[0]), 10 * a[1], 0]),
    )

    def run(taken: np.ndarray, near: Sequence[Sequence[int]], step: Step) -> Solution:
        assert step is QUICKLY
        return solver.solve(replace(less_room(network, taken), usage_limit=1000))

    return fit_by_moments(model, 1000, [100, 100], run)


@pytest.mark.parametrize("copies", [10, 30, 200, 550, 900])
def test_moment_by_moment_the_cheapest_that_fits_with_its_copies_is_found(copies: int) -> None:
    found = by_moments(lambda _: copies)
    assert found is not None
    assert found[0] == (1000 - copies) // 10


def test_where_copies_take_room_at_one_moment_others_keep_all_of_theirs() -> None:
    found = by_moments(lambda _: 550)
    assert found is not None
    assert found[1] == 100


def test_where_smaller_copies_belong_to_dearer_plans_more_room_is_used_again() -> None:
    found = by_moments(lambda k: 4 * k)
    assert found is not None
    assert 65 <= found[0] <= 71


def test_where_copies_alone_are_too_much_nothing_is_found_moment_by_moment() -> None:
    assert by_moments(lambda _: 1001) is None


def test_anything_that_is_allowed_and_within_the_limit_is_found_whatever_it_costs() -> None:
    rounds: list[dict[str, Any]] = []
    assert allowed(replace(NETWORK, usage_limit=8), SearchOptions(), rounds) == [(1,)]
    assert [(r["status"], r["proves"]) for r in rounds] == [("feasible", False)]
    assert doubt(rounds) == ""


def test_that_one_engine_finds_none_proves_nothing_and_is_told() -> None:
    rounds: list[dict[str, Any]] = []
    assert allowed(replace(NETWORK, usage_limit=5), SearchOptions(), rounds) == []
    assert [(r["status"], r["proves"]) for r in rounds] == [("unknown", False)]
    model: Any = SimpleNamespace(problem=SimpleNamespace(memory_limit=5, device_limit=False))
    for stopped, error in ((Stopped.TIME, OutOfTimeError), (Stopped.EFFORT, NotFoundError)):
        told = NoAnswerError(model, False, True, doubt(rounds), stopped, ()).plain()
        assert isinstance(told, error)
        assert "it is not proved that none exists" in str(told)
        assert "CP-SAT says that none exists, which nothing else confirms" in str(told)


def test_an_engine_that_would_get_too_little_time_is_not_asked() -> None:
    rounds: list[dict[str, Any]] = []
    assert allowed(NETWORK, SearchOptions(deadline=Deadline.after(5)), rounds) == []
    assert rounds == []


def annealing_of(limit: int, known: Any = None) -> Any:
    """What annealing comes to within a limit of the two states, which fit by what they hold with their copies."""
    model: Any = SimpleNamespace(
        schedule=lambda a: a,
        simulate=lambda a: SimpleNamespace(peak_bytes=HOLD[a[0]]),
        memory=SimpleNamespace(all_of_them=dict),
        repeats=SimpleNamespace(network=NETWORK),
        with_limit=lambda _: replace(NETWORK, costs=(np.array([4, 5]),), usage_limit=None),
        within=lambda room, _: replace(NETWORK, costs=(np.array([4, 5]),), usage_limit=room),
    )
    return annealed(model, limit, [0], SearchOptions(), known)


def test_annealing_gives_the_cheapest_plan_that_fits() -> None:
    assert annealing_of(13)[0].assignment == (0,)
    assert annealing_of(9)[0].assignment == (1,)


def test_what_annealing_finds_is_simulated_before_it_is_known() -> None:
    assert annealing_of(12) is None  # counted, the first state fits; with its copies it does not


def test_what_is_known_stays_where_annealing_finds_nothing_cheaper() -> None:
    known = (Solution((1,), 5, 0, "feasible"), None, None)
    assert annealing_of(5, known) is known
    assert annealing_of(9, known) is known
