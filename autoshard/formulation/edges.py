"""The table of every use of a value: ticks of its reshard for each pair of states, made once for uses alike."""

from collections.abc import Sequence
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

    def of_all(self, links: Sequence[Link], tables: Sequence[ReshardTable], check: Check = no_check) -> list[Any]:
        """`of` every link. Large tables of seconds are forgotten where they have served all their links."""
        out: list[Any] = [None] * len(links)
        groups: dict[int, list[int]] = {}
        for number, table in enumerate(tables):
            groups.setdefault(id(table.lengths), []).append(number)
        done = 0
        for numbers in groups.values():
            for number in numbers:
                check("making tables of uses of values", done, len(links))
                out[number] = self.of(links[number], tables[number])
                done += 1
            if self.factored:
                tables[numbers[0]].lengths.forget()
        return out

    def of(self, link: Link, table: ReshardTable) -> Any:
        """[state of the source, state of the target] ticks of a link, or None where all are zero."""
        source, target = link.source.node, link.target.node
        key = (
            id(table.lengths), id(link.source.layouts), id(link.target.layouts), self._left[source], self._left[target],
            link.weight, link.shares and id(self.nodes[target].copies),
        )  # fmt: skip
        if key not in self._known:  # repeated layers have one table for all, not one each
            rows = self._places(table, link.source.layouts)[self.kept[source]]
            columns = self._places(table, link.target.layouts)[self.kept[target]]
            make = self._factored if self.factored else self._whole
            self._known[key] = make(link, table, rows, columns)
        return self._known[key]

    def _places(self, table: ReshardTable, layouts: Sequence[Layout]) -> np.ndarray:
        key = (id(table.index), id(layouts))
        if key not in self._columns:
            self._columns[key] = np.fromiter((table.index[lay] for lay in layouts), np.int64, len(layouts))
        return self._columns[key]

    def _copies(self, link: Link) -> np.ndarray:
        """Per state of a link's target, whether it is a copy."""
        flags = self.nodes[link.target.node].copies
        assert flags is not None
        return flags[self.kept[link.target.node]]

    def _whole(self, link: Link, table: ReshardTable, rows: np.ndarray, columns: np.ndarray) -> np.ndarray | None:
        seconds = table.seconds[np.ix_(rows, columns)] * link.weight
        if link.shares:
            _forbid(seconds, rows, columns, self._copies(link))
        return self.ticks(seconds) if seconds.any() else None

    def _factored(self, link: Link, table: ReshardTable, rows: np.ndarray, columns: np.ndarray) -> Factored | None:
        own, places = np.unique(rows, return_inverse=True)
        key: object = id(table.lengths), link.weight
        if link.shares:
            copies = self._copies(link)
            key = key, own.tobytes(), columns.tobytes(), copies.tobytes()
            if key not in self._in_ticks:
                seconds = table.seconds[np.ix_(own, columns)]
                seconds *= link.weight
                _forbid(seconds, own, columns, copies)
                self._in_ticks[key] = self.ticks.floats(seconds)
            ticks = self._in_ticks[key]
            return Factored(ticks, places, np.arange(len(columns))) if ticks.any() else None
        if len(own) == 1 and (columns == own[0]).all():  # all other ways take time
            return None
        if key not in self._in_ticks:
            self._in_ticks[key] = self.ticks.floats(table.seconds * link.weight)
        return Factored(self._in_ticks[key], rows, columns)


def _forbid(seconds: np.ndarray, rows: np.ndarray, columns: np.ndarray, copies: np.ndarray) -> None:
    """Make impossible what cannot be: a shared array has its source's layout, a copy has another one."""
    seconds[(rows[:, None] == columns[None, :]) == copies[None, :]] = np.inf


def entries_of(collected: Collected, kept: Sequence[np.ndarray], program: Program) -> int:
    """Entries of the tables of all links, those that are surely the same counted once."""
    sizes: dict[object, int] = {}
    for link in collected.links:
        ends = (link.source, link.target)
        key = (program.type_of(link.value), *(id(end.layouts) for end in ends), link.weight, link.role, link.travel)
        sizes[key] = len(kept[link.source.node]) * len(kept[link.target.node])
    return sum(sizes.values())
