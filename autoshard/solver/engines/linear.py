"""The linear program of a network, solved again and again for parts of it: the best messages and prices there are.

States of a node that an edge tells apart by a constant only share the variables of that edge, and memory rows that
another one implies are left out: a few times fewer entries, the same bound. One more variable, *none*, may take the
place of every choice at a cost above the threshold, so that a program is never infeasible and the messages for a part
in which nothing fits, or nothing is cheap enough, come out like any others.

Simplex (GLOP of OR-Tools) goes on from where it stood, so that one state more or less costs little. Its effort is
counted in iterations; what it returns steers a proof and states nothing (`certify.weigh` does that in whole numbers).
"""

from dataclasses import dataclass

import numpy as np

from autoshard.solver.dual.flat import Flat

SCALE = 1_000.0
"""The largest cost as the simplex method sees it: its tolerances are absolute."""
WORK_PER_ROW = 40
"""Table entries in whose time an iteration gets through one row of the program."""
MOST_ITERATIONS = 1_000_000
"""No program takes more; a program that takes none reports a number without meaning."""
UNKNOWN = 2.0**58
"""Thresholds as high as this say that no assignment is known; *none* is not to be had then."""
ABOVE = 1e-5
"""*None* costs this share of the threshold more, so that what rounding takes leaves enough."""
_PARAMETERS = "use_dual_simplex: true use_preprocessing: false perturb_costs_in_dual_simplex: true"


@dataclass(frozen=True)
class Grouped:
    """The table of an edge as ``by_row[a] + by_column[b] + core[rows[a], columns[b]]``; entries may be inf.

    rows, columns: per state the number of its group, whose states the core does not tell apart.
    """

    rows: np.ndarray
    columns: np.ndarray
    by_row: np.ndarray
    by_column: np.ndarray
    core: np.ndarray

    @staticmethod
    def of(table: np.ndarray) -> "Grouped":
        """Any table, forbidden entries inf."""
        by_row = _finite(table.min(axis=1))
        left = table - by_row[:, None]
        by_column = _finite(left.min(axis=0))
        left = left - by_column
        rows, some_row = _groups(left)
        columns, some_column = _groups(left.T)
        return Grouped(rows, columns, by_row, by_column, left[np.ix_(some_row, some_column)])


def _finite(costs: np.ndarray) -> np.ndarray:
    return np.where(np.isfinite(costs), costs, 0.0)


def _groups(rows: np.ndarray) -> tuple[np.ndarray, list[int]]:
    """Per row the number of its group of equal ones, and one row of every group."""
    number: dict[bytes, int] = {}
    first: list[int] = []
    out = np.empty(len(rows), dtype=np.int64)
    for k, row in enumerate(np.ascontiguousarray(rows)):
        key = row.tobytes()
        if key not in number:
            number[key] = len(first)
            first.append(k)
        out[k] = number[key]
    return out, first


@dataclass(frozen=True)
class Relaxed:
    """bound: of the part, up to a little above the threshold. chosen: how much of every state is taken. to_second,
    to_first: messages, laid out as `dual.arrays.Messages` says. prices: per slot, on a unit live.
    """

    bound: float
    chosen: np.ndarray
    to_second: np.ndarray
    to_first: np.ndarray
    prices: np.ndarray
    work: int


