"""Strategies that another one beats whatever the neighbours choose, with no more memory, go.

Domains keep original indices, so that nothing has to be undone.
"""

import numpy as np

from autoshard.solver.work import FORBIDDEN, Work


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
    keep = np.asarray(~strictly.any(axis=1))
    if keep.all():
        return 0
    work.keep(node, keep)
    return int((~keep).sum())
