"""Prices on memory, compiled: what nodes cost with them, and the search for those with the best bound."""

from typing import NamedTuple

import numpy as np

from autoshard.solver.compiled import compiled, copy_to
from autoshard.solver.dual.arrays import Held

FIRST_RATE = 0.25
"""Largest relative change of a price in one step at first."""
MEAN_DECAY = 0.9
SQUARE_DECAY = 0.98
"""What one step leaves of the running mean of the excess, and of that of its square, which varies more slowly."""
LEAST_SPREAD = 0.01
"""Added to how much the excess of a slot varies, so that one which never varies makes no endless step."""
LEAST_PRICE = 1e-7
"""No price falls below this part of the highest one: a price of 0 could never rise again."""
GROWING = 10
GROWTH = 1.3
"""After so many better bounds in a row, steps get so much longer again."""
PATIENCE = 25
"""Passes without a better bound after which steps are shortened and prices go back to the best ones."""
SHORTENED = 0.6
"""What is left of the length of a step then."""
FALLEN = 0.02
"""The same is done at once where the bound is this share below the best one."""
SETTLING_PASSES = 3
"""Double passes after a jump of the prices before the bound is judged."""
FIRST_SHARE = 3e-4
DEARER = 3.0
"""The first prices tried are together worth this part of the bound; each next try is worth so many times more."""
LEAST_TRIES = 3
MOST_TRIES = 10
TOO_DEAR = 0.1
"""Magnitudes that are tried before a bound this share below the best one ends it, and in any case."""
OTHER_SLOTS = 0.05
"""The first prices of slots that are not overfilled, as a part of those of slots that are."""
NO_SHAPE = 1e-300
"""Keeps the sum that first prices are divided by above 0 where there are no slots."""
PRICE_BITS = 50
"""Prices are multiples of their sum / 2**50, so that all of their partial sums are exact in float64."""
FINEST_PRICE = -500
"""Of prices in powers of two: less per byte is nothing beside costs in whole ticks, and soon too little for float64."""
PRODUCT_ERROR = 2.0**-51
"""Four times the relative rounding error of a float64 product (2**-53)."""
FOUND = -1
"""`Pace.scale` once the magnitude is found."""
UNPRICED = -2
"""`Pace.scale` while no assignment has exceeded the limit, so that no prices are asked."""
AIMED = 1.0
"""Steps towards a bound begin as long as would reach it if the bound were linear."""
LONGER = 1.3
"""How much longer the next step is made after one that raised the bound."""
SHORTEST = 1.0 / 64
"""No step is made shorter, so that parts of parts can still move."""
IN_VAIN = 3
"""Such steps without a better bound after which they are made half as long, from the best prices."""
DEFLECTED = 1.5
"""How far a step is turned away from the last one where the two disagree."""
FARTHEST = 0.5
"""The most that one step aims to raise the best bound by, as a share of it: where no assignment is known, the bound
aimed at says nothing."""
FAR_BELOW = 4.0
"""So many times what is aimed at below the best bound, prices go back to the best ones at once."""


class PerSlot(NamedTuple):
    """Arrays of the search for good prices, one number per time slot.

    current: prices. best: those of the best bound. shape: prices tried first are multiples of it. mean, square: running
    first and second moments of the relative excess; of steps that aim at a bound (`aim`), mean is the last direction.
    """

    current: np.ndarray
    best: np.ndarray
    shape: np.ndarray
    mean: np.ndarray
    square: np.ndarray


class Pace(NamedTuple):
    """Where the search for good prices stands.

    bound: the best so far. steps: made so far. rate: size of a step. idle, streak: passes without a better bound, and
    with. wait: passes left before the next step, so that messages settle after a jump. scale: number of the first
    magnitude tried, or one of `FOUND` and `UNPRICED`.
    """

    bound: float
    steps: int
    rate: float
    idle: int
    streak: int
    wait: int
    scale: int


