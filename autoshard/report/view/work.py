"""What every op of a plan does on one device: FLOP, bytes and seconds."""

from dataclasses import dataclass

import numpy as np

from autoshard.costs.copied import copied_bytes, copies_of_inputs
from autoshard.costs.fusion import Fusion
from autoshard.costs.price import multiplicities
from autoshard.costs.roofline import local_bytes
from autoshard.costs.work import MATMUL, VECTOR, dtype_of_work, is_matmul, local_flops, local_sizes
from autoshard.plan_record import PlanRecord


@dataclass(frozen=True, slots=True)
class OpWork:
    """The work of one op on one device.

    flop, bytes: of one execution. times: executions per step. seconds: of all of them, per step. unit, dtype: which
    peak rate of the machine applies to its FLOP.
    """

    flop: float
    bytes: float
    times: float
    seconds: float
    unit: str
    dtype: str


def work_of(plan: PlanRecord, fusion: Fusion) -> dict[int, OpWork]:
    """op id -> its work, for every op that the schedule places."""
    program, mesh = plan.program, plan.schedule.mesh
    times, copied = multiplicities(program, plan.trips), copies_of_inputs(program)
    works: dict[int, OpWork] = {}
    for op_id, placement in plan.schedule.placements.items():
        op = program.ops[op_id]
        if op.rule is None:
            continue
        shards = np.array([[mesh.size(f) for f in placement.factors]], np.int64).reshape(1, -1)
        sizes = local_sizes(op.rule, shards)
        moved = float(local_bytes(op, program, sizes, fusion)[0])
        if op_id in copied:
            moved += float(copied_bytes(op, program, sizes, copied[op_id])[0])
        works[op_id] = OpWork(
            float(local_flops(op, program, sizes)[0]),
            moved,
            times[op_id],
            plan.cost.op_seconds.get(op_id, 0.0),
            MATMUL if is_matmul(op) else VECTOR,
            dtype_of_work(op, program),
        )
    return works
