"""Where a sharding came from: for each axis the user's statement, and the ops it passed on its way (S2.50 to S2.53).

The engine notes every change with the specs that the node had before it. From these notes, each axis of each holder is
followed back, factor by factor, to a holder that had the axis from the start.
"""

from collections.abc import Sequence
from typing import NamedTuple

from autoshard.program.rule import TensorFactors
from autoshard.propagation.engine import Change, Run
from autoshard.propagation.graph import Graph
from autoshard.propagation.projection import project
from autoshard.propagation.spec import Ref, Spec, overlaps

OUTPUT = -1
GROUP = -2


class Step(NamedTuple):
    """The axis came to `holder` at `node` (or `OUTPUT`, `GROUP`) from the holder `source`."""

    node: int
    source: int
    holder: int


def chains(graph: Graph, run: Run, initial: Sequence[int], holder: int) -> list[tuple[Ref, int, list[Step]]]:
    """(axis, dimension, steps back to its origin) for every axis of a holder."""
    spec = graph.spec(holder)
    if spec is None:
        return []
    events = _events(graph, run, initial)
    return [(ref, d, _follow(events, holder, ref)) for d, dim in enumerate(spec.dims) for ref in dim.axes]


def _follow(events: dict[int, list[tuple[Ref, int, int]]], holder: int, ref: Ref) -> list[Step]:
    out: list[Step] = []
    at, seen = holder, {holder}
    while True:
        event = next(((node, source) for axis, node, source in events.get(at, ()) if overlaps(axis, ref)), None)
        if event is None:
            return out
        out.append(Step(event[0], event[1], at))
        at = event[1]
        if at in seen:
            return out
        seen.add(at)


def _events(graph: Graph, run: Run, initial: Sequence[int]) -> dict[int, list[tuple[Ref, int, int]]]:
    """For each holder: (axis, node that gave it, holder it came from), in the order in which they came."""
    if run.events is not None:
        return run.events
    steps = graph.steps
    out: dict[int, list[tuple[Ref, int, int]]] = {}
    for change in run.changes or ():
        new = steps.spec(change.new)
        assert new is not None
        before = {*_axes(steps.spec(change.old)), *_axes(steps.spec(initial[change.holder]))}
        for dim, entry in enumerate(new.dims):
            for ref in entry.axes:
                if not any(overlaps(ref, b) for b in before):
                    source = _source(graph, change, ref, dim, new)
                    if source >= 0:
                        out.setdefault(change.holder, []).append((ref, change.node, source))
    run.events = out
    return out


def _source(graph: Graph, change: Change, ref: Ref, dim: int, new: Spec) -> int:
    """The tensor from which the node took the axis: one that has it on the same factor."""
    steps = graph.steps
    others = [(i, h, steps.spec(n)) for i, (h, n) in enumerate(change.seen) if h != change.holder]
    if change.node < 0:
        return next((h for _, h, s in others if s is not None and any(overlaps(ref, a) for a in s.dims[dim].axes)), -1)
    rule = steps.rules[graph.nodes[change.node].rule]
    mappings: tuple[TensorFactors, ...] = (*rule.operands, *rule.results)
    for mine in (i for i, (h, _) in enumerate(change.seen) if h == change.holder):  # twice where an op uses it twice
        factors = project(mappings[mine], new, rule.sizes).factors
        wanted = {f for f, s in factors.items() if any(overlaps(ref, a) for a in s.axes)}
        for index, holder, spec in others:
            if spec is None or holder < 0:
                continue
            theirs = project(mappings[index], spec, rule.sizes).factors
            if any(f in theirs and any(overlaps(ref, a) for a in theirs[f].axes) for f in wanted):
                return holder
    # axes of size 1 may be dealt to a neighbouring factor on the way back
    return next((h for _, h, s in others if h >= 0 and any(overlaps(ref, a) for a in _axes(s))), -1)


def _axes(spec: Spec | None) -> list[Ref]:
    return [] if spec is None else [a for d in spec.dims for a in d.axes]
