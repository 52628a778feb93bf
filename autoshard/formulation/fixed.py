"""Placements that hold from one stage of planning to the next: this axis on this factor or dimension, in this order.

Only what is there is fixed, never that something is absent, and never how partial sums are reduced (S0.48, S0.49).
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from autoshard.formulation.collect import Collected
from autoshard.formulation.model import Node, NodeKind
from autoshard.program.program import Program
from autoshard.schedule import PROGRAM, Placement, Schedule, Use
from autoshard.sharding.layout import Layout

Cut = tuple[tuple[int, ...], ...]
"""Atoms by factor or by dimension, major to minor."""


@dataclass(frozen=True)
class Fixed:
    """ops: op -> atoms on its factors; values: input or argument of a region -> atoms of its dimensions as it is
    stored; forms: value -> the same of the form that its uses share; outputs: slot -> the same as it is handed back.
    """

    ops: Mapping[int, Cut] = field(default_factory=dict)
    values: Mapping[int, Cut] = field(default_factory=dict)
    forms: Mapping[int, Cut] = field(default_factory=dict)
    outputs: Mapping[int, Cut] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.ops or self.values or self.forms or self.outputs)


def placed(schedule: Schedule, program: Program, atoms: Collection[int]) -> Fixed:
    """Where a schedule puts these atoms."""
    chosen = frozenset(atoms)

    def cut(lists: Sequence[Sequence[int]], without: Collection[int] = ()) -> Cut:
        return tuple(tuple(a for a in one if a in chosen and a not in without) for one in lists)

    def some(found: dict[int, Cut]) -> dict[int, Cut]:
        return {key: value for key, value in found.items() if any(value)}

    made = {value for op, _ in program.walk() if not op.regions for value in op.results}
    values = {v: cut(lay.dims) for v, lay in schedule.definitions.items() if v not in made}
    forms = {
        v: cut(schedule.form_before_use(v).dims, lay.unreduced) for v, lay in schedule.definitions.items() if v in made
    }
    outputs: dict[int, Cut] = {}
    for slot in range(len(program.body.results)):
        use = schedule.uses.get(Use(PROGRAM, slot))
        if use is not None:
            outputs[slot] = cut(use.target.dims, use.source.unreduced)
    ops = {op: cut(placement.factors) for op, placement in schedule.placements.items()}
    return Fixed(some(ops), some(values), some(forms), some(outputs))


def narrow(collected: Collected, program: Program, fixed: Fixed, *, partly: bool = False) -> None:
    """Keep the states that have the placements, at nodes where statements leave any of those.

    partly: where a node cannot have all of them, ask for fewer, dropping the minor-most of the longest list first.
    """
    known: _Known = {}
    for node, cuts, wanted, _, _ in _concerned(collected, program, fixed):
        found = _having(node, cuts, wanted, partly, known)
        if found is not None:
            node.allowed = found


def possible(collected: Collected, program: Program, fixed: Fixed) -> Fixed:
    """Without the placements that the statements in force in `collected` forbid."""
    kept: dict[str, dict[int, Cut]] = {"ops": {}, "values": {}, "forms": {}, "outputs": {}}
    known: _Known = {}
    for node, cuts, wanted, what, key in _concerned(collected, program, fixed):
        if _having(node, cuts, wanted, False, known) is not None:
            kept[what][key] = wanted
    return Fixed(**kept)


_Known = dict[object, np.ndarray | None]
"""Answers of `_having`: repeated layers ask the same again and again."""


def _concerned(
    collected: Collected, program: Program, fixed: Fixed
) -> Iterator[tuple[Node, Sequence[Placement | Layout], Cut, str, int]]:
    """(node, its placements or layouts by state, the cut that is wanted, field and key of `Fixed`)."""
    slots = {name: k for k, name in enumerate(program.output_names)}
    for node in collected.nodes:
        if node.kind is NodeKind.OP and node.space is not None and node.op is not None and node.op in fixed.ops:
            yield node, node.space.placements, fixed.ops[node.op], "ops", node.op
        elif node.kind is NodeKind.OUTPUT and slots[node.label] in fixed.outputs:
            slot = slots[node.label]
            yield node, node.layouts, fixed.outputs[slot], "outputs", slot
    for what, cuts, side, kinds in (
        ("values", fixed.values, collected.definition, (NodeKind.INPUT, NodeKind.BOUNDARY)),
        ("forms", fixed.forms, collected.form, (NodeKind.HUB,)),
    ):
        for value, cut in cuts.items():
            port = side.get(value)
            if port is not None and collected.nodes[port.node].kind in kinds:
                yield collected.nodes[port.node], port.layouts, cut, what, value


def _having(
    node: Node, states: Sequence[Placement | Layout], wanted: Cut, partly: bool, known: _Known
) -> np.ndarray | None:
    """The states of a node that are left and have the cut; None where there are none."""
    left = np.arange(node.states) if node.allowed is None else node.allowed
    key = (id(states), wanted, None if node.allowed is None else left.tobytes())
    if key not in known:
        known[key] = _search(states, left, wanted, partly)
    return known[key]


def _search(states: Sequence[Placement | Layout], left: np.ndarray, wanted: Cut, partly: bool) -> np.ndarray | None:
    cuts = [s.dims if isinstance(s, Layout) else s.factors for s in states]
    asked = [list(atoms) for atoms in wanted]
    while any(asked):
        found = [k for k in left.tolist() if all(_within(a, have) for a, have in zip(asked, cuts[k], strict=True))]
        if found:
            return np.array(found, np.int64)
        if not partly:
            return None
        longest = max(range(len(asked)), key=lambda f: (len(asked[f]), f))
        asked[longest].pop()
    return None


def _within(wanted: Sequence[int], have: Sequence[int]) -> bool:
    """Whether `wanted` is a part of `have`, in its order.

    >>> _within((0, 2), (0, 1, 2)), _within((2, 0), (0, 1, 2))
    (True, False)
    """
    rest = iter(have)
    return all(atom in rest for atom in wanted)


def joined(one: Fixed, other: Fixed) -> Fixed:
    """Both; where they speak of the same place, `other`, which was decided with `one` in force."""
    return Fixed(
        {**one.ops, **other.ops}, {**one.values, **other.values}, {**one.forms, **other.forms},
        {**one.outputs, **other.outputs},
    )  # fmt: skip
