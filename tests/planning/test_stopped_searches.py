"""Ctrl-C ends a search, which then says so: no other search begins after it."""

from dataclasses import replace
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest
from plan_cases import f32, gradient

from autoshard import InfeasibleError, Pin, plan, solver
from autoshard.planning import Model, stages, subsets
from autoshard.planning.decide import _Run
from autoshard.planning.decision import STOPPED_BY_USER
from autoshard.solver.network import CostNetwork
from autoshard.solver.solution import Solution, Stopped

WIDE = (f32(64, 128), f32(128, 64), f32(32, 64))
GIVEN: dict[str, Any] = {"mesh": {"x": 2, "y": 2}, "hardware": "tpu_v5e", "argnames": ("w1", "w2", "x")}
ROOMY = 54_000
"""A limit within which there is a plan, but none of those that the search starts from."""
LOST = (
    "looking for a plan within the memory limit",
    "looking whether anything fits the memory limit at all",
    "improving what fits",
    "solving within the memory limit",
)
"""What is looked for, in this order, where no search within a limit finds anything."""
ROLES = {"w1": ["embed", "mlp"], "w2": ["mlp", "embed"], "x": ["batch", "embed"]}
STAGED = [Pin("x", '[{"x", ?}, {?}]'), Pin("w1", '[{?}, {"y", ?}]', priority=1)]


class Stop:
    """Progress, and searches of which the one that begins at the message `what`, after `after`, is stopped."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, what: str, *, after: str = "", lost: bool = False) -> None:
        self.what, self.after, self.lost, self.said = what, after, lost, [""]
        self.whole, self.at_all = solver.solve, solver.anything
        monkeypatch.setattr(solver, "solve", self.solve)
        monkeypatch.setattr(solver, "anything", self.anything)

    def __call__(self, text: str) -> None:
        self.said.append(text)

    def solve(self, network: CostNetwork, **options: Any) -> Solution:
        """What the solver says; nothing of a search within a limit, where those are lost."""
        return self._told(network, self.whole(network, **{**options, "progress": None}))

    def anything(self, network: CostNetwork, dead_ends: int, **options: Any) -> Solution:
        """The same of a search for anything that fits."""
        return self._told(network, self.at_all(network, dead_ends, **{**options, "progress": None}))

    def _told(self, network: CostNetwork, found: Solution) -> Solution:
        stopped = self.said[-1] == self.what and self.after in self.said
        stats = {"stopped": Stopped.INTERRUPT if stopped else found.stopped}
        if self.lost and network.usage_limit is not None:
            nothing = replace(found, assignment=None, cost=None, lower_bound=0, status="unknown")
            return replace(nothing, stats=stats if stopped else {"stopped": Stopped.EFFORT})
        return replace(found, stats=stats)


@pytest.mark.parametrize("what", LOST)
def test_without_a_plan_in_hand_no_search_begins_after_the_one_that_was_stopped(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop = Stop(monkeypatch, what, lost=True)
    with pytest.raises(KeyboardInterrupt):
        plan(gradient, *WIDE, memory_limit=ROOMY, progress=stop, **GIVEN)
    assert stop.said[-1] == what


def test_no_round_begins_after_a_stop_while_it_is_looked_whether_anything_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[int] = []

    def nothing_fits(run: Any, full: Any, nearest: Any, limit: int) -> Any:
        looked.append(limit)
        if len(looked) > 1:  # the first is before all rounds
            run.rounds.append({"what": "looking", "bound": 0, "proves": False, "stopped": Stopped.INTERRUPT})
        return full

    monkeypatch.setattr("autoshard.planning.model.axis_orders", lambda problem: ())  # with both one on the way fits
    monkeypatch.setattr(_Run, "_nothing_fits", nothing_fits)
    monkeypatch.setattr(_Run, "_first", lambda *given: None)
    monkeypatch.setattr(_Run, "_at_all", lambda *given: None)
    monkeypatch.setattr(_Run, "_fits", lambda *given: False)
    monkeypatch.setattr(import_module("autoshard.planning.fitting"), "anything", lambda *given: [])
    said: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        plan(gradient, *WIDE, memory_limit=ROOMY, progress=said.append, **GIVEN)
    assert len(looked) == 2 and said[-1].startswith("solving within the memory limit")


def test_with_a_plan_in_hand_it_is_the_answer_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def worked_out(*given: Any) -> None:
        raise AssertionError("what copies hold was worked out after the stop")

    monkeypatch.setattr(Model, "work_out_memory", worked_out)
    stop = Stop(monkeypatch, "solving")
    found = plan(
        gradient, *WIDE, memory_limit=90_000, baselines=["tensor"], roles=ROLES, progress=stop,
        **{**GIVEN, "mesh": {"x": 2, "y": 4}},
    )  # fmt: skip
    assert found.memory.peak_bytes <= 90_000 and STOPPED_BY_USER in found.notes


def test_after_a_stop_in_the_last_stage_nothing_is_priced(monkeypatch: pytest.MonkeyPatch) -> None:
    priced: list[Any] = []
    monkeypatch.setattr(stages, "priced", lambda *given: priced.append(given))
    stop = Stop(monkeypatch, "solving", after="stage 2 of 2: priority 1")
    found = plan(gradient, *WIDE, constraints=STAGED, progress=stop, **GIVEN)
    assert len(priced) == 1 and STOPPED_BY_USER in found.notes


def test_a_stop_ends_the_searches_for_a_smaller_set_of_statements(monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[Any] = []

    def stopped(*given: Any, **words: Any) -> Any:
        searched.append(given)
        return SimpleNamespace(interrupted=True)

    monkeypatch.setattr(subsets, "decide", stopped)
    pins = [Pin("w1", "[{}, {}]"), Pin("x", "[{}, {}]"), Pin("w2", "[{}, {}]")]
    with pytest.raises(InfeasibleError, match="could not be settled"):
        plan(gradient, *WIDE, memory_limit=ROOMY, constraints=pins, **GIVEN)
    assert len(searched) == 1
