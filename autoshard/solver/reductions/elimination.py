"""Nodes that hold no memory and have few neighbours, or one state, are folded into their neighbours.

`Eliminated.invert` chooses for them what is cheapest beside their neighbours' choices.
"""

from dataclasses import dataclass

import numpy as np

from autoshard.solver.compiled import compiled
from autoshard.solver.work import FORBIDDEN, FORBIDDEN_FROM, Infeasible, Work, clipped


@dataclass(frozen=True, slots=True)
class Eliminated:
    """A node whose best choice follows from its neighbours' choices."""

    node: int
    cost: np.ndarray
    domain: np.ndarray
    neighbours: tuple[tuple[int, np.ndarray, np.ndarray], ...]
    """(neighbour, its domain then, table [node, neighbour])."""

    def invert(self, choice: dict[int, int]) -> None:
        """Choose for the node what is cheapest beside its neighbours' choices."""
        total = self.cost
        for other, domain, table in self.neighbours:
            total = total + table[:, np.searchsorted(domain, choice[other])]
        choice[self.node] = int(self.domain[int(np.argmin(total))])


@compiled
def min_plus(left: np.ndarray, right: np.ndarray):
    """out[a, b] = min over x of left[a, x] + right[x, b], forbidden entries kept; both int64 and row by row."""
    rows, inner = left.shape
    columns = right.shape[1]
    out = np.empty((rows, columns), np.int64)
    for a in range(rows):
        own = out[a]
        own[:] = FORBIDDEN
        for x in range(inner):
            cost = left[a, x]
            if cost < FORBIDDEN_FROM:
                row = right[x]
                for b in range(columns):
                    own[b] = min(own[b], cost + row[b])
        for b in range(columns):
            if own[b] >= FORBIDDEN_FROM:
                own[b] = FORBIDDEN
    return out


def eliminate(work: Work, node: int) -> None:
    """Remove a node with at most two neighbours and no memory."""
    others = tuple(work.tables[node])
    assert len(others) <= 2 and not (work.limit is not None and work.held[node])
    cost = work.cost(node)
    step = Eliminated(node, cost, work.domains[node], tuple((j, work.domains[j], work.tables[node][j]) for j in others))
    if not others:
        best = int(cost.min())
        work.constant += best
    elif len(others) == 1:
        (j,) = others
        folded = (cost[:, None] + work.tables[node][j]).min(axis=0)
        work.costs[j] = clipped(work.cost(j) + clipped(folded))
    else:
        i, j = others
        paid = np.ascontiguousarray((cost[:, None] + work.tables[node][i]).T)
        table = min_plus(paid, np.ascontiguousarray(work.tables[node][j]))
        work.add_edge(i, j, table)
    work.remove(node, step)
    work.note("eliminate", node)
    for j in others:
        _drop_forbidden(work, j, node)


def fix_single(work: Work, node: int) -> None:
    """Fold a node with one state left and no memory into its neighbours, whatever its degree."""
    others = tuple(work.tables[node])
    step = Eliminated(node, work.cost(node), work.domains[node], ())
    work.constant += int(work.cost(node)[0])
    for j in others:
        work.costs[j] = clipped(work.cost(j) + work.tables[node][j][0])
    work.remove(node, step)
    work.note("eliminate", node)
    for j in others:
        _drop_forbidden(work, j, node)


def _drop_forbidden(work: Work, node: int, because: int) -> None:
    mask = work.cost(node) < FORBIDDEN_FROM
    if not mask.any():
        raise Infeasible(f"node {node} has no state left that its neighbour {because} allows")
    if not mask.all():
        work.keep(node, mask)
