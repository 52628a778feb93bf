"""Removes states that another one beats, whatever the neighbours choose, with no more memory.

Domains keep original indices, so that nothing has to be undone.
"""

from collections.abc import Callable

import numpy as np

from autoshard.solver.work import FORBIDDEN, Work

Compare = Callable[[np.ndarray, list[np.ndarray]], np.ndarray]
"""(costs, tables [state, neighbour's state]) -> beats[a, b]: b never costs more than a."""


def dominated_states(work: Work, node: int, budget: int = 2_000_000, compare: Compare | None = None) -> int:
    """Remove states that another one beats whatever the neighbours choose, with no more memory.

    Of equal states the first stays. Skipped (0) when the comparison needs more than `budget` operations.
    compare: another way to compute the same, as `compiled_comparison` is.
    """
    cost = work.cost(node)
    d = len(cost)
    if d < 2 or d * d * len(work.tables[node]) > budget:
        return 0
    tables = list(work.tables[node].values())
    width = sum(t.shape[1] for t in tables) + len(work.held[node]) + 1
    if d * d * width > budget:
        return 0
    beats = (compare or comparison)(cost, tables)
    if work.limit is not None:
        for h in work.held[node]:
            beats &= h.amounts[None, :] <= h.amounts[:, None]
    if np.count_nonzero(beats) == d:  # every state beats itself
        return 0
    order = np.arange(d)
    strictly = beats & (~beats.T | (order[None, :] < order[:, None]))
    keep = np.asarray(~strictly.any(axis=1))
    by_kept = strictly & keep[None, :]
    keep |= ~by_kept.any(axis=1)  # only what one that stays beats goes
    if keep.all():
        return 0
    work.keep(node, keep, np.argmax(by_kept, axis=1))
    return int((~keep).sum())


def comparison(cost: np.ndarray, tables: list[np.ndarray]) -> np.ndarray:
    """beats[a, b]: b never costs more than a."""
    worse = cost[None, :] - cost[:, None]  # worse[a, b]: how much b can cost more than a
    for table in tables:
        difference = table[None, :, :] - table[:, None, :]
        worse = worse + difference.max(axis=2)
        worse = np.minimum(worse, FORBIDDEN)  # forbidden for b where a is allowed: never dominated
    return worse <= 0


def compiled_comparison(cost: np.ndarray, tables: list[np.ndarray]) -> np.ndarray:
    """`comparison` for many calls: faster by far on small tables, after some time of compiling."""
    from autoshard.solver.reductions.compare import beats

    if not tables:
        return comparison(cost, tables)
    joint = tables[0] if len(tables) == 1 else np.concatenate(tables, axis=1)
    ends = np.array([t.shape[1] for t in tables]).cumsum()
    return beats(cost, np.ascontiguousarray(joint), ends, int(FORBIDDEN))
