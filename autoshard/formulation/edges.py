"""The table of every use of a value: ticks of its reshard for each pair of states, made once for uses alike."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from autoshard.costs.reshard import ReshardTable
from autoshard.deadline import Check, no_check
from autoshard.formulation.collect import Collected
from autoshard.formulation.model import Link, Node
from autoshard.formulation.ticks import Ticks
from autoshard.program.program import Program
from autoshard.sharding.layout import Layout
from autoshard.solver.factored import Factored


class EdgeTables:
    """Makes the tables of one network.

    kept: per node, the states that are left. factored: keep tables as rows and columns of a table of layouts.
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        kept: Sequence[np.ndarray],
        ticks: Ticks,
        *,
        factored: bool,
    ) -> None:
        self.nodes, self.kept, self.ticks, self.factored = nodes, kept, ticks, factored
        self._left = [None if node.allowed is None else k.tobytes() for node, k in zip(nodes, kept, strict=True)]
        self._known: dict[object, Any] = {}
        self._in_ticks: dict[object, np.ndarray] = {}
        self._columns: dict[tuple[int, int], np.ndarray] = {}

    def of_all(
        self,
        links: Sequence[Link],
        tables: Sequence[ReshardTable],
        as_used: Mapping[int, ReshardTable],
        check: Check = no_check,
    ) -> list[Any]:
        """`of` every link. Large tables of seconds are forgotten where they have served all their links. as_used: by
        the number of a link, the table of what is gathered as it is used.
        """
        out: list[Any] = [None] * len(links)
        groups: dict[int, list[int]] = {}
        for number, table in enumerate(tables):
            groups.setdefault(id(table.lengths), []).append(number)
        done = 0
        for numbers in groups.values():
            for number in numbers:
                check("making tables of uses of values", done, len(links))
                out[number] = self.of(links[number], tables[number], as_used.get(number))
                done += 1
            if self.factored:
                tables[numbers[0]].lengths.forget()
        return out

    def of(self, link: Link, table: ReshardTable, as_used: ReshardTable | None = None) -> Any:
        """[state of the source, state of the target] ticks of a link, or None where all are zero."""
        source, target = link.source.node, link.target.node
        key = (
            id(table.lengths), id(link.source.layouts), id(link.target.layouts), self._left[source], self._left[target],
            link.weight, link.shares and id(self.nodes[target].copies), as_used and id(as_used.lengths),
            link.whole, id(self.nodes[source].defined_in),
        )  # fmt: skip
        if key not in self._known:  # repeated layers have one table for all, not one each
            rows = self._places(table, link.source.layouts)[self.kept[source]]
            columns = self._places(table, link.target.layouts)[self.kept[target]]
            self._known[key] = self._made(link, table, rows, columns, as_used)
        return self._known[key]

    def _places(self, table: ReshardTable, layouts: Sequence[Layout]) -> np.ndarray:
        key = (id(table.index), id(layouts))
        if key not in self._columns:
            self._columns[key] = np.fromiter((table.index[lay] for lay in layouts), np.int64, len(layouts))
        return self._columns[key]

    def _made(
        self, link: Link, table: ReshardTable, rows: np.ndarray, columns: np.ndarray, as_used: ReshardTable | None
    ) -> Any:
        """Ticks by the places of the states' layouts in the table, or None."""
        if self.factored:
            return self._factored(link, table, rows, columns, as_used)
        seconds = self._seconds(link, table, np.arange(len(rows)), rows, columns, as_used)
        return self.ticks(seconds) if seconds.any() else None

    def _seconds(
        self,
        link: Link,
        table: ReshardTable,
        some: np.ndarray,
        rows: np.ndarray,
        columns: np.ndarray,
        as_used: ReshardTable | None,
    ) -> np.ndarray:
        """[some states of the source, state of the target] seconds; infinite for what cannot be."""
        kept, weight, rows = self.kept[link.target.node], link.weight, rows[some]
        seconds = table.seconds[np.ix_(rows, columns)] * weight
        if as_used is not None:
            those = self._defined_in(link.target.node, table)
            starts = self._places(as_used, link.source.layouts)[self.kept[link.source.node]][some]
            ends = self._places(as_used, link.target.layouts)[kept]
            at = np.flatnonzero(those >= 0)
            narrow = as_used.seconds[np.ix_(starts, ends[at])] * weight
            seconds[:, at] = np.where(rows[:, None] == those[at], narrow, np.inf)
        those = self._defined_in(link.source.node, table)[some][:, None]
        says_where = self.nodes[link.source.node].defined_in is not None
        if says_where:
            seconds[those == columns] = 0.0  # see `Schedule.is_as_defined`
        if link.shares:  # a shared array has its source's layout, a copy has another one
            flags = self.nodes[link.target.node].copies
            assert flags is not None
            seconds[(rows[:, None] == columns[None, :]) == flags[kept][None, :]] = np.inf
        if link.whole and says_where:
            seconds[(those >= 0) & (those != columns)] = np.inf
        return seconds

    def _defined_in(self, node: int, table: ReshardTable) -> np.ndarray:
        """Per state of a hub, the place of the layout in which it says that its value is defined; -1 where it may be
        any.
        """
        layouts, kept = self.nodes[node].defined_in, self.kept[node]
        if layouts is None:
            return np.full(len(kept), -1)
        return np.array([-1 if layouts[k] is None else table.index[layouts[k]] for k in kept.tolist()], np.int64)

    def _factored(
        self, link: Link, table: ReshardTable, rows: np.ndarray, columns: np.ndarray, as_used: ReshardTable | None
    ) -> Factored | None:
        own = self._defined_in(link.source.node, table)
        key: object = id(table.lengths), link.weight
        if link.shares or (own >= 0).any():
            _, some, places = np.unique(rows * (len(table.layouts) + 1) + own, return_index=True, return_inverse=True)
            seconds = self._seconds(link, table, some, rows, columns, as_used)
            key = key, seconds.tobytes()
            if key not in self._in_ticks:
                self._in_ticks[key] = self.ticks.floats(seconds)
            ticks = self._in_ticks[key]
            return Factored(ticks, places, np.arange(len(columns))) if ticks.any() else None
        if len(own) and (rows == rows[0]).all() and (columns == rows[0]).all():  # all other ways take time
            return None
        if key not in self._in_ticks:
            self._in_ticks[key] = self.ticks.floats(table.seconds * link.weight)
        return Factored(self._in_ticks[key], rows, columns)


def entries_of(collected: Collected, kept: Sequence[np.ndarray], program: Program) -> int:
    """Entries of the tables of all links, those that are surely the same counted once."""
    sizes: dict[object, int] = {}
    for link in collected.links:
        ends = (link.source, link.target)
        key = (program.type_of(link.value), *(id(end.layouts) for end in ends), link.weight, link.role, link.travel)
        sizes[key] = len(kept[link.source.node]) * len(kept[link.target.node])
    return sum(sizes.values())
