"""The form in which a plan runs: stated, or chosen by simulation, recorded with who judged, run and verified."""

import json
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autoshard
from autoshard.api.forms import WORTH, chosen_of
from autoshard.api.simulate import simulate
from autoshard.cli import main
from autoshard.errors import InputError, UnsupportedError
from autoshard.plan_record import ChosenForm
from autoshard.simulation.clock import CORE, MATMUL, Event, Timeline
from autoshard.simulation.own import own_timeline, windowed
from autoshard.simulation.result import Simulation

ROWS, WIDTH = 8192, 4096


def gradient(x, w):
    return x.T @ (x @ w)


def planned(width=WIDTH, hardware="tpu_v5e", **words):
    """A plan in which the gradient of a weight is summed over devices by a reduce-scatter."""
    specs = [jax.ShapeDtypeStruct(s, jnp.float32) for s in ((ROWS, width), (width, width))]
    pins = [autoshard.Pin("x", '[{"a"}, {}]'), autoshard.Pin("w", "[{}, {}]"), autoshard.Pin("out", '[{"a"}, {}]')]
    return autoshard.plan(gradient, *specs, mesh={"a": 4}, hardware=hardware, effort=0.2, constraints=pins, **words)


@pytest.fixture(scope="module")
def plan():
    return planned()


def found(form, seconds, scheduler="judge"):
    line = Timeline(seconds, (Event(CORE, "work", MATMUL, 0.0, seconds, 1.0),))
    return Simulation(
        plan="p",
        form=form,
        scheduler=scheduler,
        clocks={"c": line},
        planned_s=1.0,
        estimate_s=1.0,
        planned={},
        planned_peak_bytes=0,
    )


def test_the_quicker_form_is_chosen_and_says_what_it_saves():
    form = chosen_of([found("explicit", 3.0), found("constraints", 2.0)])
    assert (form.form, form.judge, form.saves_s) == ("constraints", "judge", 1.0)


def test_collectives_stay_written_out_where_constraints_save_next_to_nothing():
    form = chosen_of([found("explicit", 1.0), found("constraints", 1.0 - WORTH / 2)])
    assert (form.form, form.saves_s) == ("explicit", 0.0)


def test_seconds_of_different_judges_are_not_compared():
    with pytest.raises(InputError, match="one judge"):
        chosen_of([found("explicit", 3.0), found("constraints", 2.0, "another")])


def test_our_scheduler_hides_the_sum_of_a_large_gradient_behind_its_matmul_in_constraints(plan):
    assert len(windowed(plan)) == 1
    explicit, constraints = own_timeline(plan), own_timeline(plan, "constraints")
    (row,) = [r for r in plan.cost.rows if r.kind == "reduce_scatter"]
    assert 0 < explicit.seconds - constraints.seconds <= row.seconds
    assert constraints.total(MATMUL) == pytest.approx(explicit.total(MATMUL))


@pytest.mark.parametrize("words", [{"width": 512}, {"hardware": "h100"}, {"hardware": "tpu_v5p"}])
def test_small_gradients_and_other_machines_take_the_same_time_in_both_forms(words):
    plan = planned(**words)
    assert own_timeline(plan).seconds == own_timeline(plan, "constraints").seconds


def test_auto_says_which_form_won_and_who_judged(plan):
    form = plan.with_form("auto", compiler="own").form
    assert form.form == "constraints"
    assert form.judge == "autoshard's scheduler"
    assert form.saves_s == pytest.approx(own_timeline(plan).seconds - own_timeline(plan, "constraints").seconds)
    assert "assumed" in form.notes[0]


def test_a_plan_may_be_asked_for_in_a_form_and_its_file_keeps_it():
    plan = planned(width=512, form="constraints")
    assert plan.runs_as == "constraints"
    assert autoshard.Plan.from_dict(plan.to_dict()).form == ChosenForm(asked="constraints", form="constraints")


