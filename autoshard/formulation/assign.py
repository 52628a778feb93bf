"""Encoding a schedule: the assignment of a network that decodes to it (the inverse of `decode`)."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from autoshard.formulation.collect import Collected
from autoshard.formulation.encode import Encoded
from autoshard.formulation.model import Link, NodeKind
from autoshard.formulation.repeats import Repeats
from autoshard.program.schedule import Schedule
from autoshard.sharding.layout import Layout
from autoshard.sharding.steps import Reshard
from autoshard.solver.network import IMPOSSIBLE


def assignment_of(
    collected: Collected, encoded: Encoded, repeats: Repeats, schedule: Schedule
) -> tuple[int, ...] | None:
    """The assignment of the network (the quotient by repeated layers) that decodes to a schedule of the same program.

    None where no assignment of the network does: another mesh, other statements, or repeats that differ. On a machine
    that gathers nothing as it is used, each use of what the schedule gathers so has a gather of its own: compilers that
    gather so make them one.
    """
    if any(collected.nodes[collected.form[v].node].defined_in is None for v in schedule.as_used if v in collected.form):
        schedule = _gathered_apart(collected, schedule)
    wanted = _layouts(collected, schedule)
    if wanted is None:
        return None
    moved = {counted.node: _moved(collected.links[k], schedule) for k, counted in encoded.counted.items()}
    avoided = {counted.node: counted.avoided for counted in encoded.counted.values()}
    chosen: list[int] = []
    for index, node in enumerate(collected.nodes):
        if node.kind is NodeKind.COUNT:
            ways = [moved[index].isdisjoint(atoms) for atoms in avoided[index]]
            chosen.append(_counted(encoded, index, chosen, ways))
            continue
        kept = encoded.states[index].tolist()
        if node.kind is NodeKind.OP:
            assert node.space is not None and node.op is not None
            placement = schedule.placements.get(node.op)
            fitting = [k for k, s in enumerate(kept) if node.space.placements[s] == placement]
        elif node.kind is NodeKind.HUB:
            assert node.value is not None and node.copies is not None
            # a form that needs no step is the array itself, any other form is a copy beside it
            is_copy = node.value in schedule.shared
            of = schedule.definitions[node.value] if node.value in schedule.as_used else None
            defined_in = (None,) * node.states if node.defined_in is None else node.defined_in
            fitting = [
                k
                for k, s in enumerate(kept)
                if node.layouts[s] == wanted[index] and bool(node.copies[s]) == is_copy and defined_in[s] == of
            ]
        else:
            fitting = [k for k, s in enumerate(kept) if node.layouts[s] == wanted[index]]
            if node.copies is not None and len(fitting) > 1:
                fitting = _by_source(collected, schedule, index, kept, fitting)
        if not fitting:
            return None
        chosen.append(fitting[0])
    contracted = repeats.contract(chosen)
    return tuple(contracted) if repeats.expand(contracted) == chosen else None


def _gathered_apart(collected: Collected, schedule: Schedule) -> Schedule:
    """The schedule where each use that shares what is gathered as it is used gathers it for itself."""
    uses = dict(schedule.uses)
    for link in collected.links:
        if link.use is not None and link.use in uses and link.value in schedule.as_used:
            defined, shared = schedule.definitions[link.value], schedule.shared[link.value]
            its = uses[link.use]
            steps = () if its.target == defined else (*shared.steps, *its.steps)
            uses[link.use] = Reshard(defined, its.target, steps)
    shared = {value: way for value, way in schedule.shared.items() if value not in schedule.as_used}
    return replace(schedule, shared=shared, uses=uses, as_used=frozenset())


def _moved(link: Link, schedule: Schedule) -> frozenset[int]:
    """The atoms that a schedule moves on the way of a link."""
    reshard = schedule.shared.get(link.value) if link.use is None else schedule.uses.get(link.use)
    return frozenset(a for step in (() if reshard is None else reshard.steps) for a in step.atoms)


def _counted(encoded: Encoded, index: int, chosen: Sequence[int], ways: Sequence[bool]) -> int:
    """The last state of a COUNT node that the chosen states around it allow, among those with the way that is taken.

    The first state says that the reshard counts and is always allowed. Nodes that a COUNT node refers to come before
    it. ways: per state, whether it has the way.
    """
    allowed = np.array(ways, bool)
    for edge in encoded.network.edges:
        if edge.first == index and edge.second < len(chosen):
            allowed &= edge.costs[:, chosen[edge.second]] < IMPOSSIBLE
    return int(np.flatnonzero(allowed)[-1])


def _layouts(collected: Collected, schedule: Schedule) -> dict[int, Layout] | None:
    """Node -> the layout that a schedule gives it; None where the schedule does not say."""
    out: dict[int, Layout] = {}
    for value, port in collected.definition.items():
        layout = schedule.definitions.get(value)
        if layout is None:
            return None
        if collected.nodes[port.node].kind is not NodeKind.OP:
            _put(out, collected, port.node, port.layouts, layout)
    for link in collected.links:
        if link.use is None:
            out.setdefault(link.target.node, schedule.form_before_use(link.value))
        elif collected.nodes[link.target.node].kind is not NodeKind.OP:
            reshard = schedule.uses.get(link.use)
            if reshard is None:
                return None
            _put(out, collected, link.target.node, link.target.layouts, reshard.target)
    complete = all(n.kind in (NodeKind.OP, NodeKind.COUNT) or i in out for i, n in enumerate(collected.nodes))
    return out if complete else None


def _put(out: dict[int, Layout], collected: Collected, node: int, seen: Sequence[Layout], layout: Layout) -> None:
    """Note the layout of a node, given the layout at a port.

    seen: the node's layouts as the port has them, perhaps with a leading stacked dimension.
    """
    if node in out:
        return
    own = collected.nodes[node].layouts
    for mine, shown in zip(own, seen, strict=True):
        if shown == layout:
            out[node] = mine
            return


def _by_source(
    collected: Collected, schedule: Schedule, node: int, kept: Sequence[int], found: Sequence[int]
) -> list[int]:
    """Of the states `found` of a boundary, those that are the same array or those that are a copy.

    The same array where the value arrives in the boundary's layout, a copy otherwise.
    """
    copies = collected.nodes[node].copies
    assert copies is not None
    arriving = [link for link in collected.links if link.target.node == node and link.shares and link.use is not None]
    same = all(not schedule.uses[link.use].steps for link in arriving if link.use is not None)
    return [k for k in found if bool(copies[kept[k]]) != same]
