"""Where a sharding came from: for each axis the user's statement, and the ops it passed on its way (S2.50 to S2.53)."""

from dataclasses import dataclass

from autoshard.propagation.engine import Run
from autoshard.propagation.program_graph import ProgramGraph
from autoshard.propagation.spec import Ref, axis_ref, overlaps
from autoshard.sharding.axis import AxisRef
from autoshard.sharding.mesh import Mesh

GROUP = -2
OUTPUT = -1


@dataclass(frozen=True, slots=True)
class Hop:
    """One handing-over: `op` gave the axis to `value` from `source`. op is -1 for an output, -2 for a sharding
    group.
    """

    op: int
    source: int
    value: int


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where one axis on one dimension came from.

    origin: the value whose given sharding it stems from (-1: an output's own sharding).
    path: hops from the value back to the origin; empty where the value's own sharding says it.
    """

    axis: AxisRef
    dim: int
    origin: int
    path: tuple[Hop, ...]


def trace_back(built: ProgramGraph, run: Run, initial: list[int], mesh: Mesh) -> dict[int, tuple[Provenance, ...]]:
    """Follow every axis of every value back to the statement it stems from."""
    value_of: dict[int, int] = {}
    for value, holder in sorted(built.holder_of.items()):
        value_of.setdefault(holder, value)
    for value, holders in sorted(built.copies.items()):
        for holder in holders:
            value_of.setdefault(holder, value)
    came_from = _events(built, run, initial)
    out: dict[int, tuple[Provenance, ...]] = {}
    for value, holder in sorted(built.holder_of.items()):
        spec = built.graph.spec(holder)
        if spec is None:
            continue
        found: list[Provenance] = []
        for index, dim in enumerate(spec.dims):
            for ref in dim.axes:
                hops: list[Hop] = []
                at, seen = holder, {holder}
                while (event := _find(came_from.get(at, []), ref)) is not None:
                    node, source = event
                    op = built.graph.nodes[node].op if node >= 0 else node
                    hops.append(Hop(op, value_of.get(source, -1), value_of.get(at, -1)))
                    if source in seen:
                        break
                    at = source
                    seen.add(at)
                found.append(Provenance(axis_ref(ref, mesh), index, value_of.get(at, -1), tuple(hops)))
        out[value] = tuple(found)
    return out


def _find(events: list[tuple[Ref, int, int]], ref: Ref) -> tuple[int, int] | None:
    for axis, node, source in events:
        if overlaps(axis, ref):
            return node, source
    return None


def _events(built: ProgramGraph, run: Run, initial: list[int]) -> dict[int, list[tuple[Ref, int, int]]]:
    """For each holder: (axis, node that gave it, holder it came from), in the order in which they came."""
    steps = built.graph.steps
    out: dict[int, list[tuple[Ref, int, int]]] = {}
    given = {h: _axes(steps.spec(n)) for h, n in enumerate(initial)}
    for change in run.changes or ():
        before = _axes(steps.spec(change.old))
        for ref in _axes(steps.spec(change.new)):
            if ref in before or any(overlaps(ref, g) for g in given.get(change.holder, ())):
                continue
            for holder, number in change.seen:
                if holder != change.holder and any(overlaps(ref, a) for a in _axes(steps.spec(number))):
                    out.setdefault(change.holder, []).append((ref, change.node, holder))
                    break
    return out


def _axes(spec) -> list[Ref]:
    return [] if spec is None else [a for d in spec.dims for a in d.axes]
