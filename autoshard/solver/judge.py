"""The cost and the peak of whole assignments of one large network, thousands of nodes at a time.

The results equal those of `network.evaluate`, which has the last word on what a run returns; this quicker way is used
for every improvement before that.
"""

from collections.abc import Callable

import numpy as np

from autoshard.solver.network import IMPOSSIBLE, CostNetwork, Evaluation, evaluate
from autoshard.solver.work import joined

LARGE = 2_000
"""The number of edges from which arrays are quicker."""
MOST_ENTRIES = 30_000_000
"""Tables with more entries than this in all are not copied."""
MAX_LIVE = 2**62


def judge_of(network: CostNetwork) -> Callable[[np.ndarray], Evaluation]:
    """A function from assignments (int64, one state per node) to what `evaluate` says of them."""
    tables = {id(edge.costs): edge.costs for edge in network.edges}
    if len(network.edges) < LARGE or sum(table.size for table in tables.values()) > MOST_ENTRIES:
        return lambda chosen: evaluate(network, chosen.tolist())
    records = [(i, u) for i, usages in enumerate(network.usages) for u in usages if u.start < u.stop]
    amounts, amount_at = joined([u.amounts for _, u in records])
    if int(np.abs(amounts).max(initial=0)) * max(1, len(records)) > MAX_LIVE:
        return lambda chosen: evaluate(network, chosen.tolist())

    costs, cost_at = joined(network.costs)
    entries, starts = joined([table.ravel() for table in tables.values()])
    begins = dict(zip(tables, starts.tolist(), strict=True))
    first = np.array([edge.first for edge in network.edges])
    second = np.array([edge.second for edge in network.edges])
    table_at = np.array([begins[id(edge.costs)] for edge in network.edges])
    columns = np.array([edge.costs.shape[1] for edge in network.edges])

    held_node = np.array([i for i, _ in records], dtype=np.int64)
    times, slots = np.unique(np.array([(u.start, u.stop) for _, u in records]).ravel(), return_inverse=True)
    start, stop = slots.reshape(-1, 2).T
    limit = network.usage_limit

    def judged(chosen: np.ndarray) -> Evaluation:
        node_costs = costs[cost_at + chosen]
        edge_costs = entries[table_at + chosen[first] * columns + chosen[second]]
        allowed = max(int(node_costs.max()), int(edge_costs.max())) < IMPOSSIBLE
        live = np.zeros(len(times) + 1, dtype=np.int64)
        held = amounts[amount_at + chosen[held_node]]
        np.add.at(live, start, held)
        np.subtract.at(live, stop, held)
        peak = int(np.cumsum(live).max(initial=0))
        within = limit is None or peak <= limit
        return Evaluation(_sum(node_costs) + _sum(edge_costs) if allowed else None, peak, allowed and within)

    return judged


def _sum(values: np.ndarray) -> int:
    """The sum of whole numbers, exact even where int64 would overflow."""
    return (int((values >> 32).sum()) << 32) + int((values & 0xFFFFFFFF).sum())
