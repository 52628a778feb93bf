"""Lengths of shortest paths between all nodes of a graph, compiled: the costs of reshards on meshes of many axes."""

import numpy as np

from autoshard.solver.compiled import compiled


@compiled
def all_lengths(starts, targets, lengths):
    """[source, target] lengths of shortest paths; inf where there is none.

    starts: where the edges of each node begin in `targets` and `lengths`, which are positive. Lengths are added up from
    the source on, so that they are the same to the last bit as those of Dijkstra's algorithm. Paths have few edges, so
    that all sources together are soon done.
    """
    n = len(starts) - 1
    found = np.full((n, n), np.inf)  # [target, source]
    for node in range(n):
        found[node, node] = 0.0
    waiting = np.ones(n, np.bool_)
    some = True
    while some:
        some = False
        for node in range(n):
            if not waiting[node]:
                continue
            waiting[node] = False
            here = found[node]
            for k in range(starts[node], starts[node + 1]):
                there = found[targets[k]]
                length = lengths[k]
                shorter = 0
                for source in range(n):
                    way = here[source] + length
                    shorter += way < there[source]
                    there[source] = min(there[source], way)
                if shorter > 0:
                    waiting[targets[k]] = True
                    some = True
    return found.T.copy()
