"""What messages balance and leave of a network with tables in whole numbers, compiled; exact.

Tables whose rows and columns repeat are taken by classes (`dual.classes`) where that is less: the same numbers.
"""

from typing import NamedTuple

import numpy as np

from autoshard.solver.compiled import compiled
from autoshard.solver.dual.arrays import Classes
from autoshard.solver.dual.messages import by_classes, most_classes, widest_of

NEVER = 2**62
"""More than any cost: of states that are gone."""


class Tied(NamedTuple):
    """Nodes and edges of a flat network with tables in whole numbers; see `dual.flat.Flat`. classes: of their states,
    whose entries are in whole numbers too.
    """

    offsets: np.ndarray
    first: np.ndarray
    second: np.ndarray
    table_at: np.ndarray
    tables: np.ndarray
    classes: Classes


class Sent(NamedTuple):
    """Messages of all edges. near: those written down, to the second node where at_second says so, that of edge e from
    near_at[e] on; far: those to the other nodes, from far_at[e] on, which are what the tables leave.
    """

    at_second: np.ndarray
    near_at: np.ndarray
    near: np.ndarray
    far_at: np.ndarray
    far: np.ndarray


@compiled
def balance(bits, tied, alive, sent, own):
    """Fills in the messages to the other ends, and adds everything to the nodes; `own` becomes what is above its least.

    Returns the least of every node, and the largest magnitude met.
    """
    offsets, first, second, table_at, tables, classes = tied
    at_second, at, messages, other_at, other = sent
    n = len(offsets) - 1
    never = np.int64(2**62)
    most = 0.0
    spent = np.empty(widest_of(offsets), dtype=np.int64)  # what the states of the near end have sent, taken away
    room = np.empty((2, most_classes(classes)), dtype=np.int64)
    x = 0
    y = 0
    for e in range(len(first)):
        i = offsets[first[e]]
        j = offsets[second[e]]
        d = offsets[first[e] + 1] - i
        c = offsets[second[e] + 1] - j
        start = table_at[e]
        m = at[e]
        o = other_at[e]
        near, count, far, others = j, c, i, d
        of_near, of_far = classes.of_second[y : y + c], classes.of_first[x : x + d]
        stride, far_stride = 1, c
        if not at_second[e]:
            near, count, far, others = i, d, j, c
            of_near, of_far = of_far, of_near
            stride, far_stride = c, 1
        x += d
        y += c
        if by_classes(classes, e, d, c):
            for b in range(count):
                spent[b] = -messages[m + b] if alive[near + b] else never
            out = _least_along(classes, e, at_second[e], of_near, spent, bits, room)
            for a in range(others):
                other[o + a] = out[of_far[a]] if alive[far + a] else never
        else:
            for a in range(others):
                best = never
                if alive[far + a]:
                    for b in range(count):
                        entry = tables[start + a * far_stride + b * stride]
                        if alive[near + b] and entry < never:
                            best = min(best, (entry << bits) - messages[m + b])
                other[o + a] = best
        for a in range(others):
            if other[o + a] < never:
                own[far + a] += other[o + a]
                most = max(most, abs(float(other[o + a])))
        for b in range(count):
            own[near + b] += messages[m + b]
            most = max(most, abs(float(own[near + b])))
        for a in range(others):
            most = max(most, abs(float(own[far + a])))
    lows = np.zeros(n, dtype=np.int64)
    for i in range(n):
        low = never
        for a in range(offsets[i], offsets[i + 1]):
            if alive[a]:
                low = min(low, own[a])
        lows[i] = low
        for a in range(offsets[i], offsets[i + 1]):
            if alive[a]:
                own[a] -= low
            else:
                own[a] = never
    return lows, most


