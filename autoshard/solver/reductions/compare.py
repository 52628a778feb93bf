"""States of one node compared, compiled."""

import numpy as np

from autoshard.solver.compiled import compiled


@compiled
def beats(cost: np.ndarray, joint: np.ndarray, ends: np.ndarray, forbidden: int):
    """[a, b]: b never costs more than a, whatever the neighbours choose.

    joint: the tables of all edges side by side [state, neighbour's state]; those of edge e end before ends[e].
    """
    d = len(cost)
    out = np.zeros((d, d), dtype=np.bool_)
    for a in range(d):
        out[a, a] = True
        for b in range(d):
            if a == b:
                continue
            worse = cost[b] - cost[a]
            low = 0
            for e in range(len(ends)):
                most = joint[b, low] - joint[a, low]
                for k in range(low + 1, ends[e]):
                    most = max(most, joint[b, k] - joint[a, k])
                low = ends[e]
                worse = min(worse + most, forbidden)
                if 2 * most >= forbidden:
                    break
            out[a, b] = worse <= 0
    return out
