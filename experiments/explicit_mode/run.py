"""What XLA makes of a plan, by how much of it is said: all, the fewest annotations, rules, or the boundary alone.

    python experiments/explicit_mode/run.py [--programs transformer,maxtext] [--meshes 2x4,4x2] [--maxtext DIR/src]

For each program and mesh of eight simulated devices the train step is planned and compiled in four forms: (i) with the
plan's collectives written out, (ii) in JAX's explicit sharding mode with the fewest annotations, (iii) with inputs and
state cut by the `logical_axis_rules` that come closest to the plan, (iv) with the plan's shardings of inputs and
outputs only. Collectives are read from the compiled HLO. MaxText also runs under its own rules, with the constraints in
its code. Writes explicit_mode.csv and annotations_PROGRAM_MESH.txt, and prints the table of README.md, which says how
MaxText is obtained; `--table` prints it of an explicit_mode.csv that is there.
"""

import argparse
import os
import sys
import time
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from typing import Any

os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8"
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ.setdefault("DECOUPLE_GCLOUD", "TRUE")  # MaxText without Google Cloud

import jax
import pandas as pd
from jax.sharding import NamedSharding, PartitionSpec
from programs import PROGRAMS, Problem

import autoshard
from autoshard.api.explicit_mode import by_kind
from autoshard.api.logical_rules import applied
from autoshard.api.targets import compiled_traffic
from autoshard.verify.runs.traffic import Traffic, moved_bytes

sys.path.append(str(Path(__file__).resolve().parents[1]))
from choices import names_of

MESHES = {"2x4": (2, 4), "4x2": (4, 2)}
KINDS = ("all_gather", "reduce_scatter", "all_reduce", "all_to_all", "permute")
HERE = Path(__file__).parent


def case(program: str, mesh_name: str, hardware: str, limit_s: float, folder: Path) -> list[dict[str, Any]]:
    make, axes = PROGRAMS[program]
    mesh = dict(zip(axes, MESHES[mesh_name], strict=True))
    problem = make(mesh)
    plan = autoshard.plan(
        problem.step, *problem.specs, mesh=mesh, hardware=hardware, argnames=("state", "batch"), sub_axes={},
        time_limit=120, in_code="ignore", roles={path: names for path, names in problem.names.items() if names},
    )  # fmt: skip
    planned = plan.lower("explicit").report()
    began, cpu = time.monotonic(), time.process_time()
    fewest = plan.explicit_mode(time_limit=limit_s)
    spent = (
        f"{fewest.compilations} compilations, {time.monotonic() - began:.0f} s, CPU {time.process_time() - cpu:.0f} s"
    )
    (folder / f"annotations_{program}_{mesh_name}.txt").write_text(f"{fewest}\n")
    said = f"{len(fewest.annotations)} annotations, {'all' if fewest.all_tested else 'not all'} tried without; {spent}"
    assert fewest.report is not None
    forms: dict[str, tuple[Counter[Traffic], str]] = {
        "planned": (planned.planned, f"gap {plan.gap:.2g}"),
        "(i) written out": (planned.found, ""),
        "(ii) explicit mode": (fewest.report.found, said),
        "(iii) logical rules": ruled(plan, problem),
        "(iv) boundary only": (plan.lower("shardings").report().found, ""),
    }
    if problem.own is not None:
        try:
            forms["its own rules"] = compiled_traffic(plan.lowered, problem.own()), ""
        except ValueError as error:  # rules that cut a dimension unevenly
            print(f"{program} {mesh_name}: its own rules do not apply: {str(error)[-200:]}")
    return [row(program, mesh_name, form, traffic, text) for form, (traffic, text) in forms.items()]


