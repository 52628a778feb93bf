"""All placements of mesh axes on the factors of one op; placements that are left out are counted by reason.

An axis goes on one factor, passes through as a partial sum where the op is linear, or stays unused.
The sub-axes of a split axis go to different places only where a factor cannot take the whole axis, or where they are
axes of their own, because a statement names them.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from math import prod

import numpy as np

from autoshard.placements.uneven import may_pad
from autoshard.program.rule import ShardingRule
from autoshard.program.schedule import Placement, cutout_rounds
from autoshard.sharding.layout import AtomMesh, Layout

NONE = -1
ZERO = -2
_FIRST_PASS = -3
MOST_APART = 700
"""Options of one axis up to which its parts are axes of their own."""
MAX_PERMUTES = 8
"""Cutouts whose elements need more permutes to get where they belong are not cut on both sides."""


def _pass_code(which: int) -> int:
    return _FIRST_PASS - which


@dataclass(frozen=True)
class OpSpace:
    """The placements of one op, with the layouts that each of them implies.

    The index s is that of the placement. placements[s]; operand_layouts[k][s] and result_layouts[k][s], for operand or
    result k; facets[s, axis] labels what placement s does with each mesh axis; pruned counts what was left out, by
    reason.
    """

    placements: tuple[Placement, ...]
    operand_layouts: tuple[tuple[Layout, ...], ...]
    result_layouts: tuple[tuple[Layout, ...], ...]
    facets: np.ndarray
    shards: np.ndarray  # [placement, factor]: in how many parts each factor is cut
    pruned: Counter[str] = field(default_factory=Counter)

    @cached_property
    def by_factors(self) -> dict[tuple[tuple[int, ...], ...], list[int]]:
        """Indices of placements by the atoms on their factors (several differ in partial sums only)."""
        out: dict[tuple[tuple[int, ...], ...], list[int]] = {}
        for index, placement in enumerate(self.placements):
            out.setdefault(placement.factors, []).append(index)
        return out


@dataclass(frozen=True, slots=True)
class PartialSums:
    """Partial sums that may pass through one op.

    passes: for each linear set of its rule, the atoms that all operands of the set can be unreduced over. zeros: the
    atoms over which an all-zero result may count as unreduced.
    """

    passes: tuple[tuple[int, ...], ...] = ()
    zeros: tuple[int, ...] = ()


def _axis_options(
    mesh: AtomMesh,
    atoms: Sequence[int],
    factors: Sequence[int],
    sizes: Sequence[tuple[int, ...]],
    partial: PartialSums,
    uneven: frozenset[int],
    apart: Sequence[tuple[int, ...]] = (),
) -> list[tuple[int, ...]]:
    """Targets of each atom of one mesh axis: a number in `factors`, NONE, ZERO or a pass code.

    sizes: of each target, those of the factors that are cut together there (one, but for the two sides of a cutout).
    apart: parts of the axis that are axes of their own.
    """
    whole = mesh.size(atoms)
    if whole == 1:
        return [(NONE,) * len(atoms)]

    def divides(f: int, parts: int) -> bool:
        return all(n % parts == 0 for n in sizes[f])

    def targets(atoms: Sequence[int]) -> tuple[list[int], list[int]]:
        """Those that may take all of these atoms: factors, and others than NONE."""
        parts = mesh.size(atoms)
        fits = [
            f
            for f in factors
            if divides(f, parts) or (f in uneven and all(n % parts == 0 or may_pad(n, parts, parts) for n in sizes[f]))
        ]
        passes = [_pass_code(w) for w, allowed in enumerate(partial.passes) if all(a in allowed for a in atoms)]
        return fits, [*passes, *([ZERO] if all(a in partial.zeros for a in atoms) else [])]

    fits, sums = targets(atoms)
    options: list[tuple[int, ...]] = [(t,) * len(atoms) for t in (NONE, *fits, *sums)]
    for cut in range(1, len(atoms)):
        head, tail = atoms[:cut], atoms[cut:]
        head_size, tail_size = mesh.size(head), mesh.size(tail)
        for f in factors:
            if f in fits or not divides(f, head_size):
                continue
            rest = [NONE, *(g for g in factors if g != f and divides(g, tail_size)), *sums]
            options += [(f,) * len(head) + (t,) * len(tail) for t in rest]
    each = [_axis_options(mesh, part, factors, sizes, partial, uneven) for part in apart]
    if apart and prod(map(len, each)) <= MOST_APART:
        together = (tuple(t for targets_of in option for t in targets_of) for option in product(*each))
        options = list(dict.fromkeys((*options, *together)))
    return options


def enumerate_placements(
    rule: ShardingRule,
    mesh: AtomMesh,
    partial: PartialSums,
    axis_orders: Sequence[Sequence[str]] = (),
    uneven: frozenset[int] = frozenset(),
    apart: Sequence[tuple[int, ...]] = (),
) -> OpSpace:
    """Every placement of an op that all its tensors can be written with as shardings.

    Atoms must divide their factors; those in `uneven` may be padded. `axis_orders` are further orders of mesh axes
    within one dimension, or of their sub-axes by name (`AtomMesh.names`); the canonical order is that of the mesh.
    `apart`: parts of axes, each of some atoms, that are axes of their own.
    """
    pruned: Counter[str] = Counter()
    single = len(rule.factor_sizes)  # targets from here on are ties
    targets = (*rule.placeable, *range(single, single + len(rule.ties)))
    sizes = [(n,) for n in rule.factor_sizes] + [tuple(rule.factor_sizes[f] for f in tie) for tie in rule.ties]
    paddable = uneven.union(range(single, len(sizes)))
    options = [
        _axis_options(mesh, own, targets, sizes, partial, paddable, [part for part in apart if part[0] in own])
        for own in (mesh.atoms_of[n] for n in mesh.mesh.axis_names)
    ]
    may_be_padded = uneven.union(*rule.ties)
    seen: set[tuple[tuple[tuple[int, ...], ...], tuple[tuple[int, int], ...], tuple[int, ...]]] = set()
    placements: list[Placement] = []
    facets: list[tuple[int, ...]] = []
    shards: list[tuple[int, ...]] = []
    compound = [dim for tensor in (*rule.operands, *rule.results) for dim in tensor if len(dim) > 1]
    parts: dict[tuple[int, ...], int] = {}  # into how many parts atoms cut

    def size(atoms: tuple[int, ...]) -> int:
        if atoms not in parts:
            parts[atoms] = mesh.size(atoms)
        return parts[atoms]

    names = tuple(mesh.mesh.axis_names)
    atoms_of = [mesh.atoms_of[n] for n in names]
    drawn = _choices(atoms_of, options, len(rule.factor_sizes), rule.ties)
    for order in (names, *map(tuple, axis_orders)):
        listed = (a for name in order for a in mesh.atoms_of.get(name) or (mesh.names.index(name),))
        rank = {a: place for place, a in enumerate(listed)}
        for choice, on, passes, zeros in drawn:
            cut = on if order == names else tuple(tuple(sorted(atoms, key=lambda a: rank[a])) for atoms in on)
            counts = tuple(map(size, cut))
            if fault := _fault(rule, mesh, cut, counts, compound, may_be_padded):
                pruned[fault] += 1
                continue
            key = (cut, passes, zeros)
            if key not in seen:
                seen.add(key)
                placements.append(Placement(*key))
                facets.append(choice)
                shards.append(counts)
    known: dict[Layout, Layout] = {}  # most placements share their layouts with others
    return OpSpace(
        tuple(placements),
        tuple(_layouts(rule, placements, k, known, result=False) for k in range(len(rule.operands))),
        tuple(_layouts(rule, placements, k, known, result=True) for k in range(len(rule.results))),
        np.array(facets, np.int64).reshape(len(placements), len(mesh.mesh.axis_names)),
        np.array(shards, np.int64).reshape(len(placements), len(rule.factor_sizes)),
        pruned,
    )


def _fault(
    rule: ShardingRule,
    mesh: AtomMesh,
    cut: tuple[tuple[int, ...], ...],
    counts: tuple[int, ...],
    compound: Sequence[Sequence[int]],
    may_be_padded: frozenset[int],
) -> str:
    """Why these atoms on the factors of a rule, which cut them in so many parts, do not do; empty where they do."""
    if not all(
        n % count == 0 or (f in may_be_padded and may_pad(n, count, mesh.sizes[cut[f][-1]]))
        for f, (n, count) in enumerate(zip(rule.factor_sizes, counts, strict=True))
    ):
        return "the axes together do not divide the factor"
    if rule.halos and not rule.halos_fit(counts):
        return "a block would be shorter than the edges that its neighbours need"
    if compound and not _representable(compound, counts, rule.factor_sizes):
        return "a minor factor of a compound dimension is cut before its major one is used up"
    return _cutouts_fault(rule, cut, mesh) if rule.cutouts else ""


def _cutouts_fault(rule: ShardingRule, cut: tuple[tuple[int, ...], ...], mesh: AtomMesh) -> str:
    """Why the atoms on the factors of a rule's cutouts do not do; empty where they do."""
    joined: Counter[int] = Counter()
    for c in Placement(cut).moved(rule):
        if cut[c.taken] != cut[c.made]:
            return "a dimension is cut alone and together with the run that is taken from it"
        if c.wraps and rule.factor_sizes[c.made] % mesh.size(cut[c.made]):
            return "the axes together do not divide a rolled dimension"
        permutes = len(cutout_rounds(rule, c, cut[c.taken], mesh))
        joined[c.made] += permutes if c.grows else 0
        if max(permutes, joined[c.made]) > MAX_PERMUTES:
            return "elements of a slice, or of what is joined, need many permutes to get where they belong"
    return ""


