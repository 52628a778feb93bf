"""Compiled local search under a hard memory limit: single nodes and induced trees.

The live amounts stand in an array per slot with maxima per block of `BLOCK` slots, so that the room left over a long
interval is found without visiting all of it. A move is applied only if no slot ends above the limit (or, where a slot
already is above it, no higher than before). Tree moves price memory to stay within it: the best choice of the whole
tree at those prices is found by dynamic programming, then checked against the true limit and the true cost.
"""

import numpy as np

from autoshard.solver.compiled import compiled

BLOCK = 64


@compiled
def next_random(state):
    """xorshift64*: the same numbers on every machine."""
    x = state[0]
    x ^= x >> np.uint64(12)
    x ^= x << np.uint64(25)
    x ^= x >> np.uint64(27)
    state[0] = x
    return np.int64((x * np.uint64(2685821657736338717)) >> np.uint64(33))


@compiled
def add_live(live, blocks, start, stop, amount):
    """Add to the slots [start, stop) and renew the block maxima."""
    if amount == 0 or start >= stop:
        return
    for t in range(start, stop):
        live[t] += amount
    first = start // BLOCK
    last = (stop - 1) // BLOCK
    for b in range(first, last + 1):
        if b * BLOCK >= start and (b + 1) * BLOCK <= stop:
            blocks[b] += amount
        else:
            high = live[b * BLOCK]
            for t in range(b * BLOCK + 1, min(len(live), (b + 1) * BLOCK)):
                high = max(high, live[t])
            blocks[b] = high


