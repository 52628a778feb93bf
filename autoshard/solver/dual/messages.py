"""Passes of sequential tree-reweighted message passing, compiled.

Message passing follows V. Kolmogorov, "Convergent tree-reweighted message passing for energy minimization" (TPAMI
2006). All numbers are multiples of a power of two (the *quantum*) and far below 2**53 quanta, so that float64
sums are exact and the bound of a pass is a proof, not an estimate; the largest magnitude met lets the caller check that.
"""

from typing import NamedTuple

import numpy as np

from autoshard.solver.compiled import compiled
from autoshard.solver.dual.arrays import Graph, Messages


class Visit(NamedTuple):
    """Room for one node's numbers while a pass visits it, one per strategy.

    own: its cost plus all incoming messages. share: what each edge that is sent along gets of that. left: the share
    less the message that came along the edge. message: what is sent. decode: what its strategies cost beside the
    choices made so far. fixed: per edge, laid out as messages to first nodes, the row of the table at what the second
    node has chosen (only on the way downwards).
    """

    own: np.ndarray
    share: np.ndarray
    left: np.ndarray
    message: np.ndarray
    decode: np.ndarray
    fixed: np.ndarray


@compiled
def message_pass(
    forward: bool,
    quantum: float,
    graph: Graph,
    priced: np.ndarray,
    messages: Messages,
    total: np.ndarray,
    chosen: np.ndarray,
):
    """One pass over all nodes; returns (bound, largest magnitude met).

    forward: visit nodes upwards and send to higher ones, else downwards. priced: costs of the strategies with prices on
    memory. messages: both directions are updated in place. total: receives per strategy the node's cost plus all
    incoming messages at its visit. chosen: receives per node a strategy decoded on the way downwards.
    The bound is the sum over nodes of the least left-over plus the sum over edges of the normalisations.
    """
    offsets, first = graph.offsets, graph.first
    incident_at, incident = graph.incident_at, graph.incident
    n = len(offsets) - 1
    widest = widest_of(offsets)
    visit = Visit(
        np.empty(widest),
        np.empty(widest),
        np.empty(widest),
        np.empty(widest),
        np.empty(widest),
        np.empty(0 if forward else len(messages.to_first)),
    )
    bound = 0.0
    largest = 0.0
    best = 0
    for step in range(n):
        i = step if forward else n - 1 - step
        upper, lower = gather(i, graph, priced, messages, visit.own)
        if not forward:
            best = decoded(i, graph, priced, messages, visit)
            chosen[i] = best
        outgoing = upper if forward else lower
        lowest, highest = hand_out(i, outgoing, max(1, upper, lower), quantum, offsets, visit, total)
        largest = max(largest, highest)
        bound += lowest
        if outgoing == 0:
            continue
        for k in range(incident_at[i], incident_at[i + 1]):
            e = incident[k]
            if forward:
                if first[e] != i:
                    continue
                lowest, highest = send_up(e, graph, messages, visit)
            else:
                if first[e] == i:
                    continue
                lowest, highest = send_down(e, best, graph, messages, visit)
            largest = max(largest, highest)
            bound += lowest
    return bound, max(largest, abs(bound))


@compiled
def widest_of(offsets: np.ndarray):
    """The number of strategies of the node that has most, at least 1."""
    widest = 1
    for i in range(len(offsets) - 1):
        widest = max(widest, offsets[i + 1] - offsets[i])
    return widest


@compiled
def gather(i: int, graph: Graph, priced: np.ndarray, messages: Messages, own: np.ndarray):
    """Sets `own` to the cost of node i plus all incoming messages; returns its edges to higher and to lower nodes."""
    first, incident_at, incident = graph.first, graph.incident_at, graph.incident
    second_at, first_at, to_second, to_first = messages
    low = graph.offsets[i]
    d = graph.offsets[i + 1] - low
    upper = 0
    lower = 0
    for a in range(d):
        own[a] = priced[low + a]
    for k in range(incident_at[i], incident_at[i + 1]):
        e = incident[k]
        if first[e] == i:
            upper += 1
            at = first_at[e]
            for a in range(d):
                own[a] += to_first[at + a]
        else:
            lower += 1
            at = second_at[e]
            for a in range(d):
                own[a] += to_second[at + a]
    return upper, lower


