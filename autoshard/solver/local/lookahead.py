"""Decoding that looks ahead: after every choice, what it leaves without a partner goes, and dead ends are left again.

Message passing decodes node by node and sees forbidden pairs only among what is chosen already. Where they are many, it
runs into dead ends that local search mends slowly; arc consistency after each choice (MAC: D. Sabin and E. Freuder,
"Contradicting conventional wisdom in constraint satisfaction", ECAI 1994) avoids most of them, and the rest is undone
choice by choice. Memory counts at its prices only.
"""

from typing import NamedTuple

import numpy as np

from autoshard.solver.compiled import compiled
from autoshard.solver.dual.arrays import Graph, Messages
from autoshard.solver.dual.messages import widest_of
from autoshard.solver.dual.passes import Dual

MOST_UNDONE = 20_000
"""How many choices are undone before the attempt is given up."""
RESTARTED_AFTER = 300
RESTARTS_GROW = 1.3
"""How many choices are undone before the first restart, and by what factor that number grows with each."""
NONE_LEFT = -1
"""The result that means: there is no assignment without forbidden pairs."""


class Remaining(NamedTuple):
    """What is left of the states, and how to bring back what went.

    alive: per state. left: per node the number of those. trail: the states that went, one after the other.
    owner: the node of every state. weight: per node how often its edges led into dead ends, from 1 on.
    inside, waiting: nodes whose neighbours are to be looked at, as a mask, and room for them as a ring.
    """

    alive: np.ndarray
    left: np.ndarray
    trail: np.ndarray
    owner: np.ndarray
    weight: np.ndarray
    inside: np.ndarray
    waiting: np.ndarray


class Choices(NamedTuple):
    """The choices so far: chosen[i] where taken[i], in the order of `path`. mark: length of the trail before each."""

    chosen: np.ndarray
    taken: np.ndarray
    path: np.ndarray
    mark: np.ndarray


def decode_consistently(dual: Dual) -> np.ndarray | None:
    """An assignment (positions in the flat domains) without forbidden pairs, led by the messages; None: given up.

    Nodes are chosen in the order of a backward pass at first. Where that fails, those that have few states
    left for how often their edges led into dead ends come first (dom/wdeg: F. Boussemart et al., "Boosting systematic
    search by weighting constraints", ECAI 2004).
    """
    flat = dual.flat
    if not len(flat.first):
        return None
    hard = np.isposinf(np.maximum.reduceat(flat.tables, flat.table_at[:-1]))
    chosen = np.zeros(flat.n, dtype=np.int64)
    weight = np.ones(flat.n)
    graph = flat.graph._replace(unary=dual.priced)
    undone, most = 0, float(RESTARTED_AFTER)
    while undone < MOST_UNDONE:
        spent = _decode(undone > 0, int(most), graph, dual.messages, hard, weight, chosen)
        if spent <= 0:
            return chosen if spent == 0 else None
        undone += spent
        most *= RESTARTS_GROW
    return None


@compiled
def _decode(
    weighted: bool,
    most_undone: int,
    graph: Graph,
    messages: Messages,
    hard: np.ndarray,
    weight: np.ndarray,
    chosen: np.ndarray,
):
    """0: `chosen` forbids nothing. `NONE_LEFT`, or else the choices undone when it was given up.

    weighted: choose nodes by states left over `weight`, which grows at dead ends; else from the last to the first.
    hard: whether an edge forbids anything.
    """
    n = len(graph.offsets) - 1
    remaining = _all_remaining(graph, weight)
    alive, left, trail, inside = remaining.alive, remaining.left, remaining.trail, remaining.inside
    for i in range(n):
        if left[i] == 0:
            return NONE_LEFT
    choices = Choices(chosen, np.zeros(n, dtype=np.bool_), np.empty(n, dtype=np.int64), np.zeros(n, dtype=np.int64))
    cost = np.empty(widest_of(graph.offsets))
    fine, length = _spread(graph, hard, remaining, np.int64(0))  # a literal would have it compiled twice
    if not fine:
        return NONE_LEFT
    undone = 0
    depth = 0
    again = -1  # the node whose last choice was undone, while it has others
    while depth < n:
        i = again
        again = -1
        if i < 0:
            i = _next_node(weighted, n - 1 - depth, choices.taken, left, weight)
        best = _cheapest(i, graph, messages, choices, alive, cost)
        choices.mark[i] = length
        choices.path[depth] = i
        chosen[i] = best
        fine = True
        if left[i] > 1:
            length = _keep_only(graph.offsets[i], graph.offsets[i + 1], graph.offsets[i] + best, alive, trail, length)
            left[i] = 1
            inside[i] = True
            fine, length = _spread(graph, hard, remaining, length)
        if fine:
            choices.taken[i] = True
            depth += 1
            continue
        while True:  # undo the last choice and exclude it; where nothing else is left, the one before
            length = _bring_back(choices.mark[i], remaining, length)
            choices.taken[i] = False
            undone += 1
            if undone >= most_undone:
                return undone
            at = graph.offsets[i] + chosen[i]
            alive[at] = False
            left[i] -= 1
            trail[length] = at
            length += 1
            fine = left[i] > 0
            if fine:
                inside[i] = True
                fine, length = _spread(graph, hard, remaining, length)
            if fine:
                again = i
                break
            depth -= 1
            if depth < 0:
                return NONE_LEFT
            i = choices.path[depth]
    return 0


