"""Statements, mesh, machine, limits and priorities are derived from the config again; what was changed is caught."""

import copy
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from asked_cases import MANUAL, NAMED, STATED, Json, planned_from

from autoshard.verify import check_plan
from autoshard.verify.derived import check_derived
from autoshard.verify.report import Status

CASES: list[Any] = []


@pytest.fixture(scope="module")
def stated(tmp_path_factory: pytest.TempPathFactory) -> Json:
    """A function with every kind of statement but regions, in two stages."""
    return planned_from(STATED, tmp_path_factory.mktemp("stated"))


@pytest.fixture(scope="module")
def named(tmp_path_factory: pytest.TempPathFactory) -> Json:
    """Stages by the name of a strategy and by rules."""
    return planned_from(NAMED, tmp_path_factory.mktemp("named"))


@pytest.fixture(scope="module")
def manual(tmp_path_factory: pytest.TempPathFactory) -> Json:
    """A manual region, decided by a named strategy, no layers shared."""
    return planned_from(MANUAL, tmp_path_factory.mktemp("manual"))


@pytest.mark.parametrize("name", ["stated", "named", "manual"])
def test_plans_as_made_are_what_was_asked_for(name: str, request: pytest.FixtureRequest) -> None:
    plan = request.getfixturevalue(name)
    assert [str(f) for f in check_plan(plan).findings] == []
    found = check_derived(plan)
    assert found.status is Status.OK, str(found)
    assert "follow from the config" in found.lines[0]


def change(expected: str, of: str = "stated") -> Callable[[Callable[[Json], None]], Callable[[Json], None]]:
    """Register a change of the plan `of`, and what must be said about it (a regular expression)."""

    def register(do: Callable[[Json], None]) -> Callable[[Json], None]:
        CASES.append(pytest.param(of, do, expected, id=do.__name__))
        return do

    return register


def statement(plan: Json, kind: str, of: str = "") -> Json:
    return next(s for s in plan["statements"] if s["kind"] == kind and of in str(s.get("pattern", s.get("patterns"))))


def settings(plan: Json) -> Json:
    return plan["config"]["settings"]


# the plan's statements are changed


@change(r'statements: asked: pin x: \[{"x"}, {}\]; found in the plan: pin x: \[{"x", \?}, {\?}\]; solve again')
def a_pin_is_weakened_to_open(p):
    statement(p, "pin", "x")["sharding"] = '[{"x", ?}, {?}]'


@change(r"statements: asked: pin state/\*/w1 \(priority 1\): .*; found in the plan: pin state/\*/w1: ")
def a_pin_loses_its_priority(p):
    del statement(p, "pin", "w1")["priority"]


@change(r"statements: asked: at most 60 reshards; found in the plan: at most 600 reshards")
def more_reshards_are_allowed(p):
    statement(p, "max_reshards").update(limit=600, text="at most 600 reshards")


@change(r"statements: asked: at most 60 reshards \(limit: 60\); found in the plan: at most 60 reshards \(limit: 600\)")
def more_reshards_are_allowed_under_the_same_words(p):
    statement(p, "max_reshards")["limit"] = 600


@change(r"statements: asked: at most 60 reshards; found in the plan: at most 60 reshards over z")
def only_reshards_of_one_axis_are_counted(p):
    statement(p, "max_reshards").update(axes=["z"], text="at most 60 reshards over z")


@change(r"statements: asked: no collective over x at tanh; found in the plan: no collective over z at tanh")
def no_collective_over_another_axis(p):
    statement(p, "no_collective").update(axes=["z"], text="no collective over z at tanh")


@change(r"statements: asked: no collective over x at tanh; found in the plan: no collective over x at sub")
def no_collective_in_another_place(p):
    statement(p, "no_collective").update(patterns=["sub"], text="no collective over x at sub")


@change(r"statements: asked: memory limit (\d+) bytes per device; found in the plan: memory limit \d+ bytes")
def the_memory_limit_is_doubled(p):
    statement(p, "memory_limit")["bytes"] *= 2


@change(r"statements: asked: memory limit \d+ bytes per device; found in the plan: no such statement")
def the_memory_limit_is_left_out(p):
    p["statements"].remove(statement(p, "memory_limit"))


