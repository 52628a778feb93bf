"""Local search on a flat network with the memory limit hard: descent, repair, and re-choosing of random trees."""

from dataclasses import dataclass

import numpy as np

from autoshard.solver.dual import flat_cost, usage
from autoshard.solver.flat import Flat

UNLIMITED = 2**62


@dataclass
class Field:
    """An assignment with its live amounts, and scratch space for the compiled moves."""

    flat: Flat
    limit: int
    record_at: np.ndarray
    live: np.ndarray
    blocks: np.ndarray
    chosen: np.ndarray
    state: np.ndarray
    scratch: np.ndarray
    member: np.ndarray
    parent: np.ndarray
    parent_edge: np.ndarray
    order: np.ndarray
    frontier: np.ndarray
    cost_at: np.ndarray
    cost: np.ndarray


def field_for(flat: Flat, seed: int) -> Field:
    """An empty field; `place` puts an assignment on it."""
    n = flat.n
    counts = np.bincount(flat.held_node, minlength=n)
    integers = [np.zeros(n, dtype=np.int64) for _ in range(4)]
    mixed = (0x9E3779B97F4A7C15 * (2 * seed + 1)) % 2**64  # never 0, and far apart for neighbouring seeds
    return Field(
        flat=flat,
        limit=UNLIMITED if flat.limit is None else flat.limit,
        record_at=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        live=np.zeros(max(1, flat.slots), dtype=np.int64),
        blocks=np.zeros(1, dtype=np.int64),
        chosen=np.zeros(n, dtype=np.int64),
        state=np.array([mixed], dtype=np.uint64),
        scratch=np.zeros(int(flat.sizes.max(initial=1))),
        member=np.full(n, -1, dtype=np.int64),
        parent=integers[0],
        parent_edge=integers[1],
        order=integers[2],
        frontier=np.zeros(2 * n + 16, dtype=np.int64),
        cost_at=integers[3],
        cost=np.zeros(min(len(flat.unary), 200_000)),
    )


def place(field: Field, chosen: np.ndarray) -> None:
    """Put an assignment on the field."""
    from autoshard.solver.moves import BLOCK

    field.chosen = np.array(chosen, dtype=np.int64)
    live = usage(field.flat, field.chosen)
    field.live = live if len(live) else np.zeros(1, dtype=np.int64)
    pad = -len(field.live) % BLOCK
    field.blocks = np.pad(field.live, (0, pad), constant_values=-(2**62)).reshape(-1, BLOCK).max(axis=1)


def prefix_of(prices: np.ndarray) -> np.ndarray:
    return np.concatenate([[0.0], np.cumsum(prices)]) if len(prices) else np.zeros(2)


def over(field: Field) -> int:
    """By how much the fullest slot exceeds the limit (negative: room)."""
    return int(field.live.max()) - field.limit


def cost(field: Field) -> float:
    return flat_cost(field.flat, field.chosen)


def descend(field: Field, prefix: np.ndarray, *, sweeps: int = 20, limit: int | None = None) -> int:
    """Single switches that lower cost plus priced memory; returns how many were made."""
    from autoshard.solver.moves import node_descent

    f = field.flat
    return node_descent(
        sweeps, field.limit if limit is None else limit, prefix, f.offsets, f.unary, f.first, f.second, f.table_at,
        f.tables, f.incident_at, f.incident, field.record_at, f.held_start, f.held_stop, f.held_at, f.amounts,
        field.live, field.blocks, field.chosen, field.scratch,
    )  # fmt: skip


def trees(
    field: Field, prefix: np.ndarray, count: int, size: int, *,
    scales: tuple[float, float] = (0.0, 1.5), judge: float = 0.0, limit: int | None = None,
    window: tuple[int, int] | None = None,
) -> float:  # fmt: skip
    """Re-choose `count` random trees of up to `size` inner nodes rooted in `window`; returns the gain."""
    from autoshard.solver.moves import tree_search

    f = field.flat
    low, high = (0, f.n) if window is None else window
    return tree_search(
        count, size, low, high, field.limit if limit is None else limit, scales[0], scales[1], judge,
        prefix, field.state,
        f.offsets, f.unary, f.first, f.second, f.table_at, f.tables, f.incident_at, f.incident,
        field.record_at, f.held_start, f.held_stop, f.held_at, f.amounts, field.live, field.blocks, field.chosen,
        field.member, field.parent, field.parent_edge, field.order, field.frontier, field.cost_at, field.cost,
    )  # fmt: skip


def repair(field: Field, prices: np.ndarray, rounds: int = 40) -> bool:
    """Raise prices where the limit is exceeded until descent and trees bring every slot below it; whether they did."""
    current = prices.copy()
    floor = max(float(current.max(initial=0.0)) * 0.02, 1e-12)
    count = max(20, field.flat.n // 10)
    for _ in range(rounds):
        excess = field.live[: field.flat.slots] - field.limit
        if excess.max(initial=-1) <= 0:
            return True
        hot = excess > 0
        current[hot] = current[hot] * (1.3 + np.minimum(1.0, 2.0 * excess[hot] / max(1, field.limit))) + floor
        prefix = prefix_of(current)
        descend(field, prefix, sweeps=3, limit=UNLIMITED)
        trees(field, prefix, count, 20, scales=(1.0, 1.0), judge=1.0, limit=UNLIMITED)
    return over(field) <= 0
