"""Rivals: plans of one problem that are modelled almost alike are simulated, and the quickest one is written."""

from dataclasses import replace
from importlib import util

import jax
import jax.numpy as jnp
import pytest
from rival_cases import SMALL, plain, planned

import autoshard
from autoshard.api import rivals as api
from autoshard.api.rivals import Judged, simulate_rivals
from autoshard.api.simulate import simulate
from autoshard.errors import InputError, UnsupportedError
from autoshard.plan_record import JudgedRival, JudgedRivals
from autoshard.questions.rivals import GIVEN, near_rivals
from autoshard.report.rivals import rival_lines
from autoshard.report.verdict import verdict
from autoshard.search_options import SearchOptions
from autoshard.simulation.own import own_timeline
from autoshard.verify import check_plan

OWN = "autoshard's scheduler"
CALIBRATED = "tpu_v5e@compiler"
ROLES = {
    "state/*/layers/0/w": ["inputs", "mlp"], "state/*/layers/1/w": ["mlp", "outputs"], "batch/x": ["batch", "inputs"],
    "batch/y": ["batch"],
}  # fmt: skip


@pytest.fixture(scope="module")
def plan():
    return planned()


@pytest.fixture(scope="module")
def judged(plan) -> Judged:
    return simulate_rivals(plan, 0.05, compiler="own")


def names(found):
    return [near.name for near in found.near]


def reason(found, name):
    return next(one.reason for one in found.left_out if one.name == name)


# which plans are rivals


def test_the_given_plan_comes_first_and_rivals_by_their_modelled_seconds(judged, plan):
    given, *rivals = judged.record.compared
    assert (given.name, given.objective_s) == (GIVEN, plan.objective_s)
    assert [one.name for one in rivals] == ["objective overlap", "fsdp", "zero1", CALIBRATED]
    assert [one.objective_s for one in rivals] == sorted(one.objective_s for one in rivals)
    assert all(one.objective_s <= 1.05 * plan.objective_s for one in rivals[:-1])


def test_the_same_plan_under_two_names_is_simulated_once(judged):
    (fsdp,) = [one for one in judged.record.compared if one.name == "fsdp"]
    assert fsdp.also == ("fsdp_transpose",)
    assert [s.plan for s in judged.simulations] == [one.name for one in judged.record.compared]


def test_the_optimum_of_the_calibrated_machine_is_asked_where_there_is_one_whatever_it_costs(judged, plan):
    (calibrated,) = [one for one in judged.record.compared if one.name == CALIBRATED]
    assert calibrated.objective_s > 1.05 * plan.objective_s
    assert calibrated.calibrated_s == min(one.calibrated_s for one in judged.record.compared)


def test_what_is_near_the_least_by_calibrated_figures_is_a_rival(plan):
    every = near_rivals(plan, 1.0, roles=ROLES).near
    figures = {one.name: one.calibrated_s or 0.0 for one in every}
    least = min(figures.values())
    near = near_rivals(plan, 0.1, roles=ROLES).near
    close = [one for one in every if figures[one.name] <= 1.1 * least]
    assert {one.name for one in close} <= {one.name for one in near}
    assert any(one.plan.objective_s > 1.1 * plan.objective_s for one in close)
    assert all(min(one.plan.objective_s / plan.objective_s, figures[one.name] / least) <= 1.1 for one in near)


def test_what_is_modelled_further_above_is_left_out_with_its_seconds(judged, plan):
    (tensor,) = [one for one in judged.record.left_out if one.name == "tensor"]
    assert tensor.objective_s == pytest.approx(1.1008 * plan.objective_s, rel=1e-3)
    assert tensor.reason.startswith("its modelled seconds are 10.1% above those of the given plan, by calibrated")


def test_strategies_of_which_the_program_has_no_axis_are_not_asked(judged):
    told = {one.name for one in (*judged.record.compared, *judged.record.left_out)}
    assert not any("expert" in name or "sequence" in name for name in told)


def test_a_strategy_that_breaks_a_statement_is_left_out_and_says_so():
    found = near_rivals(planned("pins: {'state/params/layers/*/w': '[{}, {}]'}\n"), 1.0, roles=ROLES)
    assert "fsdp" not in names(found)
    assert reason(found, "fsdp")