@change(r"statements: asked: limit of 1073741824 bytes of pinned_host; found in the plan: limit of 4294967296")
def the_limit_on_the_host_is_raised(p):
    statement(p, "host_memory_limit")["bytes"] *= 4


@change(r"statements: asked: pin x: .*; found in the plan: no such statement")
def a_pin_is_left_out(p):
    p["statements"].remove(statement(p, "pin", "x"))


@change(r"statements: asked: nothing like it; found in the plan: pin out/m/w1 ")
def a_pin_is_added(p):
    slot = p["program"]["output_names"].index("out/m/w1")
    p["statements"].append(
        {**statement(p, "pin", "w1"), "pattern": "out/m/w1", "sharding": "[{?}, {?}]", "values": [], "outputs": [slot]}
    )


@change(r"statements: asked: pin state/\*/w1 .* \(values: state/m/w1, state/w/w1\); found .* \(values: state/m/w1\)")
def a_pin_speaks_of_fewer_values(p):
    statement(p, "pin", "w1")["values"].pop()


@change(r"statements: asked: pin x: .*; found in the plan: pin tanh: ")
def a_pin_speaks_of_another_value(p):
    tanh = next(op for op in p["program"]["body"]["ops"] if op["kind"] == "tanh")
    statement(p, "pin", "x").update(pattern="tanh", values=tanh["results"], sharding="[{?}, {?}]")


@change(r"statements: asked: same sharding: state/w/w2, state/m/w2; found in the plan: no such statement")
def a_group_is_left_out(p):
    p["statements"].remove(statement(p, "same_sharding"))


@change(r"statements: asked: same sharding: .*; found in the plan: same sharding: state/w/w2, state/w/w2")
def a_group_ties_other_values(p):
    group = statement(p, "same_sharding")
    group.update(patterns=["state/w/w2", "state/w/w2"], values=group["values"][1:])


@change(r"statements: asked: replicated x over y; found in the plan: replicated x over z")
def replicated_over_another_axis(p):
    statement(p, "replicated").update(axes=["z"], text="replicated x over z")


@change(r"statements: asked: axis z only for x; found in the plan: axis z only for x, state/w/w1")
def an_axis_is_kept_for_more_values(p):
    kept = statement(p, "axis_only")
    values = sorted([*kept["values"], p["program"]["input_names"].index("state/w/w1")])
    kept.update(patterns=["x", "state/w/w1"], values=values, text="axis z only for x, state/w/w1")


@change(r"statements: asked: barrier \(backward\) at tanh; found in the plan: barrier \(forward\) at tanh")
def a_barrier_is_turned_around(p):
    statement(p, "barrier").update(direction="forward", text="barrier (forward) at tanh")


@change(r"statements: asked: memory pinned_host for out/m/\*\*; found in the plan: no such statement")
def a_memory_is_left_out(p):
    p["statements"].remove(statement(p, "memory_kind", "out/m"))


@change(r"memory: asked: inputs on the host: state/m/w1, state/m/w2; found in the plan: state/m/w2")
def an_input_moves_to_the_device(p):
    p["program"]["host"]["inputs"].pop(0)


@change(
    r"statements: asked: manual computation over x .*in_shardings.*; found in the plan: manual computation", "manual"
)
def the_border_of_a_region_is_changed(p):
    statement(p, "manual_computation")["in_shardings"][0]["sharding"] = '[{?}, {?}] replicated={"x"}'


@change(r"statements: asked: manual computation over x at scope:first; found in the plan: no such statement", "manual")
def a_region_is_left_out(p):
    p["statements"].remove(statement(p, "manual_computation"))


# mesh, machine and the rest of the plan are changed


@change(r"mesh: asked: devices in the order 0 to 7; found in the plan: \[1, 0, 2, 3, 4, 5, 6, 7\]; make the mesh with")
def devices_are_permuted(p):
    p["mesh"]["device_ids"] = [1, 0, *range(2, 8)]


@change(
    r"hardware: asked: tpu_v5e with profile.memory.usable.* found in the plan: .*; if the profile has changed since"
)
def the_device_has_more_room(p):
    p["hardware"]["machine"]["profile"]["memory"]["usable"] = None


