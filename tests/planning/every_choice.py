"""Every layout, step, reshard and placement there is, listed without the placements and the formulation."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations, permutations, product
from math import prod

from autoshard.costs.pricing import StepPrices
from autoshard.formulation.fixed import Cut
from autoshard.program.program import Op, Origin, Program
from autoshard.program.schedule import Placement
from autoshard.program.types import TensorType
from autoshard.sharding.layout import AtomMesh, Layout
from autoshard.sharding.steps import Step, StepKind
from autoshard.sharding.tensor_sharding import TensorSharding


def every_layout(
    shape: Sequence[int], mesh: AtomMesh, partial: Sequence[int] = (), *, orders: Sequence[Sequence[int]] | None = None
) -> list[Layout]:
    """All evenly dividing layouts. partial: atoms that may be left unreduced. orders: those that a tensor may have its
    atoms in; None for any.
    """
    found: dict[Layout, None] = {}
    atoms = range(len(mesh.atoms))
    targets = [[None, *range(len(shape)), *(["sum"] if a in partial else [])] for a in atoms]
    for where in product(*targets):
        unreduced = tuple(a for a in atoms if where[a] == "sum")
        dims = [[a for a in atoms if where[a] == d] for d in range(len(shape))]
        if any(n % prod(mesh.sizes[a] for a in d) for n, d in zip(shape, dims, strict=True)):
            continue
        if orders is None:
            ordered = list(product(*map(permutations, dims)))
        else:
            ordered = [tuple(tuple(sorted(d, key=order.index)) for d in dims) for order in orders]
        found |= dict.fromkeys(Layout(cut, unreduced) for cut in ordered)
    return list(found)


def every_step(layout: Layout, partial: Sequence[int], mesh: AtomMesh) -> list[Step]:
    """All steps from a layout, over one to all atoms in any order."""
    out: list[Step] = []
    rank = range(len(layout.dims))
    used = {a for d in layout.dims for a in d} | set(layout.unreduced)
    free = [a for a in range(len(mesh.atoms)) if a not in used]

    def ordered(items: Sequence[int]) -> list[tuple[int, ...]]:
        return [p for n in range(1, len(items) + 1) for c in combinations(items, n) for p in permutations(c)]

    for run in ordered(free):
        out += [Step(StepKind.SLICE, run, d) for d in rank]
        if set(run) <= set(partial):
            out.append(Step(StepKind.MASK, run))
    for run in ordered(layout.unreduced):
        out.append(Step(StepKind.ALL_REDUCE, run))
        out += [Step(StepKind.REDUCE_SCATTER, run, d) for d in rank]
    for d in rank:
        have = layout.dims[d]
        for n in range(1, len(have) + 1):
            out.append(Step(StepKind.ALL_GATHER, have[-n:], d))
            out += [Step(StepKind.ALL_TO_ALL, have[-n:], d, e) for e in rank if e != d]
        out += [Step(StepKind.PERMUTE, p, d) for p in permutations(have) if p != have]
    return out


@dataclass(frozen=True)
class Kept:
    """What restrictions leave out: atoms over which nothing is sent, and atoms that only these values may use."""

    unsent: frozenset[int] = frozenset()
    own: frozenset[int] = frozenset()
    values: frozenset[int] = frozenset()

    def still(self, value: int) -> frozenset[int]:
        """Atoms that a value is not cut by, no partial sum over, and not moved by."""
        return frozenset() if value in self.values else self.own

    def lies(self, value: int, layout: Layout) -> bool:
        """Whether a value may lie so."""
        return self.still(value).isdisjoint((*(a for d in layout.dims for a in d), *layout.unreduced))

    def takes(self, op: Op, placement: Placement) -> bool:
        """Whether an op may be placed so."""
        rule = op.rule
        assert rule is not None
        return (
            self.unsent.isdisjoint(placement.combine_atoms(rule))
            and all(self.lies(v, placement.operand(rule, k)) for k, v in enumerate(op.operands))
            and all(self.lies(v, placement.result(rule, k)) for k, v in enumerate(op.results))
        )


class Reshards:
    """Seconds between all layouts of a type, by Dijkstra from every layout."""

    def __init__(
        self,
        type_: TensorType,
        partial: Sequence[int],
        mesh: AtomMesh,
        prices: StepPrices,
        still: frozenset[int] = frozenset(),
        share: Callable[[str], float] = lambda kind: 1.0,
        unsent: frozenset[int] = frozenset(),
    ) -> None:
        self.shape = type_.shape
        self.layouts = every_layout(type_.shape, mesh, partial)
        known = set(self.layouts)
        held = {
            lay: prod(n // mesh.size(d) for n, d in zip(type_.shape, lay.dims, strict=True))
            * (type_.bytes / max(1, type_.elements))
            for lay in self.layouts
        }
        following: dict[Layout, list[tuple[Layout, float]]] = {}
        for lay in self.layouts:
            following[lay] = []
            for step in every_step(lay, partial, mesh):
                after = step.apply(lay)
                barred = still if step.kind in (StepKind.SLICE, StepKind.MASK) else still | unsent
                if after in known and barred.isdisjoint(step.atoms):
                    seconds = prices.step_s(step.kind, step.atoms, held[lay], held[after])
                    following[lay].append((after, seconds * share(step.kind)))
        self.seconds = {lay: self._from(lay, following) for lay in self.layouts}

    def _from(self, source: Layout, following: dict[Layout, list[tuple[Layout, float]]]) -> dict[Layout, float]:
        best = {source: 0.0}
        queue = [(0.0, 0, source)]
        ticket = 1
        while queue:
            so_far, _, layout = heapq.heappop(queue)
            if so_far > best[layout]:
                continue
            for after, seconds in following[layout]:
                if so_far + seconds < best.get(after, float("inf")):
                    best[after] = so_far + seconds
                    heapq.heappush(queue, (best[after], ticket, after))
                    ticket += 1
        return best


def every_placement(
    op: Op, mesh: AtomMesh, partial: dict[int, set[int]], orders: Sequence[Sequence[int]]
) -> list[Placement]:
    """Every atom on a factor it divides, or passing through, or unused; atoms of the factors in one of `orders`."""
    rule = op.rule
    assert rule is not None
    fixed = rule.need_replication | rule.permutation
    free = [f for f, n in enumerate(rule.factor_sizes) if f not in fixed and n > 1]
    options: list[list[tuple[str, int]]] = []
    for atom in range(len(mesh.atoms)):
        passes = [
            ("pass", w)
            for w, slots in enumerate(rule.linear)
            if slots and all(atom in partial[op.operands[k]] for k in slots)
        ]
        options.append([("none", 0), *(("factor", f) for f in free), *passes])
    out: dict[Placement, None] = {}
    for choice, order in product(product(*options), orders):
        factors = tuple(
            tuple(a for a in order if choice[a] == ("factor", index)) for index in range(len(rule.factor_sizes))
        )
        if any(n % mesh.size(f) for n, f in zip(rule.factor_sizes, factors, strict=True)):
            continue
        out[Placement(factors, tuple((a, w) for a, (what, w) in enumerate(choice) if what == "pass"))] = None
    return list(out)


def holds(layout: Layout, pin: TensorSharding, mesh: AtomMesh) -> bool:
    for have, want in zip(layout.dims, pin.dims, strict=True):
        atoms = tuple(a for ref in want.axes for a in mesh.atoms_for(ref))
        if have[: len(atoms)] != atoms or (len(have) > len(atoms) and not want.is_open):
            return False
    cut = {a for d in layout.dims for a in d}
    if any(a in cut for ref in pin.replicated for a in mesh.atoms_for(ref)):
        return False
    return set(layout.unreduced) == {a for ref in pin.unreduced for a in mesh.atoms_for(ref)}


def has(cut: Sequence[Sequence[int]], wanted: Sequence[Sequence[int]]) -> bool:
    """Whether a cut has these atoms on its dimensions or factors, in their order."""
    return all([a for a in own if a in asked] == list(asked) for own, asked in zip(cut, wanted, strict=True))


def has_all(cut: Sequence[Sequence[int]], wanted: Sequence[Cut]) -> bool:
    return all(has(cut, one) for one in wanted)


def partial_sums(program: Program, mesh: AtomMesh) -> dict[int, set[int]]:
    """Value -> atoms it can be a partial sum over, straight through a program without regions."""
    out: dict[int, set[int]] = {v.id: set() for v in program.values}
    for op in program.body.ops:
        assert op.rule is not None and not op.attrs.get("zero")
        reach: set[int] = set()
        if op.rule.combiner == "add":
            for f in op.rule.reduction - op.rule.need_replication:
                reach |= {
                    a
                    for a, n in enumerate(mesh.sizes)
                    if op.rule.factor_sizes[f] > 1 and op.rule.factor_sizes[f] % n == 0
                }
        for slots in op.rule.linear:
            if slots:
                reach |= set.intersection(*(out[op.operands[k]] for k in slots))
        for value in op.results:
            if program.type_of(value).dtype.startswith(("float", "int", "uint", "bfloat", "complex")):
                out[value] |= reach
    for value in program.values:
        assert value.origin in (Origin.INPUT, Origin.OP, Origin.LITERAL)
    return out
