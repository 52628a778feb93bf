"""Changes of a plan's reshards and of which values they are for, and what the plan checker says of each."""

from changed_plans import Changes
from parts_of_plans import first_step, uses

corruption = Changes(of="transformer")


@corruption(r"uses: operand .* arrives in .*, its placement wants")
def step_removed(p):
    found = next(u for u in uses(p) if len(u["steps"]) == 1 and u["op"] >= 0)
    found["steps"] = []


@corruption(r"uses: operand .* arrives in .*, its placement wants")
def step_added(p):
    found = next(u for u in uses(p, "slice") if u["op"] >= 0 and u["steps"][-1]["kind"] == "slice")
    step = found["steps"][-1]
    found["steps"].append({"kind": "all_gather", "atoms": step["atoms"], "dim": step["dim"], "to_dim": -1})


@corruption(r"reshards: .*all_gather over .*the blocks do not follow each other")
def gather_of_what_is_not_cut(p):
    step = first_step(p, "all_gather")
    step["dim"] = step["dim"] + 1 if step["dim"] == 0 else step["dim"] - 1


@corruption(r"reshards: .*reduce_scatter over .*is no partial sum")
def reduction_of_what_is_whole(p):
    found = next(u for u in uses(p, "slice") if u["steps"][0]["kind"] == "slice")
    found["steps"][0]["kind"] = "reduce_scatter"


@corruption(r"reshards: .*slice over .*do not hold the same data")
def slice_of_what_is_cut_already(p):
    found = next(u for u in uses(p, "slice") if u["steps"][0]["kind"] == "slice")
    found["steps"].insert(0, dict(found["steps"][0]))


@corruption(r"reshards: .*there is no step 'teleport'")
def unknown_step(p):
    first_step(p, "all_gather")["kind"] = "teleport"


@corruption(r"uses: .*: the schedule does not say how it gets")
def use_removed(p):
    p["schedule"]["uses"].remove(next(u for u in uses(p) if u["op"] >= 0))


@corruption(r"uses: output .*: the schedule does not say how it gets")
def use_by_an_output_removed(p):
    p["schedule"]["uses"].remove(next(u for u in uses(p) if u["op"] == -1))


@corruption(r"uses: the schedule has a use \d+/99/-1 that the program lacks")
def use_of_nothing(p):
    next(u for u in uses(p) if u["op"] >= 0)["slot"] = 99


@corruption(r"uses: .* is there twice")
def use_there_twice(p):
    p["schedule"]["uses"].append(dict(p["schedule"]["uses"][-1]))


@corruption(r"(reshards|uses): operand .*w_up")
def shared_form_removed(p):
    del p["schedule"]["shared"][next(iter(p["schedule"]["shared"]))]


@corruption(r"reshards: the shared form of .*do not follow each other")
def shared_form_over_other_atoms(p):
    step = next(s for steps in p["schedule"]["shared"].values() for s in steps)
    step["atoms"] = step["atoms"][:1]  # of several, so it is the major one that is gathered


@corruption(r"ties: output out/0/params/head takes the place of the donated input state/params/head")
def donated_state_comes_back_elsewhere(p):
    names = p["program"]["output_names"]
    slot = names.index("out/0/params/head")
    use = next(u for u in p["schedule"]["uses"] if u["op"] == -1 and u["slot"] == slot)
    head = p["program"]["body"]["results"][slot]
    held = p["schedule"]["definitions"][str(head)]["dims"]
    if use["steps"]:
        use["steps"].pop()
    else:
        dim = next(d for d in range(2) if held[d])
        use["steps"] = [{"kind": "all_gather", "atoms": held[dim], "dim": dim, "to_dim": -1}]


@corruption(r"layouts: output .* is handed back as a partial sum", of="looked_up")
def output_is_a_partial_sum(p):
    found = next(
        u for u in uses(p) if u["op"] == -1 and u["steps"] and u["steps"][0]["kind"] in ("all_reduce", "reduce_scatter")
    )
    found["steps"] = []
