"""What matmuls read through the ops that are fused into their operands.

A weight that is converted, scaled or sliced right before a matmul never exists in memory that way: the matmul reads
what it is made of. Where memory bounds the matmul, as in decoding, these bytes are its time. The fusion model counts
them with the ops that are fused, whose bytes hide behind FLOP; so a matmul counts them, too, where it is told apart
from what fuses with it (`CompiledWork`), and takes the longer of FLOP and bytes.
"""

from collections.abc import Mapping
from typing import Final

import numpy as np

from autoshard.costmodels.compiled import WorkKind
from autoshard.costs.fusion import Fusion
from autoshard.costs.work import element_bytes, local_elements
from autoshard.program.program import Op, Program

READERS: Final = frozenset(
    {WorkKind.MATMUL, WorkKind.SLICED, WorkKind.UPDATED, WorkKind.SPILLED, WorkKind.CACHED}
)  # fmt: skip
"""Kinds of work that read their operands once, from memory: activations of convolutions are mostly on the chip."""
_PARTS: Final = frozenset({"slice", "dynamic_slice", "gather"})
"""Ops that read a part of their first operand, as large as their result."""


def read_through(program: Program, fusion: Fusion) -> dict[int, float]:
    """Value that is not in memory -> bytes of all that is read from memory for one element of it."""
    sources: dict[int, frozenset[int]] = {}
    for op, _ in program.walk():
        if op.regions:
            continue
        for result in op.results:
            if result not in fusion:
                sources[result] = frozenset().union(*(
                    frozenset({value}) if value in fusion else sources.get(value, frozenset())
                    for value in _read_with(op, result, program)
                ))  # fmt: skip
    return {value: sum(element_bytes(program, v) for v in read) for value, read in sources.items()}


def _read_with(op: Op, result: int, program: Program) -> tuple[int, ...]:
    """Operands of which an element is read for each element of a result; those that are broadcast stay on the chip."""
    if op.kind in _PARTS:
        return op.operands[:1]
    return tuple(v for v in op.operands if program.type_of(v).elements == program.type_of(result).elements)


def through_bytes(op: Op, program: Program, sizes: np.ndarray, read: Mapping[int, float]) -> np.ndarray:
    """[placement] bytes that one execution of a matmul reads on one device for operands that are not in memory."""
    assert op.rule is not None
    operands = dict(zip(op.operands, op.rule.operands, strict=False))  # what is given twice is read once
    total = np.zeros(len(sizes))
    for value, factors in operands.items():
        if each := read.get(value, 0.0):
            total += local_elements(factors, sizes) * each
    return total
