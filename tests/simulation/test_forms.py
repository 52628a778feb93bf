"""The form in which a plan runs: stated, or chosen by simulation, recorded with who judged, run and verified."""

import json
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.ad_checkpoint import checkpoint_name
from rival_cases import plain

import autoshard
from autoshard.api.forms import UNJUDGED, WORTH, chosen_of
from autoshard.api.simulate import simulate
from autoshard.cli import main
from autoshard.errors import InputError, UnsupportedError
from autoshard.plan_record import ChosenForm
from autoshard.simulation.clock import CORE, MATMUL, Event, Timeline
from autoshard.simulation.own import own_timeline, windowed
from autoshard.simulation.result import Simulation
from autoshard.verify import check_plan

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
    with pytest.raises(InputError, match="'mlir'; there are explicit, constraints, shardings, auto, all"):
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


@pytest.mark.parametrize("form", ["constraints", "shardings"])
def test_verification_runs_the_form_and_counts_the_collectives_of_xla(form):
    plan = planned(width=512, form=form)
    specs = [jax.ShapeDtypeStruct(s, jnp.float32) for s in ((ROWS, 512), (512, 512))]
    report = plan.verify(gradient, *specs, mesh={"a": 4}, hardware="tpu_v5e", constraints=plan_pins())
    check = report.checks[-1]
    assert (check.name, check.status) == ("the form in which the plan runs", "ok")
    assert "inputs and outputs are sharded as planned" in check.lines
    assert check.lines[-1].startswith("collectives are XLA's own: of 1 planned")


def test_a_form_that_is_slower_by_the_plans_own_figures_fails_verification():
    plan = planned(width=512, form="constraints")
    specs = [jax.ShapeDtypeStruct(s, jnp.float32) for s in ((ROWS, 512), (512, 512))]
    slow = replace(
        plan,
        form=ChosenForm(asked="auto", form="constraints", judge="j", seconds={"explicit": 1.0, "constraints": 2.0}),
    )
    assert not slow.verify(gradient, *specs, mesh={"a": 4}, hardware="tpu_v5e", constraints=plan_pins()).ok


def plan_pins():
    return [autoshard.Pin("x", '[{"a"}, {}]'), autoshard.Pin("w", "[{}, {}]"), autoshard.Pin("out", '[{"a"}, {}]')]


def test_as_shardings_the_results_are_those_of_the_plan_in_its_shardings():
    plan = planned(width=512, form="shardings")
    arrays = [np.random.default_rng(0).standard_normal(s).astype(np.float32) for s in ((ROWS, 512), (512, 512))]
    run = plan.jit()
    assert "sharding_constraint" not in str(jax.make_jaxpr(run)(*arrays))
    result = run(*plan.place(*arrays))
    np.testing.assert_allclose(result, plan.jit(form="explicit")(*plan.place(*arrays)), rtol=1e-3, atol=1)
    assert result.sharding.is_equivalent_to(plan.out_shardings, 2)
    assert autoshard.Plan.from_dict(plan.to_dict()).runs_as == "shardings"


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


# statements that a form leaves to XLA


INNER = [jax.ShapeDtypeStruct(s, jnp.float32) for s in ((64, 32), (32, 64))]
LEFT_TO_XLA = {
    "a collective that is forbidden": (autoshard.NoCollective("b"), {}, ("constraints", "shardings")),
    "a number of reshards": (autoshard.MaxReshards(9), {}, ("constraints", "shardings")),
    "a sharding inside": (autoshard.Pin("@hidden", '[{"a"}, {}]'), {}, ("shardings",)),
    "what an axis is for": (autoshard.AxisOnly("b", ["w"]), {}, ("shardings",)),
    "a memory limit": ((), {"memory_limit": "1MiB"}, ("shardings",)),
    "an input": (autoshard.Pin("x", '[{"a"}, {}]'), {}, ()),
    "inputs and outputs alike": (autoshard.SameSharding(["x", "out"]), {}, ()),
}


def hidden(x, w):
    return (checkpoint_name(x @ w, "hidden") @ w.T @ w).T @ x


@pytest.fixture(scope="module", params=LEFT_TO_XLA)
def stated(request):
    statement, words, refused = LEFT_TO_XLA[request.param]
    plan = autoshard.plan(
        hidden, *INNER, mesh={"a": 2, "b": 2}, hardware="tpu_v5e", effort=0.2, constraints=statement, **words
    )
    return plan, refused


def test_a_form_is_refused_where_xla_need_not_hold_what_is_stated(stated):
    plan, refused = stated
    for form in ("constraints", "shardings"):
        if form in refused:
            with pytest.raises(UnsupportedError, match=f"as {form} XLA's partitioner decides .* form 'explicit' holds"):
                plan.with_form(form)
        else:
            assert plan.with_form(form).runs_as == form


def test_a_form_that_cannot_hold_what_is_stated_is_refused_before_the_search():
    told = []
    with pytest.raises(UnsupportedError, match="no collective over b"):
        autoshard.plan(
            hidden, *INNER, mesh={"a": 2, "b": 2}, hardware="tpu_v5e", constraints=autoshard.NoCollective("b"),
            form="constraints", progress=told.append,
        )  # fmt: skip
    assert not [text for text in told if text.startswith("solving")]


def test_the_quickest_form_is_one_that_holds_what_is_stated(stated):
    plan, refused = stated
    form = plan.with_form("auto", compiler="own").form
    assert ("constraints" in form.seconds) == ("constraints" not in refused)
    told = any(note.startswith("constraints: as constraints XLA's partitioner") for note in form.notes)
    assert told == ("constraints" in refused)


def test_verification_finds_a_form_that_leaves_to_xla_what_is_stated(stated):
    plan, refused = stated
    for form in ("constraints", "shardings"):
        report = check_plan(plain(plan.run_as(ChosenForm.from_dict({"asked": form, "form": form}))))
        assert [f"the plan runs as {form}" in str(f) for f in report.findings] == [True] * (form in refused)


def test_our_own_scheduler_leaves_out_what_it_does_not_know(plan):
    form = plan.with_form("all", compiler="own").form
    assert set(form.seconds) == {"explicit", "constraints"}
    assert any("our own scheduler knows the forms explicit and constraints" in note for note in form.notes)


def test_of_all_forms_the_quickest_is_chosen():
    seconds = {"explicit": 3.0, "constraints": 2.0, "shardings": 1.0}
    form = chosen_of([found(name, s) for name, s in seconds.items()], asked="all")
    assert (form.asked, form.form, form.saves_s) == ("all", "shardings", 2.0)


@pytest.mark.parametrize("at", ["solving", "simulating a step as explicit", "simulating a step as constraints"])
def test_a_run_that_ctrl_c_stops_is_written_out_without_any_judgement(at, monkeypatch):
    """In the search the plan in hand is the answer, and so it is while its forms are simulated."""
    told = []

    def interrupt(text):
        told.append(text)
        if text.startswith(at):
            raise KeyboardInterrupt

    plan = planned(width=512, form="auto", progress=interrupt)
    assert (plan.form, plan.run["interrupted"], plan.notes[-1]) == (None, True, UNJUDGED)
    assert not [text for text in told if text.startswith("simulating") and not text.startswith(at)][1:]


def test_a_stopped_run_has_the_form_that_was_stated():
    def interrupt(text):
        if text.startswith("solving"):
            raise KeyboardInterrupt

    plan = planned(width=512, form="constraints", progress=interrupt)
    assert plan.runs_as == "constraints" and UNJUDGED not in plan.notes


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
