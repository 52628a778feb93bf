"""Decoding that looks ahead: after every choice, what it leaves without a partner goes, and dead ends are left again.

Message passing decodes node by node and sees forbidden pairs only among what is chosen already. Where they are many, it
runs into dead ends that local search mends slowly; arc consistency after each choice (MAC: D. Sabin and E. Freuder,
"Contradicting conventional wisdom in constraint satisfaction", ECAI 1994) avoids most of them, and the rest is undone
choice by choice. Memory counts at its prices only.
"""

import numpy as np

from autoshard.solver.compiled import compiled
from autoshard.solver.dual.passes import Dual

MOST_UNDONE = 20_000
"""Choices undone before the attempt is given up."""
RESTARTED_AFTER = 300
RESTARTS_GROW = 1.3
"""Choices undone before the search begins anew, at first, and how that grows."""


def decode_consistently(dual: Dual) -> np.ndarray | None:
    """An assignment (positions in the flat domains) without forbidden pairs, led by the messages; None: given up.

    Nodes are chosen in the order of a backward pass at first. Where that fails, those that have few strategies
    left for how often their edges led into dead ends come first (dom/wdeg: F. Boussemart et al., "Boosting systematic
    search by weighting constraints", ECAI 2004).
    """
    flat = dual.flat
    if not len(flat.first):
        return None
    hard = np.isposinf(np.maximum.reduceat(flat.tables, flat.table_at[:-1]))
    chosen = np.zeros(flat.n, dtype=np.int64)
    weight = np.ones(flat.n)
    undone, most = 0, float(RESTARTED_AFTER)
    while undone < MOST_UNDONE:
        spent = _decode(
            undone > 0, int(most), flat.offsets, dual.priced, flat.first, flat.second, flat.table_at, flat.tables,
            flat.incident_at, flat.incident, dual.second_at, dual.first_at, dual.to_second, dual.to_first, hard,
            weight, chosen,
        )  # fmt: skip
        if spent <= 0:
            return chosen if spent == 0 else None
        undone += spent
        most *= RESTARTS_GROW
    return None


@compiled
def _spread(
    waiting, inside, offsets, first, second, table_at, tables, incident_at, incident, hard, alive, left, weight, trail,
    length,
):  # fmt: skip
    """Arc consistency from the nodes that wait (inside: those that do): (whether all keep a strategy, trail length)."""
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
        if not fine:
            continue
        low = offsets[i]
        d = offsets[i + 1] - low
        for k in range(incident_at[i], incident_at[i + 1]):
            e = incident[k]
            if not hard[e]:
                continue
            at = table_at[e]
            rows = first[e] == i  # whether the strategies of i are the rows
            j = second[e] if rows else first[e]
            begin = offsets[j]
            c = offsets[j + 1] - begin
            changed = False
            for b in range(c):
                if not alive[begin + b]:
                    continue
                found = False
                for a in range(d):
                    if alive[low + a] and tables[at + a * c + b if rows else at + b * d + a] < np.inf:
                        found = True
                        break
                if not found:
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
def _decode(
    weighted, most_undone, offsets, unary, first, second, table_at, tables, incident_at, incident,
    second_at, first_at, to_second, to_first, hard, weight, chosen,
):  # fmt: skip
    """0: `chosen` forbids nothing. -1: there is no such assignment. Else the choices undone when it was given up.

    weighted: choose nodes by strategies left over `weight`, which grows at dead ends; else from the last to the first.
    """
    n = len(offsets) - 1
    owner = np.empty(len(unary), dtype=np.int64)
    alive = np.empty(len(unary), dtype=np.bool_)
    left = np.zeros(n, dtype=np.int64)
    inside = np.ones(n, dtype=np.bool_)
    waiting = np.empty(n, dtype=np.int64)
    trail = np.empty(len(unary), dtype=np.int64)
    mark = np.zeros(n, dtype=np.int64)
    path = np.empty(n, dtype=np.int64)
    taken = np.zeros(n, dtype=np.bool_)
    widest = 1
    for i in range(n):
        widest = max(widest, offsets[i + 1] - offsets[i])
        for a in range(offsets[i], offsets[i + 1]):
            owner[a] = i
            alive[a] = unary[a] < np.inf
            if alive[a]:
                left[i] += 1
        if left[i] == 0:
            return -1
    cost = np.empty(widest)
    fine, length = _spread(
        waiting, inside, offsets, first, second, table_at, tables, incident_at, incident, hard, alive, left, weight,
        trail, 0,
    )  # fmt: skip
    if not fine:
        return -1
    undone = 0
    depth = 0
    again = -1
    while depth < n:
        i = again
        again = -1
        if i < 0:
            if weighted:
                score = np.inf
                for j in range(n):
                    if not taken[j] and left[j] < score * weight[j]:
                        i = j
                        score = left[j] / weight[j]
            else:
                i = n - 1 - depth
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
        chosen[i] = best
        mark[i] = length
        path[depth] = i
        fine = True
        if left[i] > 1:
            for a in range(d):
                if a != best and alive[low + a]:
                    alive[low + a] = False
                    trail[length] = low + a
                    length += 1
            left[i] = 1
            inside[i] = True
            fine, length = _spread(
                waiting, inside, offsets, first, second, table_at, tables, incident_at, incident, hard, alive, left,
                weight, trail, length,
            )  # fmt: skip
        if fine:
            taken[i] = True
            depth += 1
            continue
        while True:  # undo the last choice and exclude it; where nothing else is left, the one before
            while length > mark[i]:
                length -= 1
                alive[trail[length]] = True
                left[owner[trail[length]]] += 1
            taken[i] = False
            undone += 1
            if undone >= most_undone:
                return undone
            at = offsets[i] + chosen[i]
            alive[at] = False
            left[i] -= 1
            trail[length] = at
            length += 1
            fine = left[i] > 0
            if fine:
                inside[i] = True
                fine, length = _spread(
                    waiting, inside, offsets, first, second, table_at, tables, incident_at, incident, hard, alive, left,
                    weight, trail, length,
                )  # fmt: skip
            if fine:
                again = i
                break
            depth -= 1
            if depth < 0:
                return -1
            i = path[depth]
    return 0
