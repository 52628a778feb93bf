"""Why a dead end is one: the removed states that it needs, and the nogood that they make.

Of a level only what one node has lost is left in the nogood (a unique implication point, of a node in the place of a
literal), so that further up it leaves that node nothing but its states.
"""

import numpy as np

from autoshard.solver.compiled import compiled
from autoshard.solver.learning.arrays import CAUSES, DECIDED, HERE, LEVEL, NOGOODS, TRAIL, Rules, Search
from autoshard.solver.learning.spread import EMPTY


@compiled
def _need(rules: Rules, search: Search, state: int, needed, nodes):
    """A removed state is needed, above level 0. needed: of every node, how many of the present level; nodes: how many
    nodes have some. Callers look whether it is marked, since a call costs more than that."""
    search.marked[state] = True
    if search.level[state] == search.numbers[LEVEL]:
        node = rules.owner[state]
        needed[node] += 1
        if needed[node] == 1:
            nodes[0] += 1


@compiled
def _by_rise(low, base):
    """Places in the order in which low is above base (sorted by shells: numba's own sort takes seconds to compile)."""
    order = np.arange(len(low))
    gap = len(low) // 2
    while gap > 0:
        for q in range(gap, len(low)):
            moved = order[q]
            rise = low[moved] - base[moved]
            at = q
            while at >= gap and low[order[at - gap]] - base[order[at - gap]] > rise:
                order[at] = order[at - gap]
                at -= gap
            order[at] = moved
        gap //= 2
    return order


@compiled
def _need_for_slot(rules: Rules, search: Search, slot: int, before: int, state: int, needed, nodes):
    """Why a slot was too full when `before` states had been removed: with this state, or in any case (-1).

    Nodes whose least need not be as much as it was are left out, those that add little first.
    """
    begin = rules.in_slot_at[slot]
    count = rules.in_slot_at[slot + 1] - begin
    own = rules.owner[state] if state >= 0 else -1
    low = np.zeros(count, dtype=np.int64)
    base = np.zeros(count, dtype=np.int64)  # what the least was, or is by what is needed anyway
    over = -rules.limit - 1
    for q in range(count):
        record = rules.in_slot[begin + q]
        node, at = rules.held_node[record], rules.held_at[record]
        if node == own:
            over += rules.amounts[at + state - rules.offsets[node]]
            continue
        found = False
        for x in range(at, rules.held_at[record + 1]):
            other = rules.offsets[node] + rules.rising[x]
            amount = rules.amounts[at + rules.rising[x]]
            if search.place[other] >= before:
                low[q] = amount
                if not found:
                    base[q] = amount
                break
            if not found and search.level[other] != 0 and not search.marked[other]:
                base[q] = amount
                found = True
        over += low[q]
    for q in _by_rise(low, base):
        rise = low[q] - base[q]
        if rise <= over:
            over -= rise
            continue
        record = rules.in_slot[begin + q]
        node, at = rules.held_node[record], rules.held_at[record]
        least = low[q]
        for x in range(at, rules.held_at[record + 1]):
            least = rules.amounts[at + rules.rising[x]]
            if least >= low[q] - over:
                break
            other = rules.offsets[node] + rules.rising[x]
            if not search.marked[other] and search.level[other] > 0:
                _need(rules, search, other, needed, nodes)
        over -= low[q] - min(least, low[q])


@compiled
def _ask(search: Search, nogood: int):
    """The nogood that is being learned rests on this one."""
    search.causes[search.numbers[CAUSES]] = nogood
    search.numbers[CAUSES] += 1


@compiled
def _missing(rules: Rules, search: Search, state: int, begin: int):
    """The next place from `begin` on (-1: none) of what a removed state needs and is not marked: a state of an arc's
    source, or a place in the pool for a nogood."""
    cause = search.cause[state]
    if cause < len(rules.target):
        source = rules.source[cause]
        count = rules.words[source + 1] - rules.words[source]
        row = rules.row_at[cause] + (state - rules.offsets[rules.target[cause]]) * count
        for other in range(max(begin, rules.offsets[source]), rules.offsets[source + 1]):
            if search.marked[other] or search.level[other] == 0:
                continue
            inside = other - rules.offsets[source]
            if (rules.rows[row + (inside >> 6)] >> np.uint64(inside & 63)) & np.uint64(1):
                return other
        return -1
    nogood = cause - len(rules.target) - len(search.live)
    for p in range(max(begin, search.begin[nogood]), search.begin[nogood + 1]):
        other = np.int64(search.pool[p])
        if rules.owner[other] != rules.owner[state] and not search.marked[other] and search.level[other] > 0:
            return p
    return -1


@compiled
def _need_for(rules: Rules, search: Search, state: int, needed, nodes):
    """Why a state was removed."""
    cause, arcs = search.cause[state], len(rules.target)
    causes = arcs + len(search.live)
    if arcs <= cause < causes:
        _need_for_slot(rules, search, cause - arcs, search.place[state], state, needed, nodes)
        return
    if cause >= causes:
        _ask(search, cause - causes)
    at = _missing(rules, search, state, 0)
    while at >= 0:
        _need(rules, search, at if cause < arcs else np.int64(search.pool[at]), needed, nodes)
        at = _missing(rules, search, state, at + 1)


