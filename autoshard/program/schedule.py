"""The schedule: everything the solver decided, in the form that is priced, lowered and verified.

Data flow of one value: it is *defined* in some layout; if it has several uses it may have one *shared*
form (computed once, before the first use); each use then takes its own reshard, from the shared form
where there is one, else from the definition.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from typing import NamedTuple

from autoshard.program.program import Op, Program
from autoshard.program.rule import ShardingRule, TensorFactors
from autoshard.sharding.layout import AtomMesh, Layout
from autoshard.sharding.steps import Reshard

PROGRAM = -1
"""The `op` of a use by the program's own outputs."""


class Use(NamedTuple):
    """One consumption of a value.

    ``Use(op, k)``: operand k of an op. ``Use(op, k, r)``: result k of region r of a region op (what the
    body hands back). ``Use(PROGRAM, k)``: output k of the program.
    """

    op: int
    slot: int
    region: int = -1

    def value_in(self, program: Program) -> int:
        """The value that this use consumes."""
        if self.op == PROGRAM:
            return program.body.results[self.slot]
        op = program.ops[self.op]
        return op.operands[self.slot] if self.region < 0 else op.regions[self.region].results[self.slot]


class Exchange(NamedTuple):
    """Edges of blocks that every device of a group sends to a neighbour before an op: one permute.

    With `shift` 1 a device sends the last `width` elements of its block, along dimension `dim` of `operand`, to the
    next device in the order of `atoms`. With -1 it sends the first `width` elements to the device before it. before:
    (dimension, elements) that earlier exchanges of the op have added to the block, so that corners travel along.
    """

    operand: int
    dim: int
    atoms: tuple[int, ...]
    width: int
    shift: int
    before: tuple[tuple[int, int], ...] = ()

    def elements(self, local_shape: Sequence[int]) -> int:
        """Number of elements that one device sends, given the shape of its block of the operand."""
        added = dict(self.before)
        return prod(self.width if d == self.dim else n + added.get(d, 0) for d, n in enumerate(local_shape))


@dataclass(frozen=True, slots=True)
class Placement:
    """How an op runs on the mesh: the atoms on each factor of its rule, and the partial sums that pass through it.

    factors: for each factor its atoms, major to minor.
    passes: (atom, index into ``rule.linear``) for every atom over which a partial sum passes through.
    zeros: atoms over which the all-zero result of an op with ``attrs["zero"]`` counts as unreduced.
    """

    factors: tuple[tuple[int, ...], ...]
    passes: tuple[tuple[int, int], ...] = ()
    zeros: tuple[int, ...] = ()

    def _dims(self, tensor: TensorFactors) -> tuple[tuple[int, ...], ...]:
        return tuple(tuple(a for f in dim for a in self.factors[f]) for dim in tensor)

    def reduced_atoms(self, rule: ShardingRule) -> tuple[int, ...]:
        """Atoms on reduction factors: the op leaves partial results over them."""
        return tuple(sorted(a for f in rule.reduction for a in self.factors[f]))

    def operand(self, rule: ShardingRule, index: int) -> Layout:
        """The layout that this placement needs of operand `index`."""
        unreduced = [atom for atom, which in self.passes if index in rule.linear[which]]
        if index in rule.accumulators:
            unreduced += self.reduced_atoms(rule)
        return Layout(self._dims(rule.operands[index]), tuple(sorted(unreduced)))

    def result(self, rule: ShardingRule, index: int) -> Layout:
        """The layout in which result `index` is defined (after `combine_atoms` where that applies)."""
        unreduced = [atom for atom, _ in self.passes] + list(self.zeros)
        if rule.combiner == "add":
            unreduced += self.reduced_atoms(rule)
        return Layout(self._dims(rule.results[index]), tuple(sorted(unreduced)))

    def exchanges(self, rule: ShardingRule) -> list["Exchange"]:
        """The exchanges of edges between neighbours before the op runs: one permute each, in this order."""
        cut = [h for h in rule.halos if self.factors[h.factor]]
        return [
            Exchange(
                h.operand, h.dim, self.factors[h.factor], width, shift, tuple((g.dim, g.low + g.high) for g in cut[:k])
            )
            for k, h in enumerate(cut)
            for width, shift in ((h.low, 1), (h.high, -1))
            if width
        ]

    def combine_atoms(self, rule: ShardingRule) -> tuple[int, ...]:
        """Atoms over which each result is all-reduced inside the op (combiner max or min)."""
        return () if rule.combiner == "add" else self.reduced_atoms(rule)


@dataclass(frozen=True)
class Schedule:
    """All decisions about one program on one mesh.

    placements: op id -> placement, for every op that has a rule.
    definitions: value id -> layout in which it is defined: inputs, constants, block arguments, op results
        (literals are scalars and have none).
    shared: value id -> reshard from the definition to the form its uses share.
    uses: how each use gets what it wants; uses of literals are absent. A use of a region op's operand
        leads to the layout of the block argument it feeds (stacked operands of scan: with a leading
        uncut dimension); a use of a region's result leads to the layout that crosses the boundary.
    """

    mesh: AtomMesh
    placements: dict[int, Placement] = field(default_factory=dict)
    definitions: dict[int, Layout] = field(default_factory=dict)
    shared: dict[int, Reshard] = field(default_factory=dict)
    uses: dict[Use, Reshard] = field(default_factory=dict)

    def form_before_use(self, value: int) -> Layout:
        """The layout that each use of `value` starts from: the shared form where there is one, else the definition."""
        shared = self.shared.get(value)
        return self.definitions[value] if shared is None else shared.target


def operand_layouts(op: Op, placement: Placement) -> Sequence[Layout]:
    """The layout that a placement needs of each operand, before reshards."""
    assert op.rule is not None
    return [placement.operand(op.rule, k) for k in range(len(op.operands))]


def result_layouts(op: Op, placement: Placement) -> Sequence[Layout]:
    """The layout in which a placement defines each result."""
    assert op.rule is not None
    return [placement.result(op.rule, k) for k in range(len(op.results))]
