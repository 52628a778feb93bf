"""Strategies of one's own beside the named ones: `autoshard.compare` and ``compare --strategy``."""

import functools
import json
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import PartitionSpec as P

import autoshard
from autoshard.cli import main
from autoshard.errors import InfeasibleError, InputError
from autoshard.questions import compare as comparison

PARAMS = {
    "up": jax.ShapeDtypeStruct((64, 256), jnp.float32),
    "down": jax.ShapeDtypeStruct((256, 64), jnp.float32),
}
X = jax.ShapeDtypeStruct((128, 64), jnp.float32)
MEGATRON = {"params/up": P(None, "model"), "params/down": P("model", None), "x": '[{"data"}, {}]'}


def layer(params: Any, x: Any) -> Any:
    return jax.nn.relu(x @ params["up"]) @ params["down"]


def compared(strategies: Any, **words: Any) -> autoshard.Comparison:
    return autoshard.compare(
        layer, PARAMS, X, mesh={"data": 2, "model": 4}, hardware="tpu_v5e", strategies=strategies, **words
    )


@functools.cache
def megatron_s() -> float:
    """What the same shardings cost as a baseline of a plan."""
    baseline = {"name": "mine", "in_shardings": ({"up": P(None, "model"), "down": P("model", None)}, P("data"))}
    plan = autoshard.plan(
        layer, PARAMS, X, mesh={"data": 2, "model": 4}, hardware="tpu_v5e", baselines=[baseline], strategy="greedy"
    )
    (cost,) = plan.baselines
    assert cost.objective_s is not None
    return cost.objective_s


@pytest.mark.parametrize(
    "states",
    [
        lambda task: MEGATRON,
        lambda task: [autoshard.Pin(pattern, sharding) for pattern, sharding in MEGATRON.items()],
        lambda task: ({"up": P(None, "model"), "down": P("model", None)}, P("data")),
        lambda task: {"in_shardings": ({"up": P(None, "model"), "down": P("model", None)}, P("data"))},
    ],
)
def test_a_strategy_states_shardings_in_any_of_four_forms(states: Callable[[autoshard.Task], Any]) -> None:
    (row,) = compared({"mine": states}).rows
    assert (row.strategy, row.kind, row.status) == ("mine", "own", "found")
    assert row.objective_s == megatron_s()


def test_rows_stand_in_the_order_asked_for_and_joint_is_no_worse_than_mine() -> None:
    found = compared({"best": "joint", "mine": lambda task: MEGATRON, "quick": "greedy"}, baselines=[])
    best, mine, quick = found.rows
    assert [row.strategy for row in found.rows] == ["best", "mine", "quick"]
    assert best.objective_s <= min(mine.objective_s, quick.objective_s)
    assert list(found.to_pandas()["regret"]) == [row.regret for row in found.rows]


def test_ctrl_c_in_what_explains_a_refusal_ends_the_comparison(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*given: Any, **words: Any) -> NoReturn:
        with suppress(KeyboardInterrupt):  # explained without further searches
            signal.raise_signal(signal.SIGINT)
        raise InfeasibleError("there is no plan")

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    monkeypatch.setattr(comparison, "decide_by", refuse)
    try:
        with pytest.raises(KeyboardInterrupt):
            compared(["joint"])
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_strategy_sees_program_mesh_machine_and_names() -> None:
    seen: list[autoshard.Task] = []

    def look(task: autoshard.Task) -> dict[str, Any]:
        seen.append(task)
        return {name: P() for name in task.inputs}

    compared([look], roles={"x": ["batch", "embed"]}, memory_limit="1GiB")
    (task,) = seen
    assert task.axes == {"data": 2, "model": 4}
    assert {name: type_.shape for name, type_ in task.inputs.items()} == {
        "params/down": (256, 64), "params/up": (64, 256), "x": (128, 64),
    }  # fmt: skip
    assert task.outputs["out"].shape == (128, 64)
    assert task.arguments == (PARAMS, X)
    assert task.logical_axes == {"x": ("batch", "embed")}
    assert task.memory_limit == 2**30
    assert task.machine.profile.name == "tpu_v5e"
    assert [op.kind for op in task.program.body.ops if op.kind == "dot_general"] == ["dot_general"] * 2


def test_a_strategy_that_cannot_hold_beside_the_statements_has_a_row_with_the_reason() -> None:
    (row,) = compared({"mine": lambda task: {"x": P("model")}}, constraints=[autoshard.Pin("x", P("data"))]).rows
    assert row.objective_s is None
    assert row.reason


@pytest.mark.parametrize(
    ("states", "says"),
    [
        (lambda task: None, "strategy mine: it returned nothing; return a mapping"),
        (lambda task: 3, "strategy mine: it returned 3"),
        (lambda task: {"nope": P()}, "strategy mine: pin 'nope' matches no value"),
        (lambda task: {"x": P("rows")}, "rows"),
        (lambda task: (P("data"),), "strategy mine: in_shardings: the tree does not fit"),
        (lambda task: 1 / 0, "strategy mine: it failed: ZeroDivisionError"),
    ],
)
def test_what_a_strategy_does_wrong_is_told(states: Callable[[autoshard.Task], Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        compared({"mine": states})


@pytest.mark.parametrize(
    ("strategies", "says"),
    [
        ({"mine": 3}, "'mine': expected the name of a strategy or a function, found 3"),
        ({}, "name at least one"),
        (["joint", "joint"], "'joint' is named twice"),
        ({"a": "joint", "b": "joint"}, "joint is named twice"),
        ("gredy", "did you mean 'greedy'"),
    ],
)
def test_wrong_lists_of_strategies_are_told(strategies: Any, says: str) -> None:
    with pytest.raises(InputError, match=says):
        compared(strategies)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / "own_strategies.py").write_text(
        "import jax.numpy as jnp\n\ndef f(x, w):\n    return jnp.tanh(x @ w).sum(0)\n\n"
        "def columns(task):\n    return {'w': '[{}, {\"b\"}]'}\n\nnumber = 3\n"
    )
    (tmp_path / "c.yaml").write_text(
        'function: own_strategies:f\nargs: {x: "float32[64,128]", w: "float32[128,256]"}\nmesh: {a: 2, b: 4}\n'
        "hardware: tpu_v5e\n"
    )
    return tmp_path / "c.yaml"


def test_the_command_takes_a_strategy_by_module_and_function(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["compare", str(config), "--strategies", "greedy", "--strategy", "own_strategies:columns"]
    assert main([*asked, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["strategies"]
    assert [(row["strategy"], row["kind"]) for row in rows] == [
        ("greedy", "strategy"), ("own_strategies:columns", "own"),
    ]  # fmt: skip
    assert main(asked) == 0
    assert "own_strategies:columns (own)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("reference", "says"),
    [
        ("columns", "write module:function"),
        ("own_strategies:colums", "did you mean 'columns'?"),
        ("own_strategies:number", "expected a function, found a int"),
        ("no_such_module:f", "there is no module 'no_such_module'"),
    ],
)
def test_a_strategy_that_is_not_found_is_told(
    reference: str, says: str, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", str(config), "--strategies", "greedy", "--strategy", reference]) == 2
    assert says in capsys.readouterr().err
