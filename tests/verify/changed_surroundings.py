"""Changes of a plan's mesh, machine, options, stages and baselines, and what is said when they are derived again."""

from changed_plans import Changes
from parts_of_plans import settings

change = Changes(of="stated")


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


@change(r"program: asked: a batch of 256.0; found in the plan: 1024.0", "named")
def the_batch_is_larger_and_so_is_where_its_groups_turn(p):
    p["batch"] *= 4
    for flip in [group["flip"] for group in p["cost"]["step_time"]["groups"]]:
        if flip["quantity"] == "batch":
            flip.update(now=4 * flip["now"], at=4 * flip["at"])
