"""How long does a lowered plan take to compile, beside XLA's own partitioner on the same program?

    python experiments/compile_time/run.py [--models mlp,...] [--meshes 8,2x4,2x2x2] [--repeats 3]

For every model of the library and mesh of eight simulated devices: tracing, lowering and compiling the plan's function,
and tracing, lowering and compiling the model's own step with the plan's shardings and donations, in turns, caches
cleared before each. The least of the repeats is kept, in wall-clock seconds and in CPU seconds of the process (all
threads), which other work on the machine disturbs less. Writes compile_time.csv; exit code 1 if a plan takes more than
1.5 times as long (CPU seconds, all stages together).
"""

import argparse
import os
import sys
import time
from pathlib import Path

os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8"
os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import pandas as pd

import autoshard
from autoshard.models import build

sys.path.append(str(Path(__file__).resolve().parents[1]))
from choices import names_of

MODELS = {
    "mlp": ("mlp", {"batch": 64, "inputs": 128, "hidden": 256, "outputs": 64}),
    "transformer": ("transformer", {}),
    "transformer_unrolled": ("transformer", {"scan": False}),
    "moe": ("moe", {}),
    "resnet": ("resnet", {}),
}
MESHES = {"8": {"x": 8}, "2x4": {"x": 2, "y": 4}, "2x2x2": {"x": 2, "y": 2, "z": 2}}
LIMIT = 1.5


def timed(jitted, specs) -> dict[str, float]:
    """Wall and CPU seconds of tracing with lowering, of compiling, and of both."""
    jax.clear_caches()
    clocks = [(time.perf_counter(), time.process_time())]
    lowered = jitted.lower(*specs)
    clocks.append((time.perf_counter(), time.process_time()))
    lowered.compile()
    clocks.append((time.perf_counter(), time.process_time()))
    (w0, c0), (w1, c1), (w2, c2) = clocks
    return {
        "lower_s": w1 - w0, "compile_s": w2 - w1, "total_s": w2 - w0,
        "lower_cpu_s": c1 - c0, "compile_cpu_s": c2 - c1, "total_cpu_s": c2 - c0,
    }  # fmt: skip


def case(name: str, mesh: str, repeats: int) -> dict[str, object]:
    kind, options = MODELS[name]
    model = build(kind, **options)
    plan = autoshard.plan(
        model.step, *model.specs, mesh=MESHES[mesh], hardware="cpu_sim", argnames=model.argnames,
        donate_argnums=model.donate_argnums,
    )  # fmt: skip
    found: dict[str, list[dict[str, float]]] = {"ours": [], "xla": []}
    for _ in range(repeats):
        found["ours"].append(timed(plan.jit(), model.specs))
        by_xla = jax.jit(
            model.step, in_shardings=plan.in_shardings, out_shardings=plan.out_shardings,
            donate_argnums=model.donate_argnums,
        )  # fmt: skip
        found["xla"].append(timed(by_xla, model.specs))
    row: dict[str, object] = {"model": name, "mesh": mesh}
    for who, runs in found.items():
        for key in runs[0]:
            row[f"{who}_{key}"] = round(min(r[key] for r in runs), 2)
    row["ratio"] = round(row["ours_total_s"] / row["xla_total_s"], 2)
    row["cpu_ratio"] = round(row["ours_total_cpu_s"] / row["xla_total_cpu_s"], 2)
    return row


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=names_of(MODELS, "model"), default=",".join(MODELS))
    parser.add_argument("--meshes", type=names_of(MESHES, "mesh"), default=",".join(MESHES))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--output", default=str(Path(__file__).parent / "compile_time.csv"))
    given = parser.parse_args()
    rows = []
    for name in given.models:
        for mesh in given.meshes:
            rows.append(case(name, mesh, given.repeats))
            print(rows[-1], flush=True)
            pd.DataFrame(rows).to_csv(given.output, index=False)  # what is known so far
    table = pd.DataFrame(rows)
    print(table.to_string(index=False))
    return 0 if (table["cpu_ratio"] <= LIMIT).all() else 1


if __name__ == "__main__":
    sys.exit(main())
