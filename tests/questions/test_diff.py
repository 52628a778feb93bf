"""``diff``: what two plans decide differently; sums agree with the plans."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

from autoshard import Pin, plan
from autoshard.api.plans import Plan
from autoshard.cli import main
from autoshard.questions.diff import diff_plans

SPEC = jax.ShapeDtypeStruct


def f(w, x):
    return jnp.tanh(x @ w)


def planned(mesh: dict[str, int], *pins: Pin) -> Plan:
    return plan(
        f, SPEC((64, 128), jnp.float32), SPEC((32, 64), jnp.float32), mesh=mesh, hardware="tpu_v5e", constraints=pins
    )


@pytest.fixture(scope="module")
def a() -> Plan:
    return planned({"x": 2, "y": 4}, Pin("w", '[{"x"}, {}]', source="here:1"))


@pytest.fixture(scope="module")
def b() -> Plan:
    return planned({"x": 2, "y": 4}, Pin("w", '[{}, {"y"}]'), Pin("out", "[{}, {}]"))


def test_a_plan_does_not_differ_from_itself(a: Plan) -> None:
    assert diff_plans(a, a).same
    assert str(diff_plans(a, a)).startswith("the plans decide the same")


def test_shardings_statements_cost_and_memory_of_both_are_told(a: Plan, b: Plan) -> None:
    found = diff_plans(a, b)
    changed = {s.name: (s.a, s.b) for s in found.shardings}
    assert changed["w"] == ('[{"x"}, {}]', '[{}, {"y"}]')
    assert changed == {n: (a[n], b[n]) for n in a.shardings if a[n] != b[n]}
    assert found.cost["step_s"] == (a.cost.step_s, b.cost.step_s)
    assert found.memory["peak_bytes"] == (a.memory.peak_bytes, b.memory.peak_bytes)
    assert found.statements[0] == ('here:1: pin w [{"x"}, {}]',)


def test_the_collectives_that_differ_add_up_to_the_difference_in_communication(a: Plan, b: Plan) -> None:
    moved = sum(c.seconds_b - c.seconds_a for c in diff_plans(a, b).collectives)
    assert moved == pytest.approx(b.cost.communication_s - a.cost.communication_s, abs=1e-15)


def test_it_is_the_other_way_round_from_the_other_plan(a: Plan, b: Plan) -> None:
    there, back = diff_plans(a, b), diff_plans(b, a)
    assert [(s.a, s.b) for s in there.shardings] == [(s.b, s.a) for s in back.shardings]
    assert [(o.a, o.b) for o in there.ops] == [(o.b, o.a) for o in back.ops]


def test_plans_on_different_meshes_are_compared_by_name(a: Plan) -> None:
    found = diff_plans(a, planned({"x": 8}))
    assert "mesh" in found.setting
    assert "w" in {s.name for s in found.shardings}


def test_objectives_that_count_differently_are_told_and_have_no_ratio() -> None:
    serial, overlap = (
        plan(
            f, SPEC((64, 128), jnp.float32), SPEC((32, 64), jnp.float32), mesh={"x": 2}, hardware="tpu_v5e",
            constraints=[Pin("w", '[{"x"}, {}]'), Pin("x", "[{}, {}]"), Pin("out", "[{}, {}]")], objective=objective,
        )
        for objective in ("serial", "overlap")
    )  # fmt: skip
    found = diff_plans(serial, overlap)
    assert found.setting == {"objective": ("serial", "overlap")}
    (told,) = [line for line in found.lines() if line.startswith("objective: ") and "serial" not in line]
    assert told.endswith("which count differently") and "%" not in told


def test_the_command_ends_with_0_whether_they_differ_or_not(
    a: Plan, b: Plan, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, two = str(tmp_path / "a.json"), str(tmp_path / "b.json")
    a.save(one)
    b.save(two)
    assert main(["diff", one, one]) == 0
    assert main(["diff", one, two, "--json"]) == 0
    out = capsys.readouterr().out
    assert json.loads(out[out.index("{") :]) == diff_plans(Plan.load(one), Plan.load(two)).to_dict()
    assert main(["diff", one, str(tmp_path / "none.json")]) == 2
