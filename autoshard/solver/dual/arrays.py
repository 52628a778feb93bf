"""What compiled functions take instead of long lists of arguments: named tuples of arrays."""

from typing import NamedTuple

import numpy as np

UNLIMITED = 2**62
"""A memory limit that nothing exceeds: half of what int64 holds, so that amounts can be added to it."""


class Graph(NamedTuple):
    """A flat network; see `flat.Flat`, whose fields have the same names."""

    offsets: np.ndarray
    unary: np.ndarray
    first: np.ndarray
    second: np.ndarray
    table_at: np.ndarray
    tables: np.ndarray
    incident_at: np.ndarray
    incident: np.ndarray


class Classes(NamedTuple):
    """Tables once more, without rows and columns that repeat: see `classes.classes_of`.

    of_first: per entry of `Messages.to_first` which distinct row of the table its state has; of_second: likewise, among
    columns. The distinct rows of edge e, of `columns[e]` distinct columns each, start at entries[at[e]]; there are none
    (`columns[e]` is 0) where they would be hardly fewer than those of the table.
    """

    of_first: np.ndarray
    of_second: np.ndarray
    at: np.ndarray
    columns: np.ndarray
    entries: np.ndarray


class Messages(NamedTuple):
    """The messages of all edges: that of edge e to its second node starts at to_second[second_at[e]].

    to_first and first_at: likewise for those to first nodes. Compiled passes rewrite to_second and to_first in place.
    """

    second_at: np.ndarray
    first_at: np.ndarray
    to_second: np.ndarray
    to_first: np.ndarray


class Held(NamedTuple):
    """What nodes hold, record by record (see `flat.Flat`), and the most that may be live at once, or `UNLIMITED`."""

    node: np.ndarray
    start: np.ndarray
    stop: np.ndarray
    at: np.ndarray
    amounts: np.ndarray
    limit: int
