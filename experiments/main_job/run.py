"""Does the road hold on every model and mesh? Plan, compile, count collectives, compare values and gradients.

    python experiments/main_job/run.py [--models mlp,transformer,...] [--meshes 8,2x4,2x2x2] [--output results.csv]
    python experiments/main_job/run.py --plan-only --hardware tpu_v5e,tpu_v5p,tpu_v6e,h100   # baselines on every
    profile

For every model of the library (tiny dimensions) and mesh of eight simulated devices: the train step is planned for the
profile `cpu_sim`, where communication is dear but worth it even for small sizes; planned collectives are compared with
StableHLO and with the compiled program by kind, axes, elements and count; loss and gradients are compared with the
single-device run. Prints a table; exit code 1 if anything differs.
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
from autoshard.verify.runs.collectives import UNCOMBINED, compare
from autoshard.verify.runs.hlo import hlo_collectives
from autoshard.verify.runs.numeric import numeric_check
from autoshard.verify.runs.stablehlo import stablehlo_collectives

sys.path.append(str(Path(__file__).resolve().parents[1]))
from choices import machines, names_of

MODELS = {
    "mlp": ("mlp", {"batch": 64, "inputs": 128, "hidden": 256, "outputs": 64}),
    "transformer": ("transformer", {}),
    "transformer_unrolled": ("transformer", {"scan": False}),
    "moe": ("moe", {}),
    "resnet": ("resnet", {}),
}
MESHES = {"8": {"x": 8}, "2x4": {"x": 2, "y": 4}, "2x2x2": {"x": 2, "y": 2, "z": 2}}
BASELINES = ("data", "fsdp", "tensor", "fsdp+tensor")


def check(name: str, mesh_name: str, hardware: str, plan_only: bool) -> dict[str, object]:
    model_name, options = MODELS[name]
    model = build(model_name, **options)
    mesh = MESHES[mesh_name]
    began = time.monotonic()
    plan = autoshard.plan(
        model.step,
        *model.specs,
        mesh=mesh,
        hardware=hardware,
        argnames=model.argnames,
        donate_argnums=model.donate_argnums,
        baselines=[b for b in BASELINES if len(mesh) > 1 or "+" not in b],
        roles=model.logical_axes,
    )
    planned_s = time.monotonic() - began
    costs = {b.name: b.objective_s for b in plan.baselines}
    beaten = all(c is None or plan.objective_s <= c * (1 + 1e-9) for c in costs.values())
    row = {
        "model": name, "mesh": mesh_name, "hardware": hardware, "status": plan.status, "gap": plan.gap,
        "step_us": plan.cost.step_s * 1e6, **{b: None if costs.get(b) is None else costs[b] * 1e6 for b in BASELINES},
        "never_worse": beaten, "plan_s": round(planned_s, 1),
    }  # fmt: skip
    if plan_only:
        return row
    lowered = plan.jit().lower(*model.specs)
    planned = plan.lowered.planned
    text = compare(planned, stablehlo_collectives(lowered.as_text()), plan.schedule.mesh)
    compiled = lowered.compile(compiler_options=dict(UNCOMBINED))
    binary = compare(planned, hlo_collectives(compiled.as_text()), plan.schedule.mesh, dtypes=False)

    state = model.init(0)
    batch = next(model.batches(0))
    gradient = gradients_of(model)
    gradient_plan = autoshard.plan(gradient, *model.specs, mesh=mesh, hardware=hardware, argnames=model.argnames)
    numeric = numeric_check(gradient_plan.jit(), gradient, (state, batch))
    worst = numeric.worst
    for difference in (*text, *binary):
        print(f"{name} {mesh_name}: {difference}", file=sys.stderr)
    if not numeric.ok:
        print(f"{name} {mesh_name}: {numeric}", file=sys.stderr)
    return row | {
        "collectives": len(planned), "executed": sum(p.times or 0 for p in planned),
        "stablehlo_equal": not text, "compiled_equal": not binary,
        "worst_gradient_error": worst.error if worst else 0.0, "values_equal": numeric.ok,
    }  # fmt: skip


def gradients_of(model):
    """A function of (state, batch) that gives the loss and the gradients with respect to the parameters."""

    def gradients(state, batch):
        return jax.value_and_grad(lambda params: model.loss({**state, "params": params}, batch))(state["params"])

    return gradients


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=names_of(MODELS, "model"), default=",".join(MODELS))
    parser.add_argument("--meshes", type=names_of(MESHES, "mesh"), default=",".join(MESHES))
    parser.add_argument("--hardware", type=machines, default="cpu_sim")
    parser.add_argument("--plan-only", action="store_true", help="compare with the baselines only; compile nothing")
    parser.add_argument("--output")
    given = parser.parse_args()
    rows = []
    for name in given.models:
        for mesh in given.meshes:
            for hardware in given.hardware:
                rows.append(check(name, mesh, hardware, given.plan_only))
                print(pd.DataFrame(rows[-1:]).to_string(index=False), flush=True)
    table = pd.DataFrame(rows)
    if given.output:
        table.to_csv(given.output, index=False)
    print(table.to_string(index=False))
    claims = [c for c in ("stablehlo_equal", "compiled_equal", "values_equal", "never_worse") if c in table]
    good = table[claims].all().all()
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
