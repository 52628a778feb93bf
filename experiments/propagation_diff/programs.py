"""The same random modules read as programs: our propagation over the program against Shardy's over the module.

    python experiments/propagation_diff/programs.py --cases 1000

Compared are the shardings of arguments and results of the main function, with user priorities. Left out are modules
with manual or named computations, calls, groups or a second mesh, and those with dead ops: a program has none, and
Shardy looks at them before it removes them.
"""

import argparse
from dataclasses import replace

from cases import run, work

LEFT_OUT = ("manual_computation", "named_computation", "func.call", "sharding_group", "@other")


def compare(seed: int) -> tuple[str, str]:
    from jaxlib.mlir import ir
    from random_module import random_module

    from autoshard.errors import AutoshardError
    from autoshard.frontends.mlir.context import mlir_context, module_text, parse_module, run_passes
    from autoshard.frontends.mlir.program import read_mlir
    from autoshard.interop.sdy import sharding_from_attr
    from autoshard.propagation import propagate
    from autoshard.propagation.mlir.passes import import_passes

    text = random_module(seed)
    if any(word in text for word in LEFT_OUT):
        return "left out", ""
    module = parse_module(text)
    with mlir_context(), ir.Location.unknown():
        run_passes(module, "canonicalize{region-simplify=disabled enable-patterns={none}}")  # removes what is dead
        text = module_text(module)
        try:
            run_passes(module, import_passes() + ",sdy-user-priority-propagate")
        except AutoshardError:
            return "skipped: Shardy refuses", ""
        main = next(o.operation for o in module.body.operations if o.operation.name == "func.func")
        theirs: list[str | None] = []
        count = len(ir.FunctionType(ir.TypeAttr(main.attributes["function_type"]).value).inputs)
        results = len(ir.FunctionType(ir.TypeAttr(main.attributes["function_type"]).value).results)
        for name, n in (("arg_attrs", count), ("res_attrs", results)):
            entries = list(ir.ArrayAttr(main.attributes[name])) if name in main.attributes else [None] * n
            for entry in entries:
                given = entry is not None and "sdy.sharding" in entry
                theirs.append(
                    str(replace(sharding_from_attr(entry["sdy.sharding"]), mesh_name=None)) if given else None
                )
    try:
        read = read_mlir(text)
        mesh = next(iter(read.meshes.values()))
        found = propagate(read.program, mesh, read.shardings, outputs=read.outputs, groups=read.groups)
    except AutoshardError as error:
        return "skipped: ours refuses (padding)", str(error)
    ours = [str(found.values[v]) for v in read.program.body.args]
    for index, value in enumerate(read.program.body.results):
        ours.append(str(found.outputs[index] if index in found.outputs else found.values[value]))
    wrong = []
    for position, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
        stated = position < count or position - count in read.outputs
        if mine != other if stated and other is not None else axes_of(mine) != axes_of(other or "[]"):
            wrong.append(f"{position}: {other} against our {mine}")
    return ("different", "; ".join(wrong)) if wrong else ("equal", "")


def axes_of(text: str) -> list[list[str]]:
    """The axes of each dimension that has some: an output nobody stated is open, whatever its value is."""
    from autoshard.sharding.tensor_sharding import TensorSharding

    return [[str(a) for a in d.axes] + [str(i)] for i, d in enumerate(TensorSharding.from_text(text).dims) if d.axes]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--worker", nargs=2, type=int)
    args = parser.parse_args()
    if args.worker:
        work(*args.worker, compare)
        return
    counts, different = run(__file__, args.first, args.cases)
    print(counts)
    print("different:", different)


if __name__ == "__main__":
    main()
