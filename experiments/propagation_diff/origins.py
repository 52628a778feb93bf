"""Does every axis of every value lead back to a sharding that the user wrote? And does tracing change nothing?

    python experiments/propagation_diff/origins.py --cases 2000

On the random modules of both generators, with user priorities: each axis is followed to its origin, whose own sharding
before propagation must have it (or a part of it). With `--programs` the modules are read as programs.
"""

import argparse

from cases import run, work


def compare(seed: int) -> tuple[str, str]:
    from jaxlib.mlir import ir
    from random_module import random_module
    from random_wide import wide_module

    from autoshard.errors import AutoshardError
    from autoshard.frontends.mlir.context import mlir_context, module_text, parse_module, run_passes
    from autoshard.propagation.engine import Strategy, run_propagation
    from autoshard.propagation.mlir.graph import build_module_graph
    from autoshard.propagation.mlir.groups import open_conflicting_groups
    from autoshard.propagation.mlir.module import needs_edges
    from autoshard.propagation.mlir.passes import ADD_EDGES, import_passes
    from autoshard.propagation.provenance import chains
    from autoshard.propagation.spec import overlaps

    text = (wide_module if seed % 2 else random_module)(seed)
    found: list[str] = []
    wrong: list[str] = []
    axes = 0
    for trace in (False, True):
        module = parse_module(text)
        with mlir_context(), ir.Location.unknown():
            try:
                if seed % 4 < 2:
                    run_passes(module, import_passes())
                elif needs_edges(module):
                    run_passes(module, ADD_EDGES)
                groups = open_conflicting_groups(module)
                run_passes(module, "func.func(sdy-populate-op-sharding-rules)")
                built = build_module_graph(module, groups)
            except AutoshardError:
                return "skipped: refused", ""
            initial = list(built.graph.holders)
            done = run_propagation(built.graph, Strategy.USER_PRIORITY, trace=trace)
            if trace:
                for holder in range(len(built.graph.holders)):
                    for ref, dim, steps in chains(built.graph, done, initial, holder):
                        axes += 1
                        origin = steps[-1].source if steps else holder
                        given = built.graph.steps.spec(initial[origin])
                        if steps and steps[-1].node >= 0 and built.graph.nodes[steps[-1].node].before is not None:
                            continue  # a manual axis: the in or out sharding of a manual computation says it
                        if given is None or not any(overlaps(ref, a) for d in given.dims for a in d.axes):
                            wrong.append(f"holder {holder} dimension {dim} axis {ref}: {steps} origin {origin} {given}")
            built.write(list(done.erased))
            found.append(module_text(module))
    if found[0] != found[1]:
        return "different: tracing changes the result", ""
    if wrong:
        return "different: an axis without origin", "\n".join(wrong[:5])
    return "traced" if axes else "no axes", ""


def compare_program(seed: int) -> tuple[str, str]:
    from random_module import random_module
    from random_wide import wide_module

    from autoshard.errors import AutoshardError
    from autoshard.frontends.mlir.program import read_mlir
    from autoshard.propagation import propagate

    try:
        read = read_mlir((wide_module if seed % 2 else random_module)(seed))
        mesh = read.mesh or next(iter(read.meshes.values()))
        given = {v: s for v, s in read.shardings.items() if s.mesh_name == mesh.name}
        outputs = {i: s for i, s in read.outputs.items() if s.mesh_name == mesh.name}
        plain, traced = (
            propagate(read.program, mesh, given, outputs=outputs, groups=read.groups, trace=trace)
            for trace in (False, True)
        )
    except AutoshardError:
        return "skipped: refused", ""
    if (plain.values, plain.factors, plain.outputs) != (traced.values, traced.factors, traced.outputs):
        return "different: tracing changes the result", ""
    wrong: list[str] = []
    for value, found in (traced.provenance or {}).items():
        for axis in found:
            if axis.path and axis.path[-1].op >= 0 and read.program.ops[axis.path[-1].op].kind == "shard_map":
                continue  # its in or out names say it
            stated = list(outputs.values()) if axis.origin < 0 else [given[axis.origin]] if axis.origin in given else []
            if not any(a.name == axis.axis.name for s in stated for d in s.dims for a in d.axes):
                wrong.append(f"value {value}: {axis}")
    if wrong:
        return "different: an axis without origin", "\n".join(wrong[:5])
    return "traced" if traced.provenance else "no axes", ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--programs", action="store_true")
    parser.add_argument("--worker", nargs=2, type=int)
    args = parser.parse_args()
    if args.worker:
        work(*args.worker, compare_program if args.programs else compare)
        return
    counts, different = run(__file__, args.first, args.cases, *(["--programs"] if args.programs else []))
    print(counts)
    print("different:", different)


if __name__ == "__main__":
    main()
