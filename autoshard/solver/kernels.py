"""The hot loops, compiled by numba: sequential tree-reweighted message passing and greedy decoding.

Message passing follows V. Kolmogorov, "Convergent tree-reweighted message passing for energy minimization" (TPAMI
2006). All numbers are multiples of a power of two (the *quantum*) and far below 2**53 quanta, so that float64
sums are exact and the bound of a pass is a proof, not an estimate; `largest` lets the caller check that.
Compiled code is cached beside the module where that folder can be written, else in the user's cache folder.
"""

import numpy as np
from numba import njit

# no infinities are subtracted and no NaN arises; minima may be reassociated so that they vectorise
FAST = {"nnan", "nsz", "reassoc"}


def compiled(function):
    """njit with the project's options, cached on disk where there is a folder for it."""
    try:
        return njit(cache=True, fastmath=FAST, nogil=True)(function)
    except RuntimeError:  # numba found no folder to write its cache to
        return njit(fastmath=FAST, nogil=True)(function)


@compiled
def message_pass(
    forward, quantum, offsets, unary, first, second, table_at, tables, incident_at, incident,
    second_at, first_at, to_second, to_first, total, chosen,
):  # fmt: skip
    """One pass over all nodes; returns (bound, largest magnitude met).

    forward: visit nodes upwards and send to higher ones, else downwards. to_second[second_at[e]:]: message of edge e to
    its second node; to_first likewise; both updated in place. total: receives per strategy the node's cost plus all
    incoming messages at its visit. chosen: receives per node a strategy decoded on the way.
    The bound is the sum over nodes of the least left-over plus the sum over edges of the normalisations.
    """
    n = len(offsets) - 1
    bound = 0.0
    largest = 0.0
    widest = 1
    for i in range(n):
        widest = max(widest, offsets[i + 1] - offsets[i])
    share = np.empty(widest)
    left = np.empty(widest)
    decode = np.empty(widest)
    for step in range(n):
        i = step if forward else n - 1 - step
        low = offsets[i]
        d = offsets[i + 1] - low
        outgoing = 0
        incoming = 0
        for a in range(d):
            total[low + a] = unary[low + a]
            decode[a] = unary[low + a]
        for k in range(incident_at[i], incident_at[i + 1]):
            e = incident[k]
            if first[e] == i:
                at = first_at[e]
                for a in range(d):
                    total[low + a] += to_first[at + a]
                out = forward
            else:
                at = second_at[e]
                for a in range(d):
                    total[low + a] += to_second[at + a]
                out = not forward
            if out:
                outgoing += 1
                if first[e] == i:
                    for a in range(d):
                        decode[a] += to_first[first_at[e] + a]
                else:
                    for a in range(d):
                        decode[a] += to_second[second_at[e] + a]
            else:
                incoming += 1
                if first[e] == i:
                    c = offsets[second[e] + 1] - offsets[second[e]]
                    x = chosen[second[e]]
                    for a in range(d):
                        decode[a] += tables[table_at[e] + a * c + x]
                else:
                    x = chosen[first[e]]
                    for a in range(d):
                        decode[a] += tables[table_at[e] + x * d + a]
        best = 0
        for a in range(1, d):
            if decode[a] < decode[best]:
                best = a
        if not decode[best] < np.inf:  # earlier choices forbid everything: fall back to the messages
            for a in range(d):
                if total[low + a] < total[low + best]:
                    best = a
        chosen[i] = best
        weight = 1.0 / max(1, outgoing, incoming)
        lowest = np.inf
        for a in range(d):
            value = total[low + a]
            largest = max(largest, abs(value))
            part = np.floor(value * weight / quantum) * quantum if outgoing > 0 else 0.0
            share[a] = part
            rest = value - outgoing * part
            if rest < lowest:
                lowest = rest
        bound += lowest
        for k in range(incident_at[i], incident_at[i + 1]):
            e = incident[k]
            at = table_at[e]
            if first[e] == i:
                if not forward:
                    continue
                j = second[e]
                c = offsets[j + 1] - offsets[j]
                mine = first_at[e]
                theirs = second_at[e]
                for b in range(c):
                    to_second[theirs + b] = np.inf
                for a in range(d):
                    value = share[a] - to_first[mine + a]
                    for b in range(c):
                        to_second[theirs + b] = min(to_second[theirs + b], value + tables[at + a * c + b])
                lowest = np.inf
                for b in range(c):
                    lowest = min(lowest, to_second[theirs + b])
                for b in range(c):
                    to_second[theirs + b] -= lowest
                    largest = max(largest, to_second[theirs + b])
                bound += lowest
            else:
                if forward:
                    continue
                j = first[e]
                c = offsets[j + 1] - offsets[j]
                mine = second_at[e]
                theirs = first_at[e]
                for a in range(d):
                    left[a] = share[a] - to_second[mine + a]
                lowest = np.inf
                for b in range(c):
                    value = np.inf
                    for a in range(d):
                        value = min(value, left[a] + tables[at + b * d + a])
                    to_first[theirs + b] = value
                    lowest = min(lowest, value)
                for b in range(c):
                    to_first[theirs + b] -= lowest
                    largest = max(largest, to_first[theirs + b])
                bound += lowest
    return bound, max(largest, abs(bound))
