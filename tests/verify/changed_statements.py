"""Changes of a plan's statements, and what is said when they are derived from the config again."""

from changed_plans import Changes
from parts_of_plans import statement

change = Changes(of="stated")


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