def ruled(plan: autoshard.Plan, problem: Problem) -> tuple[Counter[Traffic], str]:
    """The step with inputs and state cut by the plan's rules; XLA decides the rest."""
    rules = plan.logical_axis_rules({path: names for path, names in problem.names.items() if names})
    target, atoms = plan.lower("shardings"), plan.schedule.mesh
    mesh = target.jax_mesh()  # parts of axes that the plan splits are axes of their own

    def sharding(path: str) -> NamedSharding:
        dims = applied(rules.rules, problem.names[path]) if problem.names[path] else ()
        names = [tuple(atoms.names[a] for axis in dim for a in atoms.atoms_of[axis]) for dim in dims]
        return NamedSharding(mesh, PartitionSpec(*(dim or None for dim in names)))

    leaves = [sharding(path) for path in plan.program.input_names]
    state, batch = jax.tree.unflatten(jax.tree.structure(problem.specs), leaves)
    step = target.function(mesh)  # without constraints in the code, which would hold activations whole
    staged = jax.jit(step, in_shardings=(state, batch), out_shardings=(state, None)).lower(*problem.specs)
    share = 100 * rules.said_bytes / rules.all_bytes
    return compiled_traffic(plan.lowered, staged), f"{len(rules.rules)} rules hold {share:.3g}% of the inputs' bytes"


def row(program: str, mesh: str, form: str, traffic: Counter[Traffic], said: str) -> dict[str, Any]:
    kinds = by_kind(traffic)
    counts = {f"{kind}": kinds.get(kind, (0, 0.0))[0] for kind in KINDS}
    sent = {f"{kind}_bytes": round(kinds.get(kind, (0, 0.0))[1]) for kind in KINDS}
    return {
        "program": program, "mesh": mesh, "form": form, "count": traffic.total(), "bytes": round(moved_bytes(traffic)),
        **counts, **sent, "said": said,
    }  # fmt: skip


def table(rows: pd.DataFrame) -> str:
    """The table of README.md: counts of a step, and megabytes that a device sends; meshes with equal figures together.

    The last column counts all-reduces as half where the partitioner of XLA has placed them.
    """
    lines: dict[tuple[str, ...], list[str]] = {}
    for _, row in rows.iterrows():
        ours = row["form"] in ("planned", "(i) written out")
        scattered = row["bytes"] - (0 if ours else row["all_reduce_bytes"] / 2)
        figures = [*(str(row[kind]) for kind in KINDS), f"{row['bytes'] / 1e6:.1f}", f"{scattered / 1e6:.1f}"]
        lines.setdefault((row["program"], row["form"], *figures), []).append(row["mesh"])
    head = ["program", "mesh", "form", *(k.replace("_", "-") for k in KINDS), "MB sent", "MB with reduce-scatter"]
    body = [[program, ", ".join(meshes), *rest] for (program, *rest), meshes in lines.items()]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (head, ["---"] * len(head), *body))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--programs", type=names_of(PROGRAMS, "program"), default=",".join(PROGRAMS))
    parser.add_argument("--meshes", type=names_of(MESHES, "mesh"), default=",".join(MESHES))
    parser.add_argument("--hardware", default="tpu_v5e")
    parser.add_argument("--time-limit", type=float, default=600.0, help="seconds for trying without annotations")
    parser.add_argument("--maxtext", help="the folder src of a checkout of MaxText, or of what it needs; several by :")
    parser.add_argument("--output", default=str(HERE / "explicit_mode.csv"), help="annotations go beside it")
    parser.add_argument("--table", action="store_true", help="print the table of the output file, and run nothing")
    given = parser.parse_args()
    if given.table:
        print(table(pd.read_csv(given.output)))
        return 0
    sys.path += given.maxtext.split(":") if given.maxtext else []
    programs = given.programs
    if "maxtext" in programs and find_spec("maxtext") is None:
        parser.error("MaxText is not to be found: --maxtext says where it is, --programs transformer goes without it")
    rows: list[dict[str, Any]] = []
    for program in programs:
        for mesh in given.meshes:
            rows += case(program, mesh, given.hardware, given.time_limit, Path(given.output).parent)
            pd.DataFrame(rows).to_csv(given.output, index=False)  # what is known so far
            shown = ["program", "mesh", "form", "count", "bytes", *KINDS, "said"]
            print(pd.DataFrame(rows)[shown].to_string(index=False), flush=True)
    print(table(pd.DataFrame(rows)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
