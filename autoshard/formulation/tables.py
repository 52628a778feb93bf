"""Hot loops over tables of numbers, compiled by numba: what is alike, and boxes that cover cells."""

import numpy as np

from autoshard.solver.compiled import compiled


@compiled
def distinct_rows(table):
    """Numbers for the rows of a table in the order of their first appearance: (per row its number, where each was first
    seen)."""
    n, width = table.shape
    room = 16
    while room < 2 * n:
        room *= 2
    slots = np.full(room, -1, np.int64)
    out = np.empty(n, np.int64)
    first = np.empty(n, np.int64)
    count = 0
    for k in range(n):
        mixed = np.uint64(1469598103934665603)
        for c in range(width):
            mixed = (mixed ^ np.uint64(table[k, c])) * np.uint64(0x9E3779B97F4A7C15)
            mixed ^= mixed >> np.uint64(29)
        at = np.int64(mixed & np.uint64(room - 1))
        while slots[at] >= 0:
            same = True
            for c in range(width):
                if table[first[slots[at]], c] != table[k, c]:
                    same = False
                    break
            if same:
                break
            at = (at + 1) & (room - 1)
        if slots[at] < 0:
            slots[at] = count
            first[count] = k
            count += 1
        out[k] = slots[at]
    return out, first[:count].copy()


def distinct(codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """`distinct_rows` of single numbers."""
    return distinct_rows(codes.reshape(-1, 1))


@compiled
def cover(need, barred, places, starts):
    """Boxes without barred cells that cover all cells in need, one after the other: [box, index], True where inside.

    need, barred: [row, word] bits along the last axis, a row for each place on the others; places: [row, axis] where
    that is. starts: where each axis begins in a row of the result, and its width.
    Each box is the one of those grown around the first cell left, along the axes in turn from each axis on, that covers
    the most of what is left.
    """
    axes = len(starts) - 1
    rows, words = need.shape
    width = starts[axes]
    last = starts[axes - 1]
    one = np.uint64(1)
    left = need.copy()
    boxes = np.zeros((16, width), np.bool_)
    count = 0
    grown = np.zeros(width, np.bool_)
    best = np.zeros(width, np.bool_)
    bits = np.zeros(words, np.uint64)
    begin = 0
    while True:
        word = 0
        while begin < rows:
            word = 0
            while word < words and left[begin, word] == 0:
                word += 1
            if word < words:
                break
            begin += 1
        if begin == rows:
            return boxes[:count].copy()
        bit = 0
        while (left[begin, word] >> np.uint64(bit)) & one == 0:
            bit += 1
        most = -1
        for lead in range(axes):
            grown[:] = False
            for axis in range(axes - 1):
                grown[starts[axis] + places[begin, axis]] = True
            grown[last + 64 * word + bit] = True
            bits[:] = 0
            bits[word] = one << np.uint64(bit)
            for turn in range(axes):
                along = (lead + turn) % axes
                low, high = starts[along], starts[along + 1]
                for k in range(low, high):
                    grown[k] = True
                if along == axes - 1:
                    bits[:] = 0
                for row in range(rows):
                    within = True
                    for axis in range(axes - 1):
                        if axis != along and not grown[starts[axis] + places[row, axis]]:
                            within = False
                            break
                    if not within:
                        continue
                    if along == axes - 1:
                        for w in range(words):
                            bits[w] |= barred[row, w]
                    elif grown[low + places[row, along]]:
                        for w in range(words):
                            if barred[row, w] & bits[w] != 0:
                                grown[low + places[row, along]] = False
                                break
                if along == axes - 1:
                    for k in range(high - low):
                        grown[low + k] = (bits[k // 64] >> np.uint64(k % 64)) & one == 0
                    for w in range(words):
                        bits[w] = ~bits[w]
            covered = 0
            for row in range(begin, rows):
                within = True
                for axis in range(axes - 1):
                    if not grown[starts[axis] + places[row, axis]]:
                        within = False
                        break
                if within:
                    for w in range(words):
                        both = left[row, w] & bits[w]
                        while both != 0:
                            both &= both - one
                            covered += 1
            if covered > most:
                most = covered
                best[:] = grown
        bits[:] = 0
        for k in range(width - last):
            if best[last + k]:
                bits[k // 64] |= one << np.uint64(k % 64)
        for row in range(begin, rows):
            within = True
            for axis in range(axes - 1):
                if not best[starts[axis] + places[row, axis]]:
                    within = False
                    break
            if within:
                for w in range(words):
                    left[row, w] &= ~bits[w]
        if count == len(boxes):
            more = np.zeros((2 * count, width), np.bool_)
            more[:count] = boxes
            boxes = more
        boxes[count] = best
        count += 1


def packed(cells: np.ndarray) -> np.ndarray:
    """[row, word] the bits of a table along its last axis, lowest first."""
    flat = cells.reshape(-1, cells.shape[-1])
    words = -(-flat.shape[1] // 64)
    whole = np.zeros((len(flat), 64 * words), bool)
    whole[:, : flat.shape[1]] = flat
    return np.packbits(whole, axis=1, bitorder="little").view("<u8").astype(np.uint64)
