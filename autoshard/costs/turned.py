"""Transposes that turn short rows, and what a GPU reads again for them.

A transpose that leaves the last dimension where it is copies rows. One that moves it reads neighbours of its result
from apart. XLA for GPUs turns tiles of both dimensions in shared memory where each has 8 elements or more
(``kMinDimensionToTransposeTiled2``); a shorter one becomes a loop, whose every read brings a sector of memory of which
the neighbour in the result has no part. So bytes are read as often as the shorter dimension is long, at most once for
each element of a sector. Scores of attention turn so where 2 to 7 heads share keys and values. It counts on machines
whose profile says so (`sector_bytes` of `CompiledWork`, docs/costmodels.md).
"""

from typing import Final

import numpy as np

from autoshard.costmodels.machine import Machine
from autoshard.program.program import Op, Program
from autoshard.program.rule import ShardingRule, TensorFactors

TILED_FROM: Final = 8
"""Elements along both dimensions from which on a transpose is made of tiles."""


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
    type_ = program.type_of(op.operands[0])
    element = type_.bytes / max(1, type_.elements)
    short = _shorter(rule, sizes)
    times = np.where(short < TILED_FROM, np.minimum(short, sector_bytes / element), 1.0)
    own = sizes[:, [f for dim in rule.operands[0] for f in dim]].prod(axis=1)
    return (times - 1.0) * own * element


def _shorter(rule: ShardingRule, sizes: np.ndarray) -> np.ndarray:
    """[placement] elements of the shorter one of the last dimensions before and after; 1 where they are the same."""
    before, after = _last(rule.operands[0], sizes), _last(rule.results[0], sizes)
    rows = np.arange(len(sizes))
    return np.where(before == after, 1, np.minimum(sizes[rows, before], sizes[rows, after]))


def _last(tensor: TensorFactors, sizes: np.ndarray) -> np.ndarray:
    """[placement] the last factor of a tensor that has more than one element on a device; 0 where none has."""
    found = np.zeros(len(sizes), np.int64)
    for factor in (f for dim in tensor for f in dim):
        found = np.where(sizes[:, factor] > 1, factor, found)
    return found
