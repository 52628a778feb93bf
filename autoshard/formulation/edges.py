"""The table of every use of a value: ticks of its reshard for each pair of states, made once for uses alike."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from autoshard.costs.reshard import ReshardTable
from autoshard.formulation.collect import Collected
from autoshard.formulation.model import Link, Node
from autoshard.program.program import Program
from autoshard.sharding.layout import Layout
from autoshard.solver.factored import Factored
from autoshard.solver.network import IMPOSSIBLE


class EdgeTables:
    """Makes the tables of one network.

    kept: per node, the states that are left. ticks: seconds as whole numbers. factored: keep tables as rows and columns
    of a table of layouts.
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        kept: Sequence[np.ndarray],
        ticks: Callable[[np.ndarray], np.ndarray],
        tick_s: float,
        *,
        factored: bool,
    ) -> None:
        self.nodes, self.kept, self.ticks, self.tick_s, self.factored = nodes, kept, ticks, tick_s, factored
        self._left = [None if node.allowed is None else k.tobytes() for node, k in zip(nodes, kept, strict=True)]
        self._known: dict[object, Any] = {}
        self._in_ticks: dict[tuple[int, float], np.ndarray] = {}
        self._columns: dict[tuple[int, int], np.ndarray] = {}

    def of(self, link: Link, table: ReshardTable) -> Any:
        """[state of the source, state of the target] ticks of a link, or None where all are zero."""
        source, target = link.source.node, link.target.node
        key = (
            id(table), id(link.source.layouts), id(link.target.layouts), self._left[source], self._left[target],
            link.weight, link.shares and id(self.nodes[target].copies),
        )  # fmt: skip
        if key not in self._known:  # repeated layers have one table for all, not one each
            rows = self._places(table, link.source.layouts)[self.kept[source]]
            columns = self._places(table, link.target.layouts)[self.kept[target]]
            make = self._factored if self.factored else self._whole
            self._known[key] = make(link, table, rows, columns)
        return self._known[key]

    def _places(self, table: ReshardTable, layouts: Sequence[Layout]) -> np.ndarray:
        key = (id(table), id(layouts))
        if key not in self._columns:
            self._columns[key] = np.fromiter((table.index[lay] for lay in layouts), np.int64, len(layouts))
        return self._columns[key]

    def _shared(self, link: Link, seconds: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """A shared array has its source's layout, a copy has another one."""
        flags = self.nodes[link.target.node].copies
        assert flags is not None
        same = ~flags[self.kept[link.target.node]]
        return np.where(same[None, :] == (rows[:, None] != columns[None, :]), np.inf, seconds)

    def _whole(self, link: Link, table: ReshardTable, rows: np.ndarray, columns: np.ndarray) -> np.ndarray | None:
        seconds = table.seconds[np.ix_(rows, columns)] * link.weight
        if link.shares:
            seconds = self._shared(link, seconds, rows, columns)
        return self.ticks(seconds) if seconds.any() else None

    def _factored(self, link: Link, table: ReshardTable, rows: np.ndarray, columns: np.ndarray) -> Factored | None:
        own, places = np.unique(rows, return_inverse=True)
        if link.shares:
            seconds = self._shared(link, table.seconds[np.ix_(own, columns)] * link.weight, own, columns)
            return Factored(self._floats(seconds), places, np.arange(len(columns))) if seconds.any() else None
        if not table.seconds[np.ix_(own, np.unique(columns))].any():
            return None
        key = id(table), link.weight
        if key not in self._in_ticks:
            self._in_ticks[key] = self._floats(table.seconds * link.weight)
        return Factored(self._in_ticks[key], rows, columns)

    def _floats(self, seconds: np.ndarray) -> np.ndarray:
        """The numbers of `ticks` as `Factored` has them."""
        scaled = np.rint(seconds / self.tick_s)
        scaled[scaled >= IMPOSSIBLE / 10] = np.inf
        return scaled


def entries_of(collected: Collected, kept: Sequence[np.ndarray], program: Program) -> int:
    """Entries of the tables of all links, those that are surely the same counted once."""
    sizes: dict[object, int] = {}
    for link in collected.links:
        ends = (link.source, link.target)
        key = (program.type_of(link.value), *(id(end.layouts) for end in ends), link.weight, link.role)
        sizes[key] = len(kept[link.source.node]) * len(kept[link.target.node])
    return sum(sizes.values())
