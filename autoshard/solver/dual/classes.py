"""Classes of states that a table does not tell apart: messages over it are worked out for classes, not for states.

Most tables of a network with nodes for memory say only what goes with what, and have few distinct rows and columns: of
480 x 566 entries, for example, 18 x 18. Rows are told apart by their bits.
"""

import numpy as np

from autoshard.solver.compiled import compiled
from autoshard.solver.dual.arrays import Classes
from autoshard.solver.dual.messages import widest_of

SMALLEST = 64
"""Tables of fewer entries are taken as they are."""
WORTH = 2
"""Tables are taken by classes where that is less work by this factor."""
SHIFT, KEPT = 5, 58
"""Of the sum over a row's bits that shows most rows to be different: it is moved up before each entry, and what falls
off comes back."""


def classes_of(
    offsets: np.ndarray, first: np.ndarray, second: np.ndarray, table_at: np.ndarray, tables: np.ndarray
) -> Classes:
    """The classes of all edges of a flat network (see `flat.Flat`)."""
    sizes = np.diff(offsets)
    of_first, of_second = (np.zeros(int(sizes[ends].sum()), dtype=np.int32) for ends in (first, second))
    columns, kept = np.zeros(len(first), dtype=np.int64), np.zeros(len(first) + 1, dtype=np.int64)
    entries = np.empty(len(tables) // WORTH + 1)
    _classify(offsets, first, second, table_at, tables, of_first, of_second, columns, kept, entries)
    return Classes(of_first, of_second, kept, columns, entries[: kept[-1]].copy())


def no_classes(edges: int) -> Classes:
    """Of edges whose tables are taken as they are."""
    nothing = np.zeros(0, dtype=np.int32)
    return Classes(nothing, nothing, np.zeros(edges + 1, dtype=np.int64), np.zeros(edges, dtype=np.int64), np.zeros(0))


@compiled
def _classify(offsets, first, second, table_at, tables, of_first, of_second, columns, kept, entries):
    """Fills in the classes, and the entries of their tables one after the other; kept: where those of an edge start."""
    bits = tables.view(np.int64)
    before_first = 0
    before_second = 0
    widest = widest_of(offsets)
    each = np.arange(widest)
    rows = np.empty(widest, dtype=np.int64)
    across = np.empty(widest, dtype=np.int64)
    sums = np.empty(widest, dtype=np.int64)
    for e in range(len(first)):
        d = offsets[first[e] + 1] - offsets[first[e]]
        c = offsets[second[e] + 1] - offsets[second[e]]
        at = table_at[e]
        kept[e + 1] = kept[e]
        if d * c >= SMALLEST:
            u = _distinct(bits, at, d, c, each[:c], of_first[before_first : before_first + d], rows, sums)
            v = 0
            if WORTH * (d + c + u) < d * c:
                some = of_second[before_second : before_second + c]
                v = _distinct(bits, at, c, 1, rows[:u] * c, some, across, sums)
            if v > 0 and WORTH * (d + c + u * v) < d * c:
                columns[e] = v
                for x in range(u):
                    for y in range(v):
                        entries[kept[e] + x * v + y] = tables[at + rows[x] * c + across[y]]
                kept[e + 1] = kept[e] + u * v
        before_first += d
        before_second += c


@compiled
def _distinct(bits, at, count, stride, places, numbers, found, sums):
    """Numbers the distinct ones of `count` vectors; returns how many. found: the first of each.

    The k-th vector begins at at + k * stride, its entries lie so far behind as `places` says.
    """
    many = 0
    for k in range(count):
        low = at + k * stride
        total = np.int64(0)
        for place in places:
            total = (total << SHIFT) ^ (total >> KEPT) ^ bits[low + place]
        number = many
        for m in range(many):
            if sums[m] == total:
                other = at + found[m] * stride
                same = True
                for place in places:
                    if bits[low + place] != bits[other + place]:
                        same = False
                        break
                if same:
                    number = m
                    break
        if number == many:
            found[many] = k
            sums[many] = total
            many += 1
        numbers[k] = number
    return many
