"""Exact solution of a reduced network by toulbar2, memory rows added as they are violated."""

import numpy as np

from autoshard.solver import toulbar2
from autoshard.solver.toulbar2 import Exact, Row
from autoshard.solver.work import Work


def live_rows(work: Work, slots: list[int]) -> list[Row]:
    """The memory limit at the given time slots, over the positions of `work.nodes()`."""
    assert work.limit is not None
    rows = []
    for slot in slots:
        scope, amounts = [], []
        for k, node in enumerate(work.nodes()):
            own = [h.amounts for h in work.held[node] if h.start <= slot < h.stop]
            if own:
                total = np.sum(own, axis=0)
                if total.any():
                    scope.append(k)
                    amounts.append(tuple(int(a) for a in total))
        rows.append(Row(tuple(scope), tuple(amounts), work.limit))
    return rows


def profile(work: Work, positions: tuple[int, ...]) -> np.ndarray:
    """Live amount per slot of an assignment given as positions in the remaining domains."""
    delta = np.zeros(work.slots + 1, dtype=np.int64)
    for node, x in zip(work.nodes(), positions, strict=True):
        for h in work.held[node]:
            delta[h.start] += h.amounts[x]
            delta[h.stop] -= h.amounts[x]
    return np.cumsum(delta)[:-1]


def solve_work(
    work: Work, *, upper: int | None, backtracks: int, seconds: float, slots: list[int], vac: int = 0
) -> tuple[dict[int, int] | None, int, bool, bool] | None:
    """(original strategies of all nodes, proven bound, complete, out of time), or None where toulbar2 cannot.

    upper: look only for cheaper assignments. slots: time slots whose memory rows are posted; grows as
    rows are found violated. A complete run without an assignment proves that none is cheaper than `upper`.
    """
    if not toulbar2.available():
        return None
    nodes = work.nodes()
    number = {node: k for k, node in enumerate(nodes)}
    unary = [work.cost(i) for i in nodes]
    edges = [(number[i], number[j], np.ascontiguousarray(work.tables[i][j])) for i, j in work.edges()]
    below = None if upper is None else upper - work.constant
    lower = None
    while True:
        rows = live_rows(work, slots) if work.limit is not None else []
        found: Exact | None = toulbar2.solve_exact(
            unary, edges, upper=below, rows=rows, backtracks=backtracks, seconds=seconds, vac=vac
        )
        if found is None:
            return None
        lower = found.lower if lower is None else max(lower, found.lower)
        if found.assignment is None:
            return None, lower + work.constant, found.complete, found.timed_out
        if work.limit is not None:
            live = profile(work, found.assignment)
            over = live - work.limit
            if int(over.max(initial=0)) > 0:
                # the worst slot of every stretch of violated ones
                new = [s for s in worst_slots(over) if s not in slots]
                assert new, "a posted memory row was violated"
                slots.extend(new)
                continue
        choice = {node: int(work.domains[node][x]) for node, x in zip(nodes, found.assignment, strict=True)}
        return work.complete(choice), lower + work.constant, found.complete, found.timed_out


def worst_slots(over: np.ndarray) -> list[int]:
    """The worst slot of every stretch of positive values."""
    out: list[int] = []
    best = -1
    for slot, value in enumerate(over):
        if value <= 0:
            if best >= 0:
                out.append(best)
            best = -1
        elif best < 0 or value > over[best]:
            best = slot
    if best >= 0:
        out.append(best)
    return out
