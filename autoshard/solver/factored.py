"""Tables of costs that are kept as the rows and columns of a smaller one, and made whole when asked.

Many states of a node mean the same for one neighbour: thousands of placements of an op have some hundred layouts of an
operand. On meshes of many axes the tables of all pairs of states take gigabytes; what they are made of does not.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

IMPOSSIBLE = 10**15
"""Costs at or above this are forbidden."""


@dataclass(frozen=True, eq=False)
class Factored:
    """The table ``table[a, b] = scale * base[rows[a], columns[b]]``.

    base: whole numbers as float64, exact below 2**53; inf where a pair is not allowed. It is never written to, and many
    tables share it.
    """

    base: np.ndarray
    rows: np.ndarray
    columns: np.ndarray
    scale: int = 1

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of states of the two nodes."""
        return len(self.rows), len(self.columns)

    @property
    def size(self) -> int:
        """The number of entries of the whole table."""
        return len(self.rows) * len(self.columns)

    @cached_property
    def T(self) -> "Factored":
        """The table with its two nodes exchanged; named as it is of arrays."""
        return Factored(self.base.T, self.columns, self.rows, self.scale)

    def part(self, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """The entries of these rows and columns, int64."""
        return self._whole(self.base[np.ix_(self.rows[rows], self.columns[columns])])

    def _whole(self, entries: np.ndarray) -> np.ndarray:
        return np.where(np.isfinite(entries), entries * self.scale, IMPOSSIBLE).astype(np.int64)

    def __getitem__(self, key: Any) -> np.ndarray:
        """Some entries, int64: of two index arrays as of an array, or of one row."""
        if isinstance(key, tuple):
            first, second = key
            return self._whole(self.base[self.rows[first], self.columns[second]])
        return self._whole(self.base[self.rows[key]][..., self.columns])

    def item(self, row: int, column: int) -> int:
        """One entry."""
        return int(self[row, column])

    def min(self) -> int:
        """The smallest entry."""
        return int(self._whole(self.base[np.ix_(np.unique(self.rows), np.unique(self.columns))]).min())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """All entries."""
        whole = self._whole(self.base[np.ix_(self.rows, self.columns)])
        return whole if dtype is None else whole.astype(dtype)

    def diagonal(self) -> np.ndarray:
        """The entries of equal states."""
        return self._whole(self.base[self.rows, self.columns])


def total(tables: Sequence[Factored]) -> Factored:
    """The sum of tables of the same two nodes; an entry that one of them forbids is forbidden."""
    times: dict[int, int] = {}
    for table in tables:
        times[id(table)] = times.get(id(table), 0) + 1
    parts = [(table, times[id(table)]) for table in {id(table): table for table in tables}.values()]
    if len(parts) == 1:
        table, count = parts[0]
        return Factored(table.base, table.rows, table.columns, table.scale * count)
    first, rows = np.unique([table.rows for table, _ in parts], axis=1, return_inverse=True)
    second, columns = np.unique([table.columns for table, _ in parts], axis=1, return_inverse=True)
    base = np.zeros((first.shape[1], second.shape[1]))
    for (table, count), r, c in zip(parts, first, second, strict=True):
        base += table.base[np.ix_(r, c)] * (table.scale * count)
    return Factored(base, rows.ravel(), columns.ravel())
