"""Shaving: strategies that leave nothing consistent when their node is held to them go, before any bound is asked.

Consistency looks at one edge, and at the least that nodes hold, at a time. With a node held to some of its strategies
it sees what they bring about elsewhere: under a memory limit that is often that nothing fits, and no price on memory
says so as long as others may be chosen in part. Halves of a node's strategies are tried before single ones, so that
few steps say much.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from autoshard.solver.dual.fixing import make_consistent
from autoshard.solver.dual.flat import Flat

SWEEPS = 4
"""Most times that all nodes are looked at."""
WORTH_ANOTHER = 0.95
"""They are looked at again when fewer than this share of the strategies are left."""
MOST_WORK = 400_000_000
"""Table entries that shaving may visit, one look at all of them for every attempt."""


@dataclass(frozen=True)
class Shave:
    """Held to these strategies (places in its domain), the node leaves nothing that is consistent: they go."""

    node: int
    strategies: np.ndarray


@dataclass
class Shaved:
    """steps: in order. left: False where nothing is. work: table entries visited."""

    steps: list[Shave]
    left: bool
    work: int


def shave(flat: Flat, alive: np.ndarray, check: Callable[[], None]) -> Shaved:
    """Clear from `alive` (consistent) what can be shaved, sweep after sweep; it stays consistent."""
    done = Shaved([], True, 0)
    for _ in range(SWEEPS):
        before = int(alive.sum())
        for node in range(flat.n):
            check()
            if not _shave_node(flat, alive, node, done):
                return done
        if int(alive.sum()) >= WORTH_ANOTHER * before:
            break
    return done


def _shave_node(flat: Flat, alive: np.ndarray, node: int, done: Shaved) -> bool:
    """Shave one node; False where nothing is left, or the work is used up."""
    low, high = int(flat.offsets[node]), int(flat.offsets[node + 1])
    waiting = [np.flatnonzero(alive[low:high])]
    if len(waiting[0]) < 2:
        return True
    while waiting:
        tried = waiting.pop()
        tried = tried[alive[low:high][tried]]
        if not len(tried):
            continue
        if done.work > MOST_WORK:
            return False
        if len(tried) < int(alive[low:high].sum()):
            held = alive.copy()
            held[low:high] = False
            held[low + tried] = True
            done.work += len(flat.tables)
            if not make_consistent(flat, held):
                done.steps.append(Shave(node, tried))
                alive[low + tried] = False
                if not make_consistent(flat, alive):
                    done.left = False
                    return False
                continue
        if len(tried) > 1:
            half = len(tried) // 2
            waiting += [tried[half:], tried[:half]]
    return True
