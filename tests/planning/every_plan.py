"""Exhaustive search over all plans of a tiny straight program, written without the formulation and the solver.

It knows the vocabulary (rules, layouts, steps), the price of one op and of one step, and when a definition is held.
Which placements exist, which reshards are cheapest, how uses share a form, and the sum over all choices are its own.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations, permutations, product
from math import prod

import numpy as np

from autoshard.constraints import MatchedPin
from autoshard.costs.fusion import Fusion
from autoshard.costs.liveness import Liveness
from autoshard.costs.pricing import StepPrices
from autoshard.costs.roofline import op_seconds
from autoshard.formulation.fixed import Cut, Fixed
from autoshard.program.program import Op, Origin, Program
from autoshard.program.schedule import Placement
from autoshard.program.types import TensorType
from autoshard.sharding.layout import AtomMesh, Layout
from autoshard.sharding.steps import Step, StepKind
from autoshard.sharding.tensor_sharding import TensorSharding

MEMORY_PRICE = 1e-16
MOST_PLANS = 4_000_000


class TooManyPlansError(Exception):
    """There are more plans than exhaustive search should try."""


def every_layout(
    shape: Sequence[int], mesh: AtomMesh, partial: Sequence[int] = (), *, any_order: bool = True
) -> list[Layout]:
    """All evenly dividing layouts; `partial`: atoms that may be left unreduced."""
    found: dict[Layout, None] = {}
    atoms = range(len(mesh.atoms))
    targets = [[None, *range(len(shape)), *(["sum"] if a in partial else [])] for a in atoms]
    for where in product(*targets):
        unreduced = tuple(a for a in atoms if where[a] == "sum")
        dims = [[a for a in atoms if where[a] == d] for d in range(len(shape))]
        if any(n % prod(mesh.sizes[a] for a in d) for n, d in zip(shape, dims, strict=True)):
            continue
        for order in product(*(permutations(d) if any_order else [tuple(d)] for d in dims)):
            found[Layout(order, unreduced)] = None
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
                if after in known and still.isdisjoint(step.atoms):
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


def every_placement(op: Op, mesh: AtomMesh, partial: dict[int, set[int]]) -> list[Placement]:
    """Every atom on a factor it divides, or passing through, or unused; atoms of one factor in mesh order."""
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
    out = []
    for choice in product(*options):
        factors = tuple(
            tuple(a for a, (what, f) in enumerate(choice) if what == "factor" and f == index)
            for index in range(len(rule.factor_sizes))
        )
        if any(n % mesh.size(f) for n, f in zip(rule.factor_sizes, factors, strict=True)):
            continue
        out.append(Placement(factors, tuple((a, w) for a, (what, w) in enumerate(choice) if what == "pass")))
    return out


def holds(layout: Layout, pin: TensorSharding, mesh: AtomMesh) -> bool:
    for have, want in zip(layout.dims, pin.dims, strict=True):
        atoms = tuple(a for ref in want.axes for a in mesh.atoms_for(ref))
        if have[: len(atoms)] != atoms or (len(have) > len(atoms) and not want.is_open):
            return False
    cut = {a for d in layout.dims for a in d}
    if any(a in cut for ref in pin.replicated for a in mesh.atoms_for(ref)):
        return False
    return set(layout.unreduced) == {a for ref in pin.unreduced for a in mesh.atoms_for(ref)}


@dataclass(frozen=True)
class Manual:
    """A part of the program that is local over atoms: its ops, and the shardings of what comes in and what leaves."""

    atoms: frozenset[int]
    ops: frozenset[int]
    entering: dict[int, TensorSharding]
    leaving: dict[int, TensorSharding]

    def takes(self, op: Op, placement: Placement, mesh: AtomMesh) -> bool:
        """Whether an op of it may be placed so."""
        assert op.rule is not None
        if op.id not in self.ops:
            return True
        return not self.atoms.intersection(placement.combine_atoms(op.rule)) and all(
            holds(placement.operand(op.rule, k), self.entering[v], mesh)
            for k, v in enumerate(op.operands)
            if v in self.entering
        )


@dataclass(frozen=True)
class Best:
    """The cheapest plan's seconds (inf where there is none), how many plans there are, and what it does, for
    messages.
    """

    seconds: float
    plans: int
    choices: tuple[object, ...] = ()


def cheapest(
    program: Program,
    mesh: AtomMesh,
    prices: StepPrices,
    fusion: Fusion,
    liveness: Liveness,
    pins: Sequence[MatchedPin] = (),
    *,
    groups: Sequence[Sequence[tuple[str, int]]] = (),
    fixed: Sequence[Fixed] = (),
    manual: Manual | None = None,
    shares: Callable[[str, int, int], float] = lambda kind, value, op: 1.0,
    most: int = MOST_PLANS,
) -> Best:
    """Exhaustive search: one axis of the big table per input and op, the rest is minimised in closed form.

    groups: inputs ("value", id) and outputs ("output", slot) of equal layouts; those outputs are axes of the table too.
    fixed: placements that hold. shares: of a kind of collective on a value around an op (-1: all its uses, or an
    output) what counts of its seconds.
    """

    def fixed_at(what: str, key: int) -> list[Cut]:
        return [getattr(one, what)[key] for one in fixed if key in getattr(one, what)]

    partial = _partial_sums(program, mesh)
    value_pins = {v: [p.sharding for p in pins if v in p.values] for v in range(len(program.values))}
    if manual is not None:
        for v, sharding in manual.leaving.items():
            value_pins[v].append(sharding)
    out_pins = [[p.sharding for p in pins if k in p.outputs] for k in range(len(program.body.results))]
    inputs = list(program.body.args)
    ops = list(program.body.ops)
    states: list[list[object]] = []
    layouts_of: dict[int, tuple[int, list[Layout]]] = {}  # value -> axis of the table, layout per state
    for value in inputs:
        found = [
            lay
            for lay in every_layout(program.type_of(value).shape, mesh, any_order=False)
            if all(holds(lay, p, mesh) for p in value_pins[value])
        ]
        found = [lay for lay in found if has_all(lay.dims, fixed_at("values", value))]
        layouts_of[value] = (len(states), found)
        states.append(list(found))
    axis_of_op = {}
    for op in ops:
        placed = every_placement(op, mesh, partial)
        placed = [p for p in placed if manual is None or manual.takes(op, p, mesh)]
        placed = [p for p in placed if has_all(p.factors, fixed_at("ops", op.id))]
        axis_of_op[op.id] = len(states)
        assert op.rule is not None
        for k, value in enumerate(op.results):
            layouts_of[value] = (len(states), [p.result(op.rule, k) for p in placed])
        states.append(list(placed))
    ends_of: dict[int, tuple[int | None, list[Layout]]] = {}
    tied = {index for members in groups for kind, index in members if kind == "output"}
    for slot, result in enumerate(program.body.results):
        ends = [
            lay
            for lay in every_layout(program.type_of(result).shape, mesh, any_order=False)
            if all(holds(lay, p, mesh) for p in out_pins[slot])
        ]
        ends = [lay for lay in ends if has_all(lay.dims, fixed_at("outputs", slot))]
        if not ends:
            return Best(float("inf"), 0)
        ends_of[slot] = (len(states) if slot in tied else None, ends)
        if slot in tied:
            states.append(list(ends))
    shape = [len(s) for s in states]
    if prod(shape) == 0:
        return Best(float("inf"), 0)
    if prod(shape) > most:
        raise TooManyPlansError(prod(shape))
    total = np.zeros(shape)

    def add(axes: Sequence[int], table: np.ndarray) -> None:
        """Add a table over some axes, given in its own order, to the whole."""
        order = np.argsort(axes)
        sorted_axes = [axes[i] for i in order]
        view = np.transpose(table, order).reshape([shape[a] if a in sorted_axes else 1 for a in range(len(shape))])
        np.add(total, view, out=total)

    def held(value: int, layout: Layout) -> float:
        type_ = program.type_of(value)
        cut = prod(n // mesh.size(d) for n, d in zip(type_.shape, layout.dims, strict=True))
        return cut * (type_.bytes / max(1, type_.elements))

    for op in ops:
        assert op.rule is not None
        seconds = []
        for p in states[axis_of_op[op.id]]:
            assert isinstance(p, Placement)
            shards = np.array([[mesh.size(f) for f in p.factors]], np.int64).reshape(1, -1)
            cost = float(op_seconds(op, program, shards, fusion, prices)[0])
            combined = p.combine_atoms(op.rule)
            for k, value in enumerate(op.results) if combined else ():
                size = held(value, p.result(op.rule, k))
                cost += prices.step_s("all_reduce", combined, size, size) * shares("all_reduce", value, op.id)
            seconds.append(cost)
        add([axis_of_op[op.id]], np.array(seconds))
    for value, (axis, layouts) in layouts_of.items():
        start, stop = liveness.interval.get(value, (0, 0))
        if start < stop:
            add([axis], np.array([held(value, lay) * MEMORY_PRICE for lay in layouts]))
        targets: list[tuple[int | None, list[Layout]]] = []
        tables_by_share: dict[object, Reshards] = {}

        def priced(op: int, value: int = value, known: dict[object, Reshards] = tables_by_share) -> Reshards:
            """The reshards of the value around an op; those of equal shares are the same table."""
            key = tuple(shares(kind, value, op) for kind in StepKind)
            if key not in known:
                type_ = program.type_of(value)
                share = dict(zip(StepKind, key, strict=True))
                known[key] = Reshards(type_, sorted(partial[value]), mesh, prices, share=share.__getitem__)
            return known[key]

        table = priced(-1)
        still = table
        if manual is not None and any(value in op.results for op in ops if op.id in manual.ops):
            still = Reshards(program.type_of(value), sorted(partial[value]), mesh, prices, manual.atoms)
        tables: list[Reshards] = []
        for op in ops:
            assert op.rule is not None
            for k, used in enumerate(op.operands):
                if used == value:
                    placed = [p for p in states[axis_of_op[op.id]] if isinstance(p, Placement)]
                    targets.append((axis_of_op[op.id], [p.operand(op.rule, k) for p in placed]))
                    tables.append(still if manual is not None and op.id in manual.ops else priced(op.id))
        for slot, result in enumerate(program.body.results):
            if result == value:
                targets.append(ends_of[slot])
                tables.append(table)
        if not targets:
            continue
        add(
            *_value_costs(
                value, axis, layouts, targets, tables, still, value_pins[value] if value not in inputs else (), held,
                mesh, fixed_at("forms", value),
            )
        )  # fmt: skip
    for members in groups:
        sides = [layouts_of[index] if kind == "value" else ends_of[index] for kind, index in members]
        for axis, layouts in sides[1:]:
            first, others = sides[0]
            assert first is not None and axis is not None
            if first != axis:
                add([first, axis], np.array([[0.0 if a == b else np.inf for b in layouts] for a in others]))
    where = np.unravel_index(int(total.argmin()), shape)
    choices = tuple(s[int(k)] for s, k in zip(states, where, strict=True))
    return Best(float(total.min()), prod(shape), choices)


def has(cut: Sequence[Sequence[int]], wanted: Sequence[Sequence[int]]) -> bool:
    """Whether a cut has these atoms on its dimensions or factors, in their order."""
    return all([a for a in own if a in asked] == list(asked) for own, asked in zip(cut, wanted, strict=True))


def has_all(cut: Sequence[Sequence[int]], wanted: Sequence[Cut]) -> bool:
    return all(has(cut, one) for one in wanted)


def _value_costs(value, axis, layouts, targets, tables, table, pins, held, mesh, wanted=()):  # type: ignore[no-untyped-def]
    """Axes and table of one value's reshards: the best form for each combination of definition and uses.

    tables: reshards to each target; table: from the definition to the form.
    """

    def matrix(table: Reshards, sources: list[Layout], ends: list[Layout]) -> np.ndarray:
        return np.array([[table.seconds[a].get(b, np.inf) for b in ends] for a in sources])

    axes = list(dict.fromkeys([axis, *(a for a, _ in targets if a is not None)]))
    sizes = {axis: len(layouts)} | {a: len(ends) for a, ends in targets if a is not None}
    forms: list[Layout] = list(dict.fromkeys([*layouts, *every_layout(_shape_of(table), mesh, any_order=False)]))
    if len(targets) < 2 and not pins:
        forms = []
    shares = bool(forms)
    forms = [form for form in forms if has_all(form.dims, wanted)]
    best = np.full([sizes[a] for a in axes], np.inf)

    def spread(column: np.ndarray, on: Sequence[int]) -> np.ndarray:
        order = [axes.index(a) for a in on]
        whole = np.transpose(column, np.argsort(order))
        return whole.reshape([sizes[a] if a in on else 1 for a in axes])

    def uses(source: list[Layout]) -> list[tuple[int | None, np.ndarray]]:
        return [
            (a, matrix(to, source, ends) if a is not None else matrix(to, source, ends).min(axis=1, keepdims=True))
            for (a, ends), to in zip(targets, tables, strict=True)
        ]

    # every use straight from the definition
    if not pins:
        direct = np.zeros_like(best)
        for a, m in uses(layouts):
            if a is None:
                direct = direct + spread(m[:, 0], [axis])
            else:
                direct = direct + spread(m, [axis, a])
        if shares:  # the definition is the form
            direct = direct + spread(
                np.array([0.0 if has_all(lay.dims, wanted) else np.inf for lay in layouts]), [axis]
            )
        best = np.minimum(best, direct)
    # or from one shared form, which is a copy unless the definition is in it already
    for form in forms:
        if pins and not all(holds(form, p, mesh) for p in pins):
            continue
        first = np.array([table.seconds[lay].get(form, np.inf) for lay in layouts])
        copy = np.array([0.0 if lay == form else held(value, form) * MEMORY_PRICE for lay in layouts])
        through = np.zeros_like(best) + spread(first + copy, [axis])
        for a, m in uses([form]):
            through = through + (m[0, 0] if a is None else spread(m[0], [a]))
        best = np.minimum(best, through)
    return axes, best


def _shape_of(table: Reshards) -> tuple[int, ...]:
    return table.shape


def _partial_sums(program: Program, mesh: AtomMesh) -> dict[int, set[int]]:
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
