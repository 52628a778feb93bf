"""Exact reductions: each keeps the optimum, and its step can bring the removed node back.

Consistency (strategies without support, memory that cannot fit), separable edges, dominated
strategies, and elimination of nodes with up to two neighbours that hold no memory. Tables stay
exact integers. `reduce_network` repeats them until nothing changes or the budget of table work is used.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

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
        total = self.cost
        for other, domain, table in self.neighbours:
            total = total + table[:, np.searchsorted(domain, choice[other])]
        choice[self.node] = int(self.domain[int(np.argmin(total))])


def arc_consistency(work: Work, nodes: Iterable[int] | None = None) -> int:
    """Remove strategies that some edge leaves without a partner; returns how many went."""
    queue = dict.fromkeys(work.nodes() if nodes is None else nodes)
    removed = 0
    while queue:
        i = next(iter(queue))
        del queue[i]
        for j in list(work.tables[i]):  # strategies of j need a partner in i
            table = work.tables[i][j]
            supported = (table < FORBIDDEN_FROM).any(axis=0)
            if supported.all():
                continue
            if not supported.any():
                raise Infeasible(
                    f"the edge between nodes {min(i, j)} and {max(i, j)} forbids every pair of strategies "
                    f"that is left ({len(work.domains[i])} x {len(work.domains[j])})"
                )
            removed += int((~supported).sum())
            work.keep(j, supported)
            queue[j] = None
    return removed


def least_usage(work: Work) -> np.ndarray:
    """Per time slot the sum of every node's smallest amount: a lower bound on what is live."""
    delta = np.zeros(work.slots + 1, dtype=np.int64)
    for i in work.nodes():
        for h in work.held[i]:
            low = h.amounts.min()
            delta[h.start] += low
            delta[h.stop] -= low
    return np.cumsum(delta)[:-1]


def usage_consistency(work: Work) -> int:
    """Remove strategies that exceed the limit even when every other node takes its least."""
    if work.limit is None:
        return 0
    removed = 0
    while True:
        least = least_usage(work)
        if len(least) and int(least.max()) > work.limit:
            raise Infeasible(
                f"memory: at least {int(least.max())} is live at once whatever is chosen, the limit is {work.limit}"
            )
        went = 0
        for i in work.nodes():
            if not work.held[i]:
                continue
            fits = np.ones(len(work.domains[i]), dtype=bool)
            for h in work.held[i]:
                fits &= h.amounts - h.amounts.min() <= work.limit - int(least[h.start : h.stop].max())
            if len(work.held[i]) > 1 and not fits.any():
                raise Infeasible(f"memory: no strategy of node {i} fits beside the least of all others")
            if not fits.all():
                went += int((~fits).sum())
                work.keep(i, fits)
        removed += went
        if not went:
            return removed
        arc_consistency(work)


def separable_edges(work: Work, nodes: Iterable[int] | None = None) -> int:
    """Fold edges of the form row + column into their nodes; returns how many vanished."""
    gone = 0
    for i in list(work.nodes() if nodes is None else nodes):
        if work.costs[i] is None:
            continue
        for j in list(work.tables[i]):
            table = work.tables[i][j]
            row, column = table[:, 0], table[0, :]
            # cheap refusals first: most edges are not separable
            if row[0] >= FORBIDDEN_FROM or row[-1] >= FORBIDDEN_FROM or column[-1] >= FORBIDDEN_FROM:
                continue
            if table[-1, -1] - row[-1] - column[-1] + row[0]:
                continue
            if (row >= FORBIDDEN_FROM).any() or (column >= FORBIDDEN_FROM).any():
                continue
            if not np.array_equal(table, row[:, None] + (column - row[0])[None, :]):
                continue
            work.costs[i] = work.cost(i) + row
            work.costs[j] = work.cost(j) + (column - row[0])
            work.drop_edge(i, j)
            gone += 1
    return gone


