"""Passes of sequential tree-reweighted message passing, compiled.

Message passing follows V. Kolmogorov, "Convergent tree-reweighted message passing for energy minimization" (TPAMI
2006). All numbers are multiples of a power of two (the *quantum*) and far below 2**53 quanta, so that float64
sums are exact and the bound of a pass is a proof, not an estimate; the largest magnitude met lets the caller check it.
"""

import numpy as np

from autoshard.solver.compiled import compiled, copy_to
from autoshard.solver.dual.arrays import Classes, Graph, Messages


# complexity: a node's messages are one loop, since calls would pass all arrays for every edge
@compiled
def message_pass(
    forward: bool,
    quantum: float,
    graph: Graph,
    classes: Classes,
    priced: np.ndarray,
    messages: Messages,
    total: np.ndarray,
    chosen: np.ndarray,
):
    """One pass over all nodes; returns (bound, largest magnitude met).

    forward: visit nodes upwards and send to higher ones, else downwards. priced: costs of the states with prices on
    memory. messages: both directions are updated in place. total: receives per state the node's cost plus all
    incoming messages at its visit. chosen: receives per node a state decoded on the way downwards.
    The bound is the sum over nodes of the least left-over plus the sum over edges of the normalisations.
    Tables with classes are taken by classes where that is less work: sums and minima are the same to the last bit.
    """
    offsets, _, first, _, table_at, tables, incident_at, incident = graph
    second_at, first_at, to_second, to_first = messages
    n = len(offsets) - 1
    bound = 0.0
    largest = 0.0
    finest = 1.0 / quantum
    widest = widest_of(offsets)
    sums = np.empty(widest)  # what the node costs with all incoming messages
    shares = np.empty(widest)  # what each edge that is sent along gets of that
    rest = np.empty(widest)  # the share less the message that came along the edge
    sent = np.empty(widest)
    costs = np.empty(widest)  # what states cost beside the choices made so far
    least = np.empty(2 * widest)  # of classes: a part of a network may have more of them than states
    fixed = np.empty(0 if forward else len(to_first))  # the rows of tables at what the second node has chosen
    for step in range(n):
        i = step if forward else n - 1 - step
        low = offsets[i]
        d = offsets[i + 1] - low
        upper = np.int64(0)
        lower = np.int64(0)
        own = sums[:d]
        decode = costs[:d]
        part = shares[:d]
        copy_to(own, priced[low : low + d])
        if not forward:
            copy_to(decode, own)
        for k in range(incident_at[i], incident_at[i + 1]):
            e = incident[k]
            if first[e] == i:
                upper += 1
                at = first_at[e]
                add_to(own, to_first[at : at + d])
                if not forward:
                    add_to(decode, fixed[at : at + d])
            else:
                lower += 1
                at = second_at[e]
                add_to(own, to_second[at : at + d])
                if not forward:
                    add_to(decode, to_second[at : at + d])
        best = 0
        if not forward:
            best = cheapest(decode, own)
            chosen[i] = best
        outgoing = upper if forward else lower
        weight = 1.0 / max(1, upper, lower)
        lowest, highest = divided(own, weight * finest, quantum, outgoing, total[low : low + d], part)
        largest = max(largest, highest)
        bound += lowest
        if outgoing == 0:
            continue
        for k in range(incident_at[i], incident_at[i + 1]):
            e = incident[k]
            if (first[e] == i) != forward:
                continue
            at = table_at[e]
            mine, theirs = (first_at[e], second_at[e]) if forward else (second_at[e], first_at[e])
            c = (second_at[e + 1] if forward else first_at[e + 1]) - theirs
            message = sent[:c]
            left = rest[:d]
            came = to_first[mine : mine + d] if forward else to_second[mine : mine + d]
            for a in range(d):
                left[a] = part[a] - came[a]
            if by_classes(classes, e, d, c) and sum_of_classes(classes, e) <= len(least):
                if forward:
                    along_rows(e, mine, theirs, d, c, classes, left, message, least)
                else:
                    along_columns(e, mine, theirs, d, c, best, classes, left, message, least, fixed)
            elif forward:
                message[:] = np.inf
                for a in range(d):
                    lower_to(message, left[a], tables[at : at + c])
                    at += c
            else:
                least_sums(left, tables[at : at + d * c], message)
                for b in range(c):
                    fixed[theirs + b] = tables[at + b * d + best]
            lowest, highest = normalised(message, to_second if forward else to_first, theirs, c)
            largest = max(largest, highest)
            bound += lowest
    return bound, max(largest, abs(bound))


@compiled
def add_to(sums, numbers):
    """Adds numbers to sums."""
    for a in range(len(numbers)):
        sums[a] += numbers[a]


@compiled
def lower_to(least, value, row):
    """Lowers numbers to those of a row with a value added, where these are less."""
    for b in range(len(row)):
        least[b] = min(least[b], value + row[b])


@compiled
def least_sums(left, rows, out):
    """Per row, one after the other, the least sum of its numbers and those in `left`. Four rows are taken at once: one
    minimum waits for the one before it."""
    d = len(left)
    at = 0
    b = 0
    while b + 4 <= len(out):
        first, second, third, fourth = rows[at:], rows[at + d :], rows[at + 2 * d :], rows[at + 3 * d :]
        w = np.inf
        x = np.inf
        y = np.inf
        z = np.inf
        for a in range(d):
            value = left[a]
            w = min(w, value + first[a])
            x = min(x, value + second[a])
            y = min(y, value + third[a])
            z = min(z, value + fourth[a])
        out[b] = w
        out[b + 1] = x
        out[b + 2] = y
        out[b + 3] = z
        at += 4 * d
        b += 4
    while b < len(out):
        row = rows[at : at + d]
        w = np.inf
        for a in range(d):
            w = min(w, left[a] + row[a])
        out[b] = w
        at += d
        b += 1