def test_statements_hold_in_every_rival():
    found = near_rivals(planned("pins: {batch/x: '[{\"data\"}, {}]'}\n"), 1.0, roles=ROLES)
    assert len(found.near) > 1
    assert {near.plan["batch/x"] for near in found.near} == {'[{"data"}, {}]'}


def test_rivals_stay_within_the_memory_limit(plan):
    free = near_rivals(plan, 0.5, roles=ROLES)
    largest = max(near.plan.memory.peak_bytes for near in free.near)
    limited = near_rivals(planned(f"memory_limit: {largest - 1}\n"), 0.5, roles=ROLES)
    assert all(near.plan.memory.peak_bytes < largest for near in limited.near)


def test_without_logical_axes_no_strategy_is_asked_and_that_is_told(plan):
    found = near_rivals(plan, 0.05)
    assert names(found) == [GIVEN, "objective overlap", CALIBRATED]
    assert reason(found, "named strategies") == "the program has no logical axes: not asked"


def test_a_plan_made_in_python_is_told_its_logical_axes():
    def loss(x, w1, w2):
        return jnp.sum(jnp.tanh(x @ w1) @ w2)

    specs = [jax.ShapeDtypeStruct(s, jnp.float32) for s in ((8192, 512), (512, 1024), (1024, 512))]
    step = jax.grad(loss, argnums=(1, 2))
    plan = autoshard.plan(step, *specs, mesh={"data": 4}, hardware="a100_80", effort=0.2)
    roles = {"x": ["batch", "embed"], "w1": ["embed", "mlp"], "w2": ["mlp", "embed"]}
    told = simulate_rivals(plan, 1.0, roles=roles, compiler="own")
    every = [name for one in told.record.compared for name in (one.name, *one.also)]
    assert "data" in every
    assert "@" not in " ".join(every)  # there are no calibrated figures of that machine
    assert told.record.judge == OWN


def test_a_judge_that_is_none_is_refused_with_the_choices():
    plan = autoshard.plan(jnp.tanh, jax.ShapeDtypeStruct((8, 8), jnp.float32), mesh={"data": 4}, hardware="h100")
    with pytest.raises(InputError, match="no compiler 'cuda'; there are auto, tpu, gpu, own"):
        simulate_rivals(plan, 0.05, compiler="cuda", roles={})


def test_plans_in_stages_have_no_rivals_and_the_error_says_why():
    with pytest.raises(UnsupportedError, match="decided in stages of priorities"):
        near_rivals(planned("priorities: [data, tensor]\n"), 0.05)


def test_plans_by_a_rule_have_no_rivals():
    with pytest.raises(UnsupportedError, match="decided by greedy, not by cost"):
        near_rivals(planned("strategy: greedy\n"), 0.05)


# the choice


def test_the_quickest_plan_is_chosen_though_it_is_modelled_slower(judged, plan):
    assert judged.record.chosen == "fsdp"
    given, chosen = judged.record.compared[0], next(o for o in judged.record.compared if o.name == "fsdp")
    assert chosen.seconds["explicit"] < 0.93 * given.seconds["explicit"]
    assert judged.plan.objective_s > 1.02 * plan.objective_s
    assert own_timeline(judged.plan).seconds == chosen.seconds["explicit"]


def test_the_chosen_plan_is_never_called_optimal_and_its_gap_is_to_the_bound_that_was_proved(judged, plan):
    assert plan.status == "optimal"
    assert judged.plan.status == "feasible"
    assert judged.plan.bound_s == plan.bound_s
    assert judged.plan.gap == pytest.approx(1 - plan.bound_s / judged.plan.objective_s)
    assert judged.plan.certificate == plan.certificate


def test_the_chosen_plan_says_on_its_face_how_it_was_chosen(judged):
    assert judged.plan.notes[-1].startswith(
        "fsdp, chosen by simulation among 5 plans, and not for its modelled seconds"
    )
    lines = verdict(plain(judged.plan))
    assert f"chosen   fsdp, 7.6% quicker by {OWN} than the plan of the least modelled seconds" in "\n".join(lines)
    assert "proof    within 2.36%" in "\n".join(lines)


