"""Compiled local search by induced trees, under a hard memory limit.

Memory is priced to stay within the limit: the best choice of a whole tree at those prices is found by dynamic
programming, then checked against the true limit and the true cost. A move is kept only if no slot that a node of the
tree fills further ends above the limit.
"""

from typing import NamedTuple

import numpy as np

from autoshard.solver.compiled import compiled
from autoshard.solver.dual.arrays import Graph
from autoshard.solver.local.live import Assigned, Memory, add_live, most_live

HUB_DEGREE = 400
HUB_CHANCE = 16
"""Nodes with more edges than this join a tree in one of so many cases: to look at all their edges takes long."""
SCALE_STEPS = 1024
"""Different multiples of the prices that a tree may be re-chosen at."""
ATTEMPTS = 3
"""Times that one tree is re-chosen, each at other prices."""
CHEAPER = 0.5
"""Prices are scaled by this when a choice costs more than the one that stands: it saved memory that was there."""
DEARER = 1.7
DEARER_BY = 0.05
"""And by this, and a bit more (so that 0 rises too), when a choice does not fit."""


class TreeMoves(NamedTuple):
    """What is asked: `count` trees of up to `size` inner nodes each, with roots in [low, high).

    Prices are scaled by a random number between scale_low and scale_high. judge: the multiple of the prices that memory
    counts at when a choice is compared with the one that stands (0: the true cost).
    """

    count: int
    size: int
    low: int
    high: int
    scale_low: float
    scale_high: float
    judge: float


class Tree(NamedTuple):
    """Room for one tree, whose nodes are order[0], order[1], ..., every one after its parent.

    member: per node of the network its place in `order`, -1 outside, and everywhere between two trees. parent: per node
    of the tree; parent_edge: the edge to it; both -1 for the root. frontier: nodes that may join. before: what nodes of
    `order` had chosen. cost: what states cost, those of order[p] from cost_at[p] on.
    """

    member: np.ndarray
    parent: np.ndarray
    parent_edge: np.ndarray
    order: np.ndarray
    frontier: np.ndarray
    before: np.ndarray
    cost_at: np.ndarray
    cost: np.ndarray


XORSHIFT_MULTIPLIER = np.uint64(2685821657736338717)
"""Of xorshift64* (S. Vigna, "An experimental exploration of Marsaglia's xorshift generators", TOMS 2016)."""


@compiled
def next_random(random_state: np.ndarray):
    """xorshift64*: the same numbers on every machine; the upper 31 bits, as int64."""
    x = random_state[0]
    x ^= x >> np.uint64(12)
    x ^= x << np.uint64(25)
    x ^= x >> np.uint64(27)
    random_state[0] = x
    return np.int64((x * XORSHIFT_MULTIPLIER) >> np.uint64(33))


@compiled
def tree_search(
    moves: TreeMoves,
    graph: Graph,
    memory: Memory,
    prefix: np.ndarray,
    assigned: Assigned,
    tree: Tree,
    random_state: np.ndarray,
):
    """Re-choose random induced trees by dynamic programming; returns the gain.

    prefix: prices, as sums from the left. A result past the limit is tried again at higher prices. A tree's new choice
    is kept if it fits and does not cost more. random_state: of the random numbers.
    """
    gained = 0.0
    for _ in range(moves.count):
        root = moves.low + next_random(random_state) % (moves.high - moves.low)
        count = grow(root, moves.size, graph, tree, random_state)
        part = (next_random(random_state) % SCALE_STEPS) / (SCALE_STEPS - 1.0)
        scale = moves.scale_low + (moves.scale_high - moves.scale_low) * part
        gained += rechoose(count, scale, moves.judge, graph, memory, prefix, assigned, tree)
        for p in range(count):
            tree.member[tree.order[p]] = -1
    return gained


@compiled
def grow(root: int, size: int, graph: Graph, tree: Tree, random_state: np.ndarray):
    """A random induced tree of up to `size` inner nodes around the root, with all of their leaves; its node count.

    Induced: a node joins where exactly one of its neighbours is in the tree.
    """
    offsets, _, first, second, _, _, incident_at, incident = graph
    member, parent, parent_edge, order, frontier, _, cost_at, cost = tree
    count = 0
    waiting = 1
    inner = 0
    used = 0
    frontier[0] = root
    while waiting > 0 and inner < size:
        pick = next_random(random_state) % waiting
        i = frontier[pick]
        waiting -= 1
        frontier[pick] = frontier[waiting]
        if member[i] >= 0:
            continue
        degree = incident_at[i + 1] - incident_at[i]
        if degree > HUB_DEGREE and next_random(random_state) % HUB_CHANCE != 0:
            continue
        inside = 0
        link = -1
        for k in range(incident_at[i], incident_at[i + 1]):
            e = incident[k]
            other = second[e] if first[e] == i else first[e]
            if member[other] >= 0:
                inside += 1
                link = e
                if inside > 1:
                    break
        if inside > 1 or (inside == 0 and count > 0):
            continue
        d = offsets[i + 1] - offsets[i]
        if used + d > len(cost):
            break
        member[i] = count
        parent_edge[i] = link
        parent[i] = -1 if link < 0 else (second[link] if first[link] == i else first[link])
        order[count] = i
        cost_at[count] = used
        used += d
        count += 1
        inner += 1
        for k in range(incident_at[i], incident_at[i + 1]):
            e = incident[k]
            other = second[e] if first[e] == i else first[e]
            if member[other] >= 0:
                continue
            if incident_at[other + 1] - incident_at[other] == 1:  # leaves come along
                d = offsets[other + 1] - offsets[other]
                if used + d <= len(cost):
                    member[other] = count
                    parent[other] = i
                    parent_edge[other] = e
                    order[count] = other
                    cost_at[count] = used
                    used += d
                    count += 1
            elif waiting < len(frontier):
                frontier[waiting] = other
                waiting += 1
    return count


