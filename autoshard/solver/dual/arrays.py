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
