"""Tiny networks within a memory limit: all assignments by cost, simulated until one fits.

The network does not see copies that one op alone makes, so an assignment within its limit may still not fit. Where
there are few, they are simulated in the order of their costs: the first that fits is the optimum, and where none does
there is no plan.
"""

from math import prod

import numpy as np

from autoshard.solver.network import IMPOSSIBLE, CostNetwork

MOST_ASSIGNMENTS = 200_000
"""Networks with at most so many assignments are enumerated."""
MOST_SIMULATED = 2_000
"""At most so many of them are simulated."""
_MOST_OPEN = 30
"""Decisions with more than one state; numpy has that many dimensions."""


def is_tiny(network: CostNetwork) -> bool:
    """Whether all assignments of a network can be listed."""
    sizes = [len(c) for c in network.costs if len(c) > 1]
    return len(sizes) <= _MOST_OPEN and prod(sizes) <= MOST_ASSIGNMENTS


def by_cost(network: CostNetwork) -> list[tuple[int, tuple[int, ...]]]:
    """(cost, assignment) of all that are allowed and within the limit, cheapest first; ties in canonical order."""
    shape = [len(c) for c in network.costs]
    axis = {node: k for k, node in enumerate(n for n, size in enumerate(shape) if size > 1)}
    sizes = [shape[node] for node in axis]
    total = np.zeros(sizes, np.int64)
    allowed = np.ones(sizes, bool)

    def spread(table: np.ndarray, nodes: tuple[int, ...]) -> np.ndarray:
        """A table over the states of some nodes, as one over all open ones."""
        open_ = [n for n in nodes if n in axis]
        table = table.reshape([shape[n] for n in open_])
        order = np.argsort([axis[n] for n in open_], kind="stable")
        here = {axis[n] for n in open_}
        return np.transpose(table, order).reshape([s if k in here else 1 for k, s in enumerate(sizes)])

    def add(table: np.ndarray, nodes: tuple[int, ...]) -> None:
        nonlocal total, allowed
        forbidden = table >= IMPOSSIBLE
        total = total + spread(np.where(forbidden, 0, table), nodes)
        if forbidden.any():
            allowed = allowed & ~spread(forbidden, nodes)

    for node, costs in enumerate(network.costs):
        add(np.asarray(costs), (node,))
    for edge in network.edges:
        if edge.first == edge.second:
            add(np.diagonal(edge.costs), (edge.first,))
        else:
            add(np.asarray(edge.costs), (edge.first, edge.second))
    if network.usage_limit is not None:
        allowed &= _peaks(network, spread, sizes) <= network.usage_limit
    flat = np.flatnonzero(allowed)
    flat = flat[np.argsort(total.reshape(-1)[flat], kind="stable")]
    columns = np.unravel_index(flat, sizes) if sizes else ()
    found = []
    for row in range(len(flat)):
        assignment = tuple(int(columns[axis[n]][row]) if n in axis else 0 for n in range(len(shape)))
        found.append((int(total.reshape(-1)[flat[row]]), assignment))
    return found


def _peaks(network: CostNetwork, spread, sizes: list[int]) -> np.ndarray:
    """The largest usage of every assignment."""
    times = sorted({u.start for us in network.usages for u in us if u.start < u.stop})
    peak = np.zeros(sizes, np.int64)
    for time in times:
        live = np.zeros(sizes, np.int64)
        for node, usages in enumerate(network.usages):
            for usage in usages:
                if usage.start <= time < usage.stop:
                    live = live + spread(np.asarray(usage.amounts), (node,))
        np.maximum(peak, live, out=peak)
    return peak
