"""Exhaustive search over all plans of a tiny straight program, written without the formulation and the solver.

It knows the vocabulary (rules, layouts, steps), the price of one op and of one step, and when a definition is held.
Which placements exist, which reshards are cheapest, how uses share a form, and the sum over all choices are its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import permutations
from math import prod

import numpy as np
from every_choice import Kept, Reshards, every_layout, every_placement, has_all, holds, partial_sums

from autoshard.constraints import MatchedPin
from autoshard.costs.fusion import Fusion
from autoshard.costs.liveness import Liveness
from autoshard.costs.pricing import StepPrices
from autoshard.costs.roofline import op_seconds
from autoshard.formulation.fixed import Cut, Fixed
from autoshard.program.program import Op, Program
from autoshard.program.schedule import Placement
from autoshard.sharding.layout import AtomMesh, Layout
from autoshard.sharding.steps import StepKind
from autoshard.sharding.tensor_sharding import TensorSharding

MEMORY_PRICE = 1e-16
MOST_PLANS = 4_000_000


class TooManyPlansError(Exception):
    """There are more plans than exhaustive search should try."""


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
    kept: Kept | None = None,
    most: int = MOST_PLANS,
) -> Best:
    """Exhaustive search: one axis of the big table per input and op, the rest is minimised in closed form.

    groups: inputs ("value", id) and outputs ("output", slot) of equal layouts; those outputs are axes of the table too.
    fixed: placements that hold. shares: of a kind of collective on a value around an op (-1: all its uses, or an
    output) what counts of its seconds. kept: what restrictions leave out.
    """
    question = _Question(program, mesh, prices, fusion, liveness, pins, fixed, manual, shares, kept or Kept())
    tied = {index for members in groups for kind, index in members if kind == "output"}
    states = _states(question, tied)
    plans = prod(len(listed) for listed in states.listed)
    if plans == 0 or not all(ends for _, ends in states.ends.values()):
        return Best(float("inf"), 0)
    if plans > most:
        raise TooManyPlansError(plans)
    table = _Table(tuple(len(listed) for listed in states.listed))
    for op in program.body.ops:
        table.add([states.axis_of_op[op.id]], _seconds_of_op(question, states, op))
    for value in states.layouts:
        _add_value(table, question, states, value)
    for members in groups:
        _add_group(table, states, members)
    where = np.unravel_index(int(table.total.argmin()), table.shape)
    choices = tuple(listed[int(k)] for listed, k in zip(states.listed, where, strict=True))
    return Best(float(table.total.min()), plans, choices)


@dataclass(frozen=True)
class _Question:
    """What the cheapest plan is asked of, as `cheapest` takes it."""

    program: Program
    mesh: AtomMesh
    prices: StepPrices
    fusion: Fusion
    liveness: Liveness
    pins: Sequence[MatchedPin]
    fixed: Sequence[Fixed]
    manual: Manual | None
    shares: Callable[[str, int, int], float]
    kept: Kept

    @cached_property
    def partial(self) -> dict[int, set[int]]:
        """Value -> atoms it can be a partial sum over."""
        return partial_sums(self.program, self.mesh)

    @cached_property
    def stated(self) -> list[TensorSharding]:
        """What pins and the manual part state."""
        stated = [pin.sharding for pin in self.pins]
        if self.manual is not None:
            stated += [*self.manual.entering.values(), *self.manual.leaving.values()]
        return stated

    def axes(self, apart: set[str]) -> list[tuple[int, ...]]:
        """The atoms of each axis larger than 1, and each part of those taken apart."""
        listed = [[(a,) for a in own] if name in apart else [own] for name, own in self.mesh.atoms_of.items()]
        return [own for axes in listed for own in axes if self.mesh.size(own) > 1]

    @cached_property
    def orders(self) -> list[tuple[int, ...]]:
        """Orders of atoms within a dimension: those of the axes, all of them, and those in which what is stated may go
        on. Where statements name parts of axes, or are on another mesh, or there are restrictions, parts are axes.
        """
        atoms = tuple(range(len(self.mesh.atoms)))
        stated = self.stated
        apart = {ref.name for sharding in stated for ref in sharding.axes_used() if ref.is_sub_axis}
        if any(pin.mesh for pin in self.pins) or self.kept != Kept():
            apart |= {name for name, own in self.mesh.atoms_of.items() if len(own) > 1}
        first = {atoms: None}
        cutting = self.axes(apart)
        assert len(cutting) <= 3, "of more axes not all orders are tried"
        first |= {tuple(a for own in order for a in own): None for order in permutations(cutting)}
        for dim in (d for sharding in stated for d in sharding.dims if d.axes):
            first[tuple(a for ref in dim.axes for a in self.mesh.atoms_for(ref))] = None
        out = {(*begun, *(a for a in atoms if a not in begun)): None for begun in first}
        return list(out)

    def pins_of(self, value: int) -> list[TensorSharding]:
        """The shardings that a value must have in its shared form; an input as it comes."""
        stated = [pin.sharding for pin in self.pins if value in pin.values]
        return stated + ([self.manual.leaving[value]] if self.manual and value in self.manual.leaving else [])

    def fixed_at(self, what: str, key: int) -> list[Cut]:
        """The cuts that hold at a place."""
        return [getattr(one, what)[key] for one in self.fixed if key in getattr(one, what)]

    def still(self, op: int) -> bool:
        """Whether an op is in the part of the program that is local over atoms."""
        return self.manual is not None and op in self.manual.ops

    def held(self, value: int, layout: Layout) -> float:
        """The bytes of a value that a device holds."""
        type_ = self.program.type_of(value)
        cut = prod(n // self.mesh.size(d) for n, d in zip(type_.shape, layout.dims, strict=True))
        return cut * (type_.bytes / max(1, type_.elements))

    def layouts(self, value: int, pins: Sequence[TensorSharding], wanted: Sequence[Cut]) -> list[Layout]:
        """The layouts of an input or an output that satisfy pins and have the cuts that are wanted."""
        every = every_layout(self.program.type_of(value).shape, self.mesh, orders=self.orders)
        every = [lay for lay in every if self.kept.lies(value, lay)]
        return [lay for lay in every if all(holds(lay, p, self.mesh) for p in pins) and has_all(lay.dims, wanted)]

    def placements(self, op: Op) -> list[Placement]:
        """The placements of an op that may be."""
        every = every_placement(op, self.mesh, self.partial, self.orders)
        allowed = [p for p in every if self.manual is None or self.manual.takes(op, p, self.mesh)]
        return [p for p in allowed if has_all(p.factors, self.fixed_at("ops", op.id)) and self.kept.takes(op, p)]


@dataclass
class _States:
    """What is chosen from: one list of states for each axis of the table.

    layouts: of a value its axis and its layout in each state. ends: of an output its axis, None where the cheapest of
    its layouts is taken at once, and its layouts.
    """

    listed: list[list[Layout] | list[Placement]] = field(default_factory=list)
    layouts: dict[int, tuple[int, list[Layout]]] = field(default_factory=dict)
    axis_of_op: dict[int, int] = field(default_factory=dict)
    ends: dict[int, tuple[int | None, list[Layout]]] = field(default_factory=dict)

    def placements(self, op: int) -> list[Placement]:
        return [p for p in self.listed[self.axis_of_op[op]] if isinstance(p, Placement)]

    def axis(self, states: list[Layout] | list[Placement]) -> int:
        """A new axis with these states."""
        self.listed.append(states)
        return len(self.listed) - 1


def _states(question: _Question, tied: set[int]) -> _States:
    """Layouts of inputs, placements of ops, layouts of outputs. tied: outputs that have an axis."""
    states, body = _States(), question.program.body
    for value in body.args:
        found = question.layouts(value, question.pins_of(value), question.fixed_at("values", value))
        states.layouts[value] = (states.axis(found), found)
    for op in body.ops:
        assert op.rule is not None
        placed = question.placements(op)
        axis = states.axis_of_op[op.id] = states.axis(placed)
        for k, value in enumerate(op.results):
            states.layouts[value] = (axis, [p.result(op.rule, k) for p in placed])
    for slot, result in enumerate(body.results):
        pins = [p.sharding for p in question.pins if slot in p.outputs]
        ends = question.layouts(result, pins, question.fixed_at("outputs", slot))
        states.ends[slot] = (states.axis(ends) if slot in tied else None, ends)
    return states


class _Table:
    """The cost of every plan: one axis for each list of states."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape
        self.total = np.zeros(shape)

    def add(self, axes: Sequence[int], part: np.ndarray) -> None:
        """Add a table over some axes, in their order, to the whole."""
        order = np.argsort(axes)
        view = np.transpose(part, order).reshape([n if a in axes else 1 for a, n in enumerate(self.shape)])
        np.add(self.total, view, out=self.total)


