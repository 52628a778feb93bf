"""Exact solution of a reduced network by toulbar2 or CP-SAT, memory rows added as they are violated."""

import numpy as np

from autoshard.solver.engines import cpsat, toulbar2
from autoshard.solver.engines.toulbar2 import Exact, Row
from autoshard.solver.work import Work

UNLIMITED = 2**62
"""An upper bound above any cost, for where none is known."""
CPSAT_ENTRIES = 20_000
"""The most table entries for which CP-SAT is asked: it makes a variable of each."""


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
    """(original states of all nodes, proven bound, complete, out of time), or None where no engine can.

    toulbar2 goes first where it is installed. CP-SAT takes over on small cores: where it is not, where it cannot
    represent the costs, and where memory rows keep it from ending within its backtracks.
    upper: look only for cheaper assignments. slots: time slots whose memory rows are posted; grows as
    rows are found violated. A complete run without an assignment proves that none is cheaper than `upper`.
    """
    small = work.entries() <= CPSAT_ENTRIES
    if not toulbar2.available() and not small:
        return None
    nodes = work.nodes()
    number = {node: k for k, node in enumerate(nodes)}
    unary = [work.cost(i) for i in nodes]
    edges = [(number[i], number[j], np.ascontiguousarray(work.tables[i][j])) for i, j in work.edges()]
    below = None if upper is None else upper - work.constant
    lower = None
    while True:
        rows = live_rows(work, slots) if work.limit is not None else []
        result: Exact | None = None
        if toulbar2.available():
            result = toulbar2.solve_exact(
                unary, edges, upper=below, rows=rows, backtracks=backtracks, seconds=seconds, vac=vac
            )
        stuck = result is not None and not result.complete and not result.timed_out and bool(rows)
        if small and (result is None or stuck):
            best = (
                below
                if result is None or result.assignment is None
                else min(_cost_of(unary, edges, result), below or UNLIMITED)
            )
            second = cpsat.solve_exact(unary, edges, upper=best, rows=rows, backtracks=backtracks, seconds=seconds)
            result = _better(result, second)
        if result is None:
            return None
        lower = result.lower if lower is None else max(lower, result.lower)
        if result.assignment is None:
            return None, lower + work.constant, result.complete, result.timed_out
        if work.limit is not None:
            live = profile(work, result.assignment)
            over = live - work.limit
            if int(over.max(initial=0)) > 0:
                # the worst slot of every stretch of violated ones
                new = [s for s in worst_slots(over) if s not in slots]
                assert new, "a posted memory row was violated"
                slots.extend(new)
                continue
        choice = {node: int(work.domains[node][x]) for node, x in zip(nodes, result.assignment, strict=True)}
        return work.complete(choice), lower + work.constant, result.complete, result.timed_out


def _cost_of(unary: list[np.ndarray], edges: list[tuple[int, int, np.ndarray]], result: Exact) -> int:
    chosen = result.assignment
    assert chosen is not None
    return sum(int(c[x]) for c, x in zip(unary, chosen, strict=True)) + sum(
        int(t[chosen[i], chosen[j]]) for i, j, t in edges
    )


def _better(first: Exact | None, second: Exact | None) -> Exact | None:
    """The result of both runs: `second` looked only below what `first` found."""
    if first is None or second is None:
        return first if second is None else second
    assignment = first.assignment if second.assignment is None else second.assignment
    lower = max(first.lower, second.lower)
    return Exact(assignment, lower, second.complete, first.backtracks + second.backtracks, second.timed_out)


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