@change(r"hardware: asked: tpu_v5e with profile\.\S*overlap\S* ")
def collectives_hide_more(p):
    p["hardware"]["machine"]["profile"]["overlap"]["all_gather"] = 1.0


@change(r"strategy: asked: greedy; found in the plan: by cost", "manual")
def the_strategy_is_hidden(p):
    del p["strategy"]


@change(r"strategy: asked: by cost; found in the plan: basic")
def another_strategy_is_claimed(p):
    p["strategy"] = "basic"


@change(r"sharing: asked: every layer decides for itself; found in the plan: layers that share", "manual")
def layers_are_said_to_share(p):
    p["sharing"] = {"decisions": 9, "shared": 3, "bound_s": None, "price_at_most_s": None}


@change(r"program: asked: loops of unknown length run 1 time; found in the plan: 2 times")
def loops_run_more_often(p):
    p["trips"] = 2


@change(r"stages: asked: 2 stages; found in the plan: 1")
def a_stage_is_left_out(p):
    p["stages"].pop(0)


@change(r"stages: asked: stage 1 of priority 1; found in the plan: 0")
def a_stage_has_another_priority(p):
    p["stages"][1]["priority"] = 0


@change(r"stages: asked: stage 1 places y; found in the plan: x")
def a_stage_places_other_axes(p):
    p["stages"][1]["axes"] = ["x"]


@change(r"stages: asked: stage 1 is of pin state/\*/w1 .*; found in the plan: pin x")
def a_stage_is_of_other_statements(p):
    p["stages"][1]["statements"] = ["pin x"]


@change(r"priorities: asked: names \[0\] data; found in the plan: tensor", "named")
def stages_have_other_names(p):
    p["priorities"]["names"][0] = "tensor"


@change(r"priorities: asked: names \[1\]\.rules\.mlp\[0\] model; found in the plan: data", "named")
def rules_mean_other_axes(p):
    p["priorities"]["names"][1]["rules"]["mlp"] = ["data"]


@change(r"priorities: asked: roles x\[0\] batch; found in the plan: rows", "named")
def inputs_have_other_roles(p):
    p["priorities"]["roles"]["x"][0] = "rows"


@change(r"priorities: asked: .*data.*; found in the plan: none", "named")
def nothing_is_said_of_names(p):
    del p["priorities"]


@change(r"memory: asked: a limit of \d+ bytes per device; found in the plan: no bytes at all \(lifted\)")
def the_limit_is_said_to_be_lifted(p):
    p["memory_limit"] = {"bytes": None, "from": "stated"}


@change(r"memory: asked: a limit of 14705594546 bytes per device, for which the device has room; found .* 16", "named")
def the_device_is_said_to_have_more_room(p):
    p["memory_limit"] = {"bytes": 16_000_000_000, "from": "device"}


@change(r"options: asked: effort 1.0; found in the plan: 3.0")
def more_effort_is_claimed(p):
    p["options"] = {"effort": 3.0, "seed": 0}


@change(r"stages: asked: 2 stages; found in the plan: 1")
def the_last_stage_is_left_out(p):
    p["stages"].pop()


@change(r"stages: asked: stage 1 of a priority, without a name; found in the plan: the name 'tensor'")
def a_stage_gets_a_name(p):
    p["stages"][1]["name"] = "tensor"


@change(r"mesh: asked: the name 'mesh'; found in the plan: 'pod'")
def the_mesh_has_another_name(p):
    p["mesh"]["name"] = "pod"


@change(r"memory: asked: a limit of \d+ bytes per device; found in the plan: a peak of \d+ bytes")
def the_limit_is_left_out_and_the_config_states_less(p):
    del p["memory_limit"]
    settings(p)["memory_limit"] = "1KiB"


@change(r"baselines: asked: data; found in the plan: rows", "named")
def a_baseline_is_left_out(p):
    p["baselines"] = [b for b in p["baselines"] if b["name"] != "data"]


@change(r"baselines: asked: nothing like it; found in the plan: fsdp", "named")
def a_baseline_is_added(p):
    p["baselines"].append({**p["baselines"][0], "name": "fsdp"})


@change(r"baselines: asked: each one once; found in the plan: data, rows, data", "named")
def a_baseline_is_listed_twice(p):
    p["baselines"].append(p["baselines"][0])


