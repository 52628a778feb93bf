"""Rules for logical axes from a plan: they hold what they can, and say what they cannot."""

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
import yaml

import autoshard
from autoshard.api.logical_rules import LogicalRules, applied
from autoshard.cli import main
from autoshard.errors import InputError

ROLES = {"x": ["batch", "embed"], "w1": ["embed", "mlp"], "w2": ["mlp", "embed"]}


def f32(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def planned(**pins: str) -> autoshard.Plan:
    return autoshard.plan(
        lambda x, w1, w2: jnp.tanh(x @ w1) @ w2, f32(32, 16), f32(16, 64), f32(64, 16), mesh={"data": 2, "model": 4},
        hardware="cpu_sim", constraints=[autoshard.Pin(path, text) for path, text in pins.items()],
    )  # fmt: skip


MEGATRON = {"x": '[{"data"}, {}]', "w1": '[{}, {"model"}]', "w2": '[{"model"}, {}]'}


@pytest.fixture(scope="module")
def megatron() -> LogicalRules:
    return planned(**MEGATRON).logical_axis_rules(ROLES)


def test_a_plan_that_follows_rules_is_held_whole(megatron: LogicalRules) -> None:
    assert set(megatron.rules) == {("mlp", ("model",)), ("batch", ("data",))}
    assert megatron.said_bytes == megatron.all_bytes and not megatron.unsaid


def test_what_rules_cannot_say_is_told_with_what_they_would_give() -> None:
    """w2 is not cut on the dimension that has the name of w1's cut one."""
    rules = planned(**{**MEGATRON, "w1": '[{}, {"model", "data"}]'}).logical_axis_rules(ROLES)
    (unsaid,) = rules.unsaid
    assert (unsaid.path, unsaid.planned) in {
        ("w1", '[{}, {"model", "data"}]'), ("w2", '[{"model"}, {}]')
    }  # fmt: skip
    assert rules.said_bytes == rules.all_bytes - unsaid.bytes
    assert any(line.startswith(f"not said: {unsaid.path} ") for line in rules.caveats())


def test_a_later_rule_of_a_name_serves_where_the_axes_of_the_first_are_taken() -> None:
    rules = [("a", ("x", "y")), ("b", ("x",)), ("b", ("z",))]
    assert applied(rules, ("a", "b")) == (("x", "y"), ("z",))
    assert applied(rules, ("b", None)) == (("x",), ())


def test_flax_reads_the_rules_as_we_do(megatron: LogicalRules) -> None:
    linen = pytest.importorskip("flax.linen")
    space: dict[str, Any] = {}
    exec(megatron.flax(), space)
    specs = {path: linen.logical_to_mesh_axes(tuple(names), space["RULES"]) for path, names in ROLES.items()}
    assert {path: tuple(spec) for path, spec in specs.items()} == {
        "x": ("data", None), "w1": (None, "model"), "w2": ("model", None)
    }  # fmt: skip


def test_maxtext_text_is_yaml_with_comments(megatron: LogicalRules) -> None:
    rules = yaml.safe_load(megatron.maxtext())["logical_axis_rules"]
    assert sorted(rules) == [["batch", ["data"]], ["mlp", ["model"]]]
    assert megatron.maxtext().startswith("# 2 rules hold 100% of the bytes")


def test_the_rules_priced_as_a_strategy_are_the_plan() -> None:
    """The inputs that rules hold whole: the same pins, and so the same cost."""
    plan = planned(**MEGATRON)
    rules = {name: list(axes) for name, axes in plan.logical_axis_rules(ROLES).rules}
    baseline = autoshard.plan(
        lambda x, w1, w2: jnp.tanh(x @ w1) @ w2, f32(32, 16), f32(16, 64), f32(64, 16), mesh={"data": 2, "model": 4},
        hardware="cpu_sim", baselines=[{"name": "rules", "rules": rules}], roles=ROLES,
    ).baselines[0]  # fmt: skip
    assert baseline.objective_s == pytest.approx(plan.objective_s)


@pytest.mark.parametrize(
    ("roles", "message"),
    [
        (None, "knows none: give logical_axes in the config"),
        ({"w1": ["embed", "embed"]}, "w1 has a logical name twice, (embed, embed)"),
        ({"w1": ["embed"]}, "do not fit w1 of rank 2"),
    ],
)
def test_names_that_cannot_serve_are_refused(roles: Any, message: str) -> None:
    with pytest.raises(InputError) as error:
        planned().logical_axis_rules(roles)
    assert message in str(error.value)


def test_the_command_reads_the_names_from_the_config(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = {
        "model": {"name": "mlp"}, "mesh": {"data": 2, "model": 2}, "hardware": "cpu_sim", "output": str(tmp_path)
    }  # fmt: skip
    (tmp_path / "config.yaml").write_text(json.dumps(config))
    assert main(["solve", str(tmp_path / "config.yaml"), "-q"]) == 0
    plan = str(tmp_path / "plan.json")
    assert main(["specs", plan, "--rules", "maxtext"]) == 0
    assert "logical_axis_rules: [" in capsys.readouterr().out
    assert main(["specs", plan, "--rules", "flax", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["all_bytes"] >= told["said_bytes"] > 0
    assert main(["specs", plan, "--rules", "jax"]) == 2
    assert "there are rules for maxtext and flax" in capsys.readouterr().err
