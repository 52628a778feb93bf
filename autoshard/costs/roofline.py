"""Roofline seconds of ops: FLOP over peak or bytes over memory bandwidth, whichever is longer.

Where the machine's profile says how fast its compiler's work runs, FLOP and bytes count as that says.
"""

import numpy as np

from autoshard.costmodels.compiled import CACHED_ON_CHIP, WorkKind
from autoshard.costmodels.profile import Memory
from autoshard.costs.channels import share_of_unit
from autoshard.costs.copied import copied_s
from autoshard.costs.fusion import Fusion
from autoshard.costs.pricing import StepPrices
from autoshard.costs.through import READERS, through_bytes
from autoshard.costs.turned import caches_s, turned_s
from autoshard.costs.work import (
    MATMUL,
    VECTOR,
    dtype_of_work,
    element_bytes,
    is_matmul,
    is_update,
    kernel_vector_flops,
    local_elements,
    local_flops,
    local_sizes,
)
from autoshard.program.program import Op, Program
from autoshard.program.rule import ShardingRule


def op_seconds(op: Op, program: Program, shards: np.ndarray, fusion: Fusion, prices: StepPrices) -> np.ndarray:
    """[placement] roofline seconds of one execution of `op`, given the number of parts of each factor.

    Bytes are the materialised operands it reads and the materialised results it writes (see costs/fusion.py).
    """
    rule = op.rule
    assert rule is not None
    sizes = local_sizes(rule, shards)
    flops = local_flops(op, program, sizes)
    moved = local_bytes(op, program, sizes, fusion)
    unit, made = (MATMUL, result_bytes(op, program, sizes)) if is_matmul(op) else (VECTOR, 0.0)
    dtype = dtype_of_work(op, program)
    kind = prices.kind_of(op, program)
    if kind in READERS:
        moved = moved + through_bytes(op, program, sizes, prices.through(program, fusion))
    if kind is WorkKind.CONVOLUTION and prices.pads_channels:
        flops = flops / share_of_unit(rule, sizes, prices.machine.profile.matmul_tile)

    def as_kind(kind: WorkKind) -> np.ndarray:
        return np.asarray(prices.machine.work_s(kind, flops, moved, dtype, unit, made), np.float64)

    seconds = as_kind(kind)
    if kind is WorkKind.UPDATED:  # nothing fuses with the matmul where partial sums are moved first
        seconds = np.where(shards[:, list(rule.reduction)].prod(axis=1) > 1, as_kind(WorkKind.MATMUL), seconds)
    if kind in (WorkKind.MATMUL, WorkKind.SLICED, WorkKind.UPDATED):
        nothing_stays = spills(op, program, sizes, prices.machine.profile.memory)
        seconds = np.where(nothing_stays, as_kind(WorkKind.SPILLED), seconds)
    if kind is WorkKind.CACHED:
        brought = ~exceeds_chip(op, program, sizes, prices.machine.profile.memory)
        seconds = np.where(brought, as_kind(WorkKind.MATMUL), seconds)
        seconds = seconds + caches_s(op, program, sizes, prices.machine, prices.updated(program))
    seconds = seconds + turned_s(op, program, sizes, prices.machine)
    if copies := prices.copied(program).get(op.id):
        seconds = seconds + copied_s(op, program, sizes, copies, prices.machine)
    if "work" not in op.attrs:
        return seconds
    beside = np.asarray(prices.machine.compute_s(kernel_vector_flops(op, sizes), 0.0 * moved, dtype, VECTOR))
    return np.maximum(seconds, beside)


def spills(op: Op, program: Program, sizes: np.ndarray, memory: Memory) -> np.ndarray:
    """[placement] whether neither operand of a matmul stays on the chip (`costs.apart`)."""
    return np.logical_and.reduce(_over_chip(op, program, sizes, memory, 1)) & (len(op.operands) == 2)


