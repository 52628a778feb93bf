"""The schedule: everything the solver decided, in the form that is priced, lowered and verified.

Data flow of one value: it is *defined* in some layout; if it has several uses it may have one *shared*
form (computed once, before the first use); each use then takes its own reshard, from the shared form
where there is one, else from the definition.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import prod
from typing import NamedTuple

from autoshard.program.program import Op, Program
from autoshard.program.rule import Cutout, ShardingRule, TensorFactors
from autoshard.sharding.layout import AtomMesh, Layout
from autoshard.sharding.rows import Rounds, rounds
from autoshard.sharding.steps import Reshard, StepKind

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

    def is_in(self, program: Program) -> bool:
        """Whether the program has this use."""
        op = program.ops.get(self.op)
        if self.op == PROGRAM or op is None:
            values = program.body.results if self.op == PROGRAM and self.region == -1 else ()
        elif self.region == -1:
            values = op.operands
        else:
            values = op.regions[self.region].results if 0 <= self.region < len(op.regions) else ()
        return 0 <= self.slot < len(values)


class Exchange(NamedTuple):
    """Elements of blocks that devices of a group send to others before an op, or in it: one permute.

    With `shift` 1 a device sends the last `width` elements of its block, along dimension `dim` of `operand`, to the
    next device in the order of `atoms`. With -1 it sends the first `width` elements to the device before it. With 0
    these are elements of a cutout, and `pairs` are the numbers of senders and receivers in a group, in mesh order.
    before: (dimension, elements) that the op has added to the block by then, so that corners travel along.
    """

    operand: int
    dim: int
    atoms: tuple[int, ...]
    width: int
    shift: int
    before: tuple[tuple[int, int], ...] = ()
    pairs: tuple[tuple[int, int], ...] = ()

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
        """Atoms on reduction factors, and on cutouts that are cut alone: the op leaves partial results over them."""
        filled = {c.taken for c in rule.cutouts if c.sums and not (c.made >= 0 and self.factors[c.made])} - {-1}
        return tuple(sorted(a for f in rule.reduction | filled for a in self.factors[f]))

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

    def moved(self, rule: ShardingRule) -> tuple[Cutout, ...]:
        """The cutouts whose elements change devices: those whose dimensions are cut on both sides."""
        return tuple(
            c for c in rule.cutouts if c.taken >= 0 and c.made >= 0 and self.factors[c.taken] and self.factors[c.made]
        )

    def exchanges(self, rule: ShardingRule, mesh: AtomMesh) -> list["Exchange"]:
        """What devices send each other before the op runs, or in it: one permute each, in this order."""
        cut = [h for h in rule.halos if self.factors[h.factor]]
        edges = [
            Exchange(
                h.operand, h.dim, self.factors[h.factor], width, shift, tuple((g.dim, g.low + g.high) for g in cut[:k])
            )
            for k, h in enumerate(cut)
            for width, shift in ((h.low, 1), (h.high, -1))
            if width
        ]
        return [*edges, *self._cut_out(rule, mesh)]

    def _cut_out(self, rule: ShardingRule, mesh: AtomMesh) -> Iterator["Exchange"]:
        """The permutes of cutouts. A slice takes what it leaves whole first, a pad adds it last."""

        def local(factor: int) -> int:
            return -(-rule.factor_sizes[factor] // mesh.size(self.factors[factor])) if factor >= 0 else 1

        moved = self.moved(rule)
        for c in moved:
            done = [o for o in rule.cutouts if o.result == c.result and o.dim != c.dim]
            # what a pad cuts has its turn among what moves
            grown = [o for o in done if o.grows and o.made >= 0 and mesh.size(self.factors[o.made]) > 1]
            done = [o for o in done if (o.dim < c.dim if o in moved or o in grown else not c.grows)]
            added = tuple((o.dim, local(o.made) - local(o.taken)) for o in done)
            cuts = {o.dim for o in rule.cutouts if o.result == c.result}
            for d, (taken, made) in enumerate(zip(rule.operands[c.operand], rule.results[c.result], strict=True)):
                if taken != made and d not in cuts and not c.grows:  # a slice with a step
                    added += ((d, prod(map(local, made)) - prod(map(local, taken))),)
            atoms = self.factors[c.taken]
            for pairs, width in cutout_permutes(rule, c, atoms, mesh):
                yield Exchange(c.operand, c.dim, atoms, width, 0, added, pairs)

    def combine_atoms(self, rule: ShardingRule) -> tuple[int, ...]:
        """Atoms over which each result is all-reduced inside the op (combiner max or min)."""
        return () if rule.combiner == "add" else self.reduced_atoms(rule)


def cutout_rounds(rule: ShardingRule, cutout: Cutout, atoms: Sequence[int], mesh: AtomMesh) -> Rounds:
    """The pieces of a cutout, cut by `atoms` on both sides, that change devices, permute by permute."""
    assert cutout.start is not None
    operand, result = rule.factor_sizes[cutout.taken], rule.factor_sizes[cutout.made]
    return rounds(operand, result, cutout.start, tuple(mesh.sizes[a] for a in atoms), cutout.wraps)


def cutout_permutes(
    rule: ShardingRule, cutout: Cutout, atoms: Sequence[int], mesh: AtomMesh
) -> Iterator[tuple[tuple[tuple[int, int], ...], int]]:
    """For each permute of a cutout: (sender, receiver) numbers in mesh order, and how many elements a device sends."""
    number = numbers_in_mesh_order(atoms, mesh)
    for sent in cutout_rounds(rule, cutout, atoms, mesh):
        yield tuple((number[p.source], number[p.target]) for p in sent), max(p.count for p in sent)


def numbers_in_mesh_order(atoms: Sequence[int], mesh: AtomMesh) -> list[int]:
    """For each block of a dimension cut by `atoms`, the number in mesh order of the device of a group that holds it."""
    ordered = sorted(atoms)
    places = product(*(range(mesh.sizes[a]) for a in atoms))
    digits = [dict(zip(atoms, place, strict=True)) for place in places]
    strides = [prod(mesh.sizes[a] for a in ordered[k + 1 :]) for k in range(len(ordered))]
    return [sum(where[a] * s for a, s in zip(ordered, strides, strict=True)) for where in digits]


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
    as_used: values whose shared form is gathered as the ops that convert it take it (`Travels.converting`); all other
        uses have it in the layout of its definition.
    """

    mesh: AtomMesh
    placements: dict[int, Placement] = field(default_factory=dict)
    definitions: dict[int, Layout] = field(default_factory=dict)
    shared: dict[int, Reshard] = field(default_factory=dict)
    uses: dict[Use, Reshard] = field(default_factory=dict)
    as_used: frozenset[int] = frozenset()

    def form_before_use(self, value: int) -> Layout:
        """The layout that each use of `value` starts from: the shared form where there is one, else the definition."""
        shared = self.shared.get(value)
        return self.definitions[value] if shared is None else shared.target

    def is_as_defined(self, value: int, reshard: Reshard) -> bool:
        """Whether a use takes a value that is gathered as it is used (`as_used`) as it was defined, so that its slices
        cost nothing: compilers that gather so, those of TPUs, have no array of the value's own type to slice.
        """
        sliced = all(step.kind is StepKind.SLICE for step in reshard.steps)
        return value in self.as_used and reshard.target == self.definitions[value] and sliced


def operand_layouts(op: Op, placement: Placement) -> Sequence[Layout]:
    """The layout that a placement needs of each operand, before reshards."""
    assert op.rule is not None
    return [placement.operand(op.rule, k) for k in range(len(op.operands))]


def result_layouts(op: Op, placement: Placement) -> Sequence[Layout]:
    """The layout in which a placement defines each result."""
    assert op.rule is not None
    return [placement.result(op.rule, k) for k in range(len(op.results))]