def dominated_strategies(work: Work, node: int, budget: int = 2_000_000) -> int:
    """Remove strategies that another one beats whatever the neighbours choose, with no more memory.

    Of equal strategies the first stays. Skipped (0) when the comparison needs more than `budget` operations.
    """
    cost = work.cost(node)
    d = len(cost)
    width = sum(t.shape[1] for t in work.tables[node].values()) + len(work.held[node]) + 1
    if d < 2 or d * d * width > budget:
        return 0
    # worse[a, b]: how much b can cost more than a
    worse = cost[None, :] - cost[:, None]
    for table in work.tables[node].values():
        difference = table[None, :, :] - table[:, None, :]
        worse = worse + difference.max(axis=2)
        worse = np.minimum(worse, FORBIDDEN)  # forbidden for b where a is allowed: never dominated
    beats = worse <= 0
    if work.limit is not None:
        for h in work.held[node]:
            beats &= h.amounts[None, :] <= h.amounts[:, None]
    order = np.arange(d)
    strictly = beats & (~beats.T | (order[None, :] < order[:, None]))
    keep = ~strictly.any(axis=1)
    if keep.all():
        return 0
    work.keep(node, keep)
    return int((~keep).sum())


def min_plus(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """out[a, b] = min over x of left[a, x] + right[x, b], forbidden entries kept."""
    left = np.ascontiguousarray(left)
    right = np.ascontiguousarray(right)
    out = left[:, :1] + right[:1, :]
    scratch = np.empty_like(out)
    for x in range(1, left.shape[1]):
        np.add(left[:, x : x + 1], right[x : x + 1, :], out=scratch)
        np.minimum(out, scratch, out=out)
    return clipped(out)


def eliminate(work: Work, node: int) -> tuple[int, ...]:
    """Remove a node with at most two neighbours and no memory; returns the neighbours it changed."""
    others = tuple(work.tables[node])
    assert len(others) <= 2 and not (work.limit is not None and work.held[node])
    cost = work.cost(node)
    step = Eliminated(
        node, cost, work.domains[node], tuple((j, work.domains[j], work.tables[node][j]) for j in others)
    )
    if not others:
        best = int(cost.min())
        work.constant += best
    elif len(others) == 1:
        (j,) = others
        folded = (cost[:, None] + work.tables[node][j]).min(axis=0)
        work.costs[j] = clipped(work.cost(j) + clipped(folded))
    else:
        i, j = others
        table = min_plus((cost[:, None] + work.tables[node][i]).T, work.tables[node][j])
        work.add_edge(i, j, table)
    work.remove(node, step)
    for j in others:
        mask = work.cost(j) < FORBIDDEN_FROM
        if not mask.all():
            if not mask.any():
                raise Infeasible(f"node {j} has no strategy left that its neighbour {node} allows")
            work.keep(j, mask)
    return others


def fix_single(work: Work, node: int) -> tuple[int, ...]:
    """Fold a node with one strategy left and no memory into its neighbours, whatever its degree."""
    others = tuple(work.tables[node])
    step = Eliminated(node, work.cost(node), work.domains[node], ())
    work.constant += int(work.cost(node)[0])
    for j in others:
        work.costs[j] = clipped(work.cost(j) + work.tables[node][j][0])
    work.remove(node, step)
    return others


def reduce_network(work: Work, *, dominance: int = 2_000_000, elimination: int = 2_000_000_000) -> None:
    """All reductions until nothing changes.

    dominance: most comparisons spent on one node. elimination: most additions spent on two-neighbour
    eliminations altogether (then only cheaper reductions go on). Raises `Infeasible`.
    """
    arc_consistency(work)
    usage_consistency(work)
    separable_edges(work)
    queue = dict.fromkeys(work.nodes())
    while queue:
        node = min(queue, key=lambda i: (len(work.tables[i]) if work.costs[i] is not None else 0)) if len(
            queue
        ) < 64 else next(iter(queue))
        del queue[node]
        if work.costs[node] is None:
            continue
        free = work.limit is None or not work.held[node]
        degree = len(work.tables[node])
        d = len(work.domains[node])
        if free and d == 1:
            touched = fix_single(work, node)
        elif free and degree <= 1:
            touched = eliminate(work, node)
        elif free and degree == 2:
            i, j = work.tables[node]
            product = len(work.domains[i]) * len(work.domains[j])
            before = work.tables[node][i].size + work.tables[node][j].size
            grows = 0 if j in work.tables[i] else product
            if product * d > elimination or grows > 4 * before + 4096:
                continue
            elimination -= product * d
            touched = eliminate(work, node)
        else:
            if dominated_strategies(work, node, dominance):
                touched = (node, *work.tables[node])
                arc_consistency(work, [node])
            else:
                continue
        live = [t for t in touched if work.costs[t] is not None]
        arc_consistency(work, live)
        separable_edges(work, live)
        for t in live:
            queue[t] = None
            for u in work.tables[t]:
                if len(work.tables[u]) <= 2:
                    queue[u] = None
