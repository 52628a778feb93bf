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


ONE = np.uint64(1)
WORD = 64
"""Bits of a word."""


@compiled
def _first_bit(left, row):
    """The first set bit of a row, counted over its words; -1 where there is none."""
    for word in range(left.shape[1]):
        if left[row, word] != 0:
            bit = 0
            while (left[row, word] >> np.uint64(bit)) & ONE == 0:
                bit += 1
            return WORD * word + bit
    return -1


@compiled
def _rows_of(box, starts, but, rows, spare):
    """The rows of a box, upwards, into `rows`, and how many they are: those at its places along all axes before the
    last, at the first place along axis `but`."""
    rows[0] = 0
    count = 1
    for axis in range(len(starts) - 2):
        low, size = starts[axis], starts[axis + 1] - starts[axis]
        found = 0
        for k in range(count):
            for place in range(size):
                if box[low + place] if axis != but else place == 0:
                    spare[found] = rows[k] * size + place
                    found += 1
        rows[:found] = spare[:found]
        count = found
    return count


@compiled
def _grow_along_rows(box, bits, barred, starts, along, rows, spare):
    """Let a box reach as far along an axis before the last as no barred cell is in it; bits: its part of the last."""
    count = _rows_of(box, starts, along, rows, spare)
    step = 1
    for axis in range(along + 1, len(starts) - 2):
        step *= starts[axis + 1] - starts[axis]
    for place in range(starts[along + 1] - starts[along]):
        free = True
        for k in range(count):
            for w in range(len(bits)):
                if barred[rows[k] + place * step, w] & bits[w] != 0:
                    free = False
            if not free:
                break
        box[starts[along] + place] = free


@compiled
def _grow_along_bits(box, bits, barred, starts, rows, spare):
    """Let a box reach as far along the last axis as no barred cell is in it."""
    low = starts[len(starts) - 2]
    bits[:] = 0
    for k in range(_rows_of(box, starts, -1, rows, spare)):
        for w in range(len(bits)):
            bits[w] |= barred[rows[k], w]
    for w in range(len(bits)):
        bits[w] = ~bits[w]
    for k in range(starts[len(starts) - 1] - low):
        box[low + k] = (bits[k // WORD] >> np.uint64(k % WORD)) & ONE != 0


@compiled
def _covered(box, bits, left, starts, rows, spare):
    """How many of the cells that are left a box covers."""
    found = 0
    for k in range(_rows_of(box, starts, -1, rows, spare)):
        for w in range(len(bits)):
            both = left[rows[k], w] & bits[w]
            while both != 0:
                both &= both - ONE
                found += 1
    return found


@compiled
def cover(need, barred, starts):
    """Boxes without barred cells that cover all cells in need, one after the other: [box, index], True where inside.

    need, barred: [row, word] bits along the last axis, a row for each place on the others, the last of these turning
    fastest. starts: where each axis begins in a row of the result, and its width.
    Each box is the one of those grown around the first cell left, along the axes in turn from each axis on, that covers
    the most of what is left.
    """
    axes = len(starts) - 1
    n_rows, words = need.shape
    width, last = starts[axes], starts[axes - 1]
    left = need.copy()
    boxes = np.zeros((16, width), np.bool_)
    count = 0
    grown, best = np.zeros(width, np.bool_), np.zeros(width, np.bool_)
    bits = np.zeros(words, np.uint64)
    rows, spare = np.empty(n_rows, np.int64), np.empty(n_rows, np.int64)
    for begin in range(n_rows):
        cell = _first_bit(left, begin)
        while cell >= 0:
            most = -1
            for lead in range(axes):
                grown[:] = False
                above = begin
                for axis in range(axes - 2, -1, -1):
                    size = starts[axis + 1] - starts[axis]
                    grown[starts[axis] + above % size] = True
                    above //= size
                grown[last + cell] = True
                bits[:] = 0
                bits[cell // WORD] = ONE << np.uint64(cell % WORD)
                for turn in range(axes):
                    along = (lead + turn) % axes
                    if along == axes - 1:
                        _grow_along_bits(grown, bits, barred, starts, rows, spare)
                    else:
                        _grow_along_rows(grown, bits, barred, starts, along, rows, spare)
                covered = _covered(grown, bits, left, starts, rows, spare)
                if covered > most:
                    most = covered
                    best[:] = grown
            bits[:] = 0
            for k in range(width - last):
                if best[last + k]:
                    bits[k // WORD] |= ONE << np.uint64(k % WORD)
            for k in range(_rows_of(best, starts, -1, rows, spare)):
                for w in range(words):
                    left[rows[k], w] &= ~bits[w]
            if count == len(boxes):
                more = np.zeros((2 * count, width), np.bool_)
                more[:count] = boxes
                boxes = more
            boxes[count] = best
            count += 1
            cell = _first_bit(left, begin)
    return boxes[:count].copy()


def packed(cells: np.ndarray) -> np.ndarray:
    """[row, word] the bits of a table along its last axis, lowest first."""
    flat = cells.reshape(-1, cells.shape[-1])
    words = -(-flat.shape[1] // 64)
    whole = np.zeros((len(flat), 64 * words), bool)
    whole[:, : flat.shape[1]] = flat
    return np.packbits(whole, axis=1, bitorder="little").view("<u8").astype(np.uint64)
