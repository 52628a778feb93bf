"""Whole numbers as bytes: groups of seven bits, the lowest first, signs folded in (0, -1, 1, -2, ...)."""

import numpy as np

from autoshard.solver.compiled import compiled


def packed(numbers: np.ndarray) -> bytes:
    """Whole numbers (int64) as bytes."""
    folded = (numbers.astype(np.int64) << 1 ^ (numbers.astype(np.int64) >> 63)).view(np.uint64)
    out = np.empty(_length(folded), dtype=np.uint8)
    _write(folded, out)
    return out.tobytes()


@compiled
def _length(folded: np.ndarray):
    """How many bytes the numbers take."""
    total = 0
    for number in folded:
        rest = number >> np.uint64(7)
        total += 1
        while rest > np.uint64(0):
            rest >>= np.uint64(7)
            total += 1
    return total


@compiled
def _write(folded: np.ndarray, out: np.ndarray):
    """Writes the bytes of the numbers, one after the other."""
    at = 0
    for number in folded:
        rest = number
        while rest > np.uint64(127):
            out[at] = np.uint8(rest & np.uint64(127)) | np.uint8(128)
            rest >>= np.uint64(7)
            at += 1
        out[at] = np.uint8(rest)
        at += 1
