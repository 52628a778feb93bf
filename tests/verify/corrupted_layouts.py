"""Changes of a plan's layouts, and what the plan checker says of each: laws of layouts, and where values lie."""

from changed_plans import Changes
from parts_of_plans import layout, ops, value

corruption = Changes(of="transformer")


@corruption(r"layouts: input .* is a partial sum")
def input_becomes_a_partial_sum(p):
    layout(p, "state/params/final_norm")["unreduced"] = [0]


@corruption(r"layouts: definition of .*uses \"x\" twice")
def axis_twice_in_a_tensor(p):
    layout(p, "batch/tokens")["dims"] = [[0], [0]]


@corruption(r"layouts: definition of .*dimension 0 of .* of size 2 is cut in 4 parts")
def dimension_cut_unevenly(p):
    layout(p, "state/params/layers/wq")["dims"] = [[0, 1], [], [], []]


@corruption(r"layouts: definition of .*has 2 dimensions, its layout 3")
def layout_of_another_rank(p):
    layout(p, "batch/tokens")["dims"].append([])


@corruption(r"layouts: definition of .*names atom 7")
def layout_names_an_atom_that_is_none(p):
    layout(p, "batch/tokens")["dims"][0] = [7]


@corruption(r"layouts: .* has no layout in schedule.definitions")
def definition_removed(p):
    del p["schedule"]["definitions"][str(value(p, "state/params/head"))]


@corruption(r"layouts: value 99999 has a layout but is defined nowhere")
def definition_of_nothing(p):
    p["schedule"]["definitions"]["99999"] = {"dims": [], "unreduced": []}


@corruption(r"uses: .*state/params/final_norm arrives in .*, its placement wants")
def wrong_sharding_of_an_input(p):
    held = layout(p, "state/params/final_norm")
    held["dims"] = [[1]] if held["dims"] != [[1]] else [[0]]


@corruption(r"layouts: .* is defined in .*, the placement of dot_general:\d+ gives")
def wrong_sharding_of_a_result(p):
    op = next(op for op in ops(p, "dot_general") if p["schedule"]["definitions"][str(op["results"][0])]["dims"][0])
    p["schedule"]["definitions"][str(op["results"][0])]["dims"][0] = []


@corruption(r"layouts: shardings\[batch/tokens\] is")
def printed_sharding_differs(p):
    p["shardings"]["batch/tokens"] = "[{}, {}]"


@corruption(r"layouts: .*stacked result .* is cut along its stack")
def stack_of_a_scan_is_cut(p):
    scan = next(o for o in ops(p, "scan") if len(o["results"]) > o["attrs"]["num_carry"])
    stacked = p["schedule"]["definitions"][str(scan["results"][-1])]
    used = {a for d in stacked["dims"] for a in d}
    stacked["dims"] = (
        [[0], *([a for a in d if a != 0] for d in stacked["dims"][1:])] if 0 in used else [[0], *stacked["dims"][1:]]
    )


@corruption(r"layouts: .* is defined in .*, carry \d+ of scan:\d+ is")
def carry_leaves_in_another_layout(p):
    scan = next(o for o in ops(p, "scan") if o["attrs"]["num_carry"] and o["attrs"]["length"] == 2)
    for v in scan["results"][: scan["attrs"]["num_carry"]]:
        held = p["schedule"]["definitions"][str(v)]
        if len(held["dims"]) >= 2:
            held["dims"] = [[], []] + held["dims"][2:] if any(held["dims"][:2]) else [[0], []] + held["dims"][2:]
            return
    raise AssertionError("no carry to change")


@corruption(r"layouts: .*block argument .* is a partial sum")
def loop_constant_becomes_a_partial_sum(p):
    scan = next(o for o in ops(p, "scan") if o["attrs"]["num_consts"])
    p["schedule"]["definitions"][str(scan["regions"][0]["args"][0])]["unreduced"] = [0]
