"""Limits on the number of reshards, by nodes that hold a unit of a limited amount.

Whether a use changes a layout depends on two decisions: that of the value and that of its consumer. A COUNT node
between them has states for each answer. Its first state means that the reshard counts for every limit that it is about,
and allows everything on both sides. Each other state names the limits for which it does not count, and a class of
layouts of the value: there the reshard takes a way that those limits do not count, and the state pays what this way
costs more, where there is one. Nodes hold one unit for each limit that counts, all at one moment of its own. So the
limit on what is held at that moment limits the number of reshards.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from autoshard.constraints import Restriction
from autoshard.constraints.statement import MostReshards
from autoshard.costs.reshard import ReshardTable, ReshardTables
from autoshard.deadline import Check, no_check
from autoshard.formulation.collect import Collected
from autoshard.formulation.encode import Encoded, taken, way_of
from autoshard.formulation.model import Counted, Link, Node, NodeKind
from autoshard.formulation.restrict import served
from autoshard.formulation.ticks import Ticks
from autoshard.program.program import Program
from autoshard.program.types import TensorType
from autoshard.sharding.layout import AtomMesh, Layout
from autoshard.solver.network import IMPOSSIBLE, CostNetwork, Edge, Usage


@dataclass(frozen=True)
class Count:
    """At most `limit` of these nodes may be in one of their states that count.

    counted: for each node, per state, whether it counts.
    """

    limit: int
    nodes: tuple[int, ...]
    counted: tuple[np.ndarray, ...]


@dataclass(frozen=True)
class _Limit:
    """One limit: which reshards it is about, and the atoms that they move (None: any)."""

    most: MostReshards
    atoms: frozenset[int] | None


def with_counts(
    encoded: Encoded,
    collected: Collected,
    program: Program,
    mesh: AtomMesh,
    restrictions: Sequence[Restriction],
    tables: ReshardTables,
    check: Check = no_check,
) -> tuple[Encoded, tuple[Count, ...]]:
    """The encoding with a node for every reshard that is counted, and the counts; the nodes are added to `collected`
    too. check: called at every link; may raise to stop.
    """
    limits = [
        _Limit(most, frozenset(a for name in most.axes for a in mesh.atoms_named(name)) if most.axes else None)
        for restriction in restrictions
        if (most := restriction.most_reshards) is not None
    ]
    if not limits:
        return encoded, ()
    costs, edges = list(encoded.network.costs), list(encoded.network.edges)
    facets, usages = list(encoded.network.facets), list(encoded.network.usages)
    states, priced = list(encoded.states), list(encoded.priced)
    nodes_of: list[dict[int, np.ndarray]] = [{} for _ in limits]
    counted: dict[int, Counted] = {}
    special = dict(encoded.special)
    unpriced = encoded.unpriced
    serves = served(collected.links)
    known: dict[object, _Ways] = {}
    for place, link in enumerate(collected.links):
        check("counting reshards", place, len(collected.links))
        about = [k for k, limit in enumerate(limits) if any(limit.most.counts(link.value, use) for use in serves(link))]
        atoms = tuple(limits[k].atoms for k in about)
        ends = _Ends.of(link, encoded, program)
        key = (way_of(ends.type_, link), link.weight, ends.rows.tobytes(), ends.columns.tobytes(), atoms)
        if key not in known:
            known[key] = _Ways(link, ends, encoded.tick_s, tables, special, atoms)
        ways = known[key]
        if not ways.relevant:
            continue
        choices = [  # there are none where every way counts
            replace(c, sources=c.sources[ends.row_of], extra=c.extra[ends.column_of]) for c in ways.choices
        ]
        number, n = len(costs), 1 + len(choices)
        label = f"whether {program.values[link.value].name} is resharded"
        node = Node(NodeKind.COUNT, label, 1.0, (Layout(()),) * n)
        node.costs, node.facets = np.zeros(n), np.zeros((n, len(mesh.mesh.axis_names)), np.int64)
        collected.nodes.append(node)
        costs.append(np.zeros(n, np.int64))
        usages.append(())
        facets.append(node.facets)
        states.append(np.arange(n))
        priced.append(np.zeros(n))
        sources = np.array([np.ones(len(ends.row_of), bool), *(c.sources for c in choices)])
        extra = np.array([np.zeros(len(ends.column_of), np.int64), *(c.extra for c in choices)])
        for end, table in ((link.source.node, np.where(sources, 0, IMPOSSIBLE)), (link.target.node, extra)):
            if table.any():
                edges.append(Edge(number, end, table.astype(np.int64)))
                unpriced += not ((table > 0) & (table < IMPOSSIBLE)).any()
        unpriced += 1
        counted[place] = Counted(number, (frozenset(), *(ways.avoided(c.free) for c in choices)))
        for k in ways.relevant:
            hit = np.array([True, *(k not in c.free for c in choices)])
            nodes_of[about[k]][number] = hit
    network = CostNetwork(tuple(costs), tuple(edges), tuple(usages), encoded.network.usage_limit, tuple(facets))
    encoded = replace(
        encoded, network=network, states=tuple(states), priced=tuple(priced), unpriced=unpriced, special=special,
        counted=counted,
    )  # fmt: skip
    counts = [
        Count(limit.most.limit, tuple(hits), tuple(hits.values())) for limit, hits in zip(limits, nodes_of, strict=True)
    ]
    return encoded, tuple(counts)


@dataclass(frozen=True)
class _Choice:
    """free: the limits, by position, for which the reshard does not count. sources: [layout, or state, of the source]
    whether it is of the class; extra: [layout, or state, of the target] ticks that the way costs more than the
    cheapest.
    """

    free: frozenset[int]
    sources: np.ndarray
    extra: np.ndarray


@dataclass(frozen=True)
class _Ends:
    """The layouts of a link's source and target, by their places in the table of its reshards, and that of each state:
    many states of an op have a value in one layout.
    """

    type_: TensorType
    table: ReshardTable
    rows: np.ndarray
    row_of: np.ndarray
    columns: np.ndarray
    column_of: np.ndarray

    @classmethod
    def of(cls, link: Link, encoded: Encoded, program: Program) -> "_Ends":
        type_ = program.type_of(link.value)
        table = encoded.table(type_, link)
        places = [
            np.unique([table.index[end.layouts[s]] for s in encoded.states[end.node]], return_inverse=True)
            for end in (link.source, link.target)
        ]
        return cls(type_, table, *places[0], *places[1])


class _Ways:
    """The ways between the layouts of one use that some of the limits about it do not count. atoms: of each limit."""

    def __init__(
        self,
        link: Link,
        ends: _Ends,
        tick_s: float,
        tables: ReshardTables,
        special: dict[object, ReshardTable],
        atoms: Sequence[frozenset[int] | None],
    ) -> None:
        self.link, self.tick_s, self.tables, self.special, self.atoms = link, tick_s, tables, special, atoms
        self.type_, self.own, self.rows, self.columns = ends.type_, ends.table, ends.rows, ends.columns
        self.same = self.rows[:, None] == self.columns[None, :]
        self._known: dict[frozenset[int], np.ndarray] = {}
        self.relevant = [k for k in range(len(atoms)) if self._extra(frozenset([k])).any() or self._moves(atoms[k])]
        self.choices = list(self._choices())

    def avoided(self, free: frozenset[int]) -> frozenset[int]:
        """The atoms that no step may move where these limits do not count."""
        return frozenset(a for k in free for a in self.atoms[k] or ())

    def _choices(self) -> Iterator[_Choice]:
        """The states beside the first: for each set of limits that do not count, the classes of sources."""
        for size in range(1, len(self.relevant) + 1):
            for free in map(frozenset, combinations(self.relevant, size)):
                kinds, kind_of = np.unique(self._extra(free), axis=0, return_inverse=True)
                for k, kind in enumerate(kinds):
                    if (kind < IMPOSSIBLE).any():
                        yield _Choice(free, kind_of.reshape(-1) == k, kind)

    def _moves(self, atoms: frozenset[int] | None) -> bool:
        """Whether a cheapest way moves one of these atoms, though another one costs no more."""
        layouts, known = self.own.layouts, np.isfinite(self._seconds(self.own)) & ~self.same
        pairs = {(self.rows[i], self.columns[j]) for i, j in zip(*np.nonzero(known), strict=True)} if atoms else set()
        return any(
            not frozenset(step.atoms).isdisjoint(atoms or ())
            for row, column in pairs
            for step in self.own.path(layouts[row], layouts[column]).steps
        )

    def _extra(self, free: frozenset[int]) -> np.ndarray:
        """[layout of the source, of the target] ticks that a way costs more which these limits do not count."""
        if free not in self._known:
            self._known[free] = self._made(free)
        return self._known[free]

    def _made(self, free: frozenset[int]) -> np.ndarray:
        if any(self.atoms[k] is None for k in free):
            return np.where(self.same, 0, IMPOSSIBLE).astype(np.int64)
        atoms = self.avoided(free)
        if not atoms:
            return np.zeros(self.same.shape, np.int64)
        link = taken(self.link, atoms)
        key = way_of(self.type_, link)
        if key not in self.special:
            layouts = self.own.layouts
            self.special[key] = self.tables.table(self.type_, layouts, link.barred, link.local, link.role, link.travel)
        table = self.special[key]
        cheapest, other = self._seconds(self.own), self._seconds(table)
        more = np.full(other.shape, np.inf)
        np.subtract(other, cheapest, out=more, where=np.isfinite(other))
        return np.where(self.same, 0, Ticks(self.tick_s)(more * self.link.weight))

    def _seconds(self, table: ReshardTable) -> np.ndarray:
        own = self.own.layouts
        rows, columns = ([table.index[own[k]] for k in places] for places in (self.rows, self.columns))
        return table.seconds[np.ix_(rows, columns)]


def price_counts(network: CostNetwork, counts: Sequence[Count], prices: Sequence[int]) -> CostNetwork:
    """The network in which every reshard that counts costs so many ticks more, by count, and nothing is limited.

    A plan that keeps the counts costs at most the prices times the limits more than in the network of `hold_counts`.
    """
    costs = list(network.costs)
    for count, price in zip(counts, prices, strict=True):
        for node, counted in zip(count.nodes, count.counted, strict=True):
            costs[node] = costs[node] + np.where(counted, price, 0)
    return CostNetwork(tuple(costs), network.edges, tuple(() for _ in costs), None, network.facets)


def hold_counts(network: CostNetwork, counts: Sequence[Count], limit: int | None) -> CostNetwork:
    """The network within a memory limit and the counts: units are sized so that one limit serves both."""
    if not counts:
        return CostNetwork(network.costs, network.edges, network.usages, limit, network.facets)
    if limit is None:  # take a limit that memory cannot reach
        limit = 1 + sum(int(u.amounts.max()) for us in network.usages for u in us)
    counts = [replace(count, limit=min(count.limit, len(count.nodes))) for count in counts]  # a higher limit is none
    least = max((count.limit + 1) ** 2 for count in counts)
    scale = 1 if limit > least else -(-(least + 1) // max(1, limit))
    whole = limit * scale
    usages = [[Usage(u.start, u.stop, u.amounts * scale) for u in us] for us in network.usages]
    usages += [[] for _ in range(network.n_nodes - len(usages))]
    end = max((u.stop for us in usages for u in us), default=0)
    for number, count in enumerate(counts):
        unit = whole + 1 if count.limit == 0 else whole // count.limit
        for node, counted in zip(count.nodes, count.counted, strict=True):
            amounts = np.where(counted, unit, 0).astype(np.int64)
            usages[node].append(Usage(end + number, end + number + 1, amounts))
    return CostNetwork(network.costs, network.edges, tuple(usages), whole, network.facets)
