"""What values in memory hold after the time until which they are surely held, in networks too large for `memory`.

A value that fuses into its readers is made where these run, so what it is computed from is held until then, whatever is
copied. Only a partial sum may be reduced where it is made, and frees what it is computed from. So until then at least
the form of a value in memory is held, or an op on the way has a partial sum as its result. This depends on few nodes,
and on little of each: how many bytes the form has, and whether a result is a partial sum.

A copy for one op replaces the form that it is made from only where it has as many bytes. The least of both counts, so
the form's bytes alone; and not at the last moment, in which a result may lie in the same place.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from autoshard.costs.fusion import Fusion
from autoshard.costs.liveness import Liveness
from autoshard.costs.memory import sizes
from autoshard.costs.padding import Tile
from autoshard.formulation.collect import Collected
from autoshard.formulation.encode import Encoded
from autoshard.formulation.repeats import Repeats
from autoshard.program.program import Op, Program
from autoshard.sharding.layout import AtomMesh
from autoshard.solver.factored import Factored
from autoshard.solver.network import CostNetwork, Edge, Usage

Span = tuple[int, int]


@dataclass(frozen=True)
class Until:
    """A value is needed until `time`, unless the result of one of these ops is a partial sum."""

    time: int
    unless: frozenset[int] = frozenset()


@dataclass(frozen=True, eq=False)
class Kept:
    """What is held of a form: per state of node `form`, `early` in some spans of time and `late` in others; or nothing
    where one of `ends` has a partial sum, by node: per state whether it has.
    """

    form: int
    early: np.ndarray
    late: np.ndarray
    ends: tuple[tuple[int, np.ndarray], ...]
    early_spans: tuple[Span, ...]
    late_spans: tuple[Span, ...]

    @cached_property
    def classes(self) -> tuple[np.ndarray, np.ndarray]:
        """States that hold different amounts, one of each, and the number among these of every state."""
        _, first, number = np.unique(np.stack([self.early, self.late]), axis=1, return_index=True, return_inverse=True)
        return first, number.ravel()

    def usages(self, states: np.ndarray, nothing: int = 0) -> list[Usage]:
        """What is held in these states of the form, and in so many further ones that hold nothing."""
        none = np.zeros(nothing, np.int64)
        parts = ((self.early, self.early_spans), (self.late, self.late_spans))
        return [Usage(*span, np.concatenate([held[states], none])) for held, spans in parts for span in spans]

    def state(self, assignment: Sequence[int]) -> int:
        """The state of the node for this that belongs to an assignment: the first that holds nothing, or the form's."""
        for k, (node, partial) in enumerate(self.ends):
            if partial[assignment[node]]:
                return len(self.classes[0]) + k
        return int(self.classes[1][assignment[self.form]])


class KeptForms:
    """The forms of a network's values that are held longer than the network itself counts."""

    def __init__(self, base: CostNetwork, kept: Sequence[Kept]) -> None:
        self.base = base
        self.alone = [one for one in kept if not one.ends]
        self.joint = [one for one in kept if one.ends]

    @cached_property
    def network(self) -> CostNetwork:
        """The network with what forms hold that long: on their own nodes, or on a node of its own where it depends on
        what other ops do. These come last, and so do their edges.
        """
        base = self.base
        usages = [list(own) for own in base.usages or [()] * base.n_nodes]
        costs, edges = list(base.costs), list(base.edges)
        for one in self.alone:
            usages[one.form] += one.usages(np.arange(len(one.late)))
        for one in self.joint:
            node, (states, number) = len(costs), one.classes
            n, ends = len(states), len(one.ends)
            costs.append(np.zeros(n + ends, np.int64))
            usages.append(one.usages(states, ends))
            every = np.arange(n + ends)
            own = np.where(np.eye(n, dtype=bool), 0.0, np.inf)
            table: Any = Factored(np.hstack([own, np.zeros((n, ends))]), number, every)
            edges.append(Edge(one.form, node, table))
            for k, (other, partial) in enumerate(one.ends):
                ended = np.zeros((2, n + ends))
                ended[0, n + k] = np.inf
                table = Factored(ended, partial.astype(np.int64), every)
                edges.append(Edge(other, node, table))
        facets = (*base.facets, *[None] * len(self.joint)) if base.facets else ()
        return CostNetwork(tuple(costs), tuple(edges), tuple(map(tuple, usages)), base.usage_limit, facets)

    def extended(self, assignment: Sequence[int]) -> tuple[int, ...]:
        """The assignment of `network` that belongs to one of the base network."""
        return (*map(int, assignment), *(one.state(assignment) for one in self.joint))


