"""Ctrl-C at any moment: the best plan by then with a bound that holds, which says that it was stopped, or no plan."""

import time
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import pytest
from plan_cases import f32, mlp

from autoshard import Pin, Plan, plan
from autoshard.cli.process import interrupts_arrive
from autoshard.errors import InfeasibleError, OutOfTimeError
from autoshard.planning import memory_cap as caps
from autoshard.planning import subsets
from autoshard.planning.memory_cap import memory_cap
from autoshard.solver.solution import Stopped
from autoshard.verify import check_plan

SPECS = (f32(64, 64), f32(64, 64), f32(512, 64))
GIVEN: dict[str, Any] = {"mesh": {"x": 2, "y": 4}, "hardware": "tpu_v5e", "argnames": ("w1", "w2", "x")}
ROLES = {"w1": ["embed", "mlp"], "w2": ["mlp", "embed"], "x": ["batch", "embed"]}
STAGED = [Pin("x", '[{"x", ?}, {?}]'), Pin("w1", '[{?}, {"y", ?}]', priority=1)]
CASES: dict[str, dict[str, Any]] = {
    "joint": {},
    "limited": {"memory_limit": 90_000, "baselines": ["data", "tensor"], "roles": ROLES},
    "staged": {"constraints": STAGED},
    "greedy": {"strategy": "greedy"},
    "mesh search": {"mesh": {"devices": 8, "axes": ["x", "y"]}},
}


class Moments:
    """Raises `KeyboardInterrupt` at one of the messages of progress, as Ctrl-C would; counts them."""

    def __init__(self, at: int | None = None) -> None:
        self.at, self.said = at, list[str]()

    def __call__(self, text: str) -> None:
        self.said.append(text)
        if len(self.said) - 1 == self.at:
            raise KeyboardInterrupt


def solved(case: str, progress: Callable[[str], None] | None = None) -> Plan:
    return plan(mlp, *SPECS, progress=progress, **{**GIVEN, **CASES[case]})


@pytest.mark.parametrize("case", CASES)
def test_a_stop_at_any_message_gives_the_best_plan_by_then_and_says_so(case: str) -> None:
    whole = Moments()
    best = solved(case, whole)
    plans = 0
    for at, text in enumerate(whole.said):
        moment = Moments(at)
        try:
            found = solved(case, moment)
        except KeyboardInterrupt:  # rightly so before anything was found only
            assert not plans, (at, text)
            continue
        plans += 1
        assert any("was stopped" in note or "user stopped" in note for note in found.notes), (at, text, found.notes)
        assert found.run["interrupted"]
        assert len(moment.said) <= at + 3, f"it went on after the stop: {moment.said[at + 1 :]}"
        assert found.bound_s <= found.objective_s + found.rounding_s
        if case != "staged":  # a stop before the stages gives the plan all at once, which may be cheaper
            assert found.bound_s <= best.objective_s + best.rounding_s
            assert found.objective_s >= best.bound_s - best.rounding_s
        assert check_plan(found.to_dict()).ok
    assert plans, "there was no moment at which a plan was known"


def test_a_stopped_break_even_is_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    from autoshard.questions import break_even as breakeven

    found = solved("joint")
    decide_again = breakeven.decide_again

    def stopped(*args: Any, **kwargs: Any) -> Any:
        from dataclasses import replace

        answer = decide_again(*args, **kwargs)
        return replace(answer, stats={"rounds": [{"what": "solving", "stopped": Stopped.INTERRUPT}]})

    monkeypatch.setattr(breakeven, "decide_again", stopped)
    with pytest.raises(KeyboardInterrupt):
        breakeven.break_even(found, "w1", "bandwidth")


def test_a_stop_while_a_contradiction_is_worked_out_tells_what_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*args: Any, **kwargs: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(subsets, "may_hold", stop)
    with pytest.raises(InfeasibleError, match="could not be settled") as told:
        plan(mlp, *SPECS, memory_limit=100_000, constraints=[Pin("w1", "[{}, {}]"), Pin("x", "[{}, {}]")], **GIVEN)
    assert told.value.facts["minimal"] is False


def test_a_cap_that_is_reached_is_told_in_the_plan_and_not_taken_for_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(text: str) -> None:  # the search of so small a program would end before anyone looks
        time.sleep(0.1)

    monkeypatch.setattr(caps, "_EVERY_S", 0.01)
    found = plan(
        jnp.matmul, f32(64, 64), f32(64, 64), solver_memory=10**6, progress=slow,
        **{**GIVEN, "argnames": ("a", "b")},
    )  # fmt: skip
    assert "planning held more than 1000000 bytes: its search was ended there" in found.notes
    assert not any("user" in note for note in found.notes)


def _wait() -> None:
    for _ in range(100):
        time.sleep(0.05)


def test_the_cap_holds_in_a_process_that_ignores_ctrl_c(monkeypatch: pytest.MonkeyPatch) -> None:
    """As shells start what runs in the background of a script."""
    import signal

    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with pytest.raises(OutOfTimeError), interrupts_arrive(), memory_cap(10**6):
            _wait()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_larger_limit_is_tried_before_the_axes_take_all_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    from autoshard.planning import relaxations

    def long(problem: Any, axis: str, limit: int, bound: int, searches: Any) -> list[Any]:
        searches.left_s = 0.0
        return []

    monkeypatch.setattr(relaxations, "_axis", long)
    with pytest.raises(InfeasibleError) as told:
        plan(mlp, *SPECS, memory_limit=20_000, **GIVEN)
    (limit,) = [r for r in told.value.facts["relaxations"] if r["kind"] == "limit"]
    assert limit["found_bytes"] > 20_000
