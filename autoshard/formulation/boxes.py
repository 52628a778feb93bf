"""Covering a table by boxes: a node whose states are the boxes stands for the table, with one edge to each of its axes.

A box is a set of indices along each axis and says one value for all its cells.
"""

from itertools import pairwise

import numpy as np

from autoshard.formulation.tables import cover, packed

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
    starts = np.cumsum((0, *need.shape))
    places = np.argwhere(np.ones(need.shape[:-1], bool))
    found = cover(packed(need), packed(~allowed), places, starts)
    sides = list(pairwise(starts.tolist()))
    return [tuple(row[a:b] for a, b in sides) for row in found]
