"""Large-neighbourhood search with an exact engine: a connected piece is solved by toulbar2, the rest stays fixed."""

from collections.abc import Sequence

import numpy as np

from autoshard.solver.dual.flat import Flat
from autoshard.solver.engines import toulbar2
from autoshard.solver.engines.toulbar2 import Row
from autoshard.solver.local import search
from autoshard.solver.local.search import Field
from autoshard.solver.work import FORBIDDEN

WIDEST_HUB = 300
"""A piece does not grow through nodes with more neighbours than this."""
ROW_ROUNDS = 8
"""How often violated memory rows are added to one piece."""


def grow(flat: Flat, root: int, size: int, entries: int, rng: np.random.Generator, open_: np.ndarray) -> list[int]:
    """A connected set of up to `size` open nodes around `root`, joined by at most `entries` table entries."""
    sizes = flat.sizes
    inside = {root: None}
    frontier = [root]
    used = 0
    while frontier and len(inside) < size and used < entries:
        at = int(rng.integers(len(frontier)))
        i = frontier[at]
        frontier[at] = frontier[-1]
        frontier.pop()
        edges = flat.incident[flat.incident_at[i] : flat.incident_at[i + 1]]
        if len(edges) > WIDEST_HUB and i != root:
            continue
        for e in edges:
            j = int(flat.second[e] if flat.first[e] == i else flat.first[e])
            if j in inside or not open_[j]:
                continue
            inside[j] = None
            used += int(sizes[i] * sizes[j])
            frontier.append(j)
            if len(inside) >= size:
                break
    return sorted(inside)


def improve(
    field: Field,
    piece: Sequence[int],
    options: Sequence[np.ndarray],
    *,
    backtracks: int,
    seconds: float,
) -> float:
    """Solve a piece exactly over `options` (positions per node of the flat network); returns the gain."""
    flat = field.flat
    number = {i: k for k, i in enumerate(piece)}
    domains = [np.union1d(options[i], field.chosen[i : i + 1]) for i in piece]
    unary = [flat.unary[flat.offsets[i] + domain].copy() for i, domain in zip(piece, domains, strict=True)]
    edges = []
    for k, i in enumerate(piece):
        for e in flat.incident[flat.incident_at[i] : flat.incident_at[i + 1]]:
            table = flat.table(e)
            first = flat.first[e] == i
            j = int(flat.second[e] if first else flat.first[e])
            if j not in number:
                x = field.chosen[j]
                unary[k] += table[domains[k], x] if first else table[x, domains[k]]
            elif first:
                part = table[np.ix_(domains[k], domains[number[j]])]
                edges.append((k, number[j], _integers(part)))
    start = [int(np.searchsorted(domain, field.chosen[i])) for i, domain in zip(piece, domains, strict=True)]
    whole = [_integers(u) for u in unary]
    current = sum(int(u[x]) for u, x in zip(whole, start, strict=True))
    current += sum(int(t[start[a], start[b]]) for a, b, t in edges)
    base = field.live.copy()
    records: list[list[tuple[int, int, np.ndarray]]] = []
    for k, i in enumerate(piece):
        own = []
        for r in range(field.record_at[i], field.record_at[i + 1]):
            amounts = flat.amounts[flat.held_at[r] + domains[k]]
            base[flat.held_start[r] : flat.held_stop[r]] -= amounts[start[k]]
            own.append((int(flat.held_start[r]), int(flat.held_stop[r]), amounts))
        records.append(own)
    slots: list[int] = []
    for _ in range(ROW_ROUNDS):
        rows = [_row(records, slot, field.limit - int(base[slot])) for slot in slots]
        result = toulbar2.solve_exact(whole, edges, upper=current, rows=rows, backtracks=backtracks, seconds=seconds)
        if result is None or result.assignment is None:
            return 0.0
        live = base.copy()
        for own, x in zip(records, result.assignment, strict=True):
            for a, b, amounts in own:
                live[a:b] += amounts[x]
        over = live - field.limit
        if over.max() <= 0:
            chosen = field.chosen.copy()
            for i, domain, x in zip(piece, domains, result.assignment, strict=True):
                chosen[i] = domain[x]
            before = search.cost(field)
            search.place(field, chosen)
            return before - search.cost(field)
        worst = np.argsort(-over, kind="stable")[:1]
        new = {int(worst[0])} | _local_peaks(over)
        fresh = [s for s in sorted(new) if s not in slots]
        if not fresh:
            return 0.0
        slots.extend(fresh)
    return 0.0


def _integers(costs: np.ndarray) -> np.ndarray:
    return np.where(np.isinf(costs), FORBIDDEN, np.where(np.isinf(costs), 0.0, costs).astype(np.int64))


def _local_peaks(over: np.ndarray) -> set[int]:
    """The worst slot of every stretch of violated ones."""
    hot = np.flatnonzero(over > 0)
    if not len(hot):
        return set()
    stretches = np.split(hot, np.flatnonzero(np.diff(hot) > 1) + 1)
    return {int(s[np.argmax(over[s])]) for s in stretches}


def _row(records: Sequence[Sequence[tuple[int, int, np.ndarray]]], slot: int, limit: int) -> Row:
    scope, amounts = [], []
    for k, own in enumerate(records):
        parts = [a for start, stop, a in own if start <= slot < stop]
        if parts:
            total = np.sum(parts, axis=0)
            if total.any():
                scope.append(k)
                amounts.append(tuple(int(x) for x in total))
    return Row(tuple(scope), tuple(amounts), limit)