def _layouts(
    rule: ShardingRule, placements: Sequence[Placement], index: int, known: dict[Layout, Layout], *, result: bool
) -> tuple[Layout, ...]:
    """`Placement.operand` or `Placement.result` of each placement; those with the same atoms are worked out once."""
    here = (rule.results if result else rule.operands)[index]
    summed = rule.reduction.union(rule.filled, *rule.ties)  # a cutout is summed where only one of its sides is cut
    factors = sorted({f for dim in here for f in dim} | summed)
    by_key: dict[object, Layout] = {}
    out = []
    for placement in placements:
        key = ([placement.factors[f] for f in factors], placement.passes, placement.zeros)
        key = (tuple(key[0]), *key[1:])
        layout = by_key.get(key)
        if layout is None:
            layout = placement.result(rule, index) if result else placement.operand(rule, index)
            layout = by_key[key] = known.setdefault(layout, layout)
        out.append(layout)
    return tuple(out)


_Choice = tuple[tuple[int, ...], tuple[tuple[int, ...], ...], tuple[tuple[int, int], ...], tuple[int, ...]]
"""The number of an option for each axis; atoms on each factor, those that pass as partial sums, those over zeros."""


def _choices(
    atoms_of: Sequence[Sequence[int]],
    options: Sequence[Sequence[tuple[int, ...]]],
    factors: int,
    ties: Sequence[Sequence[int]],
) -> list[_Choice]:
    """All combinations of options, one for each axis, with the atoms where they put them, in mesh order."""
    out: list[_Choice] = [((), ((),) * factors, (), ())]
    for atoms, targets_of in zip(atoms_of, options, strict=True):
        put = [_put(atoms, targets, factors, ties) for targets in targets_of]
        out = [
            ((*choice, k), _with(on, more), (*passes, *passing), (*zeros, *zeroed))
            for choice, on, passes, zeros in out
            for k, (more, passing, zeroed) in enumerate(put)
        ]
    return out