@compiled
def divided(own, weight, quantum, outgoing, total, part):
    """Writes what each outgoing edge gets of what states cost; the least that is left, and the largest magnitude.

    weight: in quanta. total: receives what states cost.
    """
    lowest = np.inf
    highest = 0.0
    for a in range(len(own)):
        value = own[a]
        total[a] = value
        highest = max(highest, abs(value))
        share = np.floor(value * weight) * quantum if outgoing > 0 else 0.0
        part[a] = share
        lowest = min(lowest, value - outgoing * share)
    return lowest, highest


@compiled
def by_classes(classes: Classes, e: int, d: int, c: int):
    """Whether the table of an edge, of d x c states, is taken by classes: where it has any and that is less work."""
    kept = classes.at[e + 1] - classes.at[e]  # distinct rows times distinct columns
    return kept > 0 and kept + d + c < d * c


@compiled
def sum_of_classes(classes: Classes, e: int):
    """How many distinct rows and columns the table of an edge has, which is taken by classes."""
    return (classes.at[e + 1] - classes.at[e]) // classes.columns[e] + classes.columns[e]


@compiled
def most_classes(classes: Classes):
    """The most distinct rows, or columns, that the table of any edge has; at least 1."""
    most = 1
    for e in range(len(classes.columns)):
        if classes.columns[e] > 0:
            most = max(most, classes.columns[e], (classes.at[e + 1] - classes.at[e]) // classes.columns[e])
    return most


@compiled
def along_rows(e, mine, theirs, d, c, classes, left, message, least):
    """The message to c states of the second node of an edge, by classes. left: of d states of the first node.

    mine, theirs: where the classes of their states start. least: for two numbers per class.
    """
    of_first, of_second, at, columns, entries = classes
    v = columns[e]
    u = (at[e + 1] - at[e]) // v
    least_of(u, of_first[mine : mine + d], left, least)
    out = least[u : u + v]
    out[:] = np.inf
    row = at[e]
    for x in range(u):
        if least[x] < np.inf:
            lower_to(out, least[x], entries[row : row + v])
        row += v
    for b in range(c):
        message[b] = out[of_second[theirs + b]]


@compiled
def along_columns(e, mine, theirs, d, c, best, classes, left, message, least, fixed):
    """The same to the first node. fixed: receives what its states cost beside state `best` of the second one."""
    of_first, of_second, at, columns, entries = classes
    v = columns[e]
    u = (at[e + 1] - at[e]) // v
    least_of(v, of_second[mine : mine + d], left, least)
    out = least[v : v + u]
    least_sums(least[:v], entries[at[e] : at[e + 1]], out)
    chosen = at[e] + of_second[mine + best]
    for b in range(c):
        x = of_first[theirs + b]
        message[b] = out[x]
        fixed[theirs + b] = entries[chosen + x * v]


@compiled
def least_partners(classes, e, to_first, of, values, room):
    """Per class of one end of an edge the least of table and value over the states of the other end.

    of: the classes of these states. room: for two numbers per class; the answer lies there until it is used again.
    """
    least, out = room
    v = classes.columns[e]
    u = (classes.at[e + 1] - classes.at[e]) // v
    many, others = (u, v) if to_first else (v, u)
    stride, other_stride = (v, 1) if to_first else (1, v)
    least_of(others, of, values, least)
    for x in range(many):
        best = np.inf
        for y in range(others):
            best = min(best, least[y] + classes.entries[classes.at[e] + x * stride + y * other_stride])
        out[x] = best
    return out


@compiled
def entry_of(graph, classes, messages, e, a, b):
    """What an edge costs for a state of its first node and one of its second; of edges with classes, by these."""
    v = classes.columns[e]
    if v > 0:
        row = classes.of_first[messages.first_at[e] + a]
        return classes.entries[classes.at[e] + row * v + classes.of_second[messages.second_at[e] + b]]
    columns = messages.second_at[e + 1] - messages.second_at[e]
    return graph.tables[graph.table_at[e] + a * columns + b]


@compiled
def least_of(count, classes, left, least):
    """Writes the least of what the states of each of `count` classes cost."""
    for x in range(count):
        least[x] = np.inf
    for a in range(len(classes)):
        least[classes[a]] = min(least[classes[a]], left[a])


@compiled
def widest_of(offsets: np.ndarray):
    """The number of states of the node that has most, at least 1."""
    widest = 1
    for i in range(len(offsets) - 1):
        widest = max(widest, offsets[i + 1] - offsets[i])
    return widest


@compiled
def cheapest(decode: np.ndarray, own: np.ndarray):
    """The first of some states that is cheapest; where earlier choices forbid them all, by the messages alone."""
    best = 0
    d = len(own)
    for a in range(1, d):
        if decode[a] < decode[best]:
            best = a
    if not decode[best] < np.inf:
        for a in range(d):
            if own[a] < own[best]:
                best = a
    return best


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
