"""Growth with layers: llama3_8b, unrolled, full train step, 1 to 126 layers, on meshes of two and three axes.

    python experiments/layers/run.py [--layers 1,2,4,8,16,32] [--meshes 2,3] [--strategies joint,staged] [--output DIR]

Every problem runs in a process of its own. Seconds are of wall clock: tracing, building the network, solving (starts
included); `cpu_s` is of the whole process, which a busy machine does not distort. `staged` states the batch on the
first axis with priority 0 and the heads and the columns of the MLP on the last one with priority 1.
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
from choices import counts, names_of

HERE = Path(__file__).parent
LAYERS = (1, 2, 4, 8, 16, 32, 64, 126)
MESHES = {"2": {"data": 16, "model": 16}, "3": {"data": 8, "fsdp": 4, "model": 8}}
LIMITS_S = {"2": 120.0, "3": 240.0}
"""Wall-clock limits of the solve; targets for 32 layers are 60 s and 180 s."""


def measure(layers: int, mesh: str, strategy: str) -> dict[str, Any]:
    """One problem, in this process."""
    from autoshard import Pin
    from autoshard.api.verbs import plan_traced
    from autoshard.frontends.jax.function import trace
    from autoshard.models import build

    began = time.monotonic()
    program = build(
        "transformer", dims="llama3_8b", layers=layers, batch=256, seq=8192, scan=False, remat=True,
        param_dtype="bfloat16", attention_block=512,
    )  # fmt: skip
    traced = trace(
        program.step, *program.specs, donate_argnums=program.donate_argnums, argnames=program.argnames, name="llama3_8b"
    )
    traced_s = time.monotonic() - began
    pins: list[Pin] = []
    if strategy == "staged":
        pins = [Pin("batch/*", '[{"data", ?}, {?}]')]
        for key, sharding in (("wq", '[{?}, {"model", ?}, {?}]'), ("w_up", '[{?}, {"model", ?}]')):
            pins.append(Pin(f"state/params/layers/*/{key}", sharding, priority=1))
    plan = plan_traced(
        traced, mesh=MESHES[mesh], hardware="tpu_v5e" if mesh == "2" else "tpu_v5p", constraints=pins,
        strategy=strategy, time_limit=LIMITS_S[mesh], accepted_gap=0.005, memory_limit="none",
    )  # fmt: skip
    seconds = plan.run["seconds"]
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return {
        "layers": layers, "mesh": "x".join(map(str, MESHES[mesh].values())), "strategy": strategy,
        "ops": len(traced.program.ops), "trace_s": round(traced_s, 1), "build_s": seconds["build"],
        "starts_s": seconds["baselines"], "solve_s": seconds["solve"],
        "planning_s": round(seconds["build"] + seconds["baselines"] + seconds["solve"], 1),
        "step_s": plan.objective_s, "bound_s": plan.bound_s, "gap": plan.gap, "status": plan.status,
        "cpu_s": round(sum(u.ru_utime + u.ru_stime for u in used), 1),
        "memory_GiB": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 2),
        "notes": "; ".join(n for n in plan.notes if "stopped" in n or "share" in n),
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", type=counts, default=",".join(map(str, LAYERS)))
    parser.add_argument("--meshes", type=names_of(MESHES, "mesh"), default=",".join(MESHES))
    parser.add_argument("--strategies", default="joint,staged")
    parser.add_argument("--output", type=Path, default=HERE / "results", help="folder of rows.csv and growth.png")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(measure(int(given.one[0]), given.one[1], given.one[2])))
        return 0
    given.output.mkdir(parents=True, exist_ok=True)
    table, failed = given.output / "rows.csv", 0
    for layers in given.layers:
        for mesh in given.meshes:
            for strategy in given.strategies.split(","):
                command = [sys.executable, __file__, "--one", str(layers), mesh, strategy]
                done = subprocess.run(command, capture_output=True, text=True)
                if done.returncode:
                    print(f"{layers} layers, mesh {mesh}, {strategy}: {done.stderr.splitlines()[-1]}", file=sys.stderr)
                    failed += 1
                    continue
                row = pd.DataFrame([json.loads(done.stdout.splitlines()[-1])])
                row.to_csv(table, mode="a", header=not table.exists(), index=False)
                print(row.drop(columns="notes").to_string(index=False, header=False), flush=True)
    if table.exists():
        plot(pd.read_csv(table), given.output / "growth.png")
    return 1 if failed else 0


def plot(rows: pd.DataFrame, target: Path) -> None:
    """Planning time by layers; of a problem measured several times the last row counts."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows = rows.drop_duplicates(["layers", "mesh", "strategy"], keep="last").sort_values("layers")
    figure, axes = pyplot.subplots(figsize=(7, 4))
    for (mesh, strategy), part in rows.groupby(["mesh", "strategy"]):
        axes.plot(part["layers"], part["planning_s"], marker="o", label=f"{mesh}, {strategy}")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xlabel("layers")
    axes.set_ylabel("seconds to build and solve")
    axes.legend()
    figure.tight_layout()
    figure.savefig(target, dpi=110)


if __name__ == "__main__":
    raise SystemExit(main())
