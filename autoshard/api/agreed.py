"""Whether all processes of a program have made the same plan: each plans for itself, and they run it together."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

from autoshard.errors import InputError
from autoshard.program.as_json import mesh_to_json, schedule_to_json

if TYPE_CHECKING:
    from autoshard.api.plans import Plan


def check_agreed(plan: Plan) -> None:
    """`InputError` in every process where another one would run another plan: they would wait for each other for ever,
    or take each other's data for something else. Called by all processes at once.
    """
    from autoshard.interop.processes import told_apart

    def own() -> bytes:
        run = [mesh_to_json(plan.schedule.mesh), schedule_to_json(plan.schedule), plan.runs_as]
        return hashlib.sha256(json.dumps(run, sort_keys=True, default=str).encode()).digest()

    this, others = told_apart(own, plan.lowered.jax_mesh().devices.flat)
    if others:
        raise InputError(
            f"process {this} has another plan of {plan.program.name} than process {others[0]}: what they state "
            "differs, or searches ended at a time limit, which depends on the speed of each. Give all the same "
            "statements and no time limit (state effort in its place), or make the plan once, save it, and in every "
            "process take Plan.load(file).attach(f, *specs).jit()"
        )