def test_the_chosen_plan_passes_its_checks(judged):
    assert check_plan(plain(judged.plan)).findings == ()
    assert "simulated seconds" in check_plan(plain(judged.plan)).facts[-1]


def test_the_chosen_plan_comes_back_from_its_file(judged):
    assert autoshard.Plan.from_dict(plain(judged.plan)).rivals == judged.record


def test_the_given_plan_is_kept_where_no_rival_saves_half_a_percent(plan):
    kept = simulate_rivals(plan, 0.022, compiler="own")
    assert kept.record.chosen == GIVEN
    assert kept.plan.status == "optimal"
    assert kept.plan.notes == plan.notes
    assert check_plan(plain(kept.plan)).findings == ()


def test_the_form_that_won_stands_in_the_plan(plan, monkeypatch):
    def faked(plan, *, form, compiler, clock, name, keep):
        found = simulate(plan, form=form, compiler=compiler, clock=clock, name=name)
        if form == "explicit":
            return found
        line = next(iter(found.clocks.values()))
        return replace(found, clocks={"plan": replace(line, seconds=0.9 * line.seconds)})

    monkeypatch.setattr(api, "simulate", faked)
    both = simulate_rivals(plan, 0.05, forms=("explicit", "constraints"), compiler="own")
    assert both.plan.runs_as == "constraints"
    assert both.plan.form is not None and both.plan.form.seconds == both.record.compared[2].seconds
    assert check_plan(plain(both.plan)).findings == ()


def test_a_form_that_the_judge_refuses_is_told(plan, monkeypatch):
    def refusing(plan, *, form, name, **words):
        if name == "fsdp":
            raise UnsupportedError("too much memory")
        return simulate(plan, form=form, name=name, **words)

    monkeypatch.setattr(api, "simulate", refusing)
    found = simulate_rivals(plan, 0.05, compiler="own")
    assert found.record.chosen == GIVEN
    assert next(one for one in found.record.compared if one.name == "fsdp").refused == {"explicit": "too much memory"}
    assert "fsdp as explicit was not judged: too much memory" in "\n".join(
        rival_lines(found.record.to_dict(), "explicit")
    )


def test_a_given_plan_that_the_judge_refuses_is_not_kept(plan, monkeypatch):
    def refusing(plan, *, name, **words):
        if name == GIVEN:
            raise UnsupportedError("too much memory")
        return simulate(plan, name=name, **words)

    monkeypatch.setattr(api, "simulate", refusing)
    found = simulate_rivals(plan, 0.05, compiler="own")
    assert found.record.chosen == "fsdp"
    assert "does not take that plan" in found.plan.notes[-1]
    assert "which refuses the given plan" in rival_lines(found.record.to_dict(), "explicit")[-1]
    assert "refuses the plan of the least modelled seconds" in "\n".join(verdict(plain(found.plan)))
    assert check_plan(plain(found.plan)).findings == ()


def test_our_own_scheduler_judges_where_the_compiler_refuses_all_and_the_record_says_why(plan, monkeypatch):
    def refusing(plan, *, compiler, **words):
        if compiler != "own":
            raise UnsupportedError("too much memory")
        return simulate(plan, compiler=compiler, **words)

    monkeypatch.setattr(api, "simulate", refusing)
    found = simulate_rivals(plan, 0.022)
    assert found.record.judge == OWN
    assert found.record.notes[0] == "not by the compiler: given plan as explicit: too much memory"
    assert check_plan(plain(found.plan)).findings == ()


def test_a_judge_that_refuses_all_plans_is_told(plan, monkeypatch):
    def refusing(plan, **words):
        raise UnsupportedError("too much memory")

    monkeypatch.setattr(api, "simulate", refusing)
    with pytest.raises(UnsupportedError, match="none of 2 plans can be judged: given plan as explicit: too much"):
        simulate_rivals(plan, 0.022, compiler="own")


def test_a_time_limit_ends_the_search_with_what_there_is(plan):
    found = near_rivals(plan, 0.05, options=SearchOptions().within(1e-3))
    assert found.near[0].name == GIVEN


def test_another_form_by_another_judge_takes_the_record_with_it(judged):
    assert judged.plan.with_form("explicit").rivals is judged.record
    assert judged.plan.with_form("constraints").rivals is None
    assert judged.plan.with_form("auto", compiler="own").rivals is None
    assert check_plan(plain(judged.plan.with_form("auto", compiler="own"))).findings == ()


