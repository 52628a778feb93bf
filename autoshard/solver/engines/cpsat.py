"""CP-SAT as an exact engine for small cores: memory rows are linear constraints for it, and it can be installed where
toulbar2 has no wheel.

Every table becomes pair variables that agree with the states of both nodes (the local polytope), so the root
relaxation is that of the linear program. One worker, a fixed seed and a limit in deterministic time: the same answer on
every run; the wall clock only guards.
"""

from collections.abc import Sequence
from math import ceil
from typing import TYPE_CHECKING

import numpy as np

from autoshard.solver.engines.toulbar2 import Exact, Row
from autoshard.solver.work import FORBIDDEN_FROM

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

LARGEST_SUM = 2**60
"""The largest sum of costs that CP-SAT is given: it adds in 64-bit integers."""
LEAST_SECONDS, MOST_SECONDS = 0.1, 1e6
"""Time limits that CP-SAT is given lie between these: it takes no infinite ones."""
ROUNDING = 1e-6
"""CP-SAT tells its bound in floating point; costs are whole, so that this much more rounds up to the same number."""
_SECONDS_PER_BACKTRACK = 1e-3
"""Deterministic seconds granted for what other engines would call a backtrack."""


def solve_exact(
    unary: Sequence[np.ndarray],
    edges: Sequence[tuple[int, int, np.ndarray]],
    *,
    upper: int | None,
    rows: Sequence[Row] = (),
    backtracks: int = 100_000,
    seconds: float = 3600.0,
) -> Exact | None:
    """As `toulbar2.solve_exact`: minimise the sum of costs under the rows, below `upper`. None where costs are too
    large.
    """
    from ortools.sat.python import cp_model

    tables = [*unary, *(t for _, _, t in edges)]
    if any((costs >= FORBIDDEN_FROM).all() for costs in tables):
        return Exact(None, 0 if upper is None else upper, True, 0, False)
    low = sum(int(costs.min()) for costs in tables)
    if sum(int(t[t < FORBIDDEN_FROM].max()) - int(t.min()) for t in tables) > LARGEST_SUM:
        return None
    if upper is not None and upper <= low:
        return Exact(None, upper, True, 0, False)
    model, chosen = _model(unary, edges, rows, None if upper is None else upper - 1 - low)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 1
    solver.parameters.catch_sigint_signal = False  # it would leave Ctrl-C to the system, which kills the process
    solver.parameters.max_deterministic_time = max(LEAST_SECONDS, backtracks * _SECONDS_PER_BACKTRACK)
    solver.parameters.max_time_in_seconds = max(LEAST_SECONDS, min(seconds, MOST_SECONDS))
    status = solver.solve(model)
    timed_out = solver.wall_time >= seconds
    branches = int(solver.num_branches)
    if status == cp_model.INFEASIBLE:
        return Exact(None, low if upper is None else upper, True, branches, False)
    if status == cp_model.MODEL_INVALID:
        return None
    bound = low + max(0, ceil(solver.best_objective_bound - ROUNDING))
    if status == cp_model.UNKNOWN:
        return Exact(None, bound if upper is None else min(bound, upper), False, branches, timed_out)
    assignment = tuple(next(s for s, x in enumerate(choice) if solver.boolean_value(x)) for choice in chosen)
    complete = status == cp_model.OPTIMAL
    cost = sum(int(c[x]) for c, x in zip(unary, assignment, strict=True)) + sum(
        int(t[assignment[i], assignment[j]]) for i, j, t in edges
    )
    return Exact(assignment, cost if complete else min(bound, cost), complete, branches, timed_out and not complete)


def _model(
    unary: Sequence[np.ndarray],
    edges: Sequence[tuple[int, int, np.ndarray]],
    rows: Sequence[Row],
    most: int | None,
) -> "tuple[cp_model.CpModel, list[list[cp_model.IntVar]]]":
    """The network as a model, and per node a variable for each state.

    The objective is what an assignment costs above the least entries of all tables; most: it is at most that.
    """
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    chosen = [[model.new_bool_var(f"x{i}_{s}") for s in range(len(costs))] for i, costs in enumerate(unary)]
    variables: list[cp_model.IntVar] = []
    coefficients: list[int] = []
    for costs, choice in zip(unary, chosen, strict=True):
        model.add_exactly_one(choice)
        base = int(costs.min())
        for cost, x in zip(costs.tolist(), choice, strict=True):
            if cost >= FORBIDDEN_FROM:
                model.add(x == 0)
            elif cost > base:
                variables.append(x)
                coefficients.append(cost - base)
    for number, (i, j, table) in enumerate(edges):
        base = int(table.min())
        pairs: list[list[cp_model.IntVar | None]] = []
        for a in range(table.shape[0]):
            row: list[cp_model.IntVar | None] = []
            for b in range(table.shape[1]):
                cost = int(table[a, b])
                if cost >= FORBIDDEN_FROM:
                    row.append(None)
                    continue
                y = model.new_bool_var(f"y{number}_{a}_{b}")
                row.append(y)
                if cost > base:
                    variables.append(y)
                    coefficients.append(cost - base)
            pairs.append(row)
        for a, x in enumerate(chosen[i]):
            model.add(sum(y for y in pairs[a] if y is not None) == x)
        for b, x in enumerate(chosen[j]):
            model.add(sum(y for y in (row[b] for row in pairs) if y is not None) == x)
    for limit in rows:
        terms = [
            amount * x
            for node, amounts in zip(limit.scope, limit.amounts, strict=True)
            for amount, x in zip(amounts, chosen[node], strict=True)
            if amount
        ]
        model.add(sum(terms) <= limit.limit)
    objective = cp_model.LinearExpr.weighted_sum(variables, coefficients)
    if most is not None:
        model.add(objective <= most)
    model.minimize(objective)
    return model, chosen
