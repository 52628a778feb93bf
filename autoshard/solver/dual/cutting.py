"""Parts of a proof as they are cut out: tables of which classes of states say all are left out.

Most entries of a network with nodes for memory lie in tables with few distinct rows and columns. Cut out again for
every part and turned into whole numbers for every record, they took most of the time in which no message is passed.
"""

from dataclasses import replace

import numpy as np

from autoshard.solver.compiled import compiled
from autoshard.solver.dual.arrays import Classes
from autoshard.solver.dual.fixing import Part, restrict_beside_tables
from autoshard.solver.dual.messages import most_classes, widest_of


def cut_out(part: Part, alive: np.ndarray) -> Part:
    """`fixing.restrict`, where edges with classes have no table: `Flat.table_at` says that theirs are empty.

    Classes that no state has any more are dropped. Where classes are no less work than the table that is left, there is
    the table and no classes. part: with all its tables or without.
    """
    flat = part.flat
    out = restrict_beside_tables(part, alive)
    new = out.flat
    sizes = new.sizes
    rows, columns = sizes[flat.first], sizes[flat.second]
    table_at, at = np.zeros(len(flat.table_at), dtype=np.int64), np.zeros(len(flat.classes.at), dtype=np.int64)
    classes = new.classes._replace(at=at, columns=np.zeros(len(flat.first), dtype=np.int64))
    old = flat.classes
    tables, entries = np.empty(int((rows * columns).sum())), np.empty(len(old.entries))
    _cut(
        flat.offsets,
        flat.first,
        flat.second,
        flat.table_at,
        flat.tables,
        old,
        alive,
        table_at,
        tables,
        classes,
        entries,
    )
    tables, entries = tables[: table_at[-1]].copy(), entries[: at[-1]].copy()
    made = replace(new, table_at=table_at, tables=tables, classes=classes._replace(entries=entries))
    return Part(replace(out.dual, flat=made), out.origin)


@compiled
def _cut(
    offsets: np.ndarray, first: np.ndarray, second: np.ndarray, table_at: np.ndarray, tables: np.ndarray,
    old: Classes, alive: np.ndarray, new_at: np.ndarray, out: np.ndarray, new: Classes, entries: np.ndarray,
):  # fmt: skip
    """Fills in the tables and classes that are left, one edge after the other."""
    widest = widest_of(offsets)
    rows = np.empty(widest, dtype=np.int64)
    columns = np.empty(widest, dtype=np.int64)
    most = most_classes(old)
    kept_rows = np.empty(most, dtype=np.int64)  # the classes that are left
    kept_columns = np.empty(most, dtype=np.int64)
    number = np.empty(most, dtype=np.int64)
    x = 0
    y = 0
    new_x = 0
    new_y = 0
    for e in range(len(first)):
        i = offsets[first[e]]
        j = offsets[second[e]]
        d = offsets[first[e] + 1] - i
        c = offsets[second[e] + 1] - j
        left = _left(alive, i, d, rows)
        across = _left(alive, j, c, columns)
        start = new_at[e]
        at = old.at[e]
        v = old.columns[e]
        new_at[e + 1] = start
        new.at[e + 1] = new.at[e]
        if v == 0:
            for a in range(left):
                row = table_at[e] + rows[a] * c
                for b in range(across):
                    out[start + b] = tables[row + columns[b]]
                start += across
            new_at[e + 1] = start
        else:
            u = _renumber(old.of_first[x : x + d], rows, left, kept_rows, number, new.of_first[new_x : new_x + left])
            w = _renumber(
                old.of_second[y : y + c], columns, across, kept_columns, number, new.of_second[new_y : new_y + across]
            )
            if u * w + left + across < left * across:
                new.columns[e] = w
                place = new.at[e]
                for a in range(u):
                    for b in range(w):
                        entries[place] = old.entries[at + kept_rows[a] * v + kept_columns[b]]
                        place += 1
                new.at[e + 1] = place
            else:
                for a in range(left):
                    row = at + old.of_first[x + rows[a]] * v
                    for b in range(across):
                        out[start + b] = old.entries[row + old.of_second[y + columns[b]]]
                    start += across
                new_at[e + 1] = start
        x += d
        y += c
        new_x += left
        new_y += across


@compiled
def _left(alive: np.ndarray, low: int, count: int, places: np.ndarray):
    """Writes which of the states from `low` on are left; how many."""
    left = 0
    for a in range(count):
        if alive[low + a]:
            places[left] = a
            left += 1
    return left


@compiled
def _renumber(
    classes: np.ndarray, places: np.ndarray, left: int, kept: np.ndarray, number: np.ndarray, out: np.ndarray
):  # fmt: skip
    """Numbers the classes of the states that are left in the order in which they come; how many there are.

    kept: receives the old number of every class that is left.
    """
    for k in range(len(number)):
        number[k] = -1
    many = 0
    for a in range(left):
        x = classes[places[a]]
        if number[x] < 0:
            number[x] = many
            kept[many] = x
            many += 1
        out[a] = number[x]
    return many
