"""Messages over tables that are kept as rows and columns of smaller ones, compiled.

Tables are too large for the caches, so several rows are read at once: that is twice as fast as one after the other.
"""

import numpy as np

from autoshard.solver.compiled import compiled

_LOOKED_AGAIN = 32
"""After so many rows it is looked whether later ones can still give a smaller message; a multiple of four."""
_TRIED = 8
"""So many of the best columns are looked at one by one before a whole row is."""
_GATHERED = 16
"""At most one column in so many is looked up by its place; of more, whole rows are read."""


@compiled
def cheapest_way(base, sources, values, targets, scale, least):
    """[place of targets] the least, over rows, of a row's value plus what the table has there, times scale.

    sources: rows by rising value, values: theirs. targets: the columns that are asked for. least: no scaled entry is
    less.
    """
    width = base.shape[1]
    best = np.full(width, np.inf)
    k = 0
    while k < len(sources):
        if k % _LOOKED_AGAIN == 0:
            worst = -np.inf
            for t in range(len(targets)):
                worst = max(worst, best[targets[t]])
            if values[k] + least >= worst:
                break
        if k + 4 <= len(sources):
            row_0, row_1 = base[sources[k]], base[sources[k + 1]]
            row_2, row_3 = base[sources[k + 2]], base[sources[k + 3]]
            value_0, value_1, value_2, value_3 = values[k], values[k + 1], values[k + 2], values[k + 3]
            for c in range(width):
                one = min(value_0 + scale * row_0[c], value_1 + scale * row_1[c])
                two = min(value_2 + scale * row_2[c], value_3 + scale * row_3[c])
                best[c] = min(best[c], min(one, two))
            k += 4
        else:
            row, value = base[sources[k]], values[k]
            for c in range(width):
                best[c] = min(best[c], value + scale * row[c])
            k += 1
    out = np.empty(len(targets))
    for t in range(len(targets)):
        out[t] = best[targets[t]]
    return out


@compiled
def cheapest_way_across(base, sources, values, targets, scale, least):
    """The same from columns to rows: sources are columns by rising value, targets rows."""
    out = np.full(len(targets), np.inf)
    width = base.shape[1]
    few = len(sources)
    if few * _GATHERED > width:
        few = min(few, _TRIED)
    open_ = np.empty(len(targets), np.int64)  # places of targets whose rows are read whole
    n = 0
    for t in range(len(targets)):
        row = base[targets[t]]
        best = np.inf
        done = few == len(sources)
        for k in range(few):
            if values[k] + least >= best:
                done = True
                break
            best = min(best, values[k] + scale * row[sources[k]])
        out[t] = best
        if not done:
            open_[n] = t
            n += 1
    spread = np.full(width, np.inf)
    for k in range(len(sources)):
        spread[sources[k]] = values[k]
    for j in range(0, n - 3, 4):
        t_0, t_1, t_2, t_3 = open_[j], open_[j + 1], open_[j + 2], open_[j + 3]
        row_0, row_1, row_2, row_3 = base[targets[t_0]], base[targets[t_1]], base[targets[t_2]], base[targets[t_3]]
        best_0, best_1, best_2, best_3 = np.inf, np.inf, np.inf, np.inf
        for c in range(width):
            value = spread[c]
            best_0 = min(best_0, value + scale * row_0[c])
            best_1 = min(best_1, value + scale * row_1[c])
            best_2 = min(best_2, value + scale * row_2[c])
            best_3 = min(best_3, value + scale * row_3[c])
        out[t_0], out[t_1], out[t_2], out[t_3] = best_0, best_1, best_2, best_3
    for j in range(n - n % 4, n):
        row = base[targets[open_[j]]]
        best = np.inf
        for c in range(width):
            best = min(best, spread[c] + scale * row[c])
        out[open_[j]] = best
    return out


@compiled
def least_by_place(places, values, count):
    """[place] the least of the values that belong to it, inf where there are none."""
    out = np.full(count, np.inf)
    for k in range(len(places)):
        if values[k] < out[places[k]]:
            out[places[k]] = values[k]
    return out