@compiled
def fill_live(held: Held, chosen: np.ndarray, live: np.ndarray):
    """Live amount per slot, exact; returns the largest."""
    live[:] = 0
    for r in range(len(held.node)):
        amount = held.amounts[held.at[r] + chosen[held.node[r]]]
        if held.start[r] < len(live):
            live[held.start[r]] += amount
        if held.stop[r] < len(live):
            live[held.stop[r]] -= amount
    most = np.int64(0)
    running = np.int64(0)
    for t in range(len(live)):
        running += live[t]
        live[t] = running
        most = max(most, running)
    return most


@compiled
def charge(
    held: Held,
    offsets: np.ndarray,
    unary: np.ndarray,
    quantum: float,
    wished: np.ndarray,
    prices: np.ndarray,
    priced: np.ndarray,
):
    """Ask `wished[t] >= 0` per unit live in slot t: sets `prices`, and `priced`: what states cost with them.

    Returns the sum of the prices.

    Prices become multiples of a power of two, so that their sums are exact. A product is off by at most one part in
    2**53; it is shrunk, so that bounds stay valid. Prices below the finest power of two are none.
    """
    top = 0.0
    for t in range(len(wished)):
        top += wished[t]
    unit = 2.0 ** max(np.ceil(np.log2(top)) - PRICE_BITS, FINEST_PRICE) if top > 0.0 else 1.0
    before = np.empty(len(wished) + 1)
    running = 0.0
    for t in range(len(wished)):
        before[t] = running
        prices[t] = np.floor(wished[t] / unit) * unit if top > 0.0 else 0.0
        running += prices[t]
    before[len(wished)] = running
    copy_to(priced, unary)
    finest = 1.0 / quantum
    for r in range(len(held.node)):
        per_unit = before[held.stop[r]] - before[held.start[r]]
        if per_unit == 0.0:
            continue
        low = offsets[held.node[r]]
        at = held.at[r]
        for a in range(held.at[r + 1] - at):
            extra = per_unit * held.amounts[at + a]
            extra -= abs(extra) * PRODUCT_ERROR
            priced[low + a] += np.floor(extra * finest) * quantum
    return running


@compiled
def begin_prices(slots: PerSlot, live: np.ndarray, limit: int, bound: float):
    """No prices yet, at this bound; slots that an assignment overfills will weigh most."""
    total = 0.0
    for t in range(len(live)):
        slots.shape[t] = 1.0 if live[t] > limit else OTHER_SLOTS
        total += slots.shape[t]
    for t in range(len(live)):
        slots.shape[t] /= max(NO_SHAPE, total)
        slots.current[t] = 0.0
        slots.best[t] = 0.0
        slots.mean[t] = 0.0
        slots.square[t] = 0.0
    return Pace(bound, 0, FIRST_RATE, 0, 0, 0, 0)


@compiled
def try_scale(slots: PerSlot, pace: Pace, limit: int, k: int):
    """Make the current prices those of the k-th magnitude."""
    worth = 1.0
    if -np.inf < pace.bound < np.inf and pace.bound != 0.0:
        worth = abs(pace.bound)
    factor = FIRST_SHARE * DEARER**k * worth / max(1, limit)
    for t in range(len(slots.current)):
        slots.current[t] = slots.shape[t] * factor


@compiled
def step_prices(slots: PerSlot, pace: Pace, limit: int, bound: float, live: np.ndarray):
    """One step after a pass with this bound and these amounts live: dearer where they exceed the limit, else cheaper.

    First the magnitude is found. Returns where the search stands, and whether the current prices are new.
    """
    best = pace.bound
    better = bound > best
    if better:
        best = bound
        copy_to(slots.best, slots.current)
    idle = 0 if better else pace.idle
    wait = pace.wait
    if wait > 0:
        return Pace(best, pace.steps, pace.rate, idle, pace.streak, wait - 1, pace.scale), False
    if pace.scale >= 0:
        scale = pace.scale
        now = Pace(best, pace.steps, pace.rate, idle, pace.streak, wait, scale)
        if scale > MOST_TRIES or (scale > LEAST_TRIES and bound < best - TOO_DEAR * abs(best)):
            # the magnitude of the best bound, or a small one when none beat no prices at all
            if slots.best.any():
                copy_to(slots.current, slots.best)
            else:
                try_scale(slots, now, limit, 0)
            return Pace(best, pace.steps, pace.rate, idle, pace.streak, SETTLING_PASSES, FOUND), True
        try_scale(slots, now, limit, scale)
        return Pace(best, pace.steps, pace.rate, idle, pace.streak, SETTLING_PASSES - 1, scale + 1), True
    rate = pace.rate
    streak = pace.streak + 1 if better else 0
    if streak >= GROWING:
        rate = min(FIRST_RATE, GROWTH * rate)
        streak = 0
    if not better:
        idle += 1
        if idle >= PATIENCE or bound < best - FALLEN * abs(best):
            if slots.best.any():
                copy_to(slots.current, slots.best)
            rate *= SHORTENED
            idle = 0
            wait = SETTLING_PASSES
            slots.mean[:] = 0.0
    move(slots, rate, pace.steps + 1, limit, live)
    return Pace(best, pace.steps + 1, rate, idle, streak, wait, pace.scale), True