@compiled
def rechoose(
    count: int, scale: float, judge: float, graph: Graph, memory: Memory, prefix: np.ndarray,
    assigned: Assigned, tree: Tree,
):  # fmt: skip
    """Re-choose the first `count` nodes of `order`, at prices scaled by `scale` first; returns the gain."""
    chosen = assigned.chosen
    order, kept = tree.order, tree.before
    before = 0.0
    for attempt in range(ATTEMPTS):
        costs_beside(count, graph, chosen, tree)
        if attempt == 0:
            before = cost_now(count, judge, graph, memory, prefix, chosen, tree)
        add_prices(count, scale, graph.offsets, memory, prefix, tree)
        gather_upwards(count, graph, tree)
        if not choose_downwards(count, graph, chosen, tree):
            break
        after = cost_then(count, judge, graph, memory, prefix, chosen, tree)
        if after <= before and take_up(count, memory, assigned, tree):
            return before - after
        for p in range(count):
            chosen[order[p]] = kept[p]
        scale = scale * CHEAPER if after > before else scale * DEARER + DEARER_BY
    return 0.0


@compiled
def costs_beside(count: int, graph: Graph, chosen: np.ndarray, tree: Tree):
    """Sets what every state of the tree's nodes costs beside the choices outside the tree, without memory."""
    offsets, unary, first, second, table_at, tables, incident_at, incident = graph
    member, order, cost_at, cost = tree.member, tree.order, tree.cost_at, tree.cost
    for p in range(count):
        i = order[p]
        low = offsets[i]
        d = offsets[i + 1] - low
        at = cost_at[p]
        for a in range(d):
            cost[at + a] = unary[low + a]
        for k in range(incident_at[i], incident_at[i + 1]):
            e = incident[k]
            t = table_at[e]
            if first[e] == i:
                other = second[e]
                if member[other] >= 0:
                    continue
                c = offsets[other + 1] - offsets[other]
                x = chosen[other]
                for a in range(d):
                    cost[at + a] += tables[t + a * c + x]
            else:
                other = first[e]
                if member[other] >= 0:
                    continue
                x = chosen[other]
                for a in range(d):
                    cost[at + a] += tables[t + x * d + a]


@compiled
def cost_now(
    count: int, judge: float, graph: Graph, memory: Memory, prefix: np.ndarray, chosen: np.ndarray, tree: Tree
):  # fmt: skip
    """What the tree's nodes and all of their edges cost before the move, read off `costs_beside`."""
    offsets, _, first, second, table_at, tables, _, _ = graph
    record_at, start, stop, amount_at, amounts, _ = memory
    parent_edge, order, cost_at, cost = tree.parent_edge, tree.order, tree.cost_at, tree.cost
    total = 0.0
    for p in range(count):
        i = order[p]
        total += cost[cost_at[p] + chosen[i]]
        e = parent_edge[i]
        if e >= 0:
            c = offsets[second[e] + 1] - offsets[second[e]]
            total += tables[table_at[e] + chosen[first[e]] * c + chosen[second[e]]]
        if judge > 0.0:
            for r in range(record_at[i], record_at[i + 1]):
                full = prefix[stop[r]] - prefix[start[r]]
                total += judge * full * amounts[amount_at[r] + chosen[i]]
    return total


@compiled
def add_prices(count: int, scale: float, offsets: np.ndarray, memory: Memory, prefix: np.ndarray, tree: Tree):
    """Adds what the nodes hold, at the scaled prices, to the costs of the tree's states."""
    record_at, start, stop, amount_at, amounts, _ = memory
    order, cost_at, cost = tree.order, tree.cost_at, tree.cost
    for p in range(count):
        i = order[p]
        at = cost_at[p]
        for r in range(record_at[i], record_at[i + 1]):
            price = (prefix[stop[r]] - prefix[start[r]]) * scale
            if price > 0.0:
                for a in range(offsets[i + 1] - offsets[i]):
                    cost[at + a] += price * amounts[amount_at[r] + a]