@compiled
def decoded(i: int, graph: Graph, priced: np.ndarray, messages: Messages, visit: Visit):
    """The strategy of node i that is cheapest beside the choices of higher nodes and the messages from lower ones."""
    first, incident_at, incident = graph.first, graph.incident_at, graph.incident
    second_at, first_at, to_second, _ = messages
    decode, own, fixed = visit.decode, visit.own, visit.fixed
    low = graph.offsets[i]
    d = graph.offsets[i + 1] - low
    for a in range(d):
        decode[a] = priced[low + a]
    for k in range(incident_at[i], incident_at[i + 1]):
        e = incident[k]
        if first[e] == i:
            at = first_at[e]
            for a in range(d):
                decode[a] += fixed[at + a]
        else:
            at = second_at[e]
            for a in range(d):
                decode[a] += to_second[at + a]
    best = 0
    for a in range(1, d):
        if decode[a] < decode[best]:
            best = a
    if not decode[best] < np.inf:  # earlier choices forbid everything: fall back to the messages
        for a in range(d):
            if own[a] < own[best]:
                best = a
    return best


@compiled
def hand_out(
    i: int, outgoing: int, parts: int, quantum: float, offsets: np.ndarray, visit: Visit, total: np.ndarray
):  # fmt: skip
    """Splits what node i costs into equal shares for its outgoing edges; returns the least left-over, the largest cost.

    parts: the edges that it is split among: the more numerous ones of those to higher and to lower nodes.
    """
    own, share = visit.own, visit.share
    low = offsets[i]
    weight = 1.0 / parts
    finest = 1.0 / quantum
    lowest = np.inf
    highest = 0.0
    for a in range(offsets[i + 1] - low):
        value = own[a]
        total[low + a] = value
        highest = max(highest, abs(value))
        part = np.floor(value * weight * finest) * quantum if outgoing > 0 else 0.0
        share[a] = part
        lowest = min(lowest, value - outgoing * part)
    return lowest, highest


@compiled
def send_up(e: int, graph: Graph, messages: Messages, visit: Visit):
    """The message of edge e to its second node, less its least entry; returns that, and the largest entry left."""
    second_at, first_at, to_second, to_first = messages
    tables, share, message = graph.tables, visit.share, visit.message
    at = graph.table_at[e]
    mine = first_at[e]
    theirs = second_at[e]
    c = second_at[e + 1] - theirs
    for b in range(c):
        message[b] = np.inf
    for a in range(first_at[e + 1] - mine):
        value = share[a] - to_first[mine + a]
        for b in range(c):
            message[b] = min(message[b], value + tables[at + b])
        at += c
    return normalised(message, to_second, theirs, c)


@compiled
def send_down(e: int, best: int, graph: Graph, messages: Messages, visit: Visit):
    """The same to its first node; best: what the second one has chosen, whose row of the table goes into `fixed`."""
    second_at, first_at, to_second, to_first = messages
    tables, share, left, message, fixed = graph.tables, visit.share, visit.left, visit.message, visit.fixed
    at = graph.table_at[e]
    mine = second_at[e]
    theirs = first_at[e]
    c = first_at[e + 1] - theirs
    d = second_at[e + 1] - mine
    for a in range(d):
        left[a] = share[a] - to_second[mine + a]
    for b in range(c):
        value = np.inf
        for a in range(d):
            value = min(value, left[a] + tables[at + a])
        message[b] = value
        fixed[theirs + b] = tables[at + best]
        at += d
    return normalised(message, to_first, theirs, c)


@compiled
def normalised(message: np.ndarray, out: np.ndarray, at: int, length: int):
    """Writes a message less its least entry to out[at:]; returns that entry, and the largest one left."""
    lowest = np.inf
    for b in range(length):
        lowest = min(lowest, message[b])
    highest = 0.0
    for b in range(length):
        value = message[b] - lowest
        out[at + b] = value
        highest = max(highest, value)
    return lowest, highest


@compiled
def rests(graph: Graph, messages: Messages, share: np.ndarray, rest: np.ndarray, lows: np.ndarray):
    """What is left of each table beside the messages, less its least entry (see `passes.left_over`).

    rest: receives that, laid out as the tables are. lows: receives the least entry of every edge.
    """
    offsets, first, second = graph.offsets, graph.first, graph.second
    table_at, tables = graph.table_at, graph.tables
    second_at, first_at, to_second, to_first = messages
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
