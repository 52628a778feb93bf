"""A network laid out for annealing: decisions with their tables, and nodes that follow from them as sets of bits."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from autoshard.solver.network import IMPOSSIBLE, CostNetwork

WORD = 64
"""Bits of a word."""


class Annealed(NamedTuple):
    """A network for annealing.

    decisions: so many nodes decide, each node after them follows from those before it. offsets, unary: states of all
    nodes, one node after the other, and what they cost (inf: forbidden). open_: nodes that decide and have a choice.
    widest: the most states of one. edge_at: per node, where its edges start; other: the node at the other end; row_at:
    where the table starts, a row per state of the node; column_at: the same, a row per state of the other end.
    before_at: per node, where the nodes that it follows from start; before: these; mask_at: where their masks start,
    one per state: `words[node]` words, with a bit set for each state allowed. held_at: per node, where what it holds
    starts; start, stop: the slots in which that is live; amount_at: where its amounts start, one per state. slots: how
    many there are. limit: the most that may be live at once.
    """

    decisions: int
    offsets: np.ndarray
    unary: np.ndarray
    open_: np.ndarray
    widest: int
    edge_at: np.ndarray
    other: np.ndarray
    row_at: np.ndarray
    column_at: np.ndarray
    tables: np.ndarray
    words: np.ndarray
    before_at: np.ndarray
    before: np.ndarray
    mask_at: np.ndarray
    masks: np.ndarray
    held_at: np.ndarray
    start: np.ndarray
    stop: np.ndarray
    amount_at: np.ndarray
    amounts: np.ndarray
    slots: int
    limit: int


def annealed_from(network: CostNetwork, decisions: int) -> Annealed:
    """The network, whose first so many nodes decide; the others cost nothing, and their tables only forbid."""
    assert network.usage_limit is not None
    n, sizes = network.n_nodes, [len(costs) for costs in network.costs]
    words = [-(-size // WORD) for size in sizes]
    edges: list[list[tuple[int, int, int]]] = [[] for _ in range(n)]
    before: list[list[tuple[int, int]]] = [[] for _ in range(n)]
    tables, masks, entries, bits = [np.zeros(0)], [np.zeros(0, dtype=np.uint64)], 0, 0
    for edge in network.edges:
        low, high = sorted((edge.first, edge.second))
        table = np.asarray(edge.costs) if low == edge.first else np.asarray(edge.costs).T
        if high < decisions:
            costs = np.where(table >= IMPOSSIBLE, np.inf, table.astype(float))
            tables += [costs.ravel(), costs.T.ravel()]
            edges[low].append((high, entries, entries + costs.size))
            edges[high].append((low, entries + costs.size, entries))
            entries += 2 * costs.size
        else:
            allowed = np.zeros((sizes[low], words[high] * WORD), dtype=np.uint8)
            allowed[:, : sizes[high]] = table < IMPOSSIBLE
            packed = np.packbits(allowed, axis=1, bitorder="little").view("<u8").astype(np.uint64)
            masks.append(packed.ravel())
            before[high].append((low, bits))
            bits += packed.size
    times = sorted({t for own in network.usages for usage in own for t in (usage.start, usage.stop)})
    slot = {time: k for k, time in enumerate(times)}
    held = [
        [(slot[u.start], slot[u.stop], u.amounts) for u in own if u.start < u.stop and u.amounts.any()]
        for own in (*network.usages, *[()] * (n - len(network.usages)))
    ]
    amounts = [a for own in held for _, _, a in own]
    open_ = [node for node in range(decisions) if sizes[node] > 1]
    other, row_at, column_at = _columns(edges, 3)
    first, mask_at = _columns(before, 2)
    start, stop = _columns([[(a, b) for a, b, _ in own] for own in held], 2)
    return Annealed(
        decisions=decisions, offsets=_starts(sizes), open_=_whole(open_), widest=max(sizes), words=_whole(words),
        unary=np.concatenate([np.where(costs >= IMPOSSIBLE, np.inf, costs) for costs in network.costs]),
        edge_at=_starts(map(len, edges)), other=other, row_at=row_at, column_at=column_at,
        tables=np.concatenate(tables), before_at=_starts(map(len, before)), before=first, mask_at=mask_at,
        masks=np.concatenate(masks), held_at=_starts(map(len, held)), start=start, stop=stop,
        amount_at=_starts(map(len, amounts))[:-1],
        amounts=np.concatenate([np.zeros(0, dtype=np.int64), *amounts]).astype(np.int64),
        slots=len(times), limit=network.usage_limit,
    )  # fmt: skip


def _whole(numbers: Iterable[int]) -> np.ndarray:
    return np.array(list(numbers), dtype=np.int64)


def _starts(lengths: Iterable[int]) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(_whole(lengths))]).astype(np.int64)


def _columns(lists: Sequence[Sequence[tuple[int, ...]]], count: int) -> tuple[np.ndarray, ...]:
    rows = np.array([row for rows in lists for row in rows], dtype=np.int64).reshape(-1, count)
    return tuple(np.ascontiguousarray(rows[:, k]) for k in range(count))