@compiled
def gather_upwards(count: int, graph: Graph, tree: Tree):
    """Adds to every node, from the leaves to the root, the least that its children cost beside each state."""
    offsets, table_at, tables, first = graph.offsets, graph.table_at, graph.tables, graph.first
    member, parent, parent_edge, order, _, _, cost_at, cost = tree
    for p in range(count - 1, 0, -1):
        i = order[p]
        d = offsets[i + 1] - offsets[i]
        at = cost_at[p]
        up = parent[i]
        c = offsets[up + 1] - offsets[up]
        into = cost_at[member[up]]
        e = parent_edge[i]
        t = table_at[e]
        if first[e] == i:
            for b in range(c):
                low_value = np.inf
                for a in range(d):
                    low_value = min(low_value, cost[at + a] + tables[t + a * c + b])
                cost[into + b] += low_value
        else:
            for b in range(c):
                low_value = np.inf
                for a in range(d):
                    low_value = min(low_value, cost[at + a] + tables[t + b * d + a])
                cost[into + b] += low_value


@compiled
def choose_downwards(count: int, graph: Graph, chosen: np.ndarray, tree: Tree):
    """Chooses the cheapest for every node, from the root to the leaves; whether any choice is new.

    `before` keeps the old choices.
    """
    offsets, table_at, tables, first = graph.offsets, graph.table_at, graph.tables, graph.first
    _, parent, parent_edge, order, _, before, cost_at, cost = tree
    changed = False
    for p in range(count):
        i = order[p]
        d = offsets[i + 1] - offsets[i]
        at = cost_at[p]
        before[p] = chosen[i]
        e = parent_edge[i]
        if e >= 0:
            t = table_at[e]
            x = chosen[parent[i]]
            if first[e] == i:
                c = offsets[parent[i] + 1] - offsets[parent[i]]
                for a in range(d):
                    cost[at + a] += tables[t + a * c + x]
            else:
                for a in range(d):
                    cost[at + a] += tables[t + x * d + a]
        best = chosen[i]
        for a in range(d):
            if cost[at + a] < cost[at + best]:
                best = a
        if best != chosen[i]:
            changed = True
        chosen[i] = best
    return changed


@compiled
def cost_then(
    count: int, judge: float, graph: Graph, memory: Memory, prefix: np.ndarray, chosen: np.ndarray, tree: Tree
):  # fmt: skip
    """What the tree's nodes and all of their edges cost after the move."""
    offsets, unary, first, second, table_at, tables, incident_at, incident = graph
    record_at, start, stop, amount_at, amounts, _ = memory
    member, parent_edge, order = tree.member, tree.parent_edge, tree.order
    total = 0.0
    for p in range(count):
        i = order[p]
        low = offsets[i]
        d = offsets[i + 1] - low
        x = chosen[i]
        total += unary[low + x]
        if judge > 0.0:
            for r in range(record_at[i], record_at[i + 1]):
                total += judge * (prefix[stop[r]] - prefix[start[r]]) * amounts[amount_at[r] + x]
        for k in range(incident_at[i], incident_at[i + 1]):
            e = incident[k]
            if first[e] == i:
                other = second[e]
                if member[other] >= 0 and parent_edge[i] != e:  # counted at the child
                    continue
                c = offsets[other + 1] - offsets[other]
                total += tables[table_at[e] + x * c + chosen[other]]
            else:
                other = first[e]
                if member[other] >= 0 and parent_edge[i] != e:
                    continue
                total += tables[table_at[e] + chosen[other] * d + x]
    return total


@compiled
def take_up(count: int, memory: Memory, assigned: Assigned, tree: Tree):
    """Moves the live amounts from the choices in `before` to those in `chosen`, and back where they do not fit."""
    record_at, start, stop, amount_at, amounts, limit = memory
    chosen, live, blocks = assigned
    order, before = tree.order, tree.before
    for p in range(count):
        i = order[p]
        for r in range(record_at[i], record_at[i + 1]):
            change = amounts[amount_at[r] + chosen[i]] - amounts[amount_at[r] + before[p]]
            add_live(live, blocks, start[r], stop[r], change)
    fits = True
    for p in range(count):
        i = order[p]
        for r in range(record_at[i], record_at[i + 1]):
            change = amounts[amount_at[r] + chosen[i]] - amounts[amount_at[r] + before[p]]
            if change > 0 and most_live(live, blocks, start[r], stop[r]) > limit:
                fits = False
                break
        if not fits:
            break
    if fits:
        return True
    for p in range(count):
        i = order[p]
        for r in range(record_at[i], record_at[i + 1]):
            change = amounts[amount_at[r] + before[p]] - amounts[amount_at[r] + chosen[i]]
            add_live(live, blocks, start[r], stop[r], change)
    return False
