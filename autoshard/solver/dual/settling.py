"""Passes one after the other, with a step of the prices after each: the loop of a proof's parts, compiled as a whole.

Parts are small, and there are many: most of their time went to calling one compiled pass after the other. What comes
out steers a proof and states nothing: bounds are weighed in whole numbers afterwards (`certify.weigh`).
"""

from typing import NamedTuple

import numpy as np

from autoshard.solver.compiled import compiled, copy_to
from autoshard.solver.dual.arrays import Classes, Graph, Held, Messages
from autoshard.solver.dual.messages import entry_of, message_pass
from autoshard.solver.dual.pricing import UNPRICED, Pace, PerSlot, aim, charge, fill_live

EXACT_QUANTA = 2.0**52
"""Below this many quanta float64 sums are exact: half of the 2**53 up to which it holds every whole number."""
COARSER = 16.0
"""The quantum grows by this factor when sums are not exact any more: four bits, so that few passes are lost."""


class Moving(NamedTuple):
    """What passes change (see `passes.Dual`); decoded: per double pass the states chosen; worth: whether they are
    cheap enough, and within the limit.
    """

    messages: Messages
    total: np.ndarray
    prices: np.ndarray
    priced: np.ndarray
    decoded: np.ndarray
    worth: np.ndarray


class Stop(NamedTuple):
    """When passes end: at a bound as high as the threshold; or, after `least` double passes, when so many of them
    (`looked_at`) close less than the share `gain` of what is missing. cheap: decodings that cost less are worth having.
    """

    threshold: float
    cheap: float
    least: int
    looked_at: int
    gain: float


class Bounds(NamedTuple):
    """What passes came to. last: the bound of the last pass, -inf where sums were not exact."""

    bound: float
    last: float
    quantum: float
    passes: int


@compiled
def coarsen(quantum: float, priced: np.ndarray, messages: Messages):
    """A coarser quantum, so that sums become exact again (costs are integers: it is at most 1)."""
    to_second, to_first = messages.to_second, messages.to_first
    coarser = min(1.0, quantum * COARSER)
    for a in range(len(priced)):
        priced[a] = np.floor(priced[a] / coarser) * coarser
    to_whole(to_second, coarser)
    to_whole(to_first, coarser)
    return coarser


@compiled
def to_whole(messages: np.ndarray, quantum: float):
    """Rounds messages to multiples of a quantum."""
    for a in range(len(messages)):
        messages[a] = np.rint(messages[a] / quantum) * quantum


@compiled
def cost_of(graph: Graph, classes: Classes, messages: Messages, chosen: np.ndarray):
    """Cost of positions in the domains, without prices; inf when forbidden."""
    cost = 0.0
    for i in range(len(chosen)):
        cost += graph.unary[graph.offsets[i] + chosen[i]]
    for e in range(len(graph.first)):
        cost += entry_of(graph, classes, messages, e, chosen[graph.first[e]], chosen[graph.second[e]])
    return cost


@compiled
def double_pass(graph: Graph, classes: Classes, moving: Moving, quantum: float, share: float, chosen: np.ndarray):
    """A pass forward and one back; the better bound, the last one, and the quantum from then on.

    share: what the limit gives back for the prices. Bounds are -inf where sums were not exact.
    """
    found = -np.inf
    last = -np.inf
    for forward in (True, False):
        value, largest = message_pass(
            forward, quantum, graph, classes, moving.priced, moving.messages, moving.total, chosen
        )
        last = -np.inf
        if largest < quantum * EXACT_QUANTA:
            last = value - share
        elif quantum < 1.0:
            quantum = coarsen(quantum, moving.priced, moving.messages)
        found = max(found, last)
    return found, last, quantum


@compiled
def settle(
    graph: Graph, classes: Classes, held: Held, moving: Moving, slots: PerSlot, pace: Pace, stop: Stop,
    quantum: float, share: float,
):  # fmt: skip
    """Double passes, with a step of the prices after each, until they hardly raise the bound; ends at the best prices,
    and at the messages that were best with them: a long step spoils messages for many passes.

    Steps aim at the threshold. At most as many passes as `moving.decoded` has rows. Returns where the search for prices
    stands, and the bounds.
    """
    bound = -np.inf
    before = -np.inf
    last = -np.inf
    threshold = stop.threshold
    cheap = stop.cheap
    live = np.zeros(len(slots.current), dtype=np.int64)
    kept = -np.inf  # the best bound of a pass back, and where messages stood then
    kept_quantum = quantum
    kept_second = moving.messages.to_second.copy()
    kept_first = moving.messages.to_first.copy()
    kept_total = moving.total.copy()
    k = 0
    while k < len(moving.decoded):
        chosen = moving.decoded[k]
        found, last, quantum = double_pass(graph, classes, moving, quantum, share, chosen)
        bound = max(bound, found)
        if last > kept:
            kept = last
            kept_quantum = quantum
            copy_to(kept_second, moving.messages.to_second)
            copy_to(kept_first, moving.messages.to_first)
            copy_to(kept_total, moving.total)
        most = fill_live(held, chosen, live)
        if most <= held.limit:
            cost = cost_of(graph, classes, moving.messages, chosen)
            if cost < cheap:
                moving.worth[k] = True
                cheap = min(cheap, cost)
                threshold = min(threshold, cheap) if stop.cheap < np.inf else threshold
        k += 1
        if bound >= threshold:
            if pace.scale != UNPRICED and last > pace.bound:  # these prices closed the part: they are the best
                copy_to(slots.best, slots.current)
            break
        if last > -np.inf and (pace.scale != UNPRICED or most > held.limit):
            pace = aim(slots, pace, held.limit, last, live, threshold)
            total = charge(held, graph.offsets, graph.unary, quantum, slots.current, moving.prices, moving.priced)
            share = total * held.limit
        if k % stop.looked_at == 0:
            if k > stop.least and bound - before < stop.gain * (threshold - bound):
                break
            before = max(before, bound)
    if pace.scale != UNPRICED and (last < pace.bound or (slots.current != slots.best).any()):
        total = charge(held, graph.offsets, graph.unary, quantum, slots.best, moving.prices, moving.priced)
        copy_to(slots.current, slots.best)
        if kept == pace.bound:
            copy_to(moving.messages.to_second, kept_second)
            copy_to(moving.messages.to_first, kept_first)
            copy_to(moving.total, kept_total)
            last = kept
        if kept != pace.bound or kept_quantum != quantum:
            to_whole(moving.messages.to_second, quantum)
            to_whole(moving.messages.to_first, quantum)
            again = np.empty(len(graph.offsets) - 1, dtype=np.int64)
            found, last, quantum = double_pass(graph, classes, moving, quantum, total * held.limit, again)
            bound = max(bound, found)
    return pace, Bounds(bound, last, quantum, k)
