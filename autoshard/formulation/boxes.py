"""Covering a table by boxes, so that one node can stand for the table.

A box is a set of indices along each axis, with one value for all its cells. The states of the node are the boxes, and
an edge to the decision behind each axis allows the box only where it has the chosen index.
"""

from itertools import pairwise

import numpy as np

from autoshard.formulation.tables import cover, packed

Box = tuple[np.ndarray, ...]
"""Per axis, which indices are in the box."""


def equal_boxes(ids: np.ndarray, free: np.ndarray) -> tuple[list[Box], list[int]]:
    """Boxes of cells with one value each, and that value.

    Cells with the value `free` may be in any box or in none.
    """
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
    """Boxes whose amounts are at least those of each of their cells; every cell is in one that has exactly its amounts.

    amounts: [value, moment] bytes held.
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
    """Boxes of allowed cells that cover all cells in need, each one the largest around the first cell not covered
    yet.
    """
    starts = np.cumsum((0, *need.shape))
    rows = cover(packed(need), packed(~allowed), starts)
    sides = list(pairwise(starts.tolist()))
    return [tuple(row[a:b] for a, b in sides) for row in rows]
