"""What a GPU turns around in memory beside what a program's bytes say: rows of transposes, and caches.

*Rows.* A transpose that leaves the last dimension where it is copies rows. One that moves it reads neighbours of its
result from apart. XLA for GPUs turns tiles of both dimensions in shared memory where each has 8 elements or more
(``kMinDimensionToTransposeTiled2``); a shorter one becomes a loop, whose every read brings a sector of memory of which
the neighbour in the result has no part. So bytes are read as often as the shorter dimension is long, at most once for
each element of a sector. Scores of attention turn so where 2 to 7 heads share keys and values.

*Caches.* A batched matmul takes operands whose batch lies in one piece, before the columns. Where other dimensions lie
between sequences and heads of a cache, as between those of (sequence, position, head, width) where a device has several
of both, XLA for GPUs turns the whole of it for the attention of few queries; one that is updated in place it turns,
copies and turns back. (Attention of many queries has this in its `attention` traffic, where scores are the most.)

Both count on machines whose profile says so (`sector_bytes` and `turns_caches` of `CompiledWork`, docs/costmodels.md).
"""

from typing import Final

import numpy as np

from autoshard.costmodels.machine import Machine
from autoshard.costs.work import common_dimensions, element_bytes, local_elements
from autoshard.program.program import Op, Program
from autoshard.program.rule import ShardingRule, TensorFactors

TILED_FROM: Final = 8
"""Elements along both dimensions from which on a transpose is made of tiles."""
TURN: Final = 2
"""Passes over memory of turning an array: it is read and written."""
UPDATED: Final = 6
"""Of one that is updated in place: turned, copied, since what it was is read once more, and turned back."""


def turned_s(op: Op, program: Program, sizes: np.ndarray, machine: Machine) -> np.ndarray:
    """[placement] seconds of what an op reads again on one device, from the local factor sizes."""
    compiled = machine.profile.compiled_work
    if compiled is None or not compiled.sector_bytes or op.kind != "transpose":
        return np.zeros(len(sizes))
    again = read_again_bytes(op, program, sizes, compiled.sector_bytes)
    return np.asarray(machine.compute_s(0.0, again, program.type_of(op.operands[0]).dtype), np.float64)


def read_again_bytes(op: Op, program: Program, sizes: np.ndarray, sector_bytes: int) -> np.ndarray:
    """[placement] bytes that a transpose reads beside those of its operand."""
    rule = op.rule
    assert rule is not None
    element = element_bytes(program, op.operands[0])
    if not element:  # float0
        return np.zeros(len(sizes))
    short = _shorter(rule, sizes)
    times = np.where(short < TILED_FROM, np.minimum(short, sector_bytes / element), 1.0)
    return (times - 1.0) * local_elements(rule.operands[0], sizes) * element


def caches_s(op: Op, program: Program, sizes: np.ndarray, machine: Machine, updated: frozenset[int]) -> np.ndarray:
    """[placement] seconds of turning the operands of a matmul of few queries. updated: values written in place."""
    rule, compiled, passes = op.rule, machine.profile.compiled_work, np.zeros(len(sizes))
    assert rule is not None
    if compiled is None or not compiled.turns_caches or op.kind != "dot_general" or common_dimensions(rule) < 2:
        return passes
    common = set.intersection(*({f for dim in t for f in dim} for t in (*rule.operands, *rule.results)))
    for value, tensor in zip(op.operands, rule.operands, strict=True):
        own = local_elements(tensor, sizes) * element_bytes(program, value)
        passes += np.where(_in_pieces(tensor, common, sizes), UPDATED if value in updated else TURN, 0) * own
    return np.asarray(machine.compute_s(0.0, passes / compiled.memory, program.type_of(op.operands[0]).dtype))


def _in_pieces(tensor: TensorFactors, batch: set[int], sizes: np.ndarray) -> np.ndarray:
    """[placement] whether factors of more than one element lie between those of the batch, or the batch is last."""
    begun, broken, last = (np.zeros(len(sizes), bool) for _ in range(3))
    for factor in (f for dim in tensor for f in dim):
        there = sizes[:, factor] > 1
        if factor in batch:
            broken |= there & begun & ~last
            begun |= there
            last |= there
        else:
            last &= ~there
    return broken | last


def _shorter(rule: ShardingRule, sizes: np.ndarray) -> np.ndarray:
    """[placement] elements of the shorter one of the last dimensions before and after; 1 where they are the same."""
    if not sizes.shape[1]:  # one element: no dimension has a factor
        return np.ones(len(sizes), sizes.dtype)
    before, after = _last(rule.operands[0], sizes), _last(rule.results[0], sizes)
    rows = np.arange(len(sizes))
    return np.where(before == after, 1, np.minimum(sizes[rows, before], sizes[rows, after]))


def _last(tensor: TensorFactors, sizes: np.ndarray) -> np.ndarray:
    """[placement] the last factor of a tensor that has more than one element on a device; 0 where none has."""
    found = np.zeros(len(sizes), np.int64)
    for factor in (f for dim in tensor for f in dim):
        found = np.where(sizes[:, factor] > 1, factor, found)
    return found
