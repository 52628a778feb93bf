"""Programs by others, unmodified: planned, lowered, and verified in all three respects on eight simulated devices.

Their packages are no dependencies of autoshard: install them beside it, see the README of this folder.

    python experiments/third_party/run.py [NAME ...]

Writes results.json; exits with 1 if a program is not all green. Programs whose package is missing are named.
"""

import os

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("KERAS_BACKEND", "jax")

import json
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from programs import PROGRAMS

import autoshard
from autoshard.frontends.jax_function import trace
from autoshard.verify import Runnable, verify_plan
from autoshard.verify.check_running import NUMBERS
from autoshard.verify.numeric import compare_outputs

HERE = Path(__file__).parent
MESHES = ({"data": 8}, {"data": 2, "model": 4})
TIME_LIMIT_S = 600
ILL_CONDITIONED = 10
"""An output may be off by this many times what a last-bit nudge of the inputs does to it."""


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


def conditioned(plan: Any, step: Any, arguments: Any) -> dict[str, Any]:
    """Outputs beyond the tolerance beside what a last-bit nudge of all inputs does to them on one device.

    Deep networks with batch norm over few elements magnify rounding, and gradients that are exactly zero (biases before
    a batch norm) are nothing but rounding: there no two runs agree, sharded or not.
    """
    rng = np.random.default_rng(0)

    def nudge(x: Any) -> Any:
        if not jnp.issubdtype(x.dtype, jnp.floating):
            return x
        return x * (1 + 2**-23 * jnp.asarray(rng.choice([-1, 1], x.shape), x.dtype))

    unsharded = jax.jit(step)
    expected = unsharded(*arguments)
    nudged = compare_outputs(unsharded(*jax.tree.map(nudge, arguments)), expected)
    sharded = compare_outputs(plan.lowered.jit(donate_argnums=())(*arguments), expected)
    change = {o.name: o.error for o in nudged.outputs}
    bad = [o for o in sharded.outputs if not o.ok]
    ratio = max((o.error / max(change[o.name], 1e-30) for o in bad), default=0.0)
    return {
        "outputs": len(sharded.outputs),
        "beyond_tolerance_sharded": len(bad),
        "beyond_tolerance_nudged": sum(not o.ok for o in nudged.outputs),
        "largest_error_over_nudged": round(float(ratio), 3),
    }


def judge(name: str) -> list[dict[str, Any]]:
    """One row for each mesh."""
    package, make, rows_of = PROGRAMS[name]
    step, arguments = make()
    rows = []
    program = trace(step, *arguments).program
    for mesh in MESHES:
        began = time.monotonic()
        stated = pins(program, rows_of, mesh)
        plan = autoshard.plan(
            step, *arguments, mesh=mesh, hardware="cpu_sim", constraints=stated, time_limit=TIME_LIMIT_S
        )
        planned = time.monotonic()
        assert plan.traced is not None
        data = json.loads(json.dumps(plan.to_dict()))
        found = verify_plan(data, Runnable(plan.traced, step, lambda: arguments), name=name)
        wrong = [c.name for c in found.checks if c.status.value != "ok"]
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
                "lines": [line for c in found.checks if c.status.value != "ok" for line in c.lines][:5],
                **({"conditioning": conditioned(plan, step, arguments)} if wrong == [NUMBERS] else {}),
                "plan_seconds": round(planned - began, 1),
                "verify_seconds": round(time.monotonic() - planned, 1),
            }
        )
        print(json.dumps(rows[-1]), flush=True)
    jax.clear_caches()
    return rows


def is_right(row: dict[str, Any]) -> bool:
    """All checks, or all but values that move as far when an input's last bits do."""
    if all(status == "ok" for status in row["checks"].values()):
        return True
    return row.get("conditioning", {}).get("largest_error_over_nudged", np.inf) <= ILL_CONDITIONED


def main(names: list[str]) -> int:
    path = HERE / "results.json"
    kept = {(r["program"], str(r["mesh"])): r for r in (json.loads(path.read_text()) if path.exists() else [])}
    bad = 0
    for name in names or list(PROGRAMS):
        try:
            rows = judge(name)
        except (ImportError, PackageNotFoundError) as error:
            print(f"{name}: not run, {error}")
            continue
        for row in rows:
            kept[name, str(row["mesh"])] = row
            bad += not is_right(row)
    order = list(PROGRAMS)
    rows = sorted(kept.values(), key=lambda r: (order.index(r["program"]), str(r["mesh"])))
    path.write_text(json.dumps(rows, indent=1) + "\n")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