def test_a_chosen_plan_may_be_asked_for_its_rivals_again(judged):
    again = simulate_rivals(judged.plan, 0.05, compiler="own")
    assert again.record.chosen == GIVEN
    assert not any("chosen by simulation" in note for note in again.plan.notes)
    assert again.plan.status == "feasible"
    assert check_plan(plain(again.plan)).findings == ()


def test_a_question_to_a_chosen_plan_is_about_another_plan(judged):
    assert judged.plan.instead("batch/x", "[{}, {}]").other.rivals is None


@pytest.mark.parametrize("within", [0, -0.1, 1.5, float("nan"), True, "5"])
def test_shares_that_are_none_are_refused(plan, within):
    with pytest.raises(InputError, match="a share above 0 and at most 1"):
        simulate_rivals(plan, within, compiler="own")


def test_our_own_scheduler_does_not_judge_shardings_of_inputs_and_outputs(plan):
    with pytest.raises(UnsupportedError, match="our own scheduler knows the forms explicit and constraints"):
        simulate_rivals(plan, 0.05, forms=("shardings",), compiler="own")


def test_a_compiler_that_is_not_there_is_told_before_anything_is_searched():
    h100 = autoshard.plan(
        lambda x: x @ x, jax.ShapeDtypeStruct((8, 8), jnp.float32), mesh={"a": 2}, hardware="h100", effort=0.2
    )
    with pytest.raises(UnsupportedError, match="no ahead-of-time compiler for h100"):
        simulate_rivals(h100, 0.05, compiler="tpu")


# what a person reads


def record(chosen="given plan", **seconds):
    """Of the given plan and a rival, simulated so."""
    compared = [
        JudgedRival(name="given plan", objective_s=1.0, peak_bytes=1, seconds={"explicit": 1.0}),
        JudgedRival(name="tensor", objective_s=1.02, peak_bytes=1, seconds=seconds),
    ]
    return JudgedRivals(
        within=0.05, judge="libtpu 1", clock="expected", chosen=chosen, compared=tuple(compared)
    ).to_dict()


def test_the_last_line_says_who_is_quickest_by_how_much_and_how_to_have_it():
    last = rival_lines(record("tensor", explicit=0.9), "explicit")[-1]
    assert last == (
        "quickest: tensor as explicit, 900 ms, 10.0% quicker than the given plan (1 s), by libtpu 1; its modelled "
        "seconds are +2.0% beside the given plan's; --output FILE writes it as a plan"
    )


def test_the_last_line_says_that_the_given_plan_is_kept():
    last = rival_lines(record(explicit=1.1), "explicit")[-1]
    assert last == (
        "quickest: the given plan as explicit, 1 s, by libtpu 1; of 1 rival modelled within 5% none is quicker by "
        "half a percent"
    )


def test_a_rival_may_be_chosen_as_shardings_of_inputs_and_outputs():
    last = rival_lines(record("tensor", explicit=1.1, shardings=0.5), "shardings")[-1]
    assert last.startswith("quickest: tensor as shardings, 500 ms, 50.0% quicker than the given plan (1 s)")


def test_our_own_scheduler_is_said_to_be_no_independent_judge(judged):
    lines = rival_lines(judged.record.to_dict(), "explicit")
    assert any("no independent judge" in line for line in lines)
    assert not any("no independent judge" in line for line in rival_lines(record(explicit=1.1), "explicit"))


# the real compiler


@pytest.mark.tpu_compiler
@pytest.mark.skipif(util.find_spec("libtpu") is None, reason="libtpu is not installed")
def test_the_tpu_compiler_judges_rivals_and_is_named_in_the_plan():
    found = simulate_rivals(planned(config_text=SMALL), 0.03, compiler="tpu")
    assert found.record.judge.startswith("libtpu ")
    quickest = min(s.seconds for s in found.simulations)
    chosen = next(one for one in found.record.compared if one.name == found.record.chosen)
    assert chosen.seconds["explicit"] <= quickest / (1 - 0.005)
    assert check_plan(plain(found.plan)).findings == ()