def kept_forms(
    program: Program,
    fusion: Fusion,
    liveness: Liveness,
    collected: Collected,
    encoded: Encoded,
    repeats: Repeats,
    mesh: AtomMesh,
    tile: Tile | None,
) -> KeptForms:
    """The forms that are held until values are read which are computed from them and fuse into their readers."""
    size, found = sizes(program, mesh, tile, fusion.twice), _Found(program, fusion, liveness, collected, encoded)
    together: dict[object, Kept] = {}
    for value in sorted(found.roots):
        port, defined = collected.form[value], collected.definition[value]
        form, states = int(repeats.class_of[port.node]), encoded.states[port.node].tolist()
        layouts, copies = [port.layouts[k] for k in states], collected.nodes[port.node].copies
        late = np.array([0 if lay.unreduced else size(value, lay) for lay in layouts], np.int64)
        if (forms := collected.nodes[port.node].defined_in) is not None:
            share, as_used = fusion.narrowed[value], np.array([forms[k] is not None for k in states], bool)
            late = np.where(as_used, np.ceil(late * share).astype(np.int64), late)
        first, early = liveness.reads.get(value, (0, 0))[0], late
        if port is not defined and copies is not None:  # a copy that is larger is made when it is first read
            least = min(size(value, defined.layouts[k]) for k in encoded.states[defined.node].tolist())
            early = np.where(copies[states], np.minimum(late, least), late)
        for unless, spans in found.later(value).items():
            nodes = sorted({int(repeats.class_of[collected.op_node[op]]): op for op in unless}.items())
            ends = tuple((node, found.partial[op]) for node, op in nodes)
            key = form, early.tobytes(), late.tobytes(), tuple((node, partial.tobytes()) for node, partial in ends)
            before = together.get(key, Kept(form, early, late, ends, (), ()))
            together[key] = replace(
                before,
                early_spans=(*before.early_spans, *((a, min(b, first)) for a, b in spans if a < first)),
                late_spans=(*before.late_spans, *((max(a, first), b) for a, b in spans if first < b)),
            )
    return KeptForms(repeats.network, list(together.values()))


class _Found:
    """Until when values are needed. roots: values in memory that virtual ones are computed from. partial: of ops whose
    result may be a partial sum, per state whether it is.
    """

    def __init__(
        self, program: Program, fusion: Fusion, liveness: Liveness, collected: Collected, encoded: Encoded
    ) -> None:
        self.liveness, self.in_memory = liveness, fusion.held | fusion.materialised
        self.partial: dict[int, np.ndarray] = {}
        self.read: dict[int, list[Until]] = {}
        handed = {value for op, _ in program.walk() for region in op.regions for value in region.results}
        made = {value for op, _ in program.walk() if op.id in liveness.time for value in op.results}
        for op, _ in reversed(list(program.walk())):
            if op.id not in liveness.time:
                continue  # inside of a user's shard_map
            until = [Until(liveness.time[op.id])]
            if self._is_virtual(op):
                unless = self._own(op, collected, encoded)
                until += [Until(u.time, u.unless | unless) for u in self.read.get(op.results[0], ())]
            for value in dict.fromkeys(op.operands):
                self.read[value] = _latest([*self.read.get(value, ()), *until])
        self.roots = {v for v in self.read if v in fusion.held and v in made - handed and v in collected.form}

    def _is_virtual(self, op: Op) -> bool:
        """Whether nothing that an op makes is ever in memory itself."""
        return op.rule is not None and len(op.results) == 1 and op.results[0] not in self.in_memory

    def _own(self, op: Op, collected: Collected, encoded: Encoded) -> frozenset[int]:
        """The op, where its result may be a partial sum."""
        node = collected.op_node[op.id]
        space = collected.nodes[node].space
        assert space is not None
        partial = np.array([bool(space.result_layouts[0][k].unreduced) for k in encoded.states[node].tolist()])
        if not partial.any():
            return frozenset()
        self.partial[op.id] = partial
        return frozenset({op.id})

    def later(self, value: int) -> Mapping[frozenset[int], list[Span]]:
        """The times after those that the network counts, by the ops on which it depends whether the value is needed."""
        live, out = self.liveness, {}
        begin = max(live.interval.get(value, (0, 0))[1], live.reads.get(value, (0, 0))[1] + 1)
        for until in self.read[value]:  # the fewest ops first, and so the earliest
            if until.time > begin:
                out.setdefault(until.unless, []).append((begin, until.time))
                begin = until.time
        return out


def _latest(every: Sequence[Until]) -> list[Until]:
    """Those that are not earlier than others on which fewer ops have a say, in order of time."""
    out: list[Until] = []
    for one in sorted(every, key=lambda u: (-u.time, len(u.unless), sorted(u.unless))):
        if not any(other.unless <= one.unless for other in out):
            out.append(one)
    return out[::-1]
