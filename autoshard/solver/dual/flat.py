"""A reduced network as flat arrays, in the order in which message passing visits the nodes."""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from autoshard.solver.dual.arrays import UNLIMITED, Classes, Graph, Held
from autoshard.solver.dual.classes import classes_of
from autoshard.solver.work import FORBIDDEN_FROM, Work, joined, stretches


@dataclass(frozen=True)
class Flat:
    """Nodes 0..n-1 stand for `nodes[k]` of the work network; all costs float64, forbidden ones inf.

    unary[offsets[k]:offsets[k + 1]]: costs of node k. Edge e joins first[e] < second[e]; its table
    (rows: states of first) starts at table_at[e] in `tables`. Edges of node k:
    incident[incident_at[k]:incident_at[k + 1]].
    Usage record r: node held_node[r], slots [held_start[r], held_stop[r]), amounts from held_at[r].
    classes: of the states that tables do not tell apart; in parts of proofs edges that have them have no table.
    """

    nodes: np.ndarray
    offsets: np.ndarray
    unary: np.ndarray
    first: np.ndarray
    second: np.ndarray
    table_at: np.ndarray
    tables: np.ndarray
    incident_at: np.ndarray
    incident: np.ndarray
    held_node: np.ndarray
    held_start: np.ndarray
    held_stop: np.ndarray
    held_at: np.ndarray
    amounts: np.ndarray
    slots: int
    limit: int | None
    classes: Classes

    @property
    def n(self) -> int:
        """The number of nodes."""
        return len(self.nodes)

    @cached_property
    def sizes(self) -> np.ndarray:
        """The number of states of every node."""
        return np.diff(self.offsets)

    @cached_property
    def held_lengths(self) -> np.ndarray:
        """States of the node of every usage record."""
        return np.diff(self.held_at)

    @cached_property
    def held_places(self) -> np.ndarray:
        """The state, among all, that every amount is about."""
        starts = self.offsets[self.held_node] - self.held_at[:-1]
        return np.repeat(starts, self.held_lengths) + np.arange(len(self.amounts))

    @cached_property
    def held(self) -> Held:
        """What nodes hold, for compiled functions."""
        limit = UNLIMITED if self.limit is None else min(self.limit, UNLIMITED)
        return Held(self.held_node, self.held_start, self.held_stop, self.held_at, self.amounts, limit)

    @cached_property
    def graph(self) -> Graph:
        """Nodes, edges and their costs, for compiled functions."""
        return Graph(
            self.offsets, self.unary, self.first, self.second, self.table_at, self.tables, self.incident_at,
            self.incident,
        )  # fmt: skip

    @cached_property
    def entries(self) -> int:
        """Table entries, those of edges that have classes in the place of a table (`cutting.cut_out`) counted too."""
        return int((self.sizes[self.first] * self.sizes[self.second]).sum())

    @cached_property
    def visited(self) -> int:
        """Table entries that a pass visits, or numbers per class and state in place of them."""
        d, c, kept = self.sizes[self.first], self.sizes[self.second], np.diff(self.classes.at)
        return int(np.where(kept > 0, np.minimum(d * c, kept + d + c), d * c).sum())

    def without_costs(self) -> "Flat":
        """The same network where nothing costs anything that is allowed."""
        tables = np.where(np.isfinite(self.tables), 0.0, np.inf)
        classes = classes_of(self.offsets, self.first, self.second, self.table_at, tables)
        return replace(self, unary=np.zeros(len(self.unary)), tables=tables, classes=classes)

    def table(self, edge: int) -> np.ndarray:
        """The table of an edge: rows are states of its first node, columns of its second one."""
        rows, columns = self.sizes[self.first[edge]], self.sizes[self.second[edge]]
        at = self.table_at[edge]
        return self.tables[at : at + rows * columns].reshape(rows, columns)


def _starts(lengths: np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


def flatten(work: Work) -> Flat:
    """The remaining nodes of a work network in increasing order."""
    nodes = work.nodes()
    number = {node: k for k, node in enumerate(nodes)}
    sizes = np.array([len(work.domains[i]) for i in nodes], dtype=np.int64)
    offsets = _starts(sizes)
    unary = np.concatenate([work.cost(i) for i in nodes]).astype(np.float64) if nodes else np.zeros(0)
    pairs = work.edges()
    first = np.array([number[i] for i, _ in pairs], dtype=np.int64)
    second = np.array([number[j] for _, j in pairs], dtype=np.int64)
    table_at = _starts(sizes[first] * sizes[second]) if len(pairs) else np.zeros(1, dtype=np.int64)
    tables = np.empty(int(table_at[-1]), dtype=np.float64)
    for begin, end in stretches(np.diff(table_at).tolist()):
        entries, _ = joined([work.tables[i][j].ravel() for i, j in pairs[begin:end]])
        own = tables[table_at[begin] : table_at[end]]
        own[:] = entries
        own[entries >= FORBIDDEN_FROM] = np.inf
    ends = np.concatenate([first, second])
    order = np.argsort(ends, kind="stable")
    incident = np.tile(np.arange(len(pairs), dtype=np.int64), 2)[order]
    incident_at = _starts(np.bincount(ends, minlength=len(nodes)))
    held = [(number[i], h) for i in nodes for h in work.held[i]]
    lengths = np.array([len(h.amounts) for _, h in held], dtype=np.int64)
    return Flat(
        nodes=np.array(nodes, dtype=np.int64),
        offsets=offsets,
        unary=unary,
        first=first,
        second=second,
        table_at=table_at,
        tables=tables,
        incident_at=incident_at,
        incident=incident,
        held_node=np.array([k for k, _ in held], dtype=np.int64),
        held_start=np.array([h.start for _, h in held], dtype=np.int64),
        held_stop=np.array([h.stop for _, h in held], dtype=np.int64),
        held_at=_starts(lengths),
        amounts=np.concatenate([h.amounts for _, h in held]) if held else np.zeros(0, dtype=np.int64),
        slots=work.slots,
        limit=work.limit,
        classes=classes_of(offsets, first, second, table_at, tables),
    )
