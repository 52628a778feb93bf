"""Shaving: states that leave nothing consistent when their node is held to them go, before any bound is asked.

Consistency looks at one edge, and at the least that nodes hold, at a time. With a node held to some of its states
it sees what they bring about elsewhere: under a memory limit that is often that nothing fits, and no price on memory
says so as long as others may be chosen in part. Halves of a node's states are tried before single ones, so that
few steps say much.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from autoshard.solver.compiled import compiled
from autoshard.solver.dual.arrays import Graph, Held
from autoshard.solver.dual.consistent import NOTHING_FITS, drop_alone, drop_unfitting
from autoshard.solver.dual.flat import Flat

SWEEPS = 4
"""Most times that all nodes are looked at."""
WORTH_ANOTHER = 0.95
"""They are looked at again when fewer than this share of the states are left."""
MOST_WORK = 1_000_000_000
"""Table entries that shaving may visit."""
TRIED_WORK = 150_000_000
WORTH_GOING_ON = 0.01
"""Where costs count, and messages close most of what shaving would, it ends after so many table entries unless this
share of the states has gone by then: what goes later seldom pays."""


@dataclass(frozen=True)
class Shave:
    """Held to these states (places in its domain), the node leaves nothing that is consistent: they go."""

    node: int
    states: np.ndarray


@dataclass
class Shaved:
    """steps: in order. left: False where nothing is. work: table entries visited."""

    steps: list[Shave]
    left: bool
    work: int


def shave(flat: Flat, alive: np.ndarray, check: Callable[[], None], costs: bool = False) -> Shaved:
    """Clear from `alive` (consistent) what can be shaved, sweep after sweep; it stays consistent.

    costs: whether they count (see `TRIED_WORK`).
    """
    done = Shaved([], True, 0)
    enough = (1.0 - WORTH_GOING_ON) * int(alive.sum())
    for _ in range(SWEEPS):
        before = int(alive.sum())
        for node in range(flat.n):
            check()
            if not _shave_node(flat, alive, node, done):
                return done
            if costs and done.work > TRIED_WORK and int(alive.sum()) > enough:
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
            if not _consistent_from(flat, held, node, done):
                done.steps.append(Shave(node, tried))
                alive[low + tried] = False
                if not _consistent_from(flat, alive, node, done):
                    done.left = False
                    return False
                continue
        if len(tried) > 1:
            half = len(tried) // 2
            waiting += [tried[half:], tried[:half]]
    return True


def _consistent_from(flat: Flat, alive: np.ndarray, node: int, done: Shaved) -> bool:
    """`fixing.make_consistent` where only one node has lost states since; False where nothing is left."""
    visited = _settle_from(flat.graph, flat.held, flat.slots, alive, node)
    done.work += abs(visited)
    return visited > 0


@compiled
def _spread(graph: Graph, alive: np.ndarray, changed: np.ndarray):
    """Clears states without a partner on some edge of nodes that have changed, and so on; `changed` is cleared.

    Returns how many table entries were looked at, at most; negative where a node is left with nothing.
    """
    offsets, first, second = graph.offsets, graph.first, graph.second
    visited = 1
    more = True
    while more:
        more = False
        for i in range(len(changed)):
            if not changed[i]:
                continue
            changed[i] = False
            for k in range(graph.incident_at[i], graph.incident_at[i + 1]):
                e = graph.incident[k]
                low = offsets[i]
                d = offsets[i + 1] - low
                at = graph.table_at[e]
                if first[e] == i:
                    j = second[e]
                    c = offsets[j + 1] - offsets[j]
                    left, gone = drop_alone(graph.tables, at, 1, c, alive, offsets[j], c, low, d)
                else:
                    j = first[e]
                    c = offsets[j + 1] - offsets[j]
                    left, gone = drop_alone(graph.tables, at, d, 1, alive, offsets[j], c, low, d)
                visited += c * d
                if left == 0:
                    return -visited
                if gone > 0:
                    changed[j] = True
                    more = True
    return visited


@compiled
def _settle_from(graph: Graph, held: Held, slots: int, alive: np.ndarray, node: int):
    """`_consistent_from`, compiled as a whole: there are thousands of calls. Returns how many table entries were looked
    at, at most; negative where nothing is left.
    """
    offsets = graph.offsets
    n = len(offsets) - 1
    changed = np.zeros(n, dtype=np.bool_)
    changed[node] = True
    counts = np.empty(n, dtype=np.int64)
    work = 0
    while True:
        visited = _spread(graph, alive, changed)
        work += abs(visited)
        if visited < 0:
            return -work
        for i in range(n):
            counts[i] = alive[offsets[i] : offsets[i + 1]].sum()
        gone = drop_unfitting(offsets, held, slots, alive)
        if gone == NOTHING_FITS:
            return -work
        if gone == 0:
            return work
        for i in range(n):
            left = alive[offsets[i] : offsets[i + 1]].sum()
            if left == 0:
                return -work
            changed[i] = left < counts[i]
