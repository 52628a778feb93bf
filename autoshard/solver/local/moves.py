"""Compiled local search by single nodes, under a hard memory limit: no slot ends above it.

Where a slot is above it already, it ends no higher than before.
"""

import numpy as np

from autoshard.solver.compiled import compiled
from autoshard.solver.dual.arrays import Graph
from autoshard.solver.local.live import Assigned, Memory, try_switch


@compiled
def local_costs(i: int, graph: Graph, chosen: np.ndarray, out: np.ndarray):
    """Sets `out` to what each state of node i costs with everything else fixed."""
    offsets, unary, first, second, table_at, tables, incident_at, incident = graph
    low = offsets[i]
    d = offsets[i + 1] - low
    for a in range(d):
        out[a] = unary[low + a]
    for k in range(incident_at[i], incident_at[i + 1]):
        e = incident[k]
        at = table_at[e]
        if first[e] == i:
            c = offsets[second[e] + 1] - offsets[second[e]]
            x = chosen[second[e]]
            for a in range(d):
                out[a] += tables[at + a * c + x]
        else:
            x = chosen[first[e]]
            for a in range(d):
                out[a] += tables[at + x * d + a]


@compiled
def node_descent(
    sweeps: int, graph: Graph, memory: Memory, prefix: np.ndarray, assigned: Assigned, scratch: np.ndarray
):  # fmt: skip
    """Switch single nodes to what is cheapest at the prices (prefix sums) and fits; returns how many switches.

    scratch: room for one number per state of a node.
    """
    record_at, start, stop, at, amounts, _ = memory
    offsets, chosen = graph.offsets, assigned.chosen
    switches = 0
    for _ in range(sweeps):
        changed = 0
        for i in range(len(offsets) - 1):
            d = offsets[i + 1] - offsets[i]
            if d == 1:
                continue
            local_costs(i, graph, chosen, scratch)
            for r in range(record_at[i], record_at[i + 1]):
                price = prefix[stop[r]] - prefix[start[r]]
                if price > 0.0:
                    for a in range(d):
                        scratch[a] += price * amounts[at[r] + a]
            while True:
                x = chosen[i]
                best = x
                for a in range(d):
                    if scratch[a] < scratch[best]:
                        best = a
                if best == x:
                    break
                if try_switch(i, best, memory, assigned):
                    changed += 1
                    break
                scratch[best] = np.inf  # does not fit: the next best
        switches += changed
        if not changed:
            break
    return switches
