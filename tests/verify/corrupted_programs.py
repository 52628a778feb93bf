"""Changes of what a plan is about (mesh, machine, program, statements) and damage to its file; what is said of each."""

from typing import Any

from changed_plans import Changes
from parts_of_plans import ops

corruption = Changes(of="transformer")


# mesh, machine, program


@corruption(r"mesh: mesh.atoms .* are not in the order")
def atoms_swapped(p):
    p["mesh"]["atoms"].reverse()


@corruption(r"mesh: mesh.atoms: the parts of axis 'y' multiply to 2")
def atom_too_small(p):
    p["mesh"]["atoms"] = ["x", "y:(1)2"]


@corruption(r"mesh: the machine is placed for axes")
def mesh_of_another_size(p):
    p["mesh"]["axes"]["y"] = 8


@corruption(r"mesh: mesh.device_ids is no permutation")
def devices_listed_twice(p):
    p["mesh"]["device_ids"] = [0, 0, 1, 2, 3, 4, 5, 6]


@corruption(r"collectives: .*the plan says .* seconds, it is")
def machine_made_faster(p):
    def faster(node: Any) -> Any:
        if isinstance(node, dict):
            return {k: v * 2 if k == "value" and isinstance(v, float) else faster(v) for k, v in node.items()}
        return [faster(v) for v in node] if isinstance(node, list) else node

    p["hardware"]["machine"] = faster(p["hardware"]["machine"])


@corruption(r"program: .* uses .* before or outside of where it is defined")
def ops_in_another_order(p):
    p["program"]["body"]["ops"].reverse()


@corruption(r"program: operand \d+ of scan:\d+: .* does not fit")
def scan_of_another_length(p):
    next(ops(p, "scan"))["attrs"]["length"] += 1


@corruption(r"program: two ops have the id")
def two_ops_with_one_id(p):
    first, second = list(ops(p))[:2]
    second["id"] = first["id"]


# statements


@corruption(r"statements: pin batch/\*: .* is broken: batch/to")
def pin_broken(p):
    statement = next(s for s in p["statements"] if s["kind"] == "pin" and s["pattern"] == "batch/*")
    statement["sharding"] = '[{}, {"x"}]'


@corruption(r"statements: .*is closed, but cut further")
def closed_dimension_cut_further(p):
    statement = next(s for s in p["statements"] if s["kind"] == "pin" and s["pattern"] == "batch/*")
    statement["sharding"] = "[{}, {}]"


@corruption(r"statements: pin state/params/layers/w_up.* is broken")
def pinned_replicated_axis_cuts(p):
    statement = next(s for s in p["statements"] if s["pattern"] == "state/params/layers/w_up")
    statement["sharding"] = '[{?}, {?}, {?}] replicated={"y"}'


@corruption(r"statements: pin batch/\*.* addresses batch/.*, which the statement leaves out")
def pin_speaks_of_fewer_values(p):
    next(s for s in p["statements"] if s["pattern"] == "batch/*")["values"].pop()


@corruption(r"statements: pin @logits.* is broken")
def pin_on_an_intermediate_broken(p):
    statement = next(s for s in p["statements"] if s["pattern"] == "@logits")
    statement["sharding"] = '[{"y"}, {}, {}]'


@corruption(r"statements: memory limit \d+ bytes: a device holds")
def memory_over_the_limit(p):
    next(s for s in p["statements"] if s["kind"] == "memory_limit")["bytes"] = p["memory"]["peak_bytes"] - 1


# damage


@corruption(r"file: the plan is damaged: there is no 'schedule'")
def schedule_missing(p):
    del p["schedule"]


@corruption(r"file: cost is damaged")
def cost_is_no_number(p):
    p["cost"]["rounding_s"] = "little"


@corruption(r"file: this is not a plan")
def of_another_version(p):
    p["version"] = 99