def exceeds_chip(op: Op, program: Program, sizes: np.ndarray, memory: Memory) -> np.ndarray:
    """[placement] whether a cache is larger than what is brought to the chip while attention of few queries runs."""
    return np.logical_or.reduce(_over_chip(op, program, sizes, memory, CACHED_ON_CHIP))


def _over_chip(op: Op, program: Program, sizes: np.ndarray, memory: Memory, times: int) -> np.ndarray:
    """[operand, placement] whether an operand is larger than so many times what stays on the chip."""
    assert op.rule is not None
    return np.array([
        local_elements(factors, sizes) * element_bytes(program, value)
        > times * memory.on_chip_bytes(program.type_of(value).dtype)
        for value, factors in zip(op.operands, op.rule.operands, strict=True)
    ])  # fmt: skip


def result_bytes(op: Op, program: Program, sizes: np.ndarray) -> np.ndarray:
    """[placement] bytes of what one execution of `op` makes on one device, whether or not it is in memory."""
    rule = op.rule
    assert rule is not None
    made = np.zeros(len(sizes))
    for value, factors in zip(op.results, rule.results, strict=True):
        made += local_elements(factors, sizes) * element_bytes(program, value)
    return made


def sliced_elements(rule: ShardingRule, sizes: np.ndarray) -> np.ndarray:
    """[placement] elements of its operand that a slice reads on one device: along each run those that it takes, of
    dimensions that it steps through all, since memory is read in lines.
    """
    read = local_elements(rule.operands[0], sizes)
    for run in rule.cutouts:
        if run.taken >= 0:
            made = sizes[:, run.made] if run.made >= 0 else 1
            read = read / sizes[:, run.taken] * np.minimum(sizes[:, run.taken], made)
    return read


def groups_read(rule: ShardingRule, sizes: np.ndarray) -> np.ndarray:
    """[placement] the share of its groups' matrices that a ragged matmul reads at most on one device: a row meets one
    group, so few rows meet few of many. 1 for the gradient of the matrices, which meets all.
    """
    left, right, result = ({f for dim in t for f in dim} for t in (*rule.operands[:2], rule.results[0]))
    groups, rows = sorted(right - left - result), sorted((left & result) - right)
    if not groups:
        return np.ones(len(sizes))
    return np.minimum(1.0, sizes[:, rows].prod(axis=1) / np.maximum(sizes[:, groups].prod(axis=1), 1))


def local_bytes(op: Op, program: Program, sizes: np.ndarray, fusion: Fusion) -> np.ndarray:
    """[placement] bytes that one execution of `op` reads and writes in memory on one device."""
    rule = op.rule
    assert rule is not None
    moved = np.zeros(len(sizes))
    tensors = [*zip(op.operands, rule.operands, strict=True), *zip(op.results, rule.results, strict=True)]
    partial_reads = op.kind in ("gather", "dynamic_slice") or is_update(op)
    for index, (value, factors) in enumerate(tensors):
        if value not in fusion or (value, factors) in tensors[:index]:  # what is given twice is read once
            continue
        if partial_reads and (index == 0 or value in op.results):
            continue  # only the part under the slice is touched, and counted with the slice
        read = sliced_elements(rule, sizes) if op.kind == "slice" and index == 0 else local_elements(factors, sizes)
        if op.kind.startswith("ragged_dot") and index == 1:
            read = read * groups_read(rule, sizes)
        moved += read * element_bytes(program, value)
    touched = (op.attrs.get("work") or {}).get("bytes")
    if touched is not None:  # a kernel that says how often it touches its arrays
        once = sum(program.type_of(v).bytes for v in (*op.operands, *op.results))
        moved *= touched / once if once else 0.0
    if partial_reads:
        small = (
            rule.results[0]
            if op.kind in ("gather", "dynamic_slice")
            else rule.operands[-1 if op.kind.startswith("scatter") else 1]
        )
        moved += 2.0 * local_elements(small, sizes) * element_bytes(program, op.results[0])
    return moved