def _seconds_of_op(question: _Question, states: _States, op: Op) -> np.ndarray:
    """Of each placement of an op: its work, and the all-reduces that no definition can be without."""
    assert op.rule is not None
    seconds = []
    for p in states.placements(op.id):
        shards = np.array([[question.mesh.size(f) for f in p.factors]], np.int64).reshape(1, -1)
        cost = float(op_seconds(op, question.program, shards, question.fusion, question.prices)[0])
        combined = p.combine_atoms(op.rule)
        for k, value in enumerate(op.results) if combined else ():
            size = question.held(value, p.result(op.rule, k))
            share = question.shares("all_reduce", value, op.id)
            cost += question.prices.step_s("all_reduce", combined, size, size) * share
        seconds.append(cost)
    return np.array(seconds)


@dataclass(frozen=True)
class _Use:
    """A use of a value: its axis (None: the cheapest end is taken), the layouts it may want, and the way to them."""

    axis: int | None
    ends: list[Layout]
    reshards: Reshards

    def seconds(self, sources: list[Layout]) -> np.ndarray:
        """From each of these layouts to each end, or to the cheapest one."""
        table = _seconds(self.reshards, sources, self.ends)
        return table if self.axis is not None else table.min(axis=1, keepdims=True)


def _seconds(reshards: Reshards, sources: list[Layout], ends: list[Layout]) -> np.ndarray:
    return np.array([[reshards.seconds[a].get(b, np.inf) for b in ends] for a in sources])


