"""What XLA for GPUs holds otherwise than the TPU compiler: rules L1 to L5, fitted to its buffers in 28 train steps.

L1  matmuls and convolutions are calls of libraries: their operands and their results are in memory (there is no R4). A
    product that is only converted to a wider type is written in that type.
L2  results of costly functions (exp, tanh) are in memory where several kernels would compute them again.
L3  matmuls and convolutions on which no other one depends (gradients of weights) run after all others of their block,
    and so does what depends on them.
L4  an operand of batched matmuls that read it along different dimensions, several of them together, is there twice: in
    the order of each.
L5  pointwise results take the place of donated inputs only, since XLA fuses them with reductions.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from autoshard.program.program import Block, Op, Program

CALLS: Final = frozenset({"dot_general", "conv_general_dilated", "ragged_dot", "ragged_dot_general"})
COSTLY: Final = frozenset({"exp", "exp2", "expm1", "log1p", "tanh", "erf", "erfc", "erf_inv", "pow"})


@dataclass(frozen=True)
class Calls:
    """How a program runs where its matmuls are calls of libraries.

    late: ids of the ops that run after the others of their block (L3). twice: values held in two orders (L4).
    """

    late: frozenset[int]
    twice: frozenset[int]

    def order(self, block: Block) -> tuple[Op, ...]:
        """The ops of a block as they run."""
        return tuple(sorted(block.ops, key=lambda op: op.id in self.late))


def calls(blocks: list[Block]) -> Calls:
    """L3 and L4 of all blocks of a program."""
    late: set[int] = set()
    twice: set[int] = set()
    for block in blocks:
        late |= _late(block)
        twice |= _twice(block)
    return Calls(frozenset(late), frozenset(twice))


def hold(program: Program, block: Block, roots: frozenset[int], held: set[int]) -> None:
    """L1 and L2 in one block: adds to `held`, the values in memory. roots: ids of the ops that write their results."""
    readers: dict[int, list[Op]] = {}
    for op in block.ops:
        for value in dict.fromkeys(op.operands):
            readers.setdefault(value, []).append(op)
    for op in block.ops:
        if op.kind in CALLS:
            held.update(op.operands)
    results = set(block.results)
    kernels: dict[int, frozenset[int]] = {}  # value -> ops that read it, through values that are not in memory
    for op in reversed(block.ops):
        for value in op.results:
            reading: set[int] = {-1} if value in results else set()
            for reader in readers.get(value, ()):
                if reader.id in roots or any(v in held for v in reader.results):
                    reading.add(reader.id)
                reading.update(k for v in reader.results if v not in held for k in kernels.get(v, ()))
            kernels[value] = frozenset(reading)
            if op.kind in COSTLY and len(reading) > 1:
                held.add(value)
    _widen(program, block, readers, held)


def _widen(program: Program, block: Block, readers: Mapping[int, list[Op]], held: set[int]) -> None:
    for op in block.ops:
        product = op.results[0] if op.kind == "dot_general" else None
        if product is None or product in block.results:
            continue
        reading = readers.get(product, ())
        if len(reading) == 1 and reading[0].kind == "convert_element_type":
            wide = reading[0].results[0]
            if program.type_of(wide).bytes > program.type_of(product).bytes:
                held.discard(product)
                held.add(wide)


def _late(block: Block) -> set[int]:
    wanted: set[int] = set()  # values that a matmul, a loop or a kernel depends on
    ends: set[int] = set()
    for op in reversed(block.ops):
        leads = any(value in wanted for value in op.results)
        if leads or op.kind in CALLS or op.regions or "kernel" in op.attrs:
            wanted.update(op.operands)
        if op.kind in CALLS and not leads:
            ends.add(op.id)
    late: set[int] = set()
    after: set[int] = set()
    for op in block.ops:
        if op.id in ends or any(value in after for value in op.operands):
            late.add(op.id)
            after.update(op.results)
    return late


def _twice(block: Block) -> set[int]:
    """The values of L4."""
    summed: dict[int, set[tuple[int, ...]]] = {}  # value -> dimensions over which matmuls sum
    several: set[int] = set()
    for op in block.ops:
        if op.kind != "dot_general" or op.rule is None:
            continue
        whole = {factor for dim in op.rule.results[0] for factor in dim}
        batch = whole.intersection(*({factor for dim in dims for factor in dim} for dims in op.rule.operands))
        for value, dims in zip(op.operands, op.rule.operands, strict=True):
            over = tuple(d for d, dim in enumerate(dims) if dim and not whole.intersection(dim))
            of_batch = sum(not batch.isdisjoint(dim) for dim in dims)
            summed.setdefault(value, set()).add(over)
            if of_batch and max(len(over), len(dims) - len(over) - of_batch) > 1:
                several.add(value)
    return {value for value in several if len(summed[value]) > 1}
