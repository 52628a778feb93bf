"""Consistency of a flat network: every state that is left has a partner on every edge, and room beside the others."""

import numpy as np

from autoshard.solver.compiled import compiled
from autoshard.solver.dual.arrays import UNLIMITED, Classes, Held
from autoshard.solver.dual.flat import Flat
from autoshard.solver.dual.messages import by_classes, most_classes

NOTHING_FITS = -1
"""The least amounts of all nodes exceed the limit together."""


def make_consistent(flat: Flat, alive: np.ndarray) -> bool:
    """Clear from `alive` what has no partner on some edge or no room beside the least of all others; False: empty."""
    while True:
        if not supported(flat.offsets, flat.first, flat.second, flat.table_at, flat.tables, flat.classes, alive):
            return False
        if flat.limit is None or not len(flat.held_node):
            return True
        gone = drop_unfitting(flat.offsets, flat.held, flat.slots, alive)
        if gone == NOTHING_FITS:
            return False
        if gone == 0:
            return True


@compiled
def supported(
    offsets: np.ndarray,
    first: np.ndarray,
    second: np.ndarray,
    table_at: np.ndarray,
    tables: np.ndarray,
    classes: Classes,
    alive: np.ndarray,
):
    """Clears states that some edge leaves without a partner; False when a node or an edge is left with nothing.

    Tables with classes are looked at by classes where that is less.
    """
    most = most_classes(classes)
    room = np.empty(most, dtype=np.bool_), np.empty(most, dtype=np.int8)
    changed = True
    while changed:
        changed = False
        x = 0
        y = 0
        for e in range(len(first)):
            i = offsets[first[e]]
            j = offsets[second[e]]
            d = offsets[first[e] + 1] - i
            c = offsets[second[e] + 1] - j
            if by_classes(classes, e, d, c):
                at, v = classes.at[e], classes.columns[e]
                u = (classes.at[e + 1] - at) // v
                rows, columns = classes.of_first[x : x + d], classes.of_second[y : y + c]
                left, gone = drop_alone_by_classes(classes.entries, at, v, 1, alive, rows, i, columns, j, u, v, room)
                changed = changed or gone > 0
                if left == 0:
                    return False
                left, gone = drop_alone_by_classes(classes.entries, at, 1, v, alive, columns, j, rows, i, v, u, room)
            else:
                at = table_at[e]
                left, gone = drop_alone(tables, at, c, 1, alive, i, d, j, c)
                changed = changed or gone > 0
                if left == 0:
                    return False
                left, gone = drop_alone(tables, at, 1, c, alive, j, c, i, d)
            changed = changed or gone > 0
            if left == 0:
                return False
            x += d
            y += c
    for i in range(len(offsets) - 1):
        found = False
        for a in range(offsets[i], offsets[i + 1]):
            if alive[a]:
                found = True
                break
        if not found:
            return False
    return True


@compiled
def drop_alone_by_classes(
    entries: np.ndarray,
    at: int,
    stride: int,
    other_stride: int,
    alive: np.ndarray,
    classes: np.ndarray,
    low: int,
    other_classes: np.ndarray,
    other_low: int,
    count: int,
    other_count: int,
    room: tuple[np.ndarray, np.ndarray],
):
    """`drop_alone` where the states of an edge have classes: `count` of this end, `other_count` of the other one.

    room: for which classes of the other end live, and which of this end have such a partner.
    """
    living, known = room
    for y in range(other_count):
        living[y] = False
    for b in range(len(other_classes)):
        if alive[other_low + b]:
            living[other_classes[b]] = True
    for x in range(count):
        known[x] = -1
    left = 0
    gone = 0
    for a in range(len(classes)):
        if not alive[low + a]:
            continue
        x = classes[a]
        if known[x] < 0:
            known[x] = 0
            for y in range(other_count):
                if living[y] and entries[at + x * stride + y * other_stride] < np.inf:
                    known[x] = 1
                    break
        if known[x] == 1:
            left += 1
        else:
            alive[low + a] = False
            gone += 1
    return left, gone


@compiled
def drop_alone(
    tables: np.ndarray,
    at: int,
    stride: int,
    other_stride: int,
    alive: np.ndarray,
    low: int,
    count: int,
    other_low: int,
    other_count: int,
):
    """Clears states of one end of an edge that no living one of the other end goes with: (how many live, went).

    at: where the table starts; stride: how far apart the entries of neighbouring states of this end are.
    """
    left = 0
    gone = 0
    for a in range(count):
        if not alive[low + a]:
            continue
        found = False
        for b in range(other_count):
            if alive[other_low + b] and tables[at + a * stride + b * other_stride] < np.inf:
                found = True
                break
        if found:
            left += 1
        else:
            alive[low + a] = False
            gone += 1
    return left, gone


@compiled
def drop_unfitting(offsets: np.ndarray, held: Held, slots: int, alive: np.ndarray):
    """Clears what does not fit beside the least of all others; how many went, or `NOTHING_FITS`."""
    node, start, stop, held_at, amounts, limit = held
    least = np.zeros(slots + 1, dtype=np.int64)
    lows = np.zeros(len(node), dtype=np.int64)
    for r in range(len(node)):
        i = offsets[node[r]]
        low = np.int64(UNLIMITED)
        for a in range(held_at[r + 1] - held_at[r]):
            if alive[i + a]:
                low = min(low, amounts[held_at[r] + a])
        lows[r] = low
        least[start[r]] += low
        least[stop[r]] -= low
    running = np.int64(0)
    for t in range(slots):
        running += least[t]
        least[t] = running
        if running > limit:
            return NOTHING_FITS
    gone = 0
    for r in range(len(node)):
        i = offsets[node[r]]
        room = np.int64(-1)  # looked up once it is needed; never negative then
        for a in range(held_at[r + 1] - held_at[r]):
            if alive[i + a] and amounts[held_at[r] + a] > lows[r]:
                if room < 0:
                    most = -np.int64(UNLIMITED)  # amounts may be negative
                    for t in range(start[r], stop[r]):
                        most = max(most, least[t])
                    room = limit - most
                if amounts[held_at[r] + a] - lows[r] > room:
                    alive[i + a] = False
                    gone += 1
    return gone