@compiled
def move(slots: PerSlot, rate: float, steps: int, limit: int, live: np.ndarray):
    """An exponentiated step along the running mean of how full each slot was, relative to how much that varies."""
    mean_seen = 1.0 - MEAN_DECAY**steps
    square_seen = 1.0 - SQUARE_DECAY**steps
    top = 0.0
    for t in range(len(live)):
        excess = min(1.0, max(-1.0, live[t] / max(1, limit) - 1.0))
        slots.mean[t] = MEAN_DECAY * slots.mean[t] + (1.0 - MEAN_DECAY) * excess
        slots.square[t] = SQUARE_DECAY * slots.square[t] + (1.0 - SQUARE_DECAY) * excess * excess
        spread = np.sqrt(slots.square[t] / square_seen) + LEAST_SPREAD
        slots.current[t] *= np.exp(rate * (slots.mean[t] / mean_seen) / spread)
        top = max(top, slots.current[t])
    for t in range(len(live)):
        slots.current[t] = max(slots.current[t], LEAST_PRICE * top)


@compiled
def aim(slots: PerSlot, pace: Pace, limit: int, bound: float, live: np.ndarray, target: float):
    """One step towards a bound of `target`, after a pass with this bound and these amounts live.

    Along what is too much or too little in each slot, turned away from the last step where the two disagree (Camerini,
    Fratta and Maffioli 1975), and so far as would reach the target if the bound were linear (Polyak 1969). A price that
    was nothing may become one in a single step, which matters after a split: what binds then may be another slot.
    Returns where the search stands.
    """
    best = pace.bound
    rate = pace.rate
    if bound > best:
        best = bound
        copy_to(slots.best, slots.current)
        idle = 0
        rate = min(AIMED, LONGER * rate)
    else:
        idle = pace.idle + 1
    farthest = min(target - best, FARTHEST * abs(best) + 1.0)
    if idle >= IN_VAIN or bound < best - FAR_BELOW * farthest:
        copy_to(slots.current, slots.best)
        slots.mean[:] = 0.0
        return Pace(best, pace.steps + 1, max(SHORTEST, 0.5 * rate), 0, 0, 0, FOUND)
    most = max(1.0, float(limit))
    along = 0.0
    length = 0.0
    for t in range(len(live)):
        excess = live[t] / most - 1.0
        if slots.current[t] > 0.0 or excess > 0.0:
            along += excess * slots.mean[t]
        length += slots.mean[t] * slots.mean[t]
    turned = -DEFLECTED * along / length if along < 0.0 and length > 0.0 else 0.0
    length = 0.0
    for t in range(len(live)):
        excess = live[t] / most - 1.0
        if slots.current[t] <= 0.0 and excess < 0.0:
            excess = 0.0
        slots.mean[t] = excess + turned * slots.mean[t]
        length += slots.mean[t] * slots.mean[t]
    if length > 0.0:
        step = rate * (best + farthest - bound) / length / most
        for t in range(len(live)):
            slots.current[t] = max(0.0, slots.current[t] + step * slots.mean[t])
    return Pace(best, pace.steps + 1, rate, idle, 0, 0, FOUND)
