"""Arrays that a loop holds in another order of dimensions than the program has them.

A TPU multiplies batches of matrices whose batch lies in front. An array that a loop carries, or reads as a constant, is
kept turned for the whole loop where it is such an operand and other dimensions lie before its batch, as in a cache of
(sequence, position, head, width) beside several queries a head. Inputs and outputs of a program lie in the order of
their dimensions: a constant is turned into a copy that lasts as long as the loop, and a carry that is returned behind
the loop into a copy for the output. What libtpu 0.0.42.1 makes of such loops: 1.9 times the memory of the cache on v5e
and v6e, and none of it where the batch comes first, where a device has one head, or for one query a head (no matmul).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod

from autoshard.costs.fusion import Fusion, pointwise
from autoshard.program.program import Block, Op, Program
from autoshard.program.schedule import PROGRAM, Use
from autoshard.sharding.layout import AtomMesh, Layout

Batch = frozenset[int]
"""Dimensions that have to come first."""


@dataclass(frozen=True, slots=True)
class Turned:
    """An array that may be turned: its `value`, the `use` that has it in its own order, and the batch for each of the
    matmuls that read it. loop: the op that reads it as a constant; None for an output.
    """

    value: int
    use: Use
    batches: tuple[Batch, ...]
    shape: tuple[int, ...]
    loop: int | None = None

    def is_turned(self, layout: Layout, mesh: AtomMesh) -> bool:
        """Whether a device's block has a dimension of several elements before one of a batch."""
        several = [d for d, n in enumerate(layout.local_shape(self.shape, mesh)) if n > 1]
        lasts = [(max(batch.intersection(several), default=-1), batch) for batch in self.batches]
        return any(d < last and d not in batch for last, batch in lasts for d in several)

    def span(self, points: int, spans: Mapping[int, tuple[int, int]]) -> tuple[int, int]:
        """When the copy is held: for all of the loop, or at the last of so many points. spans: of ops."""
        first, last = (points - 1, points - 1) if self.loop is None else spans[self.loop]
        return first, last + 1

    def name(self, program: Program) -> str:
        """What the copy is called in a plan."""
        name = program.values[self.value].name
        if self.loop is None:
            return f"{name}, turned for output {program.output_names[self.use.slot]}"
        return f"{name}, turned for {program.ops[self.loop].kind}:{self.loop}"


def turned_arrays(program: Program, fusion: Fusion) -> list[Turned]:
    """All arrays of a program that some plan turns: none where matmuls are calls of libraries."""
    if fusion.calls is not None:
        return []
    inputs, out = frozenset(program.body.args), list[Turned]()
    for op in program.body.ops:
        if op.kind not in ("scan", "while"):
            continue
        for slot, arg in entries(op):
            value, carried = op.operands[slot], slot - first_carry(op)
            if carried < 0 and value not in inputs:
                continue
            outputs = [] if carried < 0 else [k for k, v in enumerate(program.body.results) if v == op.results[carried]]
            if not (carried < 0 or outputs):
                continue
            batches = tuple(dict.fromkeys(_batches(program, op.regions[-1], arg)))
            shape = program.type_of(value).shape
            if batches and carried < 0:
                out.append(Turned(value, Use(op.id, slot), batches, shape, op.id))
            elif batches:
                out += [Turned(op.results[carried], Use(PROGRAM, k), batches, shape) for k in outputs]
    return [t for t in out if t.loop is not None or t.use.slot not in program.host_outputs]


def first_carry(op: Op) -> int:
    """The operand of a loop that starts its first carry."""
    return op.attrs["num_consts"] if op.kind == "scan" else op.attrs["cond_nconsts"] + op.attrs["body_nconsts"]


def entries(op: Op) -> Iterator[tuple[int, int]]:
    """(operand, argument of the body) of a loop, for constants of the body and carries."""
    skip = 0 if op.kind == "scan" else op.attrs["cond_nconsts"]
    count = op.attrs["num_consts"] + op.attrs["num_carry"] if op.kind == "scan" else len(op.regions[-1].args)
    return ((skip + k, arg) for k, arg in enumerate(op.regions[-1].args[:count]))


def _batches(program: Program, block: Block, array: int) -> Iterator[Batch]:
    """Of the matmuls that read an array of a block, as it is or with other elements in the same places."""
    same = {array}
    for op in block.ops:
        for slot, value in enumerate(op.operands):
            if value not in same:
                continue
            if op.kind in ("scan", "while"):
                for entry, arg in entries(op):
                    if entry == slot:
                        yield from _batches(program, op.regions[-1], arg)
                        if slot >= first_carry(op):
                            same.add(op.results[slot - first_carry(op)])
            elif op.kind == "dot_general":
                yield from _batch(op, slot)
            elif _keeps_places(program, op, slot):
                same.update(op.results)


def _batch(op: Op, slot: int) -> Iterator[Batch]:
    assert op.rule is not None
    own, other = op.rule.operands[slot], {f for d in op.rule.operands[1 - slot] for f in d}
    mine = {f for d in own for f in d}
    batch = frozenset(d for d, fs in enumerate(own) if fs and {*fs} <= other - op.rule.reduction)
    rows = [prod(op.rule.factor_sizes[f] for f in free) for free in (mine - other, other - mine)]
    if batch and min(rows) > 1:  # a vector is multiplied in any order
        yield batch


def _keeps_places(program: Program, op: Op, slot: int) -> bool:
    if op.regions or op.rule is None or len(op.results) != 1:
        return False
    if program.type_of(op.results[0]).shape != program.type_of(op.operands[slot]).shape:
        return False
    return pointwise(op) or (slot == 0 and op.kind.startswith(("dynamic_update_slice", "scatter")))