def _with(on: tuple[tuple[int, ...], ...], more: Sequence[tuple[int, tuple[int, ...]]]) -> tuple[tuple[int, ...], ...]:
    """Atoms on each factor, and these on some of them."""
    for f, atoms in more:
        on = (*on[:f], on[f] + atoms, *on[f + 1 :])
    return on


def _put(
    atoms: Sequence[int], targets: Sequence[int], factors: int, ties: Sequence[Sequence[int]]
) -> tuple[list[tuple[int, tuple[int, ...]]], tuple[tuple[int, int], ...], tuple[int, ...]]:
    """What an option of one axis does with its atoms: (factor, atoms on it), those that pass, those over zeros."""
    on: dict[int, list[int]] = {}
    passes: list[tuple[int, int]] = []
    zeros: list[int] = []
    for atom, target in zip(atoms, targets, strict=True):
        if target >= 0:
            for f in ties[target - factors] if target >= factors else (target,):
                on.setdefault(f, []).append(atom)
        elif target == ZERO:
            zeros.append(atom)
        elif target <= _FIRST_PASS:
            passes.append((atom, _FIRST_PASS - target))
    return [(f, tuple(found)) for f, found in on.items()], tuple(passes), tuple(zeros)


def _representable(dims: Sequence[Sequence[int]], counts: Sequence[int], sizes: Sequence[int]) -> bool:
    """Whether no dimension of several factors is cut along a factor before those major to it are used up."""
    for dim in dims:
        full = True
        for f in dim:
            if counts[f] > 1 and not full:
                return False
            full = full and counts[f] == sizes[f]
    return True


def value_rule(shape: Sequence[int]) -> ShardingRule:
    """A rule whose placements are the layouts of a tensor: one parallel factor per dimension larger than 1."""
    dims, sizes = [], []
    for n in shape:
        dims.append(() if n <= 1 else (len(sizes),))
        if n > 1:
            sizes.append(n)
    return ShardingRule(tuple(sizes), (), (tuple(dims),), linear=((),))