@compiled
def _least_along(classes, e, to_first, of, values, bits, room):
    """Per class of one end of an edge the least of table and value over the states of the other end.

    of: the classes of these states; values: of each, `NEVER` for those that do not count. room: for two numbers per
    class; the answer lies there until it is used again.
    """
    least, out = room[0], room[1]
    never = np.int64(2**62)
    v = classes.columns[e]
    u = (classes.at[e + 1] - classes.at[e]) // v
    many, others = (u, v) if to_first else (v, u)
    stride, other_stride = (v, 1) if to_first else (1, v)
    for y in range(others):
        least[y] = never
    for b in range(len(of)):
        least[of[b]] = min(least[of[b]], values[b])
    for x in range(many):
        best = never
        for y in range(others):
            entry = classes.entries[classes.at[e] + x * stride + y * other_stride]
            if entry < never and least[y] < never:
                best = min(best, (entry << bits) + least[y])
        out[x] = best
    return out


@compiled
def reached(bits, tied, alive, sent, own, room, reach, dead):
    """Per state the least that it costs above the bound, up to `room`; marks pairs that cost `room` or more."""
    offsets, first, second, table_at, tables, classes = tied
    at_second, at, messages, other_at, other = sent
    never = np.int64(2**62)
    for a in range(len(own)):
        reach[a] = own[a] if alive[a] else never
    into = np.empty(widest_of(offsets), dtype=np.int64)
    out_of = np.empty(len(into), dtype=np.int64)  # per state of the first node its cheapest partner
    space = np.empty((2, most_classes(classes)), dtype=np.int64)
    x = 0
    y = 0
    for e in range(len(first)):
        i = offsets[first[e]]
        j = offsets[second[e]]
        d = offsets[first[e] + 1] - i
        c = offsets[second[e] + 1] - j
        start = table_at[e]
        m = at[e]
        o = other_at[e]
        rows, columns = classes.of_first[x : x + d], classes.of_second[y : y + c]
        x += d
        y += c
        to_first, to_second = (other[o : o + d], messages[m : m + c])
        if not at_second[e]:
            to_first, to_second = (messages[m : m + d], other[o : o + c])
        if not len(dead) and by_classes(classes, e, d, c):
            ends = (alive[i : i + d], own[i : i + d], to_first), (alive[j : j + c], own[j : j + c], to_second)
            _partners_by_classes(classes, e, bits, rows, columns, ends, space, out_of, into)
        else:
            for b in range(c):
                into[b] = never
            for a in range(d):
                out_of[a] = never
                if not alive[i + a]:
                    continue
                for b in range(c):
                    entry = tables[start + a * c + b]
                    if not alive[j + b] or entry >= never:
                        continue
                    slack = (entry << bits) - (to_second[b] + to_first[a])
                    out_of[a] = min(out_of[a], slack + own[j + b])
                    into[b] = min(into[b], slack + own[i + a])
                    if len(dead) and slack + own[i + a] + own[j + b] >= room:
                        dead[start + a * c + b] = True
        for a in range(d):
            if alive[i + a]:
                if out_of[a] >= room or reach[i + a] >= room:
                    reach[i + a] = never
                else:
                    reach[i + a] += out_of[a]
        for b in range(c):
            if alive[j + b]:
                if into[b] >= room or reach[j + b] >= room:
                    reach[j + b] = never
                else:
                    reach[j + b] += into[b]


@compiled
def _partners_by_classes(classes, e, bits, rows, columns, ends, room, out_of, into):
    """Per state of both ends of an edge what its cheapest partner costs beside it, `NEVER` where it has none.

    ends: of the first and of the second node, which states live, what they cost and the messages that they get. room:
    see `_least_along`.
    """
    never = np.int64(2**62)
    (alive_a, own_a, to_a), (alive_b, own_b, to_b) = ends
    values = np.empty(max(len(rows), len(columns)), dtype=np.int64)
    for b in range(len(columns)):
        values[b] = own_b[b] - to_b[b] if alive_b[b] and to_b[b] < never else never
    out = _least_along(classes, e, True, columns, values, bits, room)
    for a in range(len(rows)):
        found = out[rows[a]]
        out_of[a] = found - to_a[a] if found < never and alive_a[a] and to_a[a] < never else never
    for a in range(len(rows)):
        values[a] = own_a[a] - to_a[a] if alive_a[a] and to_a[a] < never else never
    out = _least_along(classes, e, False, rows, values, bits, room)
    for b in range(len(columns)):
        found = out[columns[b]]
        into[b] = found - to_b[b] if found < never and alive_b[b] and to_b[b] < never else never
