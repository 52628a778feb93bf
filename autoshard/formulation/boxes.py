"""Covering a table by boxes: a node whose states are the boxes stands for the table, with one edge to each of its axes.

A box is a set of indices along each axis and says one value for all its cells.
"""

from collections.abc import Sequence
from itertools import permutations

import numpy as np

Box = tuple[np.ndarray, ...]
"""Per axis, which indices are in the box."""

_MOST_ORDERS = 6


def equal_boxes(ids: np.ndarray, free: np.ndarray) -> tuple[list[Box], list[int]]:
    """Boxes of cells with one value each, and that value; cells whose value is `free` may be in any box and in none."""
    boxes: list[Box] = []
    values: list[int] = []
    anything = free[ids]
    for value in np.unique(ids[~anything]).tolist():
        need = ids == value
        for box in _cover(need, need | anything):
            boxes.append(box)
            values.append(value)
    return boxes, values


def least_boxes(ids: np.ndarray, amounts: np.ndarray, free: np.ndarray) -> tuple[list[Box], list[int]]:
    """Boxes that say no less than any of their cells holds, and one for each cell that says just that.

    amounts: [value, moment] what is held.
    """
    within = (amounts[:, None, :] <= amounts[None, :, :]).all(2)  # [value, other]: no more than the other, ever
    within |= free[:, None]
    boxes: list[Box] = []
    values: list[int] = []
    anything = free[ids]
    for value in np.unique(ids[~anything]).tolist():
        for box in _cover(ids == value, within[:, value][ids]):
            boxes.append(box)
            values.append(value)
    return boxes, values


def _cover(need: np.ndarray, allowed: np.ndarray) -> list[Box]:
    """Boxes of allowed cells that cover all that need it, one after the other the largest around the first cell left."""
    left, out = need.copy(), []
    orders = list(permutations(range(need.ndim)))[:_MOST_ORDERS]
    while True:
        flat = left.argmax()
        cell = np.unravel_index(flat, left.shape)
        if not left[cell]:
            return out
        grown = [_grown(allowed, cell, order) for order in orders]
        best = max(grown, key=lambda box: int(left[np.ix_(*box)].sum()))
        left[np.ix_(*best)] = False
        out.append(best)


def _grown(allowed: np.ndarray, cell: Sequence[np.intp], order: Sequence[int]) -> Box:
    """A largest box of allowed cells around one, grown along one axis after the other."""
    sides = [np.zeros(n, bool) for n in allowed.shape]
    for side, k in zip(sides, cell, strict=True):
        side[k] = True
    for axis in order:
        across = [np.ones(len(side), bool) if k == axis else side for k, side in enumerate(sides)]
        part = np.moveaxis(allowed[np.ix_(*across)], axis, 0)
        sides[axis] = part.reshape(part.shape[0], -1).all(1)
    return tuple(sides)
