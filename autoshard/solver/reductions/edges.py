"""Edges of the form row + column are folded into their nodes.

The cost of every assignment stays the same, so that nothing has to be undone.
"""

from collections.abc import Iterable

import numpy as np

from autoshard.solver.work import FORBIDDEN_FROM, Work


def separable_edge(work: Work, i: int, j: int) -> bool:
    """Fold the edge into its nodes if it has the form row + column."""
    table = work.tables[i][j]
    row, column = table[:, 0], table[0, :]
    # cheap refusals first: most edges are not separable
    if row[0] >= FORBIDDEN_FROM or row[-1] >= FORBIDDEN_FROM or column[-1] >= FORBIDDEN_FROM:
        return False
    if table[-1, -1] - row[-1] - column[-1] + row[0]:
        return False
    if (row >= FORBIDDEN_FROM).any() or (column >= FORBIDDEN_FROM).any():
        return False
    if not np.array_equal(table, row[:, None] + (column - row[0])[None, :]):
        return False
    work.costs[i] = work.cost(i) + row
    work.costs[j] = work.cost(j) + (column - row[0])
    work.drop_edge(i, j)
    work.note("separate", i, j)
    return True


def separable_edges(work: Work, nodes: Iterable[int] | None = None) -> int:
    """Fold all edges of the form row + column into their nodes; returns how many vanished."""
    every = nodes is None
    return sum(
        separable_edge(work, i, j)
        for i in list(work.nodes() if nodes is None else nodes)
        for j in list(work.tables[i])
        if i < j or not every
    )