@compiled
def _all_remaining(graph: Graph, weight: np.ndarray):
    """Every state that its own cost does not forbid; all nodes wait."""
    offsets, unary = graph.offsets, graph.unary
    n = len(offsets) - 1
    owner = np.empty(len(unary), dtype=np.int64)
    alive = np.empty(len(unary), dtype=np.bool_)
    left = np.zeros(n, dtype=np.int64)
    for i in range(n):
        for a in range(offsets[i], offsets[i + 1]):
            owner[a] = i
            alive[a] = unary[a] < np.inf
            if alive[a]:
                left[i] += 1
    trail = np.empty(len(unary), dtype=np.int64)
    return Remaining(alive, left, trail, owner, weight, np.ones(n, dtype=np.bool_), np.empty(n, dtype=np.int64))


@compiled
def _spread(graph: Graph, hard: np.ndarray, remaining: Remaining, length: int):
    """Arc consistency from the nodes that wait: (whether all nodes keep a state, length of the trail)."""
    offsets, _, first, second, table_at, tables, incident_at, incident = graph
    alive, left, trail, _, weight, inside, waiting = remaining
    count = 0
    for i in range(len(inside)):
        if inside[i]:
            waiting[count] = i
            count += 1
    head = 0
    size = len(waiting)
    fine = True
    while count > 0:
        i = waiting[head]
        head = (head + 1) % size
        count -= 1
        inside[i] = False
        if not fine:  # a node has nothing left: those that wait are only taken off the list
            continue
        low = offsets[i]
        d = offsets[i + 1] - low
        for k in range(incident_at[i], incident_at[i + 1]):
            e = incident[k]
            if not hard[e]:
                continue
            at = table_at[e]
            rows = first[e] == i  # whether the states of i are the rows
            j = second[e] if rows else first[e]
            begin = offsets[j]
            c = offsets[j + 1] - begin
            changed = False
            for b in range(c):
                if not alive[begin + b]:
                    continue
                has_partner = False
                for a in range(d):
                    if alive[low + a] and tables[at + a * c + b if rows else at + b * d + a] < np.inf:
                        has_partner = True
                        break
                if not has_partner:
                    alive[begin + b] = False
                    left[j] -= 1
                    trail[length] = begin + b
                    length += 1
                    changed = True
            if left[j] == 0:
                weight[i] += 1.0
                weight[j] += 1.0
                fine = False
                break
            if changed and not inside[j]:
                inside[j] = True
                waiting[(head + count) % size] = j
                count += 1
    return fine, length


@compiled
def _next_node(weighted: bool, last: int, taken: np.ndarray, left: np.ndarray, weight: np.ndarray):
    """The node to choose for next: `last`, or where `weighted` the one with fewest states left over its weight."""
    if not weighted:
        return last
    best_node = -1
    score = np.inf
    for j in range(len(taken)):
        if not taken[j] and left[j] < score * weight[j]:
            best_node = j
            score = left[j] / weight[j]
    return best_node


@compiled
def _cheapest(i: int, graph: Graph, messages: Messages, choices: Choices, alive: np.ndarray, cost: np.ndarray):
    """The living state of node i that is cheapest beside what is chosen, and by the messages of what is not."""
    offsets, unary, first, second, table_at, tables, incident_at, incident = graph
    second_at, first_at, to_second, to_first = messages
    chosen, taken = choices.chosen, choices.taken
    low = offsets[i]
    d = offsets[i + 1] - low
    for a in range(d):
        cost[a] = unary[low + a] if alive[low + a] else np.inf
    for k in range(incident_at[i], incident_at[i + 1]):
        e = incident[k]
        if first[e] == i:
            c = offsets[second[e] + 1] - offsets[second[e]]
            x = chosen[second[e]]
            for a in range(d):
                cost[a] += tables[table_at[e] + a * c + x] if taken[second[e]] else to_first[first_at[e] + a]
        else:
            x = chosen[first[e]]
            for a in range(d):
                cost[a] += tables[table_at[e] + x * d + a] if taken[first[e]] else to_second[second_at[e] + a]
    best = -1
    for a in range(d):
        if alive[low + a] and (best < 0 or cost[a] < cost[best]):
            best = a
    return best


@compiled
def _keep_only(begin: int, end: int, kept: int, alive: np.ndarray, trail: np.ndarray, length: int):
    """Clears all states of a node but one; returns the length of the trail."""
    for a in range(begin, end):
        if a != kept and alive[a]:
            alive[a] = False
            trail[length] = a
            length += 1
    return length


@compiled
def _bring_back(mark: int, remaining: Remaining, length: int):
    """Brings back what went since the trail was as long as `mark`; returns its length then."""
    while length > mark:
        length -= 1
        at = remaining.trail[length]
        remaining.alive[at] = True
        remaining.left[remaining.owner[at]] += 1
    return length
