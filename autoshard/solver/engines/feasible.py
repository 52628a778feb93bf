"""Whether anything fits at all: CP-SAT on what a network allows and on its memory, without its costs.

A table says which states of one node support a state of the other, so a state implies that one of its supports is
chosen; that is all that unit propagation needs, and much smaller than the pair variables that costs need. One worker, a
fixed seed and deterministic time: the same answer on every run; the wall clock only guards.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any

import numpy as np

from autoshard.solver.network import IMPOSSIBLE, CostNetwork

MOST_LITERALS = 4_000_000
"""Of networks with more allowed pairs of states (each counts twice) a model is not even built: that takes long."""
_MOST_SECONDS = 1e6


@dataclass(frozen=True, slots=True)
class Fit:
    """assignment: one that is allowed and within the limit; None where none was found. none: whether the engine says
    that there is none, which is its word alone.
    """

    assignment: tuple[int, ...] | None
    none: bool = False


def any_fit(network: CostNetwork, *, effort: float, seconds: float) -> Fit:
    """An assignment of a network, whatever it costs.

    effort: seconds of CP-SAT's deterministic time; seconds: of the wall clock. A network with too many allowed pairs is
    not looked at. Raises `KeyboardInterrupt` where the user stopped it.
    """
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    chosen = [
        {int(state): model.new_bool_var(f"x{node}_{state}") for state in np.flatnonzero(costs < IMPOSSIBLE)}
        for node, costs in enumerate(network.costs)
    ]
    if not all(chosen):
        return Fit(None, none=True)
    tables = _tables(network)
    if sum(2 * int(allowed.sum()) for allowed in tables.values()) > MOST_LITERALS:
        return Fit(None)
    for choice in chosen:
        model.add_exactly_one(choice.values())
    for (first, second), allowed in tables.items():
        for one, other, table in ((first, second, allowed), (second, first, allowed.T)):
            states = np.array(list(chosen[other]))
            for state, x in chosen[one].items():
                supports = states[table[state, states]]
                if len(supports) < len(states):
                    model.add_bool_or([*(chosen[other][int(s)] for s in supports), ~x])
    if not _limited(network, model, chosen):
        return Fit(None, none=True)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 1
    solver.parameters.linearization_level = 0
    solver.parameters.catch_sigint_signal = False
    solver.parameters.max_deterministic_time = effort
    solver.parameters.max_time_in_seconds = max(0.1, min(seconds, _MOST_SECONDS))
    status = _solved(solver, model)
    if status == cp_model.INFEASIBLE:
        return Fit(None, none=True)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return Fit(None)
    return Fit(tuple(next(s for s, x in choice.items() if solver.boolean_value(x)) for choice in chosen))


def _tables(network: CostNetwork) -> dict[tuple[int, int], np.ndarray]:
    """(node, node) -> which pairs of states are allowed, by all edges between them, where not all are."""
    out: dict[tuple[int, int], np.ndarray] = {}
    for edge in network.edges:
        allowed = np.asarray(edge.costs) < IMPOSSIBLE
        if allowed.all():
            continue
        pair = (edge.first, edge.second)
        if edge.first > edge.second:
            pair, allowed = (edge.second, edge.first), allowed.T
        out[pair] = out[pair] & allowed if pair in out else allowed
    return out


def _limited(network: CostNetwork, model: Any, chosen: Sequence[dict[int, Any]]) -> bool:
    """Add what is live at every moment, as a row each; False where even the least of it is too much."""
    limit = network.usage_limit
    if limit is None:
        return True
    seen: set[tuple[int, tuple[tuple[int, int, int], ...]]] = set()
    for time in sorted({usage.start for usages in network.usages for usage in usages}):
        least, terms = 0, []
        for node, usages in enumerate(network.usages):
            there = [u.amounts for u in usages if u.start <= time < u.stop]
            if not there:
                continue
            amounts = np.sum(there, axis=0)
            base = min(int(amounts[s]) for s in chosen[node])
            least += base
            terms += [(node, s, int(amounts[s]) - base) for s in chosen[node] if amounts[s] > base]
        if least > limit:
            return False
        row = (limit - least, tuple(terms))
        if sum(amount for *_, amount in terms) > row[0] and row not in seen:
            seen.add(row)
            model.add(sum(amount * chosen[node][s] for node, s, amount in terms) <= row[0])
    return True


def _solved(solver: Any, model: Any) -> Any:
    """The status of a solve; beside it this thread can be interrupted."""
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(solver.solve, model)
        try:
            while not running.done():
                wait([running], timeout=0.1)
        except KeyboardInterrupt:
            solver.stop_search()
            raise
    return running.result()
