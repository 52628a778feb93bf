"""Messages along one edge whose table may be rows and columns of a smaller one: from a node's states to the other's."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from autoshard.solver.dual.factored import cheapest_way, cheapest_way_across, least_by_place
from autoshard.solver.factored import IMPOSSIBLE, Factored

Distinct = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
"""The distinct numbers of an array, and the place of each number among them."""


@dataclass(frozen=True)
class Way:
    """One direction of an edge: messages from the rows of its table to its columns; across: the other way round."""

    base: np.ndarray
    scale: float
    sources: np.ndarray  # rows of the base that states of the sender have
    source_of: np.ndarray  # per state of the sender, the place of its row among these
    targets: np.ndarray  # columns that states of the receiver have
    target_of: np.ndarray
    across: bool
    least: float

    def send(self, values: np.ndarray) -> np.ndarray:
        """Per state of the receiver, the least of a sender's value and the edge between them."""
        least = least_by_place(self.source_of, values, len(self.sources))
        order = np.argsort(least, kind="stable")
        order = order[: np.searchsorted(least[order], np.inf)]
        cheapest = cheapest_way_across if self.across else cheapest_way
        return cheapest(self.base, self.sources[order], least[order], self.targets, self.scale, self.least)[
            self.target_of
        ]

    def among(self, senders: np.ndarray, receivers: np.ndarray, distinct: Distinct) -> "Way":
        """The same between some states of the two nodes."""
        sources, source_of = distinct(self.sources[self.source_of[senders]])
        targets, target_of = distinct(self.targets[self.target_of[receivers]])
        return replace(self, sources=sources, source_of=source_of, targets=targets, target_of=target_of)


def capped(costs: np.ndarray, most: float) -> np.ndarray:
    """Costs of more than `most` as that; what is not allowed stays so."""
    return np.where(costs < np.inf, np.minimum(costs, most), np.inf)


class Ways:
    """Makes the ways of a network's edges; equal arrays are looked through, and kept, once. most: what larger entries
    count as.
    """

    def __init__(self, most: float) -> None:
        self.most = most
        self._distinct: dict[bytes, tuple[np.ndarray, np.ndarray]] = {}
        self._looked: dict[object, tuple[np.ndarray, np.ndarray, float, float]] = {}  # by where a table is in memory

    def distinct(self, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The distinct numbers of an array, and the place of each number among them."""
        key = places.tobytes()
        if key not in self._distinct:
            self._distinct[key] = np.unique(places, return_inverse=True)
        return self._distinct[key]

    def of(self, table: Any) -> tuple[Way, Way]:
        """From the first node of a table to the second, and back."""
        if isinstance(table, Factored):
            base, rows, columns, scale = table.base, table.rows, table.columns, float(table.scale)
        else:
            base, scale = np.where(table >= IMPOSSIBLE, np.inf, table.astype(np.float64)), 1.0
            rows, columns = np.arange(table.shape[0]), np.arange(table.shape[1])
        own, theirs = self.distinct(rows), self.distinct(columns)
        turned = not base.flags.c_contiguous  # tables are transposed without being copied
        base = base.T if turned else base
        assert base.flags.c_contiguous
        key = base.ctypes.data, base.shape, scale
        if key not in self._looked:
            whole, least = base, scale * float(base.min())
            if scale * float(base.max(initial=-np.inf, where=base < np.inf)) > self.most:
                base, scale = capped(scale * base, self.most), 1.0
            self._looked[key] = whole, base, scale, min(least, self.most)
        _, base, scale, least = self._looked[key]
        there = Way(base, scale, own[0], own[1], theirs[0], theirs[1], turned, least)
        back = Way(base, scale, theirs[0], theirs[1], own[0], own[1], not turned, least)
        return there, back
