"""Strategies without a partner on some edge, or without room beside the least of all others, go.

Domains keep original indices, so that nothing has to be undone.
"""

from collections.abc import Iterable

import numpy as np

from autoshard.solver.work import FORBIDDEN_FROM, Infeasible, Work


def arc_consistency(work: Work, nodes: Iterable[int] | None = None) -> int:
    """Remove strategies that some edge leaves without a partner; returns how many went."""
    queue = dict.fromkeys(work.nodes() if nodes is None else nodes)
    removed = 0
    while queue:
        i = next(iter(queue))
        del queue[i]
        for j in list(work.tables[i]):  # strategies of j need a partner in i
            table = work.tables[i][j]
            if np.maximum.reduce(table, axis=None) < FORBIDDEN_FROM:  # most tables forbid nothing
                continue
            supported = np.asarray(np.minimum.reduce(table, axis=0) < FORBIDDEN_FROM)
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


def consistent_edge(work: Work, i: int, j: int) -> None:
    """Arc consistency of one edge."""
    if np.maximum.reduce(work.tables[i][j], axis=None) < FORBIDDEN_FROM:
        return
    for a, b in ((i, j), (j, i)):
        supported = np.asarray(np.minimum.reduce(work.tables[a][b], axis=1) < FORBIDDEN_FROM)
        if not supported.any():
            raise Infeasible(f"nodes {i} and {j} have no pair of strategies that the nodes between them allow")
        if not supported.all():
            work.keep(a, supported)


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
