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
def _within(box, places, starts, row, but):
    """Whether a row lies in a box along all axes before the last, axis `but` left out."""
    for axis in range(len(starts) - 2):  # noqa: SIM110 (compiled)
        if axis != but and not box[starts[axis] + places[row, axis]]:
            return False
    return True


@compiled
def _grow_along_rows(box, bits, barred, places, starts, along):
    """Let a box reach as far along an axis before the last as no barred cell is in it; bits: its part of the last."""
    low = starts[along]
    box[low : starts[along + 1]] = True
    for row in range(len(barred)):
        if box[low + places[row, along]] and _within(box, places, starts, row, along):
            for w in range(len(bits)):
                if barred[row, w] & bits[w] != 0:
                    box[low + places[row, along]] = False
                    break


@compiled
def _grow_along_bits(box, bits, barred, places, starts):
    """Let a box reach as far along the last axis as no barred cell is in it."""
    last = len(starts) - 2
    low = starts[last]
    bits[:] = 0
    for row in range(len(barred)):
        if _within(box, places, starts, row, last):
            for w in range(len(bits)):
                bits[w] |= barred[row, w]
    for w in range(len(bits)):
        bits[w] = ~bits[w]
    for k in range(starts[last + 1] - low):
        box[low + k] = (bits[k // WORD] >> np.uint64(k % WORD)) & ONE != 0


@compiled
def _covered(box, bits, left, places, starts, begin):
    """How many of the cells that are left, from row `begin` on, a box covers."""
    count = 0
    for row in range(begin, len(left)):
        if _within(box, places, starts, row, -1):
            for w in range(len(bits)):
                both = left[row, w] & bits[w]
                while both != 0:
                    both &= both - ONE
                    count += 1
    return count


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
    width, last = starts[axes], starts[axes - 1]
    left = need.copy()
    boxes = np.zeros((16, width), np.bool_)
    count = 0
    grown, best = np.zeros(width, np.bool_), np.zeros(width, np.bool_)
    bits = np.zeros(words, np.uint64)
    for begin in range(rows):
        cell = _first_bit(left, begin)
        while cell >= 0:
            most = -1
            for lead in range(axes):
                grown[:] = False
                for axis in range(axes - 1):
                    grown[starts[axis] + places[begin, axis]] = True
                grown[last + cell] = True
                bits[:] = 0
                bits[cell // WORD] = ONE << np.uint64(cell % WORD)
                for turn in range(axes):
                    along = (lead + turn) % axes
                    if along == axes - 1:
                        _grow_along_bits(grown, bits, barred, places, starts)
                    else:
                        _grow_along_rows(grown, bits, barred, places, starts, along)
                covered = _covered(grown, bits, left, places, starts, begin)
                if covered > most:
                    most = covered
                    best[:] = grown
            bits[:] = 0
            for k in range(width - last):
                if best[last + k]:
                    bits[k // WORD] |= ONE << np.uint64(k % WORD)
            for row in range(begin, rows):
                if _within(best, places, starts, row, -1):
                    for w in range(words):
                        left[row, w] &= ~bits[w]
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
