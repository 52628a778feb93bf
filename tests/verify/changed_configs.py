"""Changes of the config in a plan, and what is said when the plan is derived from it again."""

from changed_plans import Changes
from parts_of_plans import settings

change = Changes(of="stated")


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


@change(r"options: asked: objective overlap; found in the plan: serial")
def the_config_asks_for_overlap_and_the_plan_tells_no_objective(p):
    settings(p)["objective"] = "overlap"
    del p["options"]["objective"]


@change(r"program: asked: a batch of None; found in the plan: 256", "manual")
def a_plan_tells_a_batch_of_inputs_without_logical_axes(p):
    p["batch"] = 256
