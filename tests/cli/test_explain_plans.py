"""explain on a plan.json: the value's sharding, who stated it, the ops around it and what moving it costs."""

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.ad_checkpoint import checkpoint_name

from autoshard import Pin, plan
from autoshard.api.plans import Plan
from autoshard.cli import main
from autoshard.questions.explain import explain_plan


def f(params: dict[str, Any], x: Any) -> Any:
    return checkpoint_name(jnp.tanh(x @ params["w1"]), "hidden") @ params["w2"]


@pytest.fixture(scope="module")
def found() -> Plan:
    spec = jax.ShapeDtypeStruct
    params = {"w1": spec((64, 128), jnp.float32), "w2": spec((128, 64), jnp.float32)}
    pins = [
        Pin("params/w1", '[{"x"}, {}]', source="here:1"),
        Pin("out", "[{}, {}]", source="here:2"),
        Pin("@hidden", '[{}, {"y"}]'),
    ]
    return plan(f, params, spec((32, 64), jnp.float32), mesh={"x": 2, "y": 4}, hardware="tpu_v5e", constraints=pins)


def test_a_pinned_value_names_its_statement_and_one_that_is_free_says_so(found: Plan) -> None:
    (pinned,) = explain_plan(found, "params/w1")
    (free,) = explain_plan(found, "x")
    assert pinned.sharding == found["params/w1"] == '[{"x"}, {}]'
    assert pinned.statements == ('here:1: pin params/w1 [{"x"}, {}]',)
    assert free.statements == ()
    assert "the solver chose it" in str(free)


def test_the_reshards_of_a_value_are_those_of_the_plan_with_their_seconds(found: Plan) -> None:
    named = [v for v in found.program.values if v.id in found.schedule.definitions]
    told = [m for v in named for m in explain_plan(found, v.name)[0].moves]
    assert len(told) == len(found.cost.rows)
    assert sum(m.seconds * m.times for m in told) == pytest.approx(found.cost.communication_s + found.cost.local_s)


def test_the_ops_that_make_and_use_a_value_are_named(found: Plan) -> None:
    (hidden,) = explain_plan(found, "@hidden")
    assert hidden.sharding == '[{}, {"y"}]'
    assert hidden.origin.startswith("made by tanh:")
    (reader,) = hidden.readers
    assert reader.op.startswith("dot_general:")
    assert "test_explain_plans.py" in reader.source


@pytest.mark.parametrize("folder", ["cli/", "tests/cli/", f"{Path(__file__).parent}/", "./"])
def test_ops_are_found_by_any_path_of_their_file(found: Plan, folder: str) -> None:
    file, line = Path(__file__).name, f.__code__.co_firstlineno + 1
    by_name = explain_plan(found, f"{file}:{line}")
    assert by_name
    assert explain_plan(found, f"{folder}{file}:{line}") == by_name


def test_an_output_is_told_as_it_is_handed_back(found: Plan) -> None:
    (out,) = explain_plan(found, "out")
    assert (out.sharding, out.statements) == ("[{}, {}]", ("here:2: pin out [{}, {}]",))
    assert out.bytes == 32 * 64 * 4


def test_patterns_address_several_values(found: Plan) -> None:
    assert [v.name for v in explain_plan(found, "params/*")] == ["params/w1", "params/w2"]


def test_the_command_reads_the_file(found: Plan, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found.save(tmp_path / "plan.json")
    assert main(["explain", str(tmp_path / "plan.json"), "params/w1"]) == 0
    assert capsys.readouterr().out == f"{explain_plan(found, 'params/w1')[0]}\n"
    assert main(["explain", str(tmp_path / "plan.json"), "params/w1", "--json"]) == 0
    (item,) = json.loads(capsys.readouterr().out)
    assert item == explain_plan(found, "params/w1")[0].to_dict()
    assert main(["explain", str(tmp_path / "plan.json"), "params/w3"]) == 2
    assert "did you mean params/w" in capsys.readouterr().err
