"""Local search on a flat network with the memory limit hard: descent, repair, and re-choosing of random trees."""

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from autoshard.solver.dual.flat import Flat
from autoshard.solver.dual.passes import flat_cost, usage

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
    from autoshard.solver.local.moves import BLOCK

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
    from autoshard.solver.local.moves import node_descent

    f = field.flat
    return node_descent(
        sweeps, field.limit if limit is None else limit, prefix, f.offsets, f.unary, f.first, f.second, f.table_at,
        f.tables, f.incident_at, f.incident, field.record_at, f.held_start, f.held_stop, f.held_at, f.amounts,
        field.live, field.blocks, field.chosen, field.scratch,
    )  # fmt: skip


def trees(
    field: Field, prefix: np.ndarray, count: int, size: int, *,
    scales: tuple[float, float] = (0.0, 1.5), judge: float = 0.0, limit: int | None = None,
    window: tuple[int, int] | None = None, flat: Flat | None = None,
) -> float:  # fmt: skip
    """Re-choose `count` random trees of up to `size` inner nodes rooted in `window`; returns the gain.

    flat: the same network with other costs, where the field's own are not to be judged by.
    """
    from autoshard.solver.local.moves import tree_search

    f = field.flat if flat is None else flat
    low, high = (0, f.n) if window is None else window
    return tree_search(
        count, size, low, high, field.limit if limit is None else limit, scales[0], scales[1], judge,
        prefix, field.state,
        f.offsets, f.unary, f.first, f.second, f.table_at, f.tables, f.incident_at, f.incident,
        field.record_at, f.held_start, f.held_stop, f.held_at, f.amounts, field.live, field.blocks, field.chosen,
        field.member, field.parent, field.parent_edge, field.order, field.frontier, field.cost_at, field.cost,
    )  # fmt: skip


def least_memory(field: Field) -> np.ndarray:
    """The strategies that hold least over time, whatever they cost and whether they go together."""
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
            if idle > 25:
                return False
        if round_:
            soft.tables[at[broken]] += weight
        size = (20, 100, 5, 400)[round_ % 4]
        for e in broken[:: max(1, len(broken) // 200)]:  # trees grown from the places that hurt
            for end in (int(f.first[e]), int(f.second[e])):
                trees(
                    field, prefix, 1, size, scales=(0.0, 1.0), judge=0.5, limit=UNLIMITED, window=(end, end + 1),
                    flat=soft,
                )  # fmt: skip
        if len(broken) > 50:
            trees(field, prefix, max(20, f.n // 20), size, scales=(1.0, 1.0), judge=1.0, limit=UNLIMITED, flat=soft)
    return False


def repair(field: Field, prices: np.ndarray, rounds: int = 40, check: Callable[[], None] = lambda: None) -> bool:
    """Raise prices where the limit is exceeded until descent and trees bring every slot below it; whether they did."""
    current = prices.copy()
    whole = abs(cost(field))  # the price at which all memory, all the time, would cost as much as everything else
    unit = whole / (max(1, field.limit) * max(1, field.flat.slots)) if math.isfinite(whole) else 0.0
    floor = max(float(current.max(initial=0.0)) * 0.02, 0.01 * unit, 1e-12)
    count = max(20, field.flat.n // 10)
    for _ in range(rounds):
        check()
        excess = field.live[: field.flat.slots] - field.limit
        if excess.max(initial=-1) <= 0:
            return True
        hot = excess > 0
        current[hot] = current[hot] * (1.3 + np.minimum(1.0, 2.0 * excess[hot] / max(1, field.limit))) + floor
        prefix = prefix_of(current)
        descend(field, prefix, sweeps=3, limit=UNLIMITED)
        trees(field, prefix, count, 20, scales=(1.0, 1.0), judge=1.0, limit=UNLIMITED)
    return over(field) <= 0
