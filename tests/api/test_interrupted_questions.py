"""Ctrl-C in Python while a plan is asked, compared, simulated or verified: it ends the work, also where it was dropped.

Python drops exceptions that are raised in finalizers. Where nobody looks after Ctrl-C it is lost there, and the work
goes on: so it is raised in one, in the middle of each question.
"""

import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import autoshard
from autoshard import interrupts
from autoshard.api import explicit_mode, simulate
from autoshard.api.rivals import simulate_rivals
from autoshard.api.sweep import sweep
from autoshard.planning import model
from autoshard.questions.again import options_of
from autoshard.questions.instead import instead
from autoshard.questions.objectives import price_objectives
from autoshard.search_options import SearchOptions

ASKED: dict[str, Any] = {"mesh": {"a": 2, "b": 2}, "hardware": "tpu_v5e", "effort": 0.1}
X = jax.ShapeDtypeStruct((64, 64), jnp.float32)
WAITS_S = 20.0
PROMPT_S = 10.0
"""What comes again takes some hundredths of a second, and the machine may be busy."""
CONFIG = "function: made_here:f\nargs: {x: 'float32[64, 64]'}\nmesh: {a: 2, b: 2}\nhardware: tpu_v5e\n"


class Dropped:
    def __del__(self) -> None:
        signal.raise_signal(signal.SIGINT)


def interrupted(*args: Any, **kwargs: Any) -> Any:
    """Ctrl-C where Python drops it, in work that goes on for long."""
    Dropped()
    time.sleep(WAITS_S)
    raise AssertionError("the work went on")


def f(x: jax.Array) -> jax.Array:
    return jnp.tanh(x @ x)


def traced_for_long(x: jax.Array) -> jax.Array:
    interrupted()
    return x


@pytest.fixture(scope="module")
def plan() -> autoshard.Plan:
    return autoshard.plan(f, X, **ASKED)


@pytest.fixture(autouse=True)
def pythons_own() -> Iterator[None]:
    """Ctrl-C as Python has it where nobody asked for anything else."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    interrupts.forget()
    signal.signal(signal.SIGINT, before)


def ends(call: Callable[[], Any]) -> None:
    """Assert that the call ends by Ctrl-C, soon, and that Ctrl-C is Python's own again."""
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        call()
    assert time.monotonic() - began < PROMPT_S
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize(
    "ask",
    [
        lambda plan, folder: plan.explain("x"),
        lambda plan, folder: plan.instead("x", '[{"a"}, {}]'),
        lambda plan, folder: plan.break_even("x", "bandwidth"),
        lambda plan, folder: plan.break_even("x", "memory"),
        lambda plan, folder: plan.objectives(search=True),
        lambda plan, folder: plan.report(folder / "report.html", alternatives=1),
        lambda plan, folder: simulate_rivals(plan, 0.05, compiler="own"),
        lambda plan, folder: autoshard.compare(f, X, **ASKED),
        lambda plan, folder: autoshard.jit(f, keep=False, **ASKED).planned(X),
        lambda plan, folder: sweep(folder / "c.yaml", {"mesh.a": [2, 4]}),
    ],
    ids=[
        "explain", "instead", "break-even by bandwidth", "break-even by memory", "objectives", "report", "rivals",
        "compare", "jit", "sweep",
    ],
)  # fmt: skip
def test_a_search_that_a_question_makes_ends(
    ask: Callable[[autoshard.Plan, Path], Any], plan: autoshard.Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "made_here.py").write_text("import jax.numpy as jnp\ndef f(x): return jnp.tanh(x @ x)\n")
    (tmp_path / "c.yaml").write_text(CONFIG)
    monkeypatch.setattr(model, "price_nodes", interrupted)
    ends(lambda: ask(plan, tmp_path))


@pytest.mark.parametrize(
    "trace",
    [
        lambda plan: plan.attach(traced_for_long, X),
        lambda plan: plan.verify(traced_for_long, X, **ASKED),
        lambda plan: autoshard.compare(traced_for_long, X, **ASKED),
        lambda plan: autoshard.jit(traced_for_long, keep=False, **ASKED).planned(X),
    ],
    ids=["attach", "verify", "compare", "jit"],
)
def test_the_tracing_of_a_function_ends(trace: Callable[[autoshard.Plan], Any], plan: autoshard.Plan) -> None:
    ends(lambda: trace(plan))


def test_annotations_that_are_tried_by_compiling_end(plan: autoshard.Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explicit_mode, "compiled_traffic", interrupted)
    ends(plan.explicit_mode)


def test_a_step_that_is_simulated_ends(plan: autoshard.Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulate, "own_timeline", interrupted)
    ends(lambda: simulate.simulate(plan, compiler="own"))
    ends(lambda: plan.with_form("auto", compiler="own"))


def stopped(plan: autoshard.Plan) -> SearchOptions:
    """The plan's own options, and Ctrl-C where the search begins, when a plan is known already."""

    def stop(text: str) -> None:
        if text == "solving":
            raise KeyboardInterrupt

    return replace(options_of(plan), progress=stop)


def test_another_sharding_has_the_best_answer_by_then_which_says_so(plan: autoshard.Plan) -> None:
    answer = instead(plan, "x", str(plan["x"]), stopped(plan))
    assert "the search was stopped before its end" in str(answer)


def test_the_other_objective_has_no_optimum_where_its_search_was_stopped(plan: autoshard.Plan) -> None:
    with pytest.raises(KeyboardInterrupt):
        price_objectives(plan, search=True, options=stopped(plan))
