"""Exact reductions: each keeps the optimum, and its step can bring the removed node back.

Consistency (strategies without support, memory that cannot fit), separable edges, dominated
strategies, and elimination of nodes with up to two neighbours that hold no memory. Tables stay
exact integers. `reduce_network` repeats them until nothing changes or the budget of table work is used.
"""

import heapq
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


def consistent_edge(work: Work, i: int, j: int) -> None:
    """Arc consistency of one edge."""
    for a, b in ((i, j), (j, i)):
        supported = (work.tables[a][b] < FORBIDDEN_FROM).any(axis=1)
        if not supported.any():
            raise Infeasible(f"nodes {i} and {j} have no pair of strategies that the nodes between them allow")
        if not supported.all():
            work.keep(a, supported)


def dominated_strategies(work: Work, node: int, budget: int = 2_000_000) -> int:
    """Remove strategies that another one beats whatever the neighbours choose, with no more memory.

    Of equal strategies the first stays. Skipped (0) when the comparison needs more than `budget` operations.
    """
    cost = work.cost(node)
    d = len(cost)
    if d < 2 or d * d * len(work.tables[node]) > budget:
        return 0
    width = sum(t.shape[1] for t in work.tables[node].values()) + len(work.held[node]) + 1
    if d * d * width > budget:
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
        table = min_plus((cost[:, None] + work.tables[node][i]).T, work.tables[node][j])
        work.add_edge(i, j, table)
    work.remove(node, step)
    for j in others:
        _drop_forbidden(work, j, node)


def _drop_forbidden(work: Work, node: int, because: int) -> None:
    mask = work.cost(node) < FORBIDDEN_FROM
    if not mask.any():
        raise Infeasible(f"node {node} has no strategy left that its neighbour {because} allows")
    if not mask.all():
        work.keep(node, mask)


def fix_single(work: Work, node: int) -> None:
    """Fold a node with one strategy left and no memory into its neighbours, whatever its degree."""
    others = tuple(work.tables[node])
    step = Eliminated(node, work.cost(node), work.domains[node], ())
    work.constant += int(work.cost(node)[0])
    for j in others:
        work.costs[j] = clipped(work.cost(j) + work.tables[node][j][0])
    work.remove(node, step)
    for j in others:
        _drop_forbidden(work, j, node)


def reduce_network(work: Work, *, dominance: int = 2_000_000, elimination: int = 2_000_000_000) -> None:
    """All reductions until nothing changes, cheapest nodes first.

    dominance: most comparisons spent on one node. elimination: most additions spent on two-neighbour
    eliminations altogether (then only cheaper reductions go on). Raises `Infeasible`.
    """
    arc_consistency(work)
    usage_consistency(work)
    separable_edges(work)
    heap = [(len(work.tables[i]), i) for i in work.nodes()]
    heapq.heapify(heap)
    waiting = {i for _, i in heap}

    def again(nodes: Iterable[int]) -> None:
        for t in nodes:
            if work.costs[t] is not None and t not in waiting:
                waiting.add(t)
                heapq.heappush(heap, (len(work.tables[t]), t))

    while heap:
        _, node = heapq.heappop(heap)
        waiting.discard(node)
        if work.costs[node] is None:
            continue
        free = work.limit is None or not work.held[node]
        degree = len(work.tables[node])
        d = len(work.domains[node])
        before = {j: len(work.domains[j]) for j in work.tables[node]} if (free and degree <= 2) or d == 1 else {}
        if free and d == 1:
            fix_single(work, node)
        elif free and degree <= 1:
            eliminate(work, node)
        elif free and degree == 2 and (product := _affordable(work, node, elimination)):
            elimination -= product
            i, j = work.tables[node]
            eliminate(work, node)
            consistent_edge(work, i, j)
            if j in work.tables[i]:
                separable_edge(work, i, j)
        elif dominated_strategies(work, node, dominance):
            before = {node: d}
        else:
            continue
        shrunk = {j for j, size in before.items() if len(work.domains[j]) < size}
        shrunk |= _spread(work, shrunk)
        touched = shrunk | set(before)
        again(t for t in sorted(touched) if len(work.tables[t]) <= REVISITED_DEGREE)
        for t in sorted(shrunk):  # a smaller domain may make an edge separable, or a neighbour's strategy dominated
            if len(work.tables[t]) <= REVISITED_DEGREE and work.costs[t] is not None:
                neighbours = list(work.tables[t])
                separable_edges(work, [t])
                again(u for u in neighbours if len(work.tables[u]) <= REVISITED_DEGREE)


REVISITED_DEGREE = 16
"""Neighbours of a changed node are looked at again up to this degree: hubs would cost more than they give."""


def _affordable(work: Work, node: int, budget: int) -> int:
    """Additions needed to eliminate a node with two neighbours; 0 when too many or the tables would grow much."""
    i, j = work.tables[node]
    product = len(work.domains[i]) * len(work.domains[j])
    before = work.tables[node][i].size + work.tables[node][j].size
    grows = 0 if j in work.tables[i] else product
    work_needed = product * len(work.domains[node])
    return 0 if work_needed > budget or grows > 4 * before + 4096 else work_needed


def _spread(work: Work, nodes: set[int]) -> set[int]:
    """Arc consistency from nodes whose domains have shrunk; returns the nodes that shrank in turn."""
    if not nodes:
        return set()
    before = {j: len(work.domains[j]) for i in nodes if work.costs[i] is not None for j in work.tables[i]}
    if not arc_consistency(work, sorted(i for i in nodes if work.costs[i] is not None)):
        return set()
    return {j for j, d in before.items() if len(work.domains[j]) < d}
