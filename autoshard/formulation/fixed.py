"""Fixed placements: atoms on factors and dimensions, in an order, that one stage of planning leaves to the next.

The presence of an atom is fixed, never its absence, and never how partial sums are reduced (S0.48, S0.49).
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from autoshard.formulation.collect import Collected
from autoshard.formulation.model import Node, NodeKind
from autoshard.program.program import Program
from autoshard.program.schedule import PROGRAM, Placement, Schedule, Use
from autoshard.sharding.layout import Layout

Cut = tuple[tuple[int, ...], ...]
"""Atoms by factor or by dimension, major to minor."""


@dataclass(frozen=True)
class Fixed:
    """The atoms that are fixed, by place.

    ops: op -> atoms on its factors. values: input or argument of a region -> atoms of its dimensions as it is stored.
    forms: value -> atoms of the form that its uses share. outputs: slot -> atoms of the output as it is handed back.
    """

    ops: Mapping[int, Cut] = field(default_factory=dict)
    values: Mapping[int, Cut] = field(default_factory=dict)
    forms: Mapping[int, Cut] = field(default_factory=dict)
    outputs: Mapping[int, Cut] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.ops or self.values or self.forms or self.outputs)


def placed(schedule: Schedule, program: Program, atoms: Collection[int]) -> Fixed:
    """The places of these atoms in a schedule."""
    chosen = frozenset(atoms)

    def cut(lists: Sequence[Sequence[int]], without: Collection[int] = ()) -> Cut:
        return tuple(tuple(a for a in atoms_here if a in chosen and a not in without) for atoms_here in lists)

    def some(found: dict[int, Cut]) -> dict[int, Cut]:
        return {key: value for key, value in found.items() if any(value)}

    op_results = {value for op, _ in program.walk() if not op.regions for value in op.results}
    values = {v: cut(lay.dims) for v, lay in schedule.definitions.items() if v not in op_results}
    forms = {
        v: cut(schedule.form_before_use(v).dims, lay.unreduced)
        for v, lay in schedule.definitions.items()
        if v in op_results
    }
    outputs: dict[int, Cut] = {}
    for slot in range(len(program.body.results)):
        use = schedule.uses.get(Use(PROGRAM, slot))
        if use is not None:
            outputs[slot] = cut(use.target.dims, use.source.unreduced)
    ops = {op: cut(placement.factors) for op, placement in schedule.placements.items()}
    return Fixed(some(ops), some(values), some(forms), some(outputs))


def narrow(collected: Collected, program: Program, fixed: Fixed) -> None:
    """Keep only the states that have the fixed placements.

    A node without such a state stays unchanged: the model may have other statements than those under which the
    placements were found (`Left`), and then fewer states.
    """
    known: Known = {}
    for (what, key), (index, states) in places(collected, program).items():
        cut = getattr(fixed, what).get(key)
        if cut is not None:
            allowed = having(states, states_left(collected.nodes[index]), cut, known)
            if allowed is not None:
                collected.nodes[index].allowed = allowed


States = Sequence[Placement | Layout]
"""What the states of a node stand for: placements of an op, or layouts."""
Known = dict[object, np.ndarray | None]
"""Remembered results of `having`: repeated layers ask for the same ones."""


def places(collected: Collected, program: Program) -> dict[tuple[str, int], tuple[int, States]]:
    """Field and key of `Fixed` -> (number of the node that decides the place, its states)."""
    slots = {name: k for k, name in enumerate(program.output_names)}
    out: dict[tuple[str, int], tuple[int, States]] = {}
    for index, node in enumerate(collected.nodes):
        if node.kind is NodeKind.OP and node.space is not None and node.op is not None:
            out["ops", node.op] = index, node.space.placements
        elif node.kind is NodeKind.OUTPUT:
            out["outputs", slots[node.label]] = index, node.layouts
    for what, side, kinds in (
        ("values", collected.definition, (NodeKind.INPUT, NodeKind.BOUNDARY)),
        ("forms", collected.form, (NodeKind.HUB,)),
    ):
        for value, port in side.items():
            if collected.nodes[port.node].kind in kinds:
                out[what, value] = port.node, port.layouts
    return out


def states_left(node: Node) -> np.ndarray:
    """The indices of the states of a node that statements leave."""
    return np.arange(node.states) if node.allowed is None else node.allowed


def having(states: States, left: np.ndarray, wanted: Cut, known: Known) -> np.ndarray | None:
    """Of the states `left`, those that have a cut; None where there are none."""
    key = (id(states), wanted, left.tobytes())
    if key not in known:
        cuts = [s.dims if isinstance(s, Layout) else s.factors for s in states]
        indices = [k for k in left.tolist() if has(cuts[k], wanted)]
        known[key] = np.array(indices, np.int64) if indices else None
    return known[key]


def has(cut: Cut, wanted: Cut) -> bool:
    """Whether a cut has all atoms of another one on the same factors or dimensions, in their order."""
    return all(_within(a, have) for a, have in zip(wanted, cut, strict=True))


def held(schedule: Schedule, what: str, key: int) -> Cut:
    """The atoms that a schedule has at one place: a field of `Fixed`, and a key of it."""
    if what == "ops":
        return schedule.placements[key].factors
    if what == "outputs":
        return schedule.uses[Use(PROGRAM, key)].target.dims
    return (schedule.definitions[key] if what == "values" else schedule.form_before_use(key)).dims


def _within(wanted: Sequence[int], have: Sequence[int]) -> bool:
    """Whether `wanted` is a part of `have`, in its order.

    >>> _within((0, 2), (0, 1, 2)), _within((2, 0), (0, 1, 2))
    (True, False)
    """
    rest = iter(have)
    return all(atom in rest for atom in wanted)
