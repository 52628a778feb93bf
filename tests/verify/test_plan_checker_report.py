"""The checks together: what is said when all is well, when something is wrong, and when one cannot be done."""

import copy
import json

import jax
import jax.numpy as jnp
import pytest

from autoshard.api import verbs as api
from autoshard.constraints import Pin
from autoshard.errors import InputError
from autoshard.frontends.jax.function import trace
from autoshard.verify import Asked, Runnable, Status, Verification, check_plan, verify_file, verify_plan
from autoshard.verify.runs.checks import MAX_LOWERED_DEVICES
from autoshard.verify.runs.numeric import random_arguments

PINS = [Pin("x", '[{"x"}, {"y"}]'), Pin("w", '[{"y"}, {}]')]
ASKED = Asked(mesh={"x": 2, "y": 4}, hardware="cpu_sim", constraints=PINS)
SPECS = (jax.ShapeDtypeStruct((16, 32), jnp.float32), jax.ShapeDtypeStruct((32, 64), jnp.float32))


def f(x, w):
    return jnp.tanh(x @ w).sum(0)


def arguments():
    return tuple(random_arguments(SPECS))


def plan_of(mesh, function=f):
    plan = api.plan(function, *SPECS, mesh=mesh, hardware="cpu_sim", argnames=["x", "w"], constraints=PINS)
    return json.loads(json.dumps(plan.to_dict())), plan.traced


@pytest.fixture(scope="module")
def planned():
    return plan_of({"x": 2, "y": 4})


def statuses(found: Verification) -> list[str]:
    return [check.status.value for check in found.checks]


def test_all_checks_pass_on_simulated_devices(planned):
    data, traced = planned
    found = verify_plan(data, Runnable(traced, f, arguments), asked=ASKED)
    assert statuses(found) == ["ok", "ok", "ok", "ok"], str(found)
    assert found.ok
    assert found.complete
    assert "equal by kind, axes, count and bytes" in str(found)
    assert "2 statements, mesh x=2 x y=4, machine cpu_sim and 0 stages follow from what the caller passed" in str(found)


def test_what_rests_on_the_plans_word_is_told_in_a_line(planned):
    found = str(verify_plan({k: v for k, v in planned[0].items() if k != "certificate"}))
    assert "taken on trust: that no plan costs less than bound_s (the file has no certificate of it), notes" in found


def test_objective_and_bound_say_what_they_count_where_a_step_is_estimated_otherwise():
    words = {"mesh": {"x": 2, "y": 4}, "hardware": "tpu_v5e", "constraints": PINS, "argnames": ["x", "w"]}
    data = json.loads(json.dumps(api.plan(f, *SPECS, **words).to_dict()))
    step = data["cost"]["step_time"]
    assert step["estimate_s"] < 0.99 * data["objective_s"]
    told = "; both count nothing overlapped: a step is estimated to take "
    assert f"{told}{step['estimate_s']} s" in str(verify_plan(data))
    same = data | {"cost": data["cost"] | {"step_time": step | {"estimate_s": data["objective_s"]}}}
    assert told not in str(verify_plan(same))


def test_where_nothing_says_what_was_asked_for_that_check_is_not_done(planned):
    data, traced = planned
    found = verify_plan(data, Runnable(traced, f, arguments))
    assert statuses(found) == ["ok", "not done", "ok", "ok"], str(found)
    assert not found.complete
    assert "no fault found, 1 check not done" in str(found)
    assert "taken from the plan itself: not derived" in str(found)


def test_a_plan_is_verified_with_the_words_it_was_made_with():
    def g(x, w):
        return x + w.sum(1)

    words = {"mesh": {"x": 2, "y": 4}, "hardware": "cpu_sim", "constraints": PINS, "argnames": ["x", "w"]}
    plan = api.plan(g, *SPECS, donate_argnums=(0,), **words)
    found = plan.verify(g, *SPECS, donate_argnums=(0,), **words)
    assert found.complete, str(found)
    assert "asked: donated nothing; found in the plan: x" in str(plan.verify(g, *SPECS, **words))
    other = plan.verify(g, *SPECS, donate_argnums=(0,), **{**words, "constraints": PINS[:1]})
    assert 'asked: nothing like it; found in the plan: pin w: [{"y"}, {}]' in str(other)


def test_words_that_do_not_fit_the_program_are_an_input_error(planned):
    words = Asked(mesh={"x": 2, "y": 4}, hardware="cpu_sim", constraints=[Pin("nothing", "[{}]")])
    with pytest.raises(InputError, match="matches no value"):
        verify_plan(planned[0], asked=words)


def test_other_results_are_found(planned):
    data, traced = planned
    found = verify_plan(data, Runnable(traced, lambda x, w: jnp.tanh(x @ w).sum(0) * 1.01, arguments), asked=ASKED)
    assert statuses(found) == ["ok", "ok", "ok", "failed"]
    assert not found.ok


def test_a_function_that_is_another_program_is_found(planned):
    data, _ = planned
    other = trace(lambda x, w: jnp.sin(x @ w).sum(0), *SPECS, argnames=["x", "w"], name="f")
    found = verify_plan(data, Runnable(other, f, arguments), asked=ASKED)
    assert statuses(found) == ["ok", "ok", "failed", "not done"]
    assert "does not trace to the program of the plan" in str(found)


def test_a_plan_that_contradicts_itself_is_not_run(planned):
    data = copy.deepcopy(planned[0])
    data["collectives"][0]["bytes"] += 1
    found = verify_plan(data, Runnable(planned[1], f, arguments), asked=ASKED)
    assert statuses(found) == ["failed", "not done", "not done", "not done"]
    assert not found.ok
    assert "the plan is wrong" in str(found)


def test_without_the_function_three_checks_are_not_done(planned, tmp_path):
    (tmp_path / "plan.json").write_text(json.dumps(planned[0]))
    found = verify_file(tmp_path / "plan.json")
    assert statuses(found) == ["ok", "not done", "not done", "not done"]
    assert found.ok
    assert not found.complete
    assert "carries no config" in found.to_dict()["checks"][2]["lines"][0]


def test_a_mesh_too_large_to_simulate_is_lowered_only():
    data, traced = plan_of({"x": 4, "y": 32})
    found = verify_plan(data, Runnable(traced, f, arguments))
    assert statuses(found) == ["ok", "not done", "not done", "not done"]
    assert found.checks[2].lines[0].startswith("lowered: all ")
    assert "compiled: not done, the mesh has 128 devices" in found.checks[2].lines[0]
    assert MAX_LOWERED_DEVICES >= 128


def test_what_is_no_plan_is_an_input_error(tmp_path):
    (tmp_path / "plan.json").write_text("{}")
    with pytest.raises(InputError, match="is not a plan"):
        verify_file(tmp_path / "plan.json")
    assert [f.topic for f in check_plan({}).findings] == ["file"]
    assert [f.topic for f in check_plan(None).findings] == ["file"]


def test_a_check_not_done_never_reads_as_ok():
    assert Status.NOT_DONE.value == "not done"
    assert Status.NOT_DONE is not Status.OK