def _add_value(table: _Table, question: _Question, states: _States, value: int) -> None:
    """Add the price of the bytes that a definition holds, and the reshards of the value."""
    axis, layouts = states.layouts[value]
    start, stop = question.liveness.interval.get(value, (0, 0))
    if start < stop:
        table.add([axis], np.array([question.held(value, lay) * MEMORY_PRICE for lay in layouts]))
    to_form, uses = _uses(question, states, value)
    if uses:
        table.add(*_reshard_costs(question, value, (axis, layouts), to_form, uses))


def _uses(question: _Question, states: _States, value: int) -> tuple[Reshards, list[_Use]]:
    """The reshards from the definition of a value to its shared form, and its uses by ops and as outputs."""
    program, partial = question.program, sorted(question.partial[value])
    known: dict[object, Reshards] = {}

    def priced(op: int) -> Reshards:
        """The reshards of the value around an op; those of equal shares are the same table."""
        key = tuple(question.shares(kind, value, op) for kind in StepKind)
        if key not in known:
            share = dict(zip(StepKind, key, strict=True)).__getitem__
            known[key] = Reshards(
                program.type_of(value), partial, question.mesh, question.prices, question.kept.still(value), share,
                question.kept.unsent,
            )  # fmt: skip
        return known[key]

    to_form = priced(-1)
    if question.manual is not None and any(value in op.results for op in program.body.ops if question.still(op.id)):
        still = question.manual.atoms
        to_form = Reshards(program.type_of(value), partial, question.mesh, question.prices, still)
    uses = []
    for op in program.body.ops:
        assert op.rule is not None
        for k in (k for k, used in enumerate(op.operands) if used == value):
            ends = [p.operand(op.rule, k) for p in states.placements(op.id)]
            uses.append(_Use(states.axis_of_op[op.id], ends, to_form if question.still(op.id) else priced(op.id)))
    uses += [_Use(*states.ends[k], priced(-1)) for k, result in enumerate(program.body.results) if result == value]
    return to_form, uses


def _reshard_costs(
    question: _Question, value: int, definition: tuple[int, list[Layout]], to_form: Reshards, uses: list[_Use]
) -> tuple[list[int], np.ndarray]:
    """Axes and table of one value's reshards: the best form for each combination of definition and uses."""
    axis, layouts = definition
    pins = [] if value in question.program.body.args else question.pins_of(value)
    wanted = question.fixed_at("forms", value)
    sizes = {axis: len(layouts)} | {use.axis: len(use.ends) for use in uses if use.axis is not None}
    axes = list(sizes)
    every = dict.fromkeys([*layouts, *every_layout(to_form.shape, question.mesh, orders=question.orders)])
    shared = len(uses) > 1 or bool(pins)
    best = np.full(list(sizes.values()), np.inf)

    def spread(column: np.ndarray, on: Sequence[int]) -> np.ndarray:
        whole = np.transpose(column, np.argsort([axes.index(a) for a in on]))
        return whole.reshape([n if a in on else 1 for a, n in sizes.items()])

    # every use straight from the definition
    if not pins:
        direct = np.zeros_like(best)
        for use in uses:
            m = use.seconds(layouts)
            direct = direct + (spread(m[:, 0], [axis]) if use.axis is None else spread(m, [axis, use.axis]))
        if shared:  # the definition is the form
            direct = direct + spread(np.where([has_all(lay.dims, wanted) for lay in layouts], 0.0, np.inf), [axis])
        best = np.minimum(best, direct)
    # or from one shared form, which is a copy unless the definition is in it already
    for form in every if shared else ():
        if not question.kept.lies(value, form):
            continue
        if not has_all(form.dims, wanted) or not all(holds(form, p, question.mesh) for p in pins):
            continue
        copy = np.array([0.0 if lay == form else question.held(value, form) * MEMORY_PRICE for lay in layouts])
        through = np.zeros_like(best) + spread(_seconds(to_form, layouts, [form])[:, 0] + copy, [axis])
        for use in uses:
            m = use.seconds([form])
            through = through + (m[0, 0] if use.axis is None else spread(m[0], [use.axis]))
        best = np.minimum(best, through)
    return axes, best


def _add_group(table: _Table, states: _States, members: Sequence[tuple[str, int]]) -> None:
    """Rule out what gives the members of a group different layouts."""
    sides = [states.layouts[index] if kind == "value" else states.ends[index] for kind, index in members]
    first, others = sides[0]
    for axis, layouts in sides[1:]:
        assert first is not None and axis is not None
        if first != axis:
            table.add([first, axis], np.array([[0.0 if a == b else np.inf for b in layouts] for a in others]))
