"""Removes states without a partner on some edge, or without room beside the least of all other nodes.

Domains keep original indices, so that nothing has to be undone.
"""

from collections import deque
from collections.abc import Iterable

import numpy as np

from autoshard.solver.reductions.records import range_max, records
from autoshard.solver.work import FORBIDDEN_FROM, Infeasible, Work, joined, stretches

MANY_EDGES = 5_000
"""Networks with fewer edges are made consistent edge by edge, without compiled code."""
MOST_AT_ONCE = 50_000_000
"""The same for networks whose tables with forbidden entries have more entries: they are not copied."""


def arc_consistency(work: Work, nodes: Iterable[int] | None = None) -> int:
    """Remove states that some edge leaves without a partner; returns how many went."""
    removed = 0
    if nodes is None:
        removed, nodes = _at_once(work)
    waiting = deque(nodes)
    inside = set(waiting)
    while waiting:
        i = waiting.popleft()
        inside.discard(i)
        for j in list(work.tables[i]):  # states of j need a partner in i
            table = work.tables[i][j]
            if np.maximum.reduce(table, axis=None) < FORBIDDEN_FROM:  # most tables forbid nothing
                continue
            supported = np.asarray(np.minimum.reduce(table, axis=0) < FORBIDDEN_FROM)
            if supported.all():
                continue
            if not supported.any():
                raise Infeasible(
                    f"the edge between nodes {min(i, j)} and {max(i, j)} forbids every pair of states "
                    f"that is left ({len(work.domains[i])} x {len(work.domains[j])})"
                )
            removed += int((~supported).sum())
            work.keep(j, supported)
            if j not in inside:
                inside.add(j)
                waiting.append(j)
    return removed


def _at_once(work: Work) -> tuple[int, list[int]]:
    """Arc consistency of a large network by compiled code: how many states went, and the nodes left to look at.

    All nodes are left where the network is small or huge, or has no solution (so that the one who looks can say why).
    """
    if sum(map(len, work.tables)) < 2 * MANY_EDGES:
        return 0, work.nodes()
    hard = [(i, j, work.tables[i][j]) for i, j in forbidding_edges(work)]
    if not hard:
        return 0, []
    if sum(table.size for *_, table in hard) > MOST_AT_ONCE:
        return 0, work.nodes()
    from autoshard.solver.dual.classes import no_classes
    from autoshard.solver.dual.consistent import supported

    nodes = sorted({end for i, j, _ in hard for end in (i, j)})
    number = {node: k for k, node in enumerate(nodes)}
    sizes = np.array([len(work.domains[i]) for i in nodes], dtype=np.int64)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    tables, table_at = joined([table.ravel() for *_, table in hard])
    alive = np.ones(int(offsets[-1]), dtype=bool)
    if not supported(
        offsets, np.array([number[i] for i, *_ in hard]), np.array([number[j] for _, j, _ in hard]),
        table_at, np.where(tables >= FORBIDDEN_FROM, np.inf, 0.0), no_classes(len(hard)), alive,
    ):  # fmt: skip
        return 0, work.nodes()
    for k in np.flatnonzero(np.add.reduceat(alive, offsets[:-1]) < sizes).tolist():
        work.keep(nodes[k], alive[offsets[k] : offsets[k + 1]])
    return int((~alive).sum()), []


def forbidding_edges(work: Work) -> list[tuple[int, int]]:
    """The edges (smaller node first) that forbid some pair of states."""
    edges, forbidding = work.edges(), []
    for begin, end in stretches([work.tables[i][j].size for i, j in edges]):
        entries, starts = joined([work.tables[i][j].ravel("K") for i, j in edges[begin:end]])
        high = np.maximum.reduceat(entries, starts)
        forbidding += [edges[begin + k] for k in np.flatnonzero(high >= FORBIDDEN_FROM).tolist()]
    return forbidding


def consistent_edge(work: Work, i: int, j: int) -> None:
    """Arc consistency of one edge."""
    if np.maximum.reduce(work.tables[i][j], axis=None) < FORBIDDEN_FROM:
        return
    for a, b in ((i, j), (j, i)):
        supported = np.asarray(np.minimum.reduce(work.tables[a][b], axis=1) < FORBIDDEN_FROM)
        if not supported.any():
            raise Infeasible(f"nodes {i} and {j} have no pair of states that the nodes between them allow")
        if not supported.all():
            work.keep(a, supported)


def least_usage(work: Work) -> np.ndarray:
    """Per time slot the sum of every node's smallest amount: a lower bound on what is live."""
    usages = records(work)
    return usages.live(usages.low, work.slots)


def usage_consistency(work: Work) -> int:
    """Remove states that exceed the limit even when every other node takes its least."""
    if work.limit is None:
        return 0
    removed = 0
    while True:
        usages = records(work)
        least = usages.live(usages.low, work.slots)
        if len(least) and int(least.max()) > work.limit:
            held = f"at least {int(least.max())} bytes are live at once whatever is chosen"
            raise Infeasible(f"memory: {held}, the limit is {work.limit} bytes")
        room = work.limit - range_max(least, usages.start, usages.stop)
        fits: dict[int, np.ndarray] = {}
        for r in np.flatnonzero(usages.high - usages.low > room).tolist():
            node = int(usages.node[r])
            fit = usages.held[r].amounts - usages.low[r] <= room[r]
            fits[node] = fits[node] & fit if node in fits else fit
        if not fits:
            return removed
        for node, fit in fits.items():
            if not fit.any():
                raise Infeasible(f"memory: no state of node {node} fits beside the least of all others")
            removed += int((~fit).sum())
            work.keep(node, fit)
        arc_consistency(work, list(fits))
