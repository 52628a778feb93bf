"""Messages over tables that are kept as rows and columns of smaller ones, compiled."""

import numpy as np

from autoshard.solver.compiled import compiled

_LOOKED_AGAIN = 32
"""After so many rows it is looked whether later ones can still give a smaller message."""
_TRIED = 256
"""So many of the best columns are looked at one by one before a whole row is."""


@compiled
def cheapest_way(base, sources, values, targets, scale, least):
    """[place of targets] the least, over rows, of a row's value plus what the table has there, times scale.

    sources: rows by rising value, values: theirs. targets: the columns that are asked for. least: no scaled entry is
    less.
    """
    width = base.shape[1]
    best = np.full(width, np.inf)
    for k in range(len(sources)):
        if k % _LOOKED_AGAIN == 0:
            worst = -np.inf
            for t in range(len(targets)):
                worst = max(worst, best[targets[t]])
            if values[k] + least >= worst:
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
def cheapest_way_across(base, sources, values, targets, scale, least):
    """The same from columns to rows: sources are columns by rising value, targets rows."""
    out = np.full(len(targets), np.inf)
    width = base.shape[1]
    spread = np.full(width, np.inf)
    for k in range(len(sources)):
        spread[sources[k]] = values[k]
    few = min(_TRIED, len(sources))
    ways = np.empty(width)
    for t in range(len(targets)):
        row = base[targets[t]]
        best = np.inf
        done = few == len(sources)
        for k in range(few):
            if values[k] + least >= best:
                done = True
                break
            best = min(best, values[k] + scale * row[sources[k]])
        if not done:
            for c in range(width):
                ways[c] = spread[c] + scale * row[c]
            best = min(best, ways.min())
        out[t] = best
    return out


@compiled
def least_by_place(places, values, count):
    """[place] the least of the values that belong to it, inf where there are none."""
    out = np.full(count, np.inf)
    for k in range(len(places)):
        if values[k] < out[places[k]]:
            out[places[k]] = values[k]
    return out