@compiled
def most_live(live, blocks, start, stop):
    """The largest live amount over [start, stop)."""
    high = live[start]
    t = start
    while t < stop:
        if t % BLOCK == 0 and t + BLOCK <= stop:
            high = max(high, blocks[t // BLOCK])
            t += BLOCK
        else:
            high = max(high, live[t])
            t += 1
    return high


@compiled
def local_costs(i, out, offsets, unary, first, second, table_at, tables, incident_at, incident, chosen):
    """Cost of each strategy of node i with everything else fixed."""
    low = offsets[i]
    d = offsets[i + 1] - low
    for a in range(d):
        out[a] = unary[low + a]
    for k in range(incident_at[i], incident_at[i + 1]):
        e = incident[k]
        at = table_at[e]
        if first[e] == i:
            c = offsets[second[e] + 1] - offsets[second[e]]
            x = chosen[second[e]]
            for a in range(d):
                out[a] += tables[at + a * c + x]
        else:
            x = chosen[first[e]]
            for a in range(d):
                out[a] += tables[at + x * d + a]


@compiled
def try_switch(i, a, chosen, limit, live, blocks, record_at, starts, stops, amount_at, amounts):
    """Switch node i to strategy a unless some slot would rise above the limit; returns whether it did."""
    x = chosen[i]
    fits = True
    done = record_at[i]
    for r in range(record_at[i], record_at[i + 1]):
        change = amounts[amount_at[r] + a] - amounts[amount_at[r] + x]
        if change > 0 and most_live(live, blocks, starts[r], stops[r]) + change > limit:
            fits = False
            break
        add_live(live, blocks, starts[r], stops[r], change)
        done = r + 1
    if fits:
        chosen[i] = a
        return True
    for r in range(record_at[i], done):
        add_live(live, blocks, starts[r], stops[r], amounts[amount_at[r] + x] - amounts[amount_at[r] + a])
    return False


@compiled
def node_descent(
    sweeps, limit, prefix, offsets, unary, first, second, table_at, tables, incident_at, incident,
    record_at, starts, stops, amount_at, amounts, live, blocks, chosen, scratch,
):  # fmt: skip
    """Switch single nodes to what is cheapest at the prices (prefix sums) and fits; returns how many switches."""
    n = len(offsets) - 1
    switches = 0
    for _ in range(sweeps):
        changed = 0
        for i in range(n):
            d = offsets[i + 1] - offsets[i]
            if d == 1:
                continue
            local_costs(i, scratch, offsets, unary, first, second, table_at, tables, incident_at, incident, chosen)
            for r in range(record_at[i], record_at[i + 1]):
                price = prefix[stops[r]] - prefix[starts[r]]
                if price > 0.0:
                    for a in range(d):
                        scratch[a] += price * amounts[amount_at[r] + a]
            while True:
                x = chosen[i]
                best = x
                for a in range(d):
                    if scratch[a] < scratch[best]:
                        best = a
                if best == x:
                    break
                if try_switch(i, best, chosen, limit, live, blocks, record_at, starts, stops, amount_at, amounts):
                    changed += 1
                    break
                scratch[best] = np.inf
        switches += changed
        if not changed:
            break
    return switches


@compiled
def tree_search(
    trees, size, low_node, high_node, limit, scale_low, scale_high, judge, prefix, state,
    offsets, unary, first, second, table_at, tables, incident_at, incident,
    record_at, starts, stops, amount_at, amounts, live, blocks, chosen,
    member, parent, parent_edge, order, frontier, cost_at, cost,
):  # fmt: skip
    """Re-choose `trees` random induced trees of up to `size` inner nodes by dynamic programming; returns the gain.

    Roots lie in [low_node, high_node). Prices are `prefix` times a random scale; a result past the limit is tried
    again at higher prices. A tree's new choice is kept if it fits and does not cost more, memory counted at `judge`
    times the prices (0: the true cost). member (all -1), parent, parent_edge, order, frontier, cost_at, cost: scratch.
    """
    gained = 0.0
    for _ in range(trees):
        root = low_node + next_random(state) % (high_node - low_node)
        count = 0
        waiting = 1
        inner = 0
        used = 0
        frontier[0] = root
        parent[root] = -1
        parent_edge[root] = -1
        while waiting > 0 and inner < size:
            pick = next_random(state) % waiting
            i = frontier[pick]
            waiting -= 1
            frontier[pick] = frontier[waiting]
            if member[i] >= 0:
                continue
            # an induced tree: exactly one neighbour inside (none for the root)
            inside = 0
            link = -1
            degree = incident_at[i + 1] - incident_at[i]
            if degree > 400 and next_random(state) % 16 != 0:
                continue
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
        # true cost now, and the tree's own terms
        scale = scale_low + (scale_high - scale_low) * (next_random(state) % 1024) / 1023.0
        before = 0.0
        for attempt in range(3):
            total = 0.0
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
                if attempt == 0:
                    total += cost[at + chosen[i]]
                    e = parent_edge[i]
                    if e >= 0:
                        c = offsets[second[e] + 1] - offsets[second[e]]
                        total += tables[table_at[e] + chosen[first[e]] * c + chosen[second[e]]]
                for r in range(record_at[i], record_at[i + 1]):
                    full = prefix[stops[r]] - prefix[starts[r]]
                    if attempt == 0 and judge > 0.0:
                        total += judge * full * amounts[amount_at[r] + chosen[i]]
                    price = full * scale
                    if price > 0.0:
                        for a in range(d):
                            cost[at + a] += price * amounts[amount_at[r] + a]
            if attempt == 0:
                before = total
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
            # choices downwards; `frontier` keeps the old ones
            after = 0.0
            changed = False
            for p in range(count):
                i = order[p]
                low = offsets[i]
                d = offsets[i + 1] - low
                at = cost_at[p]
                frontier[p] = chosen[i]
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
            if not changed:
                break
            # true cost after, then the limit
            for p in range(count):
                i = order[p]
                low = offsets[i]
                d = offsets[i + 1] - low
                x = chosen[i]
                after += unary[low + x]
                if judge > 0.0:
                    for r in range(record_at[i], record_at[i + 1]):
                        after += judge * (prefix[stops[r]] - prefix[starts[r]]) * amounts[amount_at[r] + x]
                for k in range(incident_at[i], incident_at[i + 1]):
                    e = incident[k]
                    if first[e] == i:
                        other = second[e]
                        if member[other] >= 0 and parent_edge[i] != e:
                            continue
                        c = offsets[other + 1] - offsets[other]
                        after += tables[table_at[e] + x * c + chosen[other]]
                    else:
                        other = first[e]
                        if member[other] >= 0 and parent_edge[i] != e:
                            continue
                        after += tables[table_at[e] + chosen[other] * d + x]
            fits = after <= before
            if fits:
                for p in range(count):  # smaller amounts first, then larger ones
                    i = order[p]
                    for r in range(record_at[i], record_at[i + 1]):
                        change = amounts[amount_at[r] + chosen[i]] - amounts[amount_at[r] + frontier[p]]
                        add_live(live, blocks, starts[r], stops[r], change)
                for p in range(count):
                    i = order[p]
                    for r in range(record_at[i], record_at[i + 1]):
                        change = amounts[amount_at[r] + chosen[i]] - amounts[amount_at[r] + frontier[p]]
                        if change > 0 and most_live(live, blocks, starts[r], stops[r]) > limit:
                            fits = False
                            break
                    if not fits:
                        break
                if fits:
                    gained += before - after
                    break
                for p in range(count):
                    i = order[p]
                    for r in range(record_at[i], record_at[i + 1]):
                        change = amounts[amount_at[r] + frontier[p]] - amounts[amount_at[r] + chosen[i]]
                        add_live(live, blocks, starts[r], stops[r], change)
            worse = after > before
            for p in range(count):
                chosen[order[p]] = frontier[p]
            scale = scale * 0.5 if worse else scale * 1.7 + 0.05
        for p in range(count):
            member[order[p]] = -1
    return gained
