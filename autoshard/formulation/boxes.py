"""Covering a table by boxes: a node whose states are the boxes stands for the table, with one edge to each of its axes.

A box is a set of indices along each axis and says one value for all its cells.
"""

from collections.abc import Sequence

import numpy as np

Box = tuple[np.ndarray, ...]
"""Per axis, which indices are in the box."""


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
    """Boxes of allowed cells that cover all that need it: one after the other, the largest around the first left."""
    left, out = need.copy(), []
    barred = (~allowed).astype(np.float32)
    axes = range(need.ndim)
    orders = [tuple((first + k) % need.ndim for k in axes) for first in axes]
    while True:
        cell = np.unravel_index(left.argmax(), left.shape)
        if not left[cell]:
            return out
        grown = {
            tuple(side.tobytes() for side in box): box for box in (_grown(barred, cell, order) for order in orders)
        }
        best = max(grown.values(), key=lambda box: _within(left.astype(np.float32), box))
        left[np.ix_(*best)] = False
        out.append(best)


def _grown(barred: np.ndarray, cell: Sequence[np.intp], order: Sequence[int]) -> Box:
    """A largest box without barred cells around one, grown along one axis after the other."""
    sides = [np.zeros(n, np.float32) for n in barred.shape]
    for side, k in zip(sides, cell, strict=True):
        side[k] = 1
    for axis in order:
        sides[axis] = (_along(barred, sides, axis) == 0).astype(np.float32)
    return tuple(side > 0 for side in sides)


def _along(table: np.ndarray, sides: Sequence[np.ndarray], axis: int) -> np.ndarray:
    """[index along the axis] the sum over the box of all other sides."""
    for k in reversed(range(axis + 1, len(sides))):
        table = table @ sides[k]
    for k in range(axis):
        table = np.tensordot(sides[k], table, 1)
    return table


def _within(table: np.ndarray, box: Box) -> float:
    for side in reversed(box):
        table = table @ side.astype(np.float32)
    return float(table)