@compiled
def _follows(rules: Rules, search: Search, state: int):
    """Whether a needed state goes by what else is needed."""
    cause, arcs = search.cause[state], len(rules.target)
    causes = arcs + len(search.live)
    if cause == DECIDED:
        return False
    if arcs <= cause < causes:
        return _slot_follows(rules, search, cause - arcs, state)
    follows = _missing(rules, search, state, 0) < 0
    if follows and cause >= causes:
        _ask(search, cause - causes)
    return follows


@compiled
def _slot_follows(rules: Rules, search: Search, slot: int, state: int):
    """Whether a slot has no room for a removed state by what is needed and went before it."""
    over = -rules.limit - 1
    for q in range(rules.in_slot_at[slot], rules.in_slot_at[slot + 1]):
        record = rules.in_slot[q]
        node, at = rules.held_node[record], rules.held_at[record]
        if node == rules.owner[state]:
            over += rules.amounts[at + state - rules.offsets[node]]
            continue
        for x in range(at, rules.held_at[record + 1]):
            other = rules.offsets[node] + rules.rising[x]
            gone = search.place[other] < search.place[state]
            if not gone or (search.level[other] > 0 and not search.marked[other]):
                over += rules.amounts[at + rules.rising[x]]
                break
    return over >= 0


@compiled
def _need_for_dead_end(rules: Rules, search: Search, found: int, needed, nodes):
    """Why what is left is contradicted (see `spread.FITS`)."""
    arcs = len(rules.target)
    causes = arcs + len(search.live)
    if found <= EMPTY:  # all states but the last one that went, and why that one did
        node = EMPTY - found
        last = rules.offsets[node]
        for state in range(rules.offsets[node], rules.offsets[node + 1]):
            if search.place[state] > search.place[last]:
                last = state
        for state in range(rules.offsets[node], rules.offsets[node + 1]):
            if state != last and search.level[state] > 0:
                _need(rules, search, state, needed, nodes)
        _need_for(rules, search, last, needed, nodes)
    elif found < causes:
        _need_for_slot(rules, search, found - arcs, HERE, -1, needed, nodes)
    else:
        _ask(search, found - causes)
        for p in range(search.begin[found - causes], search.begin[found - causes + 1]):
            state = np.int64(search.pool[p])
            if search.level[state] > 0:
                _need(rules, search, state, needed, nodes)


@compiled
def learn(rules: Rules, search: Search, found: int):
    """Learn a nogood from a dead end: (the level that it takes search back to, the node that is left its states)."""
    needed = np.zeros(len(rules.offsets) - 1, dtype=np.int64)
    nodes = np.zeros(1, dtype=np.int64)
    _need_for_dead_end(rules, search, found, needed, nodes)
    at = search.numbers[TRAIL] - 1
    while nodes[0] > 1:
        state = search.trail[at]
        at -= 1
        if not search.marked[state]:
            continue
        needed[rules.owner[state]] -= 1
        if needed[rules.owner[state]] == 0:
            nodes[0] -= 1
        search.marked[state] = False
        _need_for(rules, search, state, needed, nodes)
    point = 0
    for node in range(len(needed)):
        if needed[node] > 0:
            point = node
    for q in range(search.numbers[TRAIL] - 1, -1, -1):
        state = search.trail[q]
        if search.level[state] == 0:
            break
        if not search.marked[state] or (rules.owner[state] == point and search.level[state] == search.numbers[LEVEL]):
            continue
        if _follows(rules, search, state):
            search.marked[state] = False
    nogood = search.numbers[NOGOODS]
    end = search.begin[nogood]
    level = 0
    for state in range(len(search.marked)):
        if search.marked[state]:
            search.marked[state] = False
            search.pool[end] = state
            end += 1
            search.activity[state] += search.step[0]
            if rules.owner[state] != point:
                level = max(level, search.level[state])
    search.begin[nogood + 1] = end
    search.asked[nogood + 1] = search.numbers[CAUSES]
    search.numbers[NOGOODS] = nogood + 1
    return level, point


@compiled
def watch(rules: Rules, search: Search, level: int, point: int):
    """Let the last nogood be watched, by a state of its point and one that went at the level gone back to."""
    nogood = search.numbers[NOGOODS] - 1
    one = -1
    two = -1
    for p in range(search.begin[nogood], search.begin[nogood + 1]):
        state = np.int64(search.pool[p])
        if rules.owner[state] == point:
            if one < 0 and search.place[state] == HERE:
                one = state
        elif two < 0 and search.level[state] == level:
            two = state
    if two < 0:  # it is about one node only, and is kept at once
        return
    for end in range(2):
        state = one if end == 0 else two
        search.watched[2 * nogood + end] = state
        search.following[2 * nogood + end] = search.first[state]
        search.first[state] = 2 * nogood + end
