"""Passes of sequential tree-reweighted message passing, compiled.

Message passing follows V. Kolmogorov, "Convergent tree-reweighted message passing for energy minimization" (TPAMI
2006). All numbers are multiples of a power of two (the *quantum*) and far below 2**53 quanta, so that float64
sums are exact and the bound of a pass is a proof, not an estimate; `largest` lets the caller check that.
"""

import numpy as np

from autoshard.solver.compiled import compiled


@compiled
def message_pass(
    forward, quantum, offsets, unary, first, second, table_at, tables, incident_at, incident,
    second_at, first_at, to_second, to_first, total, chosen,
):  # fmt: skip
    """One pass over all nodes; returns (bound, largest magnitude met).

    forward: visit nodes upwards and send to higher ones, else downwards. to_second[second_at[e]:]: message of edge e to
    its second node; to_first likewise; both updated in place. total: receives per strategy the node's cost plus all
    incoming messages at its visit. chosen: receives per node a strategy decoded on the way downwards.
    The bound is the sum over nodes of the least left-over plus the sum over edges of the normalisations.
    """
    n = len(offsets) - 1
    bound = 0.0
    largest = 0.0
    finest = 1.0 / quantum
    widest = 1
    for i in range(n):
        widest = max(widest, offsets[i + 1] - offsets[i])
    own = np.empty(widest)
    share = np.empty(widest)
    left = np.empty(widest)
    message = np.empty(widest)
    decode = np.empty(widest)
    fixed = np.empty(0 if forward else len(to_first))  # the rows of tables at what the second node has chosen
    for step in range(n):
        i = step if forward else n - 1 - step
        low = offsets[i]
        d = offsets[i + 1] - low
        upper = 0
        lower = 0
        for a in range(d):
            own[a] = unary[low + a]
            decode[a] = own[a]
        for k in range(incident_at[i], incident_at[i + 1]):
            e = incident[k]
            if first[e] == i:
                upper += 1
                at = first_at[e]
                for a in range(d):
                    own[a] += to_first[at + a]
                if not forward:
                    for a in range(d):
                        decode[a] += fixed[at + a]
            else:
                lower += 1
                at = second_at[e]
                for a in range(d):
                    own[a] += to_second[at + a]
                if not forward:
                    for a in range(d):
                        decode[a] += to_second[at + a]
        best = 0
        if not forward:
            for a in range(1, d):
                if decode[a] < decode[best]:
                    best = a
            if not decode[best] < np.inf:  # earlier choices forbid everything: fall back to the messages
                for a in range(d):
                    if own[a] < own[best]:
                        best = a
            chosen[i] = best
        outgoing = upper if forward else lower
        weight = 1.0 / max(1, upper, lower)
        lowest = np.inf
        highest = 0.0
        for a in range(d):
            value = own[a]
            total[low + a] = value
            highest = max(highest, abs(value))
            part = np.floor(value * weight * finest) * quantum if outgoing > 0 else 0.0
            share[a] = part
            lowest = min(lowest, value - outgoing * part)
        largest = max(largest, highest)
        bound += lowest
        if outgoing == 0:
            continue
        for k in range(incident_at[i], incident_at[i + 1]):
            e = incident[k]
            at = table_at[e]
            if forward:
                if first[e] != i:
                    continue
                c = second_at[e + 1] - second_at[e]
                mine = first_at[e]
                theirs = second_at[e]
                for b in range(c):
                    message[b] = np.inf
                for a in range(d):
                    value = share[a] - to_first[mine + a]
                    for b in range(c):
                        message[b] = min(message[b], value + tables[at + b])
                    at += c
            else:
                if first[e] == i:
                    continue
                c = first_at[e + 1] - first_at[e]
                mine = second_at[e]
                theirs = first_at[e]
                for a in range(d):
                    left[a] = share[a] - to_second[mine + a]
                for b in range(c):
                    value = np.inf
                    for a in range(d):
                        value = min(value, left[a] + tables[at + a])
                    message[b] = value
                    fixed[theirs + b] = tables[at + best]
                    at += d
            lowest = np.inf
            for b in range(c):
                lowest = min(lowest, message[b])
            highest = 0.0
            if forward:
                for b in range(c):
                    value = message[b] - lowest
                    to_second[theirs + b] = value
                    highest = max(highest, value)
            else:
                for b in range(c):
                    value = message[b] - lowest
                    to_first[theirs + b] = value
                    highest = max(highest, value)
            largest = max(largest, highest)
            bound += lowest
    return bound, max(largest, abs(bound))


@compiled
def rests(
    offsets, first, second, table_at, tables, second_at, first_at, to_second, to_first, share, rest, lows,
):  # fmt: skip
    """What is left of each table beside the messages, less its least entry (see `dual.reparametrise`)."""
    for e in range(len(first)):
        j = offsets[second[e]]
        d = first_at[e + 1] - first_at[e]
        c = second_at[e + 1] - second_at[e]
        at = table_at[e]
        lowest = np.inf
        for a in range(d):
            mine = to_first[first_at[e] + a]
            for b in range(c):
                value = tables[at + a * c + b] - mine + (share[j + b] - to_second[second_at[e] + b])
                rest[at + a * c + b] = value
                lowest = min(lowest, value)
        lows[e] = lowest
        for k in range(at, at + d * c):
            rest[k] -= lowest
