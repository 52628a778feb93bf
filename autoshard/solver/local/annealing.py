"""Simulated annealing of the decisions of a small network within its limit: assignments to begin from.

A limit may ask for another way of sharding as a whole. Descent, trees and what messages decode to stay near one way;
steps that may cost something lead from one to another. A step changes one decision, and often what lies around it:
neighbours for which another state is cheaper then take it, one after the other, as a sharding spreads through a
program. What exceeds the limit costs so much a byte, so that some steps lead through plans that do not fit. Nodes for
memory cost nothing and follow from the decisions: each has the first state that these allow, which holds what a plan
does hold.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from autoshard.solver.compiled import compiled
from autoshard.solver.local.annealed import Annealed, annealed_from
from autoshard.solver.local.search import random_state_of
from autoshard.solver.network import CostNetwork
from autoshard.solver.threads import side_by_side

RUNS = ((8, 0.4, 0.02), (4, 0.3, 0.01), (4, 0.2, 0.005))
"""Rounds of runs, the first from the start, each further one from the best so far: how many, and how much steps may
cost at first and at the end, as shares of `scale`."""
STEPS, MOST_STEPS = 4_000, 150_000
"""Steps of one run per decision, and at most."""
OVER_LIMIT = 3.0
"""What it costs to exceed the limit by all of it, at one moment, as a multiple of `scale`."""
SPREADING, MOST_SPREAD = 0.4, 7
"""The share of the steps that go on to neighbours: to 1, 2, 4, ... of them at most, one of so many numbers."""
LEAST_GAIN = 0.5
"""Costs are whole numbers: what gains less gains nothing."""


def anneal(
    network: CostNetwork, decisions: int, start: Sequence[int], scale: float, seed: int, goes_on: Callable[[], bool]
) -> tuple[int, ...] | None:
    """The cheapest assignment within the limit that runs of annealing meet, None where they meet none.

    decisions: so many nodes decide, those after them follow. start: a state of every one that decides. scale: about
    what an assignment costs. goes_on: asked before every round of runs after the first.
    """
    made = annealed_from(network, decisions)
    deciding = int((np.diff(made.offsets)[:decisions] > 1).sum())
    steps = min(MOST_STEPS, STEPS * deciding)
    best, cost = np.zeros(network.n_nodes, dtype=np.int64), np.inf
    best[:decisions] = start[:decisions]
    if not steps or scale <= 0:
        return None
    number = 0
    for count, first, last in RUNS:
        if number and (np.isinf(cost) or not goes_on()):
            break
        jobs = []
        for _ in range(count):
            random_state = random_state_of(1000 * seed + number)
            heat = Heat(steps, first * scale, last * scale, OVER_LIMIT * scale, scale)
            jobs.append(lambda x=best.copy(), heat=heat, state=random_state: (*_run(made, x, heat, state), x))
            number += 1
        for outcome in side_by_side(jobs):
            if isinstance(outcome, BaseException):
                raise outcome
            found, at = outcome[0]
            if found < cost:
                best, cost = at, found
    return None if np.isinf(cost) else tuple(best.tolist())


class Heat(NamedTuple):
    """steps: of a run. first, last: how much they may cost, about, at first and at the end. over: what it costs to
    exceed the limit by all of it; broken: what a forbidden pair costs.
    """

    steps: int
    first: float
    last: float
    over: float
    broken: float


@compiled
def _random(state: np.ndarray):
    """The next of a row of random numbers from 0 to 1 (xorshift, 64 bits)."""
    z = state[0]
    z ^= z << np.uint64(13)
    z ^= z >> np.uint64(7)
    z ^= z << np.uint64(17)
    state[0] = z
    return float(z >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@compiled
def _allowed(net: Annealed, node: int, x: np.ndarray):
    """The first state of a node that follows which those before it allow; -1 where they allow none."""
    words = net.words[node]
    for word in range(words):
        left = np.uint64(0xFFFFFFFFFFFFFFFF)
        for k in range(net.before_at[node], net.before_at[node + 1]):
            left &= net.masks[net.mask_at[k] + x[net.before[k]] * words + word]
        if left:
            bit = 0
            while not (left >> np.uint64(bit)) & np.uint64(1):
                bit += 1
            return 64 * word + bit
    return -1


@compiled
def _hold(net: Annealed, node: int, old: int, new: int, live: np.ndarray):
    """Let a node hold what its new state holds in place of what its old one does (-1: nothing)."""
    for r in range(net.held_at[node], net.held_at[node + 1]):
        more = net.amounts[net.amount_at[r] + new]
        if old >= 0:
            more -= net.amounts[net.amount_at[r] + old]
        if more != 0:
            for t in range(net.start[r], net.stop[r]):
                live[t] += more


@compiled
def _over(live: np.ndarray, limit: int):
    """By how much the limit is exceeded, summed over all moments."""
    total = 0.0
    for t in range(len(live)):
        total += max(0, live[t] - limit)
    return total


@compiled
def _switched(net: Annealed, node: int, state: int, x: np.ndarray):
    """What it costs more to switch a decision to a state, and how many more pairs are forbidden then."""
    old = x[node]
    more = net.unary[net.offsets[node] + state] - net.unary[net.offsets[node] + old]
    broken = 0
    for k in range(net.edge_at[node], net.edge_at[node + 1]):
        other = net.other[k]
        columns = net.offsets[other + 1] - net.offsets[other]
        before = net.tables[net.row_at[k] + old * columns + x[other]]
        after = net.tables[net.row_at[k] + state * columns + x[other]]
        if before < np.inf:
            more -= before
        else:
            broken -= 1
        if after < np.inf:
            more += after
        else:
            broken += 1
    return more, broken


@compiled
def _cheapest(net: Annealed, node: int, x: np.ndarray, forbidden: float, costs: np.ndarray):
    """The state of a decision that costs least beside all others; the one it has where none costs less."""
    low = net.offsets[node]
    count = net.offsets[node + 1] - low
    for a in range(count):
        costs[a] = net.unary[low + a]
    for k in range(net.edge_at[node], net.edge_at[node + 1]):
        column = net.column_at[k] + x[net.other[k]] * count
        for a in range(count):
            costs[a] += min(net.tables[column + a], forbidden)
    best = x[node]
    for a in range(count):
        if costs[a] < costs[best] - LEAST_GAIN:
            best = a
    return best


@compiled
def _begun(net: Annealed, x: np.ndarray, live: np.ndarray):
    """Let the nodes that follow follow, and all hold what they hold; what the decisions cost, and how many of their
    pairs are forbidden.
    """
    for i in range(len(net.words)):
        if i >= net.decisions:
            x[i] = max(0, _allowed(net, i, x))
        _hold(net, i, -1, x[i], live)
    cost = 0.0
    broken = 0
    for i in range(net.decisions):
        cost += net.unary[net.offsets[i] + x[i]]
        for k in range(net.edge_at[i], net.edge_at[i + 1]):
            j = net.other[k]
            if j > i:
                value = net.tables[net.row_at[k] + x[i] * (net.offsets[j + 1] - net.offsets[j]) + x[j]]
                if value < np.inf:
                    cost += value
                else:
                    broken += 1
    return cost, broken


# complexity: one loop, whose arrays are made once for all steps
@compiled
def _run(net: Annealed, best: np.ndarray, heat: Heat, random_state: np.ndarray):
    """One run, from `best`, which receives the cheapest assignment within the limit; returns what that costs."""
    n, decisions = len(net.words), net.decisions
    x = best.copy()
    live = np.zeros(net.slots, dtype=np.int64)
    cost, broken = _begun(net, x, live)
    over = _over(live, net.limit)
    least = np.inf
    if over <= 0.0 and broken == 0:
        least = cost
        best[:] = x
    then = live.copy()
    moved = np.empty(n, dtype=np.int64)  # nodes that a step has changed, and what they were
    was = np.empty(n, dtype=np.int64)
    changed = np.zeros(n, dtype=np.bool_)
    queue = np.empty(n, dtype=np.int64)
    queued = np.zeros(n, dtype=np.bool_)
    costs = np.empty(net.widest)
    per_byte = heat.over / max(1, net.limit)
    heated = heat.first
    cooling = (heat.last / heat.first) ** (1.0 / heat.steps)
    for _ in range(heat.steps):
        heated *= cooling
        i = net.open_[int(_random(random_state) * len(net.open_))]
        state = int(_random(random_state) * (net.offsets[i + 1] - net.offsets[i] - 1))
        if state >= x[i]:
            state += 1
        if net.unary[net.offsets[i] + state] == np.inf:
            continue
        room = -heated * np.log(_random(random_state) + 1e-300)
        spread = 0
        if _random(random_state) < SPREADING:
            spread = 1 << int(_random(random_state) * MOST_SPREAD)
        more = 0.0
        pairs = 0
        count = 0
        head = 0
        tail = 0
        node = i
        while True:
            dearer, forbidden = _switched(net, node, state, x)
            more += dearer
            pairs += forbidden
            moved[count] = node
            was[count] = x[node]
            count += 1
            x[node] = state
            changed[node] = True
            if count > spread:
                break
            for k in range(net.edge_at[node], net.edge_at[node + 1]):
                j = net.other[k]
                if not changed[j] and not queued[j]:
                    queued[j] = True
                    queue[tail] = j
                    tail += 1
            found = False
            while head < tail and not found:
                node = queue[head]
                head += 1
                state = _cheapest(net, node, x, heat.broken, costs)
                found = state != x[node]
            if not found:
                break
        for k in range(tail):
            queued[queue[k]] = False
        more += pairs * heat.broken
        over_then = over
        switched = count
        taken = more - per_byte * over <= room  # what is too much can go at the most
        if taken:
            then[:] = live
            for k in range(switched):
                _hold(net, moved[k], was[k], x[moved[k]], then)
            for j in range(decisions, n):
                touched = False
                for k in range(net.before_at[j], net.before_at[j + 1]):
                    touched = touched or changed[net.before[k]]
                if not touched:
                    continue
                state = _allowed(net, j, x)
                if state < 0:
                    taken = False
                    break
                if state != x[j]:
                    _hold(net, j, x[j], state, then)
                    moved[count] = j
                    was[count] = x[j]
                    count += 1
                    x[j] = state
                    changed[j] = True
            over_then = _over(then, net.limit)
            taken = taken and more + per_byte * (over_then - over) <= room
        for k in range(count):
            changed[moved[k]] = False
            if not taken:
                x[moved[k]] = was[k]
        if taken:
            cost += more - pairs * heat.broken
            broken += pairs
            over = over_then
            live[:] = then
            if over <= 0.0 and broken == 0 and cost < least - LEAST_GAIN:
                least = cost
                best[:] = x
    return (least,)
