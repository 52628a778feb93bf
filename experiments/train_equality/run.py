"""Twenty train steps of the library's models, sharded over eight simulated devices and not: are the losses the same?

    python experiments/train_equality/run.py [CASE ...] [--output FILE]

Every case is one model in float32 or bfloat16 under one strategy. Both runs start from the same state and see the same
batches; each step's state feeds the next. Writes results.json beside this file, or the file of `--output`; exits with 1
where a loss is off by more than allowed.
"""

import os

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

from autoshard.api import verbs as api
from autoshard.frontends.jax.function import trace
from autoshard.lowering.lower import Lowered, lower
from autoshard.models import build
from autoshard.planning import Problem, build_model
from autoshard.search.baselines import price_baselines

HERE = Path(__file__).parent
STEPS = 20
TOLERANCE = {"float32": 1e-5, "bfloat16": 1e-2}
"""Largest relative difference of a loss. bfloat16 keeps 8 bits: one rounding is 0.4%, and sums are taken in another
order."""
ROUTED_TOLERANCE = {"float32": 1e-5, "bfloat16": 3e-2}
"""The same for mixtures of experts: routers compare, and a rounding may send a token to another expert."""

TINY = {"layers": 2, "batch": 16, "seq": 32, "vocab": 128, "d_model": 64, "heads": 8, "kv_heads": 4, "head_dim": 8,
        "d_ff": 128}  # fmt: skip
RESNET = {"image": 16, "width": 8, "classes": 8, "batch": 16}
NARROW = {"compute_dtype": "bfloat16"}

CASES: dict[str, tuple[str, dict[str, Any], dict[str, int], str]] = {
    "mlp, data": ("mlp", {}, {"data": 8}, "data"),
    "mlp, fsdp+tensor": ("mlp", {}, {"data": 2, "model": 4}, "fsdp+tensor"),
    "dense, fsdp": ("transformer", TINY, {"data": 8}, "fsdp"),
    "dense, zero1+tensor": ("transformer", TINY, {"data": 2, "model": 4}, "zero1+tensor"),
    "dense, fsdp+tensor": ("transformer", TINY, {"data": 2, "model": 4}, "fsdp+tensor"),
    "dense, fsdp+context": ("transformer", TINY, {"data": 2, "model": 4}, "fsdp+context"),
    "dense unrolled, remat, fsdp+tensor": (
        "transformer", {**TINY, "scan": False, "remat": True}, {"data": 2, "model": 4}, "fsdp+tensor"
    ),
    "moe, expert": ("moe", TINY, {"data": 2, "model": 4}, "data+expert"),
    "moe, fsdp+tensor": ("moe", TINY, {"data": 2, "model": 4}, "fsdp+tensor"),
    "moe ragged, fsdp": ("moe", {**TINY, "dispatch": "ragged"}, {"data": 8}, "fsdp"),
    "conv, data": ("resnet", RESNET, {"data": 8}, "data"),
    "conv, fsdp+tensor": ("resnet", RESNET, {"data": 2, "model": 4}, "fsdp+tensor"),
    "dense bf16, fsdp+tensor": ("transformer", {**TINY, **NARROW}, {"data": 2, "model": 4}, "fsdp+tensor"),
    "moe bf16, expert": ("moe", {**TINY, **NARROW}, {"data": 2, "model": 4}, "data+expert"),
    "conv bf16, data": ("resnet", {**RESNET, **NARROW}, {"data": 8}, "data"),
}  # fmt: skip


def lowered(model: Any, mesh: dict[str, int], strategy: str) -> Lowered:
    """The train step under a named strategy; `ValueError` where the strategy cannot be."""
    traced = trace(model.step, *model.specs, donate_argnums=(0,), argnames=model.argnames, name=model.name)
    logical, machine = api.placed(mesh, "cpu_sim")
    built = build_model(Problem.make(traced.program, logical, machine))
    (priced,) = price_baselines(built, (strategy,), model.logical_axes)
    if priced.assignment is None:
        raise ValueError(f"{strategy}: {priced.cost.reason}")
    return lower(traced, built.schedule(priced.assignment))


def losses(step: Any, state: Any, batches: list[Any]) -> list[float]:
    found = []
    for batch in batches:
        state, metrics = step(state, batch)
        found.append(float(metrics["loss"]))
    return found


def compared(name: str, steps: int = STEPS) -> dict[str, Any]:
    """The row of one case: losses of both runs and their largest relative difference."""
    kind, options, mesh, strategy = CASES[name]
    began = time.monotonic()
    model = build(kind, **options)
    source = model.batches(0)
    batches = [next(source) for _ in range(steps)]
    program = lowered(model, mesh, strategy)
    sharded = program.jit()
    placed = jax.device_put(model.init(0), program.in_shardings[0])
    ours = losses(sharded, placed, [jax.device_put(b, program.in_shardings[1]) for b in batches])
    theirs = losses(jax.jit(model.step), model.init(0), batches)
    worst = max(abs(a - b) / abs(b) for a, b in zip(ours, theirs, strict=True))
    dtype = options.get("compute_dtype", "float32")
    tolerance = (ROUTED_TOLERANCE if kind == "moe" else TOLERANCE)[dtype]
    return {
        "case": name,
        "model": kind,
        "dtype": dtype,
        "mesh": mesh,
        "strategy": strategy,
        "collectives": len(program.planned),
        "first_loss": theirs[0],
        "last_loss": theirs[-1],
        "sharded_last_loss": ours[-1],
        "largest_relative_difference": float(np.float32(worst)),
        "tolerance": tolerance,
        "seconds": round(time.monotonic() - began, 1),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"all if none is given: {'; '.join(CASES)}")
    parser.add_argument("--output", type=Path, default=HERE / "results.json")
    given = parser.parse_args()
    if unknown := [name for name in given.cases if name not in CASES]:
        parser.error(f"no case {unknown[0]!r}; there are: {'; '.join(CASES)}")
    path = given.output
    kept = {r["case"]: r for r in (json.loads(path.read_text()) if path.exists() else [])}
    bad = 0
    for name in given.cases or list(CASES):
        row = compared(name)
        print(json.dumps(row), flush=True)
        kept[name] = row
        bad += row["largest_relative_difference"] > row["tolerance"]
        jax.clear_caches()
        path.write_text(json.dumps([kept[c] for c in CASES if c in kept], indent=1) + "\n")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
