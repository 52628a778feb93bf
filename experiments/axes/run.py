"""How do time and memory of planning grow with the number of mesh axes?

    python experiments/axes/run.py [--meshes 2x2,2x2x2,2x2x2x2] [--layers 2] [--time-limit 300] [--results rows.csv]

Plans a full train step of Llama 3 8B with every layer written out (no scan) on meshes of axes of two chips. Every
problem runs in a process of its own. Seconds are CPU seconds of that process, by part: `trace`, `space` (enumerating
placements and layouts), `tables` (pricing and the network), `solve` (starts included); `wall` is wall clock.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pandas as pd

sys.path.append(str(Path(__file__).resolve().parents[1]))
from choices import counts, grids

AXES = ("data", "fsdp", "tensor", "context")


def cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def measure(mesh: str, layers: int, limit_s: float) -> dict[str, Any]:
    """One problem, in this process."""
    from autoshard.api.verbs import plan_traced
    from autoshard.errors import OutOfTimeError
    from autoshard.frontends.jax.function import trace
    from autoshard.models import build

    sizes = dict(zip(AXES, map(int, mesh.split("x")), strict=False))
    began, wall = cpu_s(), time.monotonic()
    program = build(
        "transformer", dims="llama3_8b", layers=layers, batch=256, seq=8192, scan=False, remat=True,
        param_dtype="bfloat16",
    )  # fmt: skip
    traced = trace(
        program.step, *program.specs, donate_argnums=program.donate_argnums, argnames=program.argnames, name="llama3_8b"
    )
    marks = {"enumerating": 0.0, "pricing": 0.0, "solving": 0.0}

    def hear(text: str) -> None:
        for part in marks:
            if text.startswith(part) and not marks[part]:
                marks[part] = cpu_s()

    row: dict[str, Any] = {"mesh": mesh, "layers": layers, "ops": len(traced.program.ops)}
    row["trace"] = round(cpu_s() - began, 1)
    try:
        plan = plan_traced(
            traced, mesh=sizes, hardware="tpu_v5p", time_limit=limit_s, memory_limit="none", progress=hear
        )
        found: dict[str, Any] = {
            "step_s": plan.objective_s,
            "bound_s": plan.bound_s,
            "gap": f"{plan.gap:.1e}",
            "status": plan.status,
        }
    except OutOfTimeError as error:
        found = {"status": str(error)}
    ends = [marks["enumerating"], marks["pricing"], marks["solving"], cpu_s()]
    for name, start, end in zip(("space", "tables", "solve"), ends, ends[1:], strict=False):
        row[name] = round(end - start, 1) if start and end else None
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return row | {"wall": round(time.monotonic() - wall, 1), "memory_GiB": round(memory, 2)} | found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--meshes", type=grids, default="2x2,2x2x2,2x2x2x2")
    parser.add_argument("--layers", type=counts, default="2")
    parser.add_argument("--time-limit", type=float, default=300.0)
    parser.add_argument("--results", type=Path)
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(measure(given.one[0], int(given.one[1]), given.time_limit)))
        return 0
    rows = []
    for mesh in given.meshes:
        for layers in map(str, given.layers):
            command = [sys.executable, __file__, "--one", mesh, layers, "--time-limit", str(given.time_limit)]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                print(f"{mesh}, {layers} layers: {done.stderr.splitlines()[-1]}", file=sys.stderr)
                continue
            rows.append(json.loads(done.stdout.splitlines()[-1]))
            print(rows[-1], flush=True)
    table = pd.DataFrame(rows)
    print(table.to_string(index=False))
    if given.results:
        table.to_csv(given.results, index=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