def test_plans_that_are_written_out_say_nothing_of_forms(plan):
    assert plan.runs_as == "explicit"
    assert "form" not in plan.to_dict()
    assert plan.with_form("auto", compiler="own").with_form("explicit").form is None


def test_unknown_forms_are_refused(plan):
    with pytest.raises(InputError, match="'mlir'; there are explicit, constraints, auto"):
        plan.with_form("mlir")
    with pytest.raises(InputError, match="form: expected"):
        planned(form="fast")


def test_constraints_give_the_results_of_the_plan_in_its_shardings():
    plan = planned(width=512, form="constraints")
    arrays = [np.random.default_rng(0).standard_normal(s).astype(np.float32) for s in ((ROWS, 512), (512, 512))]
    run, written_out = plan.jit(), plan.jit(form="explicit")
    assert "shard_map" not in str(jax.make_jaxpr(run)(*arrays))
    result = run(*plan.place(*arrays))
    np.testing.assert_allclose(result, written_out(*plan.place(*arrays)), rtol=1e-3, atol=1)
    assert result.sharding.is_equivalent_to(plan.out_shardings, 2)


def test_verification_runs_the_constraints_and_counts_the_collectives_of_xla():
    plan = planned(width=512, form="constraints")
    specs = [jax.ShapeDtypeStruct(s, jnp.float32) for s in ((ROWS, 512), (512, 512))]
    asked = {"mesh": {"a": 4}, "hardware": "tpu_v5e", "constraints": plan_pins()}
    report = plan.verify(gradient, *specs, **asked)
    check = report.checks[-1]
    assert (check.name, check.status) == ("the form in which the plan runs", "ok")
    assert "inputs and outputs are sharded as planned" in check.lines
    assert check.lines[-1].startswith("collectives are XLA's own: of 1 planned")
    slow = replace(
        plan,
        form=ChosenForm(asked="auto", form="constraints", judge="j", seconds={"explicit": 1.0, "constraints": 2.0}),
    )
    assert not slow.verify(gradient, *specs, **asked).ok


def plan_pins():
    return [autoshard.Pin("x", '[{"a"}, {}]'), autoshard.Pin("w", "[{}, {}]"), autoshard.Pin("out", '[{"a"}, {}]')]


def test_a_planned_function_runs_in_its_form():
    step = autoshard.jit(lambda x: x @ x.T, mesh={"a": 2}, hardware="cpu_sim", keep=False, form="constraints")
    x = jnp.arange(64.0).reshape(8, 8)
    np.testing.assert_allclose(step(x), x @ x.T)
    assert step.plan.runs_as == "constraints"


def test_values_in_host_memory_are_refused_as_constraints():
    with pytest.raises(UnsupportedError, match="host memory"):
        autoshard.plan(
            lambda x: x + 1, jax.ShapeDtypeStruct((8, 8), jnp.float32), mesh={"a": 2}, hardware="tpu_v5e",
            constraints=autoshard.MemoryKind("x", "pinned_host"), form="constraints",
        )  # fmt: skip


def test_the_command_chooses_and_writes_the_form(tmp_path, capsys, plan):
    file = tmp_path / "plan.json"
    plan.save(file)
    assert main(["simulate", str(file), "--compiler", "own", "--form", "auto", "--write"]) == 0
    assert "constraints" in capsys.readouterr().out.splitlines()[-1]
    assert plan.with_form("auto", compiler="own").to_dict() == json.loads(file.read_text())
    assert main(["show", str(file)]) == 0
    assert "quicker than explicit" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words", [["--write"], ["--form", "auto,explicit"], ["--form", "shardings", "--compiler", "own"]]
)
def test_wrong_words_end_the_command_with_2(tmp_path, capsys, plan, words):
    plan.save(tmp_path / "plan.json")
    assert main(["simulate", str(tmp_path / "plan.json"), *words]) == 2
    assert "error:" in capsys.readouterr().err


def test_constraints_are_simulated_with_what_is_assumed_of_the_partitioner(plan):
    assert "1 reduce-scatters" in simulate(plan, form="constraints", compiler="own").notes[0]
