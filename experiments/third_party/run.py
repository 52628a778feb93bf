"""Programs by others, unmodified: planned, lowered, and verified in all three respects on eight simulated devices.

Their packages are no dependencies of autoshard: install them beside it, see the README of this folder.

    python experiments/third_party/run.py [NAME ...] [--meshes 8,2x4]

Writes results.json; exits with 1 if a check of a program failed, or was not done for another reason than outputs which
the program itself does not determine. Programs whose package is missing are named.
"""

import os

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("KERAS_BACKEND", "jax")

import argparse
import json
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import jax
from programs import PROGRAMS

import autoshard
from autoshard.frontends.jax.function import trace
from autoshard.verify import Runnable, verify_plan
from autoshard.verify.runs.checks import NUMBERS

HERE = Path(__file__).parent
MESHES = {"8": {"data": 8}, "2x4": {"data": 2, "model": 4}}
TIME_LIMIT_S = 600


def pins(program: Any, rows: tuple[str, ...], mesh: dict[str, int]) -> list[autoshard.Pin]:
    """Rows of the batch over "data", and the last dimension of the largest parameter over "model": small programs
    would not be cut at all otherwise, as collectives cost more than they save.
    """
    rank = {n: program.type_of(v).rank for n, v in zip(program.input_names, program.body.args, strict=False)}
    stated = [autoshard.Pin(n, "[" + ", ".join(['{"data"}'] + ["{}"] * (rank[n] - 1)) + "]") for n in rows]
    if "model" in mesh:
        sizes = {
            name: program.type_of(value).elements
            for name, value in zip(program.input_names, program.body.args, strict=False)
            if name not in rows and program.type_of(value).rank > 1 and program.type_of(value).shape[-1] % 4 == 0
        }
        widest = max(sizes, key=lambda n: (sizes[n], n))
        value = program.body.args[program.input_names.index(widest)]
        free = ", ".join(["{?}"] * (program.type_of(value).rank - 1))
        stated.append(autoshard.Pin(widest, f'[{free}, {{"model"}}]'))
    return stated


def judge(name: str, meshes: list[dict[str, int]]) -> list[dict[str, Any]]:
    """One row for each mesh."""
    package, make, rows_of = PROGRAMS[name]
    step, arguments = make()
    rows = []
    program = trace(step, *arguments).program
    for mesh in meshes:
        began = time.monotonic()
        stated = pins(program, rows_of, mesh)
        plan = autoshard.plan(
            step, *arguments, mesh=mesh, hardware="cpu_sim", constraints=stated, time_limit=TIME_LIMIT_S
        )
        planned = time.monotonic()
        assert plan.traced is not None
        data = json.loads(json.dumps(plan.to_dict()))
        found = verify_plan(data, Runnable(plan.traced, step, lambda: arguments), name=name)
        (values,) = (c for c in found.checks if c.name == NUMBERS)
        rows.append(
            {
                "program": name,
                "package": f"{package} {version(package)}",
                "mesh": mesh,
                "ops": sum(1 for _ in plan.program.walk()),
                "pins": [f"{p.pattern} {p.sharding}" for p in stated],
                "unknown_ops": sorted(set(plan.program.warnings)),
                "gap": round(plan.gap, 4),
                "collectives": len(plan.collectives),
                "checks": {c.name: c.status.value for c in found.checks},
                "lines": [line for c in found.checks if c.status.value != "ok" and c is not values for line in c.lines][
                    :5
                ],
                "values": [line.strip() for line in values.lines[:4]],
                "plan_seconds": round(planned - began, 1),
                "verify_seconds": round(time.monotonic() - planned, 1),
            }
        )
        print(json.dumps(rows[-1]), flush=True)
    jax.clear_caches()
    return rows


def is_right(row: dict[str, Any]) -> bool:
    """All checks, but for values that the program itself does not determine."""
    wrong = {name: status for name, status in row["checks"].items() if status != "ok"}
    return not wrong or (wrong == {NUMBERS: "not done"} and "not determined" in " ".join(row["values"]))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=list(PROGRAMS), help="of programs.py; all if none is given")
    parser.add_argument("--meshes", default=",".join(MESHES))
    asked = parser.parse_args()
    path = HERE / "results.json"
    kept = {(r["program"], str(r["mesh"])): r for r in (json.loads(path.read_text()) if path.exists() else [])}
    order = list(PROGRAMS)
    bad = 0
    for name in asked.names:
        try:
            rows = judge(name, [MESHES[m] for m in asked.meshes.split(",")])
        except (ImportError, PackageNotFoundError) as error:
            print(f"{name}: not run, {error}")
            continue
        for row in rows:
            kept[name, str(row["mesh"])] = row
            bad += not is_right(row)
        ordered = sorted(kept.values(), key=lambda r: (order.index(r["program"]), str(r["mesh"])))
        path.write_text(json.dumps(ordered, indent=1) + "\n")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
