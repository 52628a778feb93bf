"""Where the shardings of a program's values came from: the user's statement, and the ops each axis passed."""

from dataclasses import dataclass

from autoshard.propagation.engine import Run
from autoshard.propagation.op_classes import CONSTRAINTS
from autoshard.propagation.program.graph import ProgramGraph
from autoshard.propagation.provenance import chains
from autoshard.propagation.spec import axis_ref
from autoshard.sharding.axis import AxisRef
from autoshard.sharding.mesh import Mesh


@dataclass(frozen=True, slots=True)
class Hop:
    """One step of an axis: `op` passed it from `source` to `value`; op -1 is an output, -2 a sharding group."""

    op: int
    source: int
    value: int


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where one axis on one dimension came from.

    origin: the value whose stated sharding the axis stems from (-1: an output's own sharding).
    path: hops from the value back to the origin; empty where the value's own sharding names the axis.
    """

    axis: AxisRef
    dim: int
    origin: int
    path: tuple[Hop, ...]


def trace_back(built: ProgramGraph, run: Run, initial: list[int], mesh: Mesh) -> dict[int, tuple[Provenance, ...]]:
    """Follow every axis of every value of a program back to the statement it stems from."""
    value_of: dict[int, int] = {}
    for value, holder in sorted(built.holder_of.items(), key=lambda e: (e[0] not in built.stated, e[0])):
        value_of.setdefault(holder, value)
    for value, holders in sorted(built.copies.items()):
        for holder in holders:
            value_of.setdefault(holder, value)
    known: dict[int, tuple[Provenance, ...]] = {}
    out: dict[int, tuple[Provenance, ...]] = {}
    for value, holder in sorted(built.holder_of.items()):
        if holder < 0 or built.graph.spec(holder) is None:
            continue
        if holder not in known:
            origins: list[Provenance] = []
            for ref, dim, steps in chains(built.graph, run, initial, holder):
                hops: list[Hop] = []
                to = value_of.get(holder, -1)
                for step in steps:
                    source = value_of.get(step.source, -1)
                    if source >= 0 or step is steps[-1]:  # places inside of a loop, between its values, are passed over
                        hops.append(Hop(built.graph.nodes[step.node].op if step.node >= 0 else step.node, source, to))
                        to = source
                start = steps[-1].source if steps else holder
                origin = value_of.get(start, -1)
                op = built.bound_holders.get(start) or built.bound.get(origin)
                if op is not None:  # the statement is the op that binds the value
                    source = op.results[0] if op.kind in CONSTRAINTS else origin
                    hops.append(Hop(op.id, source, origin))
                    origin = source
                origins.append(Provenance(axis_ref(ref, mesh), dim, origin, tuple(hops)))
            known[holder] = tuple(origins)
        out[value] = known[holder]
    return out
