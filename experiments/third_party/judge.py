"""What is asked of every program: a plan, all checks of the verifier, and three steps of a loop."""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import numpy as np
from programs import Listed, Made

import autoshard
from autoshard.api.bound import with_bound
from autoshard.frontends.jax.function import trace
from autoshard.verify import Asked, Runnable, verify_plan
from autoshard.verify.runs.numeric import (
    NUDGES,
    TOLERANCES,
    NumericReport,
    compare_outputs,
    nudged,
    program_tolerances,
)

HARDWARE = {1: "cpu_sim", 2: str(Path(__file__).parent / "slow_cores.yaml")}
"""By the number of axes: with one, what is pinned is cut; with two, nearly every op, since it pays on this machine."""
TIME_LIMIT_S = 20
STEPS = 3


def pins(program: Any, rows: tuple[str, ...], mesh: dict[str, int]) -> list[autoshard.Pin]:
    """Rows of the batch over "data", and the largest parameter over the last axis of the mesh, along its last dimension
    that this axis divides: small programs would not be cut at all otherwise, as collectives cost more than they save.
    """
    types = {n: program.type_of(v) for n, v in zip(program.input_names, program.body.args, strict=False)}
    cut = [name for name in types if any(name == row or name.startswith(f"{row}/") for row in rows)]
    stated = [
        autoshard.Pin(n, "[" + ", ".join(['{"data"}'] + ["{}"] * (types[n].rank - 1)) + "]")
        for n in cut
        if types[n].rank and types[n].shape[0] % mesh["data"] == 0
    ]
    axis, size = list(mesh.items())[-1]
    floats = ("float32", "bfloat16", "float64")
    wide = {
        name: t.elements
        for name, t in types.items()
        if name not in cut and t.rank > 1 and t.dtype in floats and any(n % size == 0 for n in t.shape)
    }
    if wide:
        name = max(wide, key=lambda n: (wide[n], n))
        dimension = max(d for d, n in enumerate(types[name].shape) if n % size == 0)
        free = ["{?}"] * types[name].rank
        free[dimension] = f'{{"{axis}"}}'
        stated.append(autoshard.Pin(name, f"[{', '.join(free)}]"))
    return stated


def judge(listed: Listed, made: Made, mesh: dict[str, int]) -> dict[str, Any]:
    """One row: the program on one mesh."""
    arguments = (*made.state, *made.batch)
    hardware = HARDWARE[len(mesh)]
    began = time.monotonic()
    stated = pins(trace(made.step, *arguments).program, listed.rows, mesh)
    plan = autoshard.plan(
        made.step,
        *arguments,
        mesh=mesh,
        hardware=hardware,
        constraints=stated,
        carry=made.carry,
        time_limit=TIME_LIMIT_S,
    )
    planned = time.monotonic()
    assert plan.traced is not None
    data = json.loads(json.dumps(plan.to_dict()))
    asked = Asked(mesh=mesh, hardware=hardware, constraints=stated, carry=made.carry)
    found = verify_plan(data, Runnable(plan.traced, made.step, lambda: arguments), asked=asked, name=listed.name)
    found = with_bound(found, data)
    verified = time.monotonic()
    return {
        "program": listed.name,
        "packages": {name: version(name) for name in listed.packages},
        "mesh": mesh,
        "hardware": Path(hardware).stem,
        "ops": sum(1 for _ in plan.program.walk()),
        "pins": [f"{p.pattern} {p.sharding}" for p in stated],
        "unknown_ops": sorted(set(plan.program.warnings)),
        "status": plan.status.value if hasattr(plan.status, "value") else str(plan.status),
        "gap": round(plan.gap, 4),
        "collectives": len(plan.collectives),
        "carried": len(plan.program.carried),
        "checks": {c.name: c.status.value for c in found.checks},
        "lines": [line.strip() for c in found.checks if c.status.value != "ok" for line in c.lines[:4]],
        "three_steps": three_steps(made, plan),
        "seconds": {
            "plan": round(planned - began, 1),
            "verify": round(verified - planned, 1),
            "loop": round(time.monotonic() - verified, 1),
        },
    }


def loop(step: Callable[..., Any], state: Sequence[Any], batch: Sequence[Any]) -> Any:
    """The state after `STEPS` steps, each fed with what the one before it returned, and what every step told."""
    told = []
    for _ in range(STEPS):
        results = step(*state, *batch)
        state, rest = results[: len(state)], results[len(state) :]
        told.append(rest)
    return state, told


def three_steps(made: Made, plan: Any) -> dict[str, Any]:
    """The loop through the compiled plan against the loop through `jax.jit` on one device, every leaf of both.

    The tolerance is the verifier's (2e-5 of the largest element for float32) for each of the steps. Leaves beyond it
    are judged as the verifier does: the loop on one device runs again with the last bits of its inputs moved.
    """
    count = len(made.state)
    placed = plan.place(*made.state, *made.batch)
    found = loop(plan.jit(), placed[:count], placed[count:])
    alone = jax.jit(made.step)
    expected = loop(alone, made.state, made.batch)
    inside = program_tolerances(plan.program)
    allowed = {name: STEPS * inside.get(name, tolerance) for name, tolerance in TOLERANCES.items()}
    report = compare_outputs(_arrays(found), _arrays(expected), tolerances=allowed)
    if not report.ok:
        moved = [0.0] * len(report.outputs)
        for seed in range(NUDGES):
            arguments = nudged((*made.state, *made.batch), seed)
            again = loop(alone, arguments[:count], arguments[count:])
            again = compare_outputs(_arrays(again), _arrays(expected), tolerances=allowed)
            moved = [max(m, o.error) for m, o in zip(moved, again.outputs, strict=True)]
        report = NumericReport(
            tuple(o if o.ok else replace(o, nudged=m) for o, m in zip(report.outputs, moved, strict=True))
        )
    worst = max((o for o in report.outputs if o.ok and o.tolerance), key=lambda o: o.error / o.tolerance, default=None)
    return {
        "leaves": len(report.outputs),
        "wrong_leaves": len(report.wrong),
        "wrong": [str(o) for o in report.wrong][:6],
        "not_determined": [str(o) for o in report.undetermined][:6],
        "not_determined_leaves": len(report.undetermined),
        "worst_error": None if worst is None else float(f"{worst.error:.2g}"),
        "tolerance": None if worst is None else float(f"{worst.tolerance:.2g}"),
    }


def _arrays(tree: Any) -> list[Any]:
    """The leaves that are arrays, on the host."""
    leaves = [x for x in jax.tree.leaves(tree) if hasattr(x, "dtype")]
    return [x if jax.numpy.issubdtype(x.dtype, jax.dtypes.extended) else np.asarray(x) for x in leaves]
