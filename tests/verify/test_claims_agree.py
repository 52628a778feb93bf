"""What a plan claims of bounds, stages, other meshes and hidden collectives is held against all else that it says."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import pytest
from asked_cases import MANUAL, NAMED, STATED, Json, plain, planned_from
from changed_plans import Changes, check_caught
from plan_cases import f32

import autoshard
from autoshard.verify import check_plan


@pytest.fixture(scope="module")
def stated(tmp_path_factory: pytest.TempPathFactory) -> Json:
    return planned_from(STATED, tmp_path_factory.mktemp("stated"))


@pytest.fixture(scope="module")
def named(tmp_path_factory: pytest.TempPathFactory) -> Json:
    return planned_from(NAMED, tmp_path_factory.mktemp("named"))


@pytest.fixture(scope="module")
def greedy(tmp_path_factory: pytest.TempPathFactory) -> Json:
    """A plan with a gap."""
    return planned_from(MANUAL, tmp_path_factory.mktemp("greedy"))


@pytest.fixture(scope="module")
def searched() -> Json:
    """The sizes of the mesh were searched."""

    def f(x: Any, w: Any) -> Any:
        return jnp.tanh(x @ w)

    mesh = {"devices": 4, "axes": ["a", "b"]}
    return plain(autoshard.plan(f, f32(64, 256), f32(256, 512), mesh=mesh, hardware="tpu_v5e").to_dict())


@pytest.fixture(scope="module")
def shared() -> Json:
    """Layers share their decisions."""

    def f(ws: Any, x: Any) -> Any:
        for up, down in ws:
            x = x + jnp.tanh(x @ up) @ down
        return x

    ws = [(f32(64, 128), f32(128, 64)) for _ in range(4)]
    return plain(autoshard.plan(f, ws, f32(256, 64), mesh={"a": 2, "b": 2}, hardware="tpu_v5e").to_dict())


@pytest.mark.parametrize("name", ["stated", "named", "greedy", "searched", "shared"])
def test_plans_as_made_agree_with_themselves(name: str, request: pytest.FixtureRequest) -> None:
    plan = request.getfixturevalue(name)
    assert [str(f) for f in check_plan(plan).findings] == []


change = Changes(of="named")


def group(plan: Json) -> Json:
    return plan["cost"]["step_time"]["groups"][0]


# objective, bound, gap and status


@change(r"bound: status is 'feasible', but bound_s .* meets objective_s .* up to the rounding")
def an_optimal_plan_is_called_feasible(p):
    p["status"] = p["stages"][-1]["status"] = "feasible"


@change(r"bound: status is 'feasible', but bound_s .* meets objective_s", "greedy")
def the_bound_is_set_to_the_objective(p):
    p["bound_s"], p["gap"] = p["objective_s"], 0.0


@change(r"bound: status is 'optimal', but objective_s .* is above bound_s .* by more than the rounding", "greedy")
def a_plan_with_a_gap_is_called_optimal(p):
    p["status"] = "optimal"


@change(r"bound: status is 'optimal', but objective_s .* by more than the rounding", "searched")
def a_small_gap_is_called_optimal(p):
    p["bound_s"] *= 1 - 1e-7
    p["gap"] = (p["objective_s"] - p["bound_s"]) / p["objective_s"]


@change(r"bound: status is 'proved'", "greedy")
def a_status_that_is_none(p):
    p["status"] = "proved"


@change(r"bound: objective_s is .* and bound_s -1.0; both are numbers of seconds", "greedy")
def a_negative_bound(p):
    p["bound_s"] = -1.0


# stages and the optimum all at once


@change(r"stages: stage 1 has a price of 0.0 s; it costs .* s, .* s before: ")
def the_price_of_a_stage_is_zeroed(p):
    p["stages"][1]["price_s"] = 0.0


@change(r"stages: stage 0 has a price of 0.0 s; it costs .* s, .* s before: ")
def the_price_of_the_first_stage_by_name_is_zeroed(p):
    p["stages"][0]["price_s"] = 0.0


@change(r"stages: stage 0 has a price of .* s and costs .* s in all", "stated")
def the_first_stage_is_dearer_than_it_costs(p):
    p["stages"][0]["price_s"] = 2 * p["stages"][0]["cost_s"]


@change(r"stages: stage 1 has a price of .*; it costs .* s, .* s before: ", "stated")
def cost_and_bound_of_a_stage_move_together(p):
    for key in ("cost_s", "bound_s"):
        p["stages"][0][key] *= 0.9


@change(r"stages: stage 0: gap is 0.5 in the plan", "stated")
def the_gap_of_a_stage_is_wrong(p):
    p["stages"][0]["gap"] = 0.5


@change(r"stages: stage 0: status is 'optimal', but its cost .* is above bound_s .* by more than", "stated")
def a_stage_with_a_gap_is_called_optimal(p):
    p["stages"][0].update(bound_s=0.9 * p["stages"][0]["cost_s"], gap=0.1)


@change(r"stages: the plan is 'optimal', its last stage 'feasible'", "stated")
def the_last_stage_has_another_status(p):
    p["stages"][-1]["status"] = "feasible"


@change(r"stages: the plan's bound is .* s, the last stage's", "stated")
def the_last_stage_has_another_bound(p):
    p["stages"][-1]["bound_s"] *= 0.9


@change(r"stages: the plan holds \d+ bytes at the peak, its last stage \d+", "stated")
def the_last_stage_has_another_peak(p):
    p["stages"][-1]["peak_bytes"] -= 1


@change(r"stages: all at once: gap is .* its cost .* give")
def the_joint_cost_is_raised(p):
    p["joint"]["cost_s"] *= 1.1


@change(r"stages: the stages are said to cost .* s more; it is")
def the_joint_cost_is_lowered(p):
    p["joint"]["cost_s"] *= 0.9


@change(r"stages: all at once costs .* s, the notes say")
def joint_cost_bound_and_price_move_together(p):
    joint = p["joint"]
    joint.update(cost_s=0.9 * joint["cost_s"], bound_s=0.9 * joint["bound_s"])
    joint["price_of_stages_s"] = p["objective_s"] - joint["cost_s"]


@change(r"stages: all at once is said to cost at least .* s, the stages cost less")
def stages_are_cheaper_than_all_at_once(p):
    p["joint"].update(cost_s=2 * p["objective_s"], bound_s=2 * p["objective_s"])


@change(r"stages: the stages are said to cost 0.0 s more; it is")
def the_price_of_all_stages_is_zeroed(p):
    p["joint"]["price_of_stages_s"] = 0.0


@change(r"stages: all at once: status is 'optimal', but its cost .* is above bound_s")
def all_at_once_with_a_gap_is_called_optimal(p):
    p["joint"].update(bound_s=0.5 * p["joint"]["cost_s"], gap=0.5)


@change(r"stages: 2 stages, and nothing is said of the optimum all at once")
def all_at_once_is_left_out(p):
    p["joint"] = None


@change(r"stages: priorities are data, columns; the stages are data$")
def the_last_stage_by_name_is_taken_out(p):
    p["stages"].pop()
    last = p["stages"][-1]
    p.update(status=last["status"], bound_s=last["bound_s"])


@change(r"stages: the statements have priorities 0, 1; the plan has stages of priority 0$", "stated")
def the_last_stage_is_taken_out(p):
    p["stages"].pop()


@change(r"stages: the statements have priorities 0, 1; the plan has no stages", "stated")
def all_stages_are_taken_out(p):
    p["stages"], p["joint"] = [], None


@change(r"stages: stage 1 gave up something on tanh; it is ")
def what_was_given_up_has_another_name(p):
    p["stages"][1]["relaxed"][0]["name"] = "tanh"


@change(r"stages: stage 1 tells twice that it gave up the same")
def what_was_given_up_is_told_twice(p):
    p["stages"][1]["relaxed"].append(p["stages"][1]["relaxed"][0])


@change(r"stages: stage 1 gave up y, model on .*, which are no axes of the mesh")
def what_was_given_up_names_other_axes(p):
    p["stages"][1]["relaxed"][0]["axes"].insert(0, "y")


@change(r"stages: stage 1 gave up .*, 'guessed', proved is .*: neither is known")
def what_was_given_up_came_from_nowhere(p):
    p["stages"][1]["relaxed"][0]["source"] = "guessed"


# collectives that hide, and groups of them


@change(r"cost: cost.by_axes_and_kind_s\[.*\]\[all_gather\] is .* in the plan, the layouts give", "stated")
def seconds_of_axes_and_kind_are_lowered(p):
    kinds = next(kinds for kinds in p["cost"]["by_axes_and_kind_s"].values() if "all_gather" in kinds)
    kinds["all_gather"] *= 0.9


@change(r"memory: memory.held lists .* bytes from", "stated")
def what_is_held_is_listed_twice(p):
    p["memory"]["held"].append(p["memory"]["held"][0])


@change(r"memory: memory.fits is None in the plan; it follows as True", "stated")
def nothing_is_said_of_whether_it_fits(p):
    del p["memory"]["fits"]


@change(r"all_gather over .* names a dimension 1 that it does not have", "stated")
def a_step_names_a_dimension_that_it_has_not(p):
    step = next(s for use in p["schedule"]["uses"] for s in use["steps"] if s["kind"] == "all_gather")
    step["to_dim"] = 1


@change(r"cost: cost.step_time.groups: .* has hidden .*, layouts and machine give", "stated")
def a_collective_hides_more(p):
    group(p)["hidden"] = 0.25 if group(p)["hidden"] != 0.25 else 0.5


@change(r"cost: cost.step_time.groups: .* has seconds .*, layouts and machine give", "stated")
def a_group_takes_less_time(p):
    group(p)["seconds"] *= 0.9


@change(r"cost: cost.step_time.groups: .* has times .*, layouts and machine give", "stated")
def a_group_runs_more_often(p):
    group(p)["times"] += 1


@change(r"cost: cost.step_time.groups: .* adds up to .* bytes, the layouts give", "stated")
def a_group_moves_something_else(p):
    group(p)["moves"] = "weights" if group(p)["moves"] != "weights" else "activations"


@change(r"cost: cost.step_time.groups: .* has machine_flops_per_byte .*, layouts and machine give", "stated")
def the_machine_has_another_ratio(p):
    group(p)["machine_flops_per_byte"] *= 2


@change(r"cost: cost.step_time.groups: .* turns at .*, its figures give", "stated")
def a_group_turns_elsewhere(p):
    turning = next(g for g in p["cost"]["step_time"]["groups"] if g["flip"] is not None)
    turning["flip"]["factor"] *= 2


@change(r"cost: cost.step_time.groups lists a group twice", "stated")
def a_group_is_listed_twice(p):
    p["cost"]["step_time"]["groups"].append(dict(group(p)))


@change(r"cost: cost.step_time.estimate_s is .* in the plan, the layouts give", "stated")
def the_estimate_is_lowered_within_its_limits(p):
    step = p["cost"]["step_time"]
    step["estimate_s"] = (step["estimate_s"] + step["upper_s"]) / 2 if step["estimate_s"] < step["upper_s"] else 0.0


# shared layers and other meshes


@change(r"sharing: sharing costs .* s at most in the plan; it is", "shared")
def sharing_is_said_to_cost_less(p):
    p["sharing"]["price_at_most_s"] = p["objective_s"] / 10


@change(r"sharing: plans whose layers differ are said to cost .* this one costs less", "shared")
def layers_that_differ_are_said_to_cost_more(p):
    p["sharing"].update(bound_s=2 * p["objective_s"], price_at_most_s=-p["objective_s"])


@change(r"sharing: 99 of \d+ decisions are said to be shared", "shared")
def more_is_shared_than_there_is(p):
    p["sharing"]["shared"] = 99


@change(r"sharing: the price of sharing is the objective less its bound; only one of them is told", "shared")
def the_price_of_sharing_is_left_out(p):
    p["sharing"]["price_at_most_s"] = None


@change(r"mesh: no mesh is said to have a plan under .* s; the bounds say", "searched")
def the_bound_over_meshes_is_raised(p):
    p["mesh_search"]["bound_s"] *= 1.5


@change(r"mesh: the plan costs .* s, what was tried on its mesh", "searched")
def the_mesh_of_the_plan_was_tried_at_another_cost(p):
    own(p)["objective_s"] *= 1.5


@change(r"mesh: the plan holds \d+ bytes, the mesh search says", "searched")
def the_mesh_of_the_plan_was_tried_with_another_peak(p):
    own(p)["peak_bytes"] += 1


@change(r"mesh: mesh a=\d x b=\d has a plan of .* s, which is cheaper than this one", "searched")
def another_mesh_is_cheaper(p):
    other = next(t for t in p["mesh_search"]["tried"] if t is not own(p))
    other.update(status="optimal", objective_s=p["objective_s"] / 2, bound_s=p["objective_s"] / 2)


@change(r"mesh: mesh a=\d x b=\d has a bound of .* s above its cost", "searched")
def the_bound_of_a_mesh_is_above_its_cost(p):
    own(p)["bound_s"] = 2 * own(p)["objective_s"]


@change(r"mesh: a search of 8 devices along .* found the mesh", "searched")
def the_search_is_of_other_devices(p):
    p["mesh_search"]["devices"] = 8


@change(r"mesh: the frontier holds a=3 x b=\d, which was not tried", "searched")
def the_frontier_holds_another_mesh(p):
    p["mesh_search"]["frontier"][0]["mesh"]["a"] = 3


@change(r"mesh: the frontier holds a plan of \d+ bytes within a limit of 10$", "searched")
def the_frontier_exceeds_its_limit(p):
    p["mesh_search"]["frontier"][-1]["memory_limit"] = 10


@change(r"mesh: mesh a=\d x b=\d is 'best': optimal, feasible", "searched")
def a_mesh_is_of_no_known_status(p):
    own(p)["status"] = "best"


@change(r"mesh: the frontier holds a=\d x b=\d, which another of its points beats", "searched")
def the_frontier_holds_what_is_beaten(p):
    point = p["mesh_search"]["frontier"][0]
    p["mesh_search"]["frontier"].append({**point, "objective_s": 2 * point["objective_s"]})


@change(r"mesh: 1 meshes were tried; 4 devices make 3", "searched")
def a_search_of_the_mesh_of_the_plan_alone(p):
    p["mesh_search"].update(tried=[own(p)], bound_s=own(p)["bound_s"])


def own(plan: Json) -> Json:
    return next(t for t in plan["mesh_search"]["tried"] if t["mesh"] == plan["mesh"]["axes"])


def test_there_are_fifty_six_kinds_of_change_and_no_name_twice() -> None:
    """docs/verification.md states the count."""
    assert len(change.cases) == len({case.id for case in change.cases}) == 56


@pytest.mark.parametrize(("of", "do", "expected"), change.cases)
def test_claims_that_do_not_agree_are_caught(
    of: str, do: Callable[[Json], None], expected: str, request: pytest.FixtureRequest
) -> None:
    check_caught(request.getfixturevalue(of), do, expected)


def test_a_plan_says_what_rests_on_its_word(named: Json, searched: Json) -> None:
    told = check_plan(named).facts[-1]
    assert told.startswith("taken on trust: ")
    assert "that no plan costs less" not in told
    bare = check_plan({k: v for k, v in named.items() if k != "certificate"}).facts[-1]
    assert bare.startswith("taken on trust: that no plan costs less than bound_s (the file has no certificate of it), ")
    assert "cost and peak of the stages before the last" in told and "the optimum all at once" in told
    assert "what other meshes cost" in check_plan(searched).facts[-1]