class LinearProgram:
    """The program of one flat network, whose states are all consistent."""

    def __init__(self, flat: Flat, *, costs: bool = True) -> None:
        from ortools.linear_solver import pywraplp

        self.flat, self.costs = flat, costs
        self.edges = [Grouped.of(_table(flat, e, costs)) for e in range(len(flat.first))]
        unary = flat.unary.copy() if costs else np.zeros(len(flat.unary))
        for e, edge in enumerate(self.edges):
            unary[flat.offsets[flat.first[e]] :][: len(edge.by_row)] += edge.by_row
            unary[flat.offsets[flat.second[e]] :][: len(edge.by_column)] += edge.by_column
        cores = [np.abs(edge.core[np.isfinite(edge.core)]).max(initial=0.0) for edge in self.edges]
        self.unit = max(1.0, float(np.abs(unary).max(initial=0.0)), *cores) / SCALE
        self.solver = pywraplp.Solver.CreateSolver("GLOP")
        self.solver.SetSolverSpecificParametersAsString(_PARAMETERS)
        self.slots, rows = memory_rows(flat)
        self._build(unary, rows)
        self.open = np.ones(len(self.states), dtype=bool)
        self.pairs_open = [np.ones(len(pairs), dtype=bool) for _, _, pairs in self.pairs]

    @property
    def rows(self) -> int:
        """The rows of the program."""
        return self.solver.NumConstraints()

    def _build(self, unary: np.ndarray, memory: np.ndarray) -> None:
        flat, solver = self.flat, self.solver
        objective = solver.Objective()
        objective.SetMinimization()

        def variable(cost: float) -> object:
            out = solver.NumVar(0.0, 1.0, "")
            if cost:
                objective.SetCoefficient(out, cost / self.unit)
            return out

        self.states = [variable(cost) for cost in unary.tolist()]
        self.none = variable(1.0)
        for i in range(flat.n):
            row = solver.Constraint(1.0, 1.0)
            row.SetCoefficient(self.none, 1.0)
            for x in self.states[flat.offsets[i] : flat.offsets[i + 1]]:
                row.SetCoefficient(x, 1.0)
        self.pairs: list[tuple[np.ndarray, np.ndarray, list]] = []
        self.ends: list[tuple[list, list]] = []
        for e, edge in enumerate(self.edges):
            a, b = np.nonzero(np.isfinite(edge.core))
            pairs = [variable(cost) for cost in edge.core[a, b].tolist()]
            ends = []
            for node, groups, place in ((flat.first[e], edge.rows, a), (flat.second[e], edge.columns, b)):
                rows = [solver.Constraint(0.0, 0.0) for _ in range(int(groups.max()) + 1)]
                for k, y in zip(place.tolist(), pairs, strict=True):
                    rows[k].SetCoefficient(y, 1.0)
                low = int(flat.offsets[node])
                for s, k in enumerate(groups.tolist()):
                    rows[k].SetCoefficient(self.states[low + s], -1.0)
                ends.append(rows)
            self.pairs.append((a, b, pairs))
            self.ends.append((ends[0], ends[1]))
        self.memory = []
        for amounts in memory:
            row = solver.Constraint(-solver.infinity(), 1.0)
            row.SetCoefficient(self.none, 1.0)
            for s in np.flatnonzero(amounts).tolist():
                row.SetCoefficient(self.states[s], float(amounts[s]) / max(1, flat.limit or 0))
            self.memory.append(row)

    def solve(self, alive: np.ndarray, threshold: float) -> Relaxed | None:
        """The program of the part with these states.

        None where the simplex method fails, or the threshold says that nothing is known and nothing fits.
        """
        from ortools.linear_solver import pywraplp

        self._open(alive)
        known = threshold < UNKNOWN
        most = SCALE * self.unit if not self.costs else threshold + max(2.0, ABOVE * abs(threshold)) if known else 0.0
        self.none.SetUb(1.0 if known else 0.0)
        self.solver.Objective().SetCoefficient(self.none, most / self.unit)
        if self.solver.Solve() != pywraplp.Solver.OPTIMAL:
            return None
        steps = min(MOST_ITERATIONS, max(0, self.solver.iterations()))
        chosen = np.array([x.solution_value() for x in self.states])
        prices = np.zeros(self.flat.slots)
        prices[self.slots] = [max(0.0, -row.dual_value()) for row in self.memory]
        prices *= self.unit / max(1, self.flat.limit or 0)
        to_second, to_first = [np.zeros(0)], [np.zeros(0)]
        for edge, (of_first, of_second) in zip(self.edges, self.ends, strict=True):
            to_first.append(edge.by_row + self.unit * np.array([row.dual_value() for row in of_first])[edge.rows])
            duals = np.array([row.dual_value() for row in of_second])
            to_second.append(edge.by_column + self.unit * duals[edge.columns])
        work = WORK_PER_ROW * self.rows * (1 + steps)
        bound = self.solver.Objective().Value() * self.unit
        return Relaxed(bound, chosen, np.concatenate(to_second), np.concatenate(to_first), prices, work)

    def _open(self, alive: np.ndarray) -> None:
        """Let the program choose among these states alone."""
        flat, other = self.flat, alive != self.open
        for s in np.flatnonzero(other).tolist():
            self.states[s].SetUb(1.0 if alive[s] else 0.0)
        self.open = alive.copy()
        touched = np.logical_or.reduceat(other, flat.offsets[:-1])
        for e in np.flatnonzero(touched[flat.first] | touched[flat.second]).tolist():
            edge, (a, b, pairs) = self.edges[e], self.pairs[e]
            rows, columns = np.zeros(edge.core.shape[0], bool), np.zeros(edge.core.shape[1], bool)
            rows[edge.rows[alive[flat.offsets[flat.first[e]] :][: len(edge.rows)]]] = True
            columns[edge.columns[alive[flat.offsets[flat.second[e]] :][: len(edge.columns)]]] = True
            now = rows[a] & columns[b]
            for k in np.flatnonzero(now != self.pairs_open[e]).tolist():
                pairs[k].SetUb(1.0 if now[k] else 0.0)
            self.pairs_open[e] = now


def _table(flat: Flat, edge: int, costs: bool) -> np.ndarray:
    table = flat.table(edge)
    return table if costs else np.where(np.isfinite(table), 0.0, np.inf)


def compact_entries(flat: Flat, most: int) -> bool:
    """Whether the program has at most so many pairs of groups."""
    entries = 0
    for e in range(len(flat.first)):
        entries += int(np.isfinite(Grouped.of(flat.table(e)).core).sum())
        if entries > most:
            return False
    return True


def memory_rows(flat: Flat) -> tuple[np.ndarray, np.ndarray]:
    """The slots whose rows may bind and which no other one implies, and what states hold there."""
    if flat.limit is None or not flat.slots:
        return np.zeros(0, dtype=np.int64), np.zeros((0, len(flat.unary)))
    amounts = np.zeros((flat.slots, len(flat.unary)), dtype=np.int64)
    for r in range(len(flat.held_node)):
        low = flat.offsets[flat.held_node[r]]
        own = flat.amounts[flat.held_at[r] : flat.held_at[r + 1]]
        amounts[flat.held_start[r] : flat.held_stop[r], low : low + len(own)] += own
    slots: list[int] = []
    most = np.maximum.reduceat(amounts, flat.offsets[:-1], axis=1).sum(axis=1)
    for t in sorted(np.flatnonzero(most > flat.limit).tolist(), key=lambda t: (-int(amounts[t].sum()), t)):
        if not any((amounts[t] <= amounts[u]).all() for u in slots):
            slots.append(t)
    slots.sort()
    return np.array(slots, dtype=np.int64), amounts[slots]
