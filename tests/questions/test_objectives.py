"""A plan under both objectives, and what the other one would have chosen."""

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from autoshard import Pin, plan
from autoshard.api.plans import Plan
from autoshard.cli import main
from autoshard.costs.exposure import Exposure
from autoshard.costs.pricing import StepPrices
from autoshard.verify import check_plan

SPEC = jax.ShapeDtypeStruct


def two_layers(w: Any, x: Any) -> Any:
    return jax.nn.relu(x @ w["a"]) @ w["b"]


def planned(objective: str, hardware: str = "tpu_v5e") -> Plan:
    """Two matmuls whose weights can be gathered, which hides, or whose result can be summed, which does not."""
    weights = {"a": SPEC((2048, 8192), jnp.bfloat16), "b": SPEC((8192, 2048), jnp.bfloat16)}
    pins = [Pin("w/*", '[{"x"}, {}]'), Pin("x", "[{}, {}]"), Pin("out", "[{}, {}]")]
    return plan(
        two_layers, weights, SPEC((4096, 2048), jnp.bfloat16), mesh={"x": 4}, hardware=hardware, constraints=pins,
        objective=objective, argnames=("w", "x"),
    )  # fmt: skip


@pytest.fixture(scope="module")
def serial() -> Plan:
    return planned("serial")


@pytest.fixture(scope="module")
def overlap() -> Plan:
    return planned("overlap")


def test_a_plan_says_its_seconds_under_both_objectives(serial: Plan, overlap: Plan) -> None:
    for one in (serial, overlap):
        told = one.objectives()
        step = one.to_dict()["cost"]["step_time"]
        links_s = (seconds for name, seconds in step["resources_s"].items() if name.startswith("ici"))
        assert (told.serial_s, told.overlap_s) == (step["upper_s"], max(step["waited_s"], *links_s))
        prices = StepPrices(one.machine, one.atoms)
        counted_s = Exposure.of("overlap", one.program, one.machine).seconds(one.cost, prices)
        assert told.overlap_s == pytest.approx(counted_s, rel=1e-12)
        assert told.other is None and told.loses_s is None


@pytest.mark.parametrize("mine", ["serial", "overlap"])
def test_the_other_optimum_is_what_planning_with_the_other_objective_finds(
    serial: Plan, overlap: Plan, mine: str
) -> None:
    own, rival = (serial, overlap) if mine == "serial" else (overlap, serial)
    told = own.objectives(search=True)
    assert told.other is not None and told.loses_s is not None
    expected = rival.objectives()
    assert told.other.status == rival.status
    other = "overlap_s" if mine == "serial" else "serial_s"
    assert getattr(told.other, other) == pytest.approx(getattr(expected, other), rel=1e-6)
    assert told.loses_s == pytest.approx(getattr(told, other) - getattr(told.other, other))
    assert told.loses_s >= -1e-12
    assert getattr(told, f"{mine}_s") <= getattr(told.other, f"{mine}_s") * (1 + 1e-9)


def gathered(objective: str) -> Plan:
    """A weight of 32 MiB that comes in cut over 4 GPUs and leaves whole."""
    pins = [Pin("w", '[{"x"}, {}]'), Pin("out", "[{}, {}]")]
    weight = SPEC((2048, 8192), jnp.bfloat16)
    return plan(lambda w: 2 * w, weight, mesh={"x": 4}, hardware="h100", constraints=pins, objective=objective)


def test_overlap_counts_no_less_than_the_busiest_link_works() -> None:
    crossing_s = 2048 * 8192 * 2 * 3 / 4 / 450e9  # three quarters of the weight cross NVLink
    found = gathered("overlap")
    assert found.step_time.waited_s < crossing_s
    assert found.objective_s == pytest.approx(crossing_s, rel=1e-4)
    assert any("its busiest link (nvlink) works for 55.9 us" in note for note in found.notes)


def test_where_nothing_overlaps_both_objectives_choose_the_same() -> None:
    told = planned("serial", "tpu_v5p@compiler").objectives(search=True)
    assert told.other is not None
    assert told.serial_s == told.overlap_s == pytest.approx(told.other.overlap_s)
    assert told.loses_s == pytest.approx(0.0, abs=1e-12)


def test_the_checker_works_out_the_seconds_that_a_device_waits(serial: Plan) -> None:
    told = serial.to_dict()
    assert check_plan(told).findings == ()
    told["cost"]["step_time"]["waited_s"] *= 0.9
    assert any("waited_s is" in str(finding) for finding in check_plan(told).findings)


def test_the_command_says_both_and_what_the_choice_costs(
    serial: Plan, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "plan.json"
    serial.save(file)
    assert main(["objectives", str(file)]) == 0
    shown = capsys.readouterr().out
    assert "minimises serial" in shown and "--search" in shown
    assert main(["objectives", str(file), "--search", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["other"]["objective"] == "overlap" and told["other"]["loses_s"] >= 0
    assert main(["objectives", str(file), "--search"]) == 0
    assert "optimum of overlap" in capsys.readouterr().out


def test_a_time_limit_without_a_search_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["objectives", str(tmp_path / "plan.json"), "--time-limit", "5"]) == 2
    assert "add --search" in capsys.readouterr().err
