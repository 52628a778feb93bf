"""Local search on a flat network with the memory limit hard: descent, repair, and re-choosing of random trees."""

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from autoshard.solver.dual.arrays import UNLIMITED
from autoshard.solver.dual.flat import Flat
from autoshard.solver.dual.passes import flat_cost, prefix_of, usage
from autoshard.solver.local.live import BLOCK, Assigned, Memory
from autoshard.solver.local.moves import node_descent
from autoshard.solver.local.tree_moves import Tree, TreeMoves, tree_search

MOST_TREE_ENTRIES = 200_000
"""States that the nodes of one tree may have together."""
FRONTIER_SPARE = 16
"""The frontier of a tree has room for each node twice, and so many more where there are next to none."""
NOTHING_LIVE = -(2**62)
"""What slots hold that only fill up the last block: less than any other."""
SEED_MULTIPLIER = 0x9E3779B97F4A7C15
"""2**64 over the golden ratio, made odd: its odd multiples are never 0 modulo 2**64, and far apart for close seeds."""
RESOLVING_SIZES = (20, 100, 5, 400)
"""Inner nodes of the trees that are re-chosen around forbidden pairs, round after round: small and large in turns."""
IDLE_ROUNDS = 25
"""Rounds after which `resolve` gives up when no fewer pairs are forbidden than before."""
MOST_HURTING = 200
"""Forbidden pairs around which one round grows trees, at most about twice as many."""
MANY_BROKEN = 50
"""With more forbidden pairs than this, trees anywhere help as well."""
LEAST_TREES = 20
"""Trees that one round re-chooses anywhere in small networks."""
RESOLVING_SHARE = 20
REPAIRING_SHARE = 10
"""In larger ones: one for so many nodes."""
REPAIRING_SIZE = 20
REPAIRING_SWEEPS = 3
"""Inner nodes of the trees, and sweeps over single nodes, of one round of `repair`."""
RAISED = 1.3
RAISED_BY_EXCESS = 2.0
MOST_RAISED_BY_EXCESS = 1.0
"""Prices of overfilled slots grow by this factor, and by twice the relative excess, at most by once more."""
FLOOR_OF_HIGHEST = 0.02
FLOOR_OF_WORTH = 0.01
LEAST_FLOOR = 1e-12
"""What is added to them, so that prices of 0 rise: part of the highest price, or of what a unit is worth; never 0."""


@dataclass
class Field:
    """An assignment with its live amounts, and the memory that the compiled moves work in.

    random_state: of the random numbers. scratch: one number per state of a node. tree: room for one tree.
    """

    flat: Flat
    memory: Memory
    chosen: np.ndarray
    live: np.ndarray
    blocks: np.ndarray
    random_state: np.ndarray
    scratch: np.ndarray
    tree: Tree

    @property
    def limit(self) -> int:
        """The most that may be live at once, or `UNLIMITED`."""
        return self.memory.limit

    @property
    def record_at(self) -> np.ndarray:
        """Where the usage records of every node start, and where those of the last one end."""
        return self.memory.record_at

    @property
    def assigned(self) -> Assigned:
        """The assignment as the compiled moves take it, which change its arrays in place."""
        return Assigned(self.chosen, self.live, self.blocks)

    def memory_within(self, limit: int | None) -> Memory:
        """What nodes hold, with another limit than the network's own, or with that (None)."""
        return self.memory if limit is None else self.memory._replace(limit=limit)


def random_state_of(seed: int) -> np.ndarray:
    """Where the random numbers of a seed begin."""
    return np.array([SEED_MULTIPLIER * (2 * seed + 1) % 2**64], dtype=np.uint64)


def field_for(flat: Flat, seed: int) -> Field:
    """An empty field; `place` puts an assignment on it."""
    n = flat.n
    counts = np.bincount(flat.held_node, minlength=n)
    record_at = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    limit = UNLIMITED if flat.limit is None else flat.limit
    parent, parent_edge, order, before, cost_at = (np.zeros(n, dtype=np.int64) for _ in range(5))
    return Field(
        flat=flat,
        memory=Memory(record_at, flat.held_start, flat.held_stop, flat.held_at, flat.amounts, limit),
        chosen=np.zeros(n, dtype=np.int64),
        live=np.zeros(max(1, flat.slots), dtype=np.int64),
        blocks=np.zeros(1, dtype=np.int64),
        random_state=random_state_of(seed),
        scratch=np.zeros(int(flat.sizes.max(initial=1))),
        tree=Tree(
            member=np.full(n, -1, dtype=np.int64),
            parent=parent,
            parent_edge=parent_edge,
            order=order,
            frontier=np.zeros(2 * n + FRONTIER_SPARE, dtype=np.int64),
            before=before,
            cost_at=cost_at,
            cost=np.zeros(min(len(flat.unary), MOST_TREE_ENTRIES)),
        ),
    )


def place(field: Field, chosen: np.ndarray) -> None:
    """Put an assignment on the field."""
    field.chosen = np.array(chosen, dtype=np.int64)
    live = usage(field.flat, field.chosen)
    field.live = live if len(live) else np.zeros(1, dtype=np.int64)
    pad = -len(field.live) % BLOCK
    field.blocks = np.pad(field.live, (0, pad), constant_values=NOTHING_LIVE).reshape(-1, BLOCK).max(axis=1)


