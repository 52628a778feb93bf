"""One random program under one random plan, judged in every respect: a seed is a case."""

import json
from dataclasses import dataclass
from random import Random
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from naive_schedule import naive_schedule
from random_plans import random_plan
from random_programs import RandomProgram, random_program
from running import Original, run_and_judge, run_as_users_do

from autoshard.program.schedule import Schedule
from autoshard.sharding.layout import AtomMesh
from autoshard.sharding.mesh import Mesh
from autoshard.verify import check_plan
from autoshard.verify.plan.planned import collectives_of
from autoshard.verify.runs.numeric import NumericReport, compare_outputs

MESHES = {
    "8": AtomMesh.split(Mesh.from_dict({"x": 8})),
    "2x4": AtomMesh.split(Mesh.from_dict({"x": 2, "y": 4})),
    "2x2x2": AtomMesh.split(Mesh.from_dict({"x": 2, "y": 2, "z": 2})),
    "6": AtomMesh.split(Mesh.from_dict({"x": 6})),
    "3x2": AtomMesh.split(Mesh.from_dict({"x": 3, "y": 2})),
    "8 split": AtomMesh.split(Mesh.from_dict({"x": 8}), {"x": (2, 4)}),
    "6 split": AtomMesh.split(Mesh.from_dict({"x": 6}), {"x": (2, 3)}),
}

SMALL, SMALL_AS_USERS_DO = 0.02, 0.05
"""Values of random programs are about 1: outputs smaller than this are what cancellation left, and judged as this; of
more in programs compiled as users do, where XLA fuses sums in other orders."""
ILL_CONDITIONED = 10
"""An output may differ by this many times what a last-bits change of the inputs does to it on one device."""


@dataclass(frozen=True)
class Case:
    """What was drawn: ops of the program, where its plan is from, its collectives, and those that XLA dropped."""

    ops: int
    way: str
    mesh: str
    planned: int
    dropped: int


def judge(seed: int, form: str = "") -> Case:
    """What was drawn and found right, or an `AssertionError`.

    The plan comes from the planner's network, or is drawn freely with even or uneven cuts. Values equal the unsharded
    run; planned = lowered = compiled collectives, each waiting for the one before; the independent checker agrees
    about plans of the network. With a form values alone are judged, and it is compiled as users compile it.
    """
    random = Random(seed)
    mesh_name = random.choice(list(MESHES))
    mesh, way = MESHES[mesh_name], random.choice(["network", "network", "even", "uneven"])
    program = random_program(seed)
    original = Original(program.f, *program.args)
    schedule, way = _schedule(original, mesh, way, seed)
    case = f"{program}, {way} plan on {mesh_name}"
    ops = sum(1 for _ in original.traced.program.walk())
    if form:
        numbers = run_as_users_do(original, schedule, form)
        assert _right(numbers, program, original, SMALL_AS_USERS_DO), f"{case} as {form}: {numbers}"
        return Case(ops, way, mesh_name, len(original.lower(schedule).planned), 0)
    judged = run_and_judge(original, schedule)
    assert _right(judged.numbers, program, original), f"{case}: {judged.numbers}"
    return Case(ops, way, mesh_name, judged.planned, judged.dropped)


def _schedule(original: Original, mesh: AtomMesh, way: str, seed: int) -> tuple[Schedule, str]:
    """A schedule, and where it is from: random choices in a network may lead nowhere."""
    if way == "network":
        plan = random_plan(original.traced, mesh, seed)
        if plan is not None:
            data = json.loads(json.dumps(plan.to_dict()))
            assert [str(f) for f in check_plan(data).findings] == []
            planned = [(c.kind, c.atoms, c.elements) for c in original.lower(plan.schedule).planned]
            checked = [(c.kind, c.atoms, c.elements) for c in collectives_of(data)]
            assert sorted(planned) == sorted(checked)
            return plan.schedule, way
        way = "even"
    return naive_schedule(original.traced.program, mesh, seed, uneven=way == "uneven", place=0.5), way


def _right(report: NumericReport, program: RandomProgram, original: Original, small: float = SMALL) -> bool:
    """Within the tolerance, or as near as the program's own sensitivity to its inputs' last bits allows."""
    bad = [o for o in report.outputs if o.error * o.scale > o.tolerance * max(o.scale, small)]
    if not bad:
        return True
    narrow = any(v.type.dtype == "bfloat16" for v in original.traced.program.values)
    nudged = jax.jit(program.f)(*_nudged(program.args, 2**-8 if narrow else 2**-22))
    change = {o.name: o.error for o in compare_outputs(nudged, original.expected).outputs}
    return all(
        np.isfinite(o.error) and o.error <= ILL_CONDITIONED * change[o.name] for o in bad if _is_float(o.dtype)
    ) and all(_is_float(o.dtype) for o in bad)


def _is_float(dtype: str) -> bool:
    return dtype.startswith(("float", "bfloat"))


def _nudged(args: Any, by: float) -> Any:
    rng = np.random.default_rng(0)

    def nudge(x: Any) -> Any:
        if not jnp.issubdtype(x.dtype, jnp.floating):
            return x
        return x * (1 + by * jnp.asarray(rng.choice([-1, 1], x.shape), x.dtype))

    return jax.tree.map(nudge, args)
