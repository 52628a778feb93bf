"""Messages over tables that are kept as rows and columns of smaller ones, compiled."""

import numpy as np

from autoshard.solver.compiled import compiled

_LOOKED_AGAIN = 32
"""After so many rows it is looked whether later ones can still give a smaller message."""


@compiled
def cheapest_way(base, sources, values, targets, scale):
    """[place of targets] the least, over rows, of a row's value plus what the table has there.

    base: entries of at least 0. sources: rows by rising value, values: theirs. targets: the columns that are asked for.
    """
    width = base.shape[1]
    best = np.full(width, np.inf)
    for k in range(len(sources)):
        if k % _LOOKED_AGAIN == 0:
            worst = -np.inf
            for t in range(len(targets)):
                worst = max(worst, best[targets[t]])
            if values[k] >= worst:
                break
        value = values[k]
        row = base[sources[k]]
        for c in range(width):
            best[c] = min(best[c], value + scale * row[c])
    out = np.empty(len(targets))
    for t in range(len(targets)):
        out[t] = best[targets[t]]
    return out


@compiled
def least_by_place(places, values, count):
    """[place] the least of the values that belong to it, inf where there are none."""
    out = np.full(count, np.inf)
    for k in range(len(places)):
        if values[k] < out[places[k]]:
            out[places[k]] = values[k]
    return out
