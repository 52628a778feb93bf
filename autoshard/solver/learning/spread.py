"""What follows from what was removed: states without a partner, without room, or that a nogood leaves no choice."""

import numpy as np

from autoshard.solver.compiled import compiled
from autoshard.solver.learning.arrays import DONE, HERE, LEVEL, TRAIL, Rules, Search

FITS = -1
"""Nothing contradicts what is left. Other results: the cause that does, or `EMPTY` less a node that is left with
nothing."""
EMPTY = -2


@compiled
def remove(rules: Rules, search: Search, state: int, cause: int):
    """Take a state out; False where its node is left with nothing."""
    node = rules.owner[state]
    inside = state - rules.offsets[node]
    search.bits[rules.words[node] + (inside >> 6)] &= ~(np.uint64(1) << np.uint64(inside & 63))
    at = search.numbers[TRAIL]
    search.trail[at] = state
    search.place[state] = at
    search.level[state] = search.numbers[LEVEL]
    search.cause[state] = cause
    search.numbers[TRAIL] = at + 1
    search.counts[node] -= 1
    search.stale[0, node] = True
    search.stale[1, node] = True
    return search.counts[node] > 0


@compiled
def keep_only(rules: Rules, search: Search, nogood: int, node: int, cause: int):
    """Of a node, which has some of them, only the states of a nogood stay."""
    for p in range(search.begin[nogood], search.begin[nogood + 1]):
        search.marked[search.pool[p]] = True
    for state in range(rules.offsets[node], rules.offsets[node + 1]):
        if search.place[state] == HERE and not search.marked[state]:
            remove(rules, search, state, cause)
    for p in range(search.begin[nogood], search.begin[nogood + 1]):
        search.marked[search.pool[p]] = False


@compiled
def _hear(rules: Rules, search: Search, gone: int, causes: int):
    """Let nogoods that watch a removed state hear of it: `FITS`, or the nogood that is broken. causes: those before
    nogoods."""
    before = -1
    at = search.first[gone]
    while at >= 0:
        after = search.following[at]
        nogood = at >> 1
        node = rules.owner[search.watched[at ^ 1]]
        found = -1
        some = False
        for p in range(search.begin[nogood], search.begin[nogood + 1]):
            state = np.int64(search.pool[p])
            if search.place[state] == HERE:
                if rules.owner[state] != node:
                    found = state
                    break
                some = True
        if found >= 0:  # that one watches from now on
            if before < 0:
                search.first[gone] = after
            else:
                search.following[before] = after
            search.watched[at] = found
            search.following[at] = search.first[found]
            search.first[found] = at
        else:
            if not some:
                return causes + nogood
            keep_only(rules, search, nogood, node, causes + nogood)
            before = at
        at = after
    return FITS


@compiled
def count_again(rules: Rules, search: Search):
    """What is live at least, where nodes have lost or won states; whether it is another amount than before."""
    other = False
    for node in range(len(rules.offsets) - 1):
        if not search.stale[1, node]:
            continue
        search.stale[1, node] = False
        for q in range(rules.of_node_at[node], rules.of_node_at[node + 1]):
            record = rules.of_node[q]
            at = rules.held_at[record]
            low = search.low[record]
            for x in range(at, rules.held_at[record + 1]):
                if search.place[rules.offsets[node] + rules.rising[x]] == HERE:
                    low = rules.amounts[at + rules.rising[x]]
                    break
            change = low - search.low[record]
            if change != 0:
                other = True
                search.low[record] = low
                for slot in range(rules.held_start[record], rules.held_stop[record]):
                    search.live[slot] += change
    return other


@compiled
def _make_room(rules: Rules, search: Search, arcs: int):
    """Remove states that hold more than there is room for beside the least of all others; `FITS`, the slot in which
    these alone are too much, or the node that is left with nothing."""
    for slot in range(len(search.live)):
        if search.live[slot] > rules.limit:
            return arcs + slot
    for record in range(len(rules.held_node)):
        node = rules.held_node[record]
        if search.counts[node] < 2:
            continue
        worst = rules.held_start[record]
        for slot in range(worst + 1, rules.held_stop[record]):
            if search.live[slot] > search.live[worst]:
                worst = slot
        room = rules.limit - search.live[worst] + search.low[record]
        at = rules.held_at[record]
        for x in range(rules.held_at[record + 1] - 1, at - 1, -1):
            if rules.amounts[at + rules.rising[x]] <= room:
                break
            state = rules.offsets[node] + rules.rising[x]
            if search.place[state] == HERE and not remove(rules, search, state, arcs + worst):
                return EMPTY - node  # what was left of it had room in other slots only
    return FITS


@compiled
def spread(rules: Rules, search: Search):
    """Remove all that follows, to the end (see `FITS`)."""
    arcs = len(rules.target)
    causes = arcs + len(search.live)
    while True:
        while search.numbers[DONE] < search.numbers[TRAIL]:
            state = search.trail[search.numbers[DONE]]
            search.numbers[DONE] += 1
            found = _hear(rules, search, state, causes)
            if found != FITS:
                return found
        some = False
        for node in range(len(rules.offsets) - 1):
            if not search.stale[0, node]:
                continue
            search.stale[0, node] = False
            some = True
            begin, count = rules.words[node], rules.words[node + 1] - rules.words[node]
            for arc in range(rules.arcs[node], rules.arcs[node + 1]):
                low = rules.offsets[rules.target[arc]]
                for state in range(low, rules.offsets[rules.target[arc] + 1]):
                    if search.place[state] != HERE:
                        continue
                    row = rules.row_at[arc] + (state - low) * count
                    known = rules.known_at[arc] + state - low
                    if search.bits[begin + search.known[known]] & rules.rows[row + search.known[known]]:
                        continue
                    for v in range(count):
                        if search.bits[begin + v] & rules.rows[row + v]:
                            search.known[known] = v
                            break
                    else:
                        if not remove(rules, search, state, arc):
                            return EMPTY - rules.target[arc]
        if some:
            continue
        if not count_again(rules, search):
            return FITS
        found = _make_room(rules, search, arcs)
        if found != FITS:
            return found


@compiled
def go_back(rules: Rules, search: Search, level: int):
    """Put back what was removed above a level."""
    at = search.numbers[TRAIL]
    while at > search.begins[level + 1]:
        at -= 1
        state = search.trail[at]
        node = rules.owner[state]
        inside = state - rules.offsets[node]
        search.bits[rules.words[node] + (inside >> 6)] |= np.uint64(1) << np.uint64(inside & 63)
        search.place[state] = HERE
        search.counts[node] += 1
        search.stale[1, node] = True
    search.numbers[TRAIL] = at
    search.numbers[DONE] = at
    search.numbers[LEVEL] = level
    for node in range(len(search.counts)):
        search.stale[0, node] = False
    count_again(rules, search)