def over(field: Field) -> int:
    """By how much the fullest slot exceeds the limit (negative: room)."""
    return int(field.live.max()) - field.limit


def cost(field: Field) -> float:
    """What the assignment on the field costs; inf where a pair is forbidden."""
    return flat_cost(field.flat, field.chosen)


def descend(field: Field, prefix: np.ndarray, *, sweeps: int = 20, limit: int | None = None) -> int:
    """Single switches that lower cost plus priced memory; returns how many were made."""
    return node_descent(
        sweeps, field.flat.graph, field.memory_within(limit), prefix, field.assigned, field.scratch
    )  # fmt: skip


def trees(
    field: Field, prefix: np.ndarray, count: int, size: int, *,
    scales: tuple[float, float] = (0.0, 1.5), judge: float = 0.0, limit: int | None = None,
    window: tuple[int, int] | None = None, flat: Flat | None = None,
) -> float:  # fmt: skip
    """Re-choose `count` random trees of up to `size` inner nodes rooted in `window`; returns the gain.

    flat: the same network with other costs, where the field's own are not to be judged by.
    """
    graph = (field.flat if flat is None else flat).graph
    low, high = (0, field.flat.n) if window is None else window
    moves = TreeMoves(count, size, low, high, scales[0], scales[1], judge)
    return tree_search(moves, graph, field.memory_within(limit), prefix, field.assigned, field.tree, field.random_state)


def least_memory(field: Field) -> np.ndarray:
    """The states that hold least over time, whatever they cost and whether they go together."""
    f = field.flat
    lengths = np.diff(f.held_at)
    index = np.repeat(f.offsets[f.held_node] - f.held_at[:-1], lengths) + np.arange(len(f.amounts))
    held = np.zeros(len(f.unary))
    np.add.at(held, index, np.repeat((f.held_stop - f.held_start).astype(float), lengths) * f.amounts)
    return np.array([np.argmin(h) for h in np.split(held, f.offsets[1:-1])], dtype=np.int64)


def resolve(field: Field, prices: np.ndarray, rounds: int, check: Callable[[], None]) -> bool:
    """Tree moves at finite weights on forbidden pairs, which grow where they stay violated; whether none is left.

    Memory counts at its prices only: `repair` comes afterwards.
    """
    f = field.flat
    forbidden = np.isinf(f.tables)
    finite = f.tables[~forbidden]
    weight = 2.0 ** math.ceil(
        math.log2(1.0 + float(np.abs(finite).max(initial=0.0) + np.abs(f.unary).max(initial=0.0)))
    )
    soft = dataclasses.replace(f, tables=np.where(forbidden, weight, f.tables))
    prefix = prefix_of(prices)
    columns = f.sizes[f.second]
    best, idle = f.n + len(f.first), 0
    for round_ in range(rounds):
        check()
        at = f.table_at[:-1] + field.chosen[f.first] * columns + field.chosen[f.second]
        broken = np.flatnonzero(forbidden[at])
        if not len(broken):
            return True
        if len(broken) < best:
            best, idle = len(broken), 0
        else:
            idle += 1
            if idle > IDLE_ROUNDS:
                return False
        if round_:
            soft.tables[at[broken]] += weight
        size = RESOLVING_SIZES[round_ % len(RESOLVING_SIZES)]
        for e in broken[:: max(1, len(broken) // MOST_HURTING)]:  # trees grown from the places that hurt
            for end in (int(f.first[e]), int(f.second[e])):
                trees(
                    field, prefix, 1, size, scales=(0.0, 1.0), judge=0.5, limit=UNLIMITED, window=(end, end + 1),
                    flat=soft,
                )  # fmt: skip
        if len(broken) > MANY_BROKEN:
            count = max(LEAST_TREES, f.n // RESOLVING_SHARE)
            trees(field, prefix, count, size, scales=(1.0, 1.0), judge=1.0, limit=UNLIMITED, flat=soft)
    return False


def repair(field: Field, prices: np.ndarray, rounds: int = 40, check: Callable[[], None] = lambda: None) -> bool:
    """Raise prices where the limit is exceeded until descent and trees bring every slot below it; whether they did."""
    current = prices.copy()
    whole = abs(cost(field))  # the price at which all memory, all the time, would cost as much as everything else
    unit = whole / (max(1, field.limit) * max(1, field.flat.slots)) if math.isfinite(whole) else 0.0
    floor = max(float(current.max(initial=0.0)) * FLOOR_OF_HIGHEST, FLOOR_OF_WORTH * unit, LEAST_FLOOR)
    count = max(LEAST_TREES, field.flat.n // REPAIRING_SHARE)
    for _ in range(rounds):
        check()
        excess = field.live[: field.flat.slots] - field.limit
        if excess.max(initial=-1) <= 0:
            return True
        hot = excess > 0
        steeper = np.minimum(MOST_RAISED_BY_EXCESS, RAISED_BY_EXCESS * excess[hot] / max(1, field.limit))
        current[hot] = current[hot] * (RAISED + steeper) + floor
        prefix = prefix_of(current)
        descend(field, prefix, sweeps=REPAIRING_SWEEPS, limit=UNLIMITED)
        trees(field, prefix, count, REPAIRING_SIZE, scales=(1.0, 1.0), judge=1.0, limit=UNLIMITED)
    return over(field) <= 0