# the config is changed


@change(r"hardware: asked: tpu_v5p; found in the plan: tpu_v5e")
def the_config_names_other_hardware(p):
    settings(p)["hardware"] = "tpu_v5p"


@change(r"mesh: .*the config asks for mesh axes|mesh: asked: axes x=4 x y=2 x z=1; found in the plan: x=2 x y=4 x z=1")
def the_config_has_another_mesh(p):
    settings(p)["mesh"] = {"x": 4, "y": 2, "z": 1}


@change(r"mesh: asked: axes y=4 x x=2 x z=1; found in the plan: x=2 x y=4 x z=1")
def the_config_has_the_axes_in_another_order(p):
    settings(p)["mesh"] = {"y": 4, "x": 2, "z": 1}


@change(r"hardware: asked: tpu_v5e with layout\[0\]")
def the_config_puts_an_axis_on_another_link(p):
    settings(p)["mesh"]["x"] = {"size": 2, "link": "dcn"}


@change(r"statements: asked: pin x: \[{}, {}\]; found in the plan: pin x: ")
def the_config_pins_otherwise(p):
    settings(p)["pins"][0]["sharding"] = "[{}, {}]"


@change(r"statements: asked: nothing like it; found in the plan: pin state/\*/w1")
def the_config_pins_less(p):
    settings(p)["pins"].pop()


@change(r"statements: asked: no collective over y at tanh; found in the plan: no collective over x at tanh")
def the_config_bars_another_axis(p):
    settings(p)["no_collective"][0]["axis"] = "y"


@change(r"statements: asked: memory limit 100000 bytes per device; found in the plan: memory limit ")
def the_config_limits_memory_further(p):
    settings(p)["memory_limit"]["device"] = 100_000


@change(r"priorities: asked: names \[0\]", "named")
def the_config_has_other_priorities(p):
    settings(p)["priorities"].reverse()


@change(r"config: no plan comes from the config in this file: .*unknown strategy 'clever'", "manual")
def the_config_is_none(p):
    settings(p)["strategy"] = "clever"


def test_there_are_fifty_eight_kinds_of_change_and_no_name_twice() -> None:
    """docs/verification.md states the count."""
    assert len(CASES) == len({case.id for case in CASES}) == 58


@pytest.mark.parametrize(("of", "do", "expected"), CASES)
def test_a_plan_that_is_not_what_was_asked_for_is_caught(
    of: str, do: Callable[[Json], None], expected: str, request: pytest.FixtureRequest
) -> None:
    plan = copy.deepcopy(request.getfixturevalue(of))
    do(plan)
    found = check_derived(plan)
    lines = [*found.lines, *map(str, check_plan(plan).findings)]
    assert found.status is Status.FAILED and any(re.search(expected, line) for line in lines), lines[:10]


def test_a_profile_that_is_not_there_leaves_the_check_undone(stated: Json, tmp_path: Path) -> None:
    plan = copy.deepcopy(stated)
    settings(plan)["hardware"] = str(tmp_path / "gone.yaml")
    found = check_derived(plan)
    assert found.status is Status.NOT_DONE
    assert "taken from the plan itself: not derived" in found.lines[0]


def test_a_plan_that_does_not_tell_its_options_and_limit_says_what_rests_on_trust(named: Json) -> None:
    plan = copy.deepcopy(named)
    del plan["memory_limit"], plan["options"]
    found = check_derived(plan)
    assert found.status is Status.OK
    assert "taken on trust: which memory limit the plan was made for: it says none" in found.lines
    assert any("options of the search that the plan does not tell: effort, seed" in line for line in found.lines)


@pytest.mark.parametrize("path", ["mesh.device_ids", "program.name", "program.warnings", "stages.0.axes"])
def test_a_plan_that_lacks_something_has_failed_the_check(stated: Json, path: str) -> None:
    plan = copy.deepcopy(stated)
    at: Any = plan
    *upper, last = path.split(".")
    for key in upper:
        at = at[int(key) if key.isdigit() else key]
    del at[last]
    found = check_derived(plan)
    assert found.status is Status.FAILED
    assert "the plan is damaged" in found.lines[0]
