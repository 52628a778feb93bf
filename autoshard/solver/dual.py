"""Lower bounds by message passing, with prices on memory; the reparametrised network that comes with them.

The bound of the priced network minus price times limit bounds the network with its memory limit (weak duality). All
arithmetic that enters the reported bound is exact: see `kernels`.
"""

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from autoshard.solver.flat import Flat
from autoshard.solver.work import TOGETHER

EXACT_QUANTA = 2.0**52
"""Below this many quanta float64 sums are exact."""


@dataclass
class Dual:
    """Messages on a flat network. bound: best proven so far (without the work network's constant), -inf before any."""

    flat: Flat
    quantum: float
    second_at: np.ndarray
    first_at: np.ndarray
    to_second: np.ndarray
    to_first: np.ndarray
    total: np.ndarray
    prices: np.ndarray
    priced: np.ndarray
    charge: Fraction = Fraction(0)
    bound: float = -math.inf
    last: float = -math.inf
    passes: int = 0


def rounded_down(exact: Fraction) -> float:
    value = float(exact)
    return value if Fraction(value) <= exact else math.nextafter(value, -math.inf)


def pick_quantum(flat: Flat) -> float:
    """A power of two small against the costs, with room for sums: the largest cost stays below 2**44 quanta."""
    finite = flat.unary[np.isfinite(flat.unary)]
    scale = float(np.abs(finite).max(initial=1.0)) + 1.0
    for at in range(0, len(flat.tables), TOGETHER):
        part = np.abs(flat.tables[at : at + TOGETHER])
        scale = max(scale, float(part[np.isfinite(part)].max(initial=0.0)))
    return 2.0 ** min(-6, math.ceil(math.log2(scale)) - 44)


def start(flat: Flat) -> Dual:
    """All messages zero."""
    sizes = flat.sizes
    second_at = np.concatenate([[0], np.cumsum(sizes[flat.second])]).astype(np.int64)
    first_at = np.concatenate([[0], np.cumsum(sizes[flat.first])]).astype(np.int64)
    return Dual(
        flat, pick_quantum(flat), second_at, first_at,
        np.zeros(int(second_at[-1])), np.zeros(int(first_at[-1])), np.zeros(len(flat.unary)),
        np.zeros(flat.slots), flat.unary.copy(),
    )  # fmt: skip


def run_pass(dual: Dual, forward: bool) -> np.ndarray:
    """One pass; updates `bound` and `last`; returns the decoded assignment (positions in the flat domains)."""
    from autoshard.solver.kernels import message_pass

    flat = dual.flat
    chosen = np.zeros(flat.n, dtype=np.int64)
    value, largest = message_pass(
        forward, dual.quantum, flat.offsets, dual.priced, flat.first, flat.second, flat.table_at, flat.tables,
        flat.incident_at, flat.incident, dual.second_at, dual.first_at, dual.to_second, dual.to_first,
        dual.total, chosen,
    )  # fmt: skip
    dual.passes += 1
    dual.last = -math.inf
    if largest < dual.quantum * EXACT_QUANTA:
        exact = Fraction(float(value)) - dual.charge
        dual.last = rounded_down(exact)
        dual.bound = max(dual.bound, dual.last)
    elif dual.quantum < 1.0:  # a coarser quantum makes the sums exact again (costs are integers: up to 1)
        dual.quantum = min(1.0, dual.quantum * 16.0)
        dual.priced = np.floor(dual.priced / dual.quantum) * dual.quantum
        dual.to_first = np.round(dual.to_first / dual.quantum) * dual.quantum
        dual.to_second = np.round(dual.to_second / dual.quantum) * dual.quantum
    return chosen


def set_prices(dual: Dual, prices: np.ndarray) -> None:
    """Charge `prices[t] >= 0` per unit live in slot t; the limit's share is given back in the bound."""
    flat = dual.flat
    assert flat.limit is not None
    top = float(prices.sum())
    if top <= 0:
        prices = np.zeros(flat.slots)
    else:  # multiples of a power of two: prefix sums are exact
        unit = 2.0 ** (math.ceil(math.log2(top)) - 50)
        prices = np.floor(prices / unit) * unit
    dual.prices = prices
    running = np.concatenate([[0.0], np.cumsum(prices)])
    dual.charge = Fraction(float(running[-1])) * flat.limit
    per_unit = running[flat.held_stop] - running[flat.held_start]
    extra = np.repeat(per_unit, flat.held_lengths) * flat.amounts
    # a product in float64 is off by at most one part in 2**53: shrink it, so that the bound stays valid
    extra = extra - np.abs(extra) * 2.0**-51
    priced = flat.unary.copy()
    np.add.at(priced, flat.held_places, np.floor(extra / dual.quantum) * dual.quantum)
    dual.priced = priced


def usage(flat: Flat, chosen: np.ndarray) -> np.ndarray:
    """Live amount per slot (exact int64)."""
    delta = np.zeros(flat.slots + 1, dtype=np.int64)
    amount = flat.amounts[flat.held_at[:-1] + chosen[flat.held_node]]
    np.add.at(delta, flat.held_start, amount)
    np.subtract.at(delta, flat.held_stop, amount)
    return np.cumsum(delta)[:-1]


def flat_cost(flat: Flat, chosen: np.ndarray) -> float:
    """Cost of positions in the flat domains; inf when forbidden."""
    value = flat.unary[flat.offsets[:-1] + chosen].sum()
    columns = flat.sizes[flat.second]
    entries = flat.tables[flat.table_at[:-1] + chosen[flat.first] * columns + chosen[flat.second]]
    return float(value + entries.sum())


def reparametrise(dual: Dual) -> tuple[float, np.ndarray, np.ndarray]:
    """(bound, left-over per strategy, rest per table entry): non-negative, and together equal to the priced network
    minus `bound`; laid out as `Flat.unary` and `Flat.tables`.

    Follows the messages of a backward pass. `bound` already gives back the charge for the limit.
    """
    from autoshard.solver.kernels import rests

    flat = dual.flat
    sizes = flat.sizes
    totals = dual.priced.copy()
    np.add.at(totals, message_places(flat, flat.first), dual.to_first)
    np.add.at(totals, message_places(flat, flat.second), dual.to_second)
    outgoing = np.bincount(flat.second, minlength=flat.n)
    incoming = np.bincount(flat.first, minlength=flat.n)
    weight = np.repeat(1.0 / np.maximum(1, np.maximum(outgoing, incoming)), sizes)
    share = np.floor(totals * weight / dual.quantum) * dual.quantum
    own = totals - np.repeat(outgoing, sizes) * share
    lows = np.minimum.reduceat(own, flat.offsets[:-1])
    own -= np.repeat(lows, sizes)
    rest, edge_lows = np.empty(len(flat.tables)), np.zeros(len(flat.first))
    rests(
        flat.offsets, flat.first, flat.second, flat.table_at, flat.tables, dual.second_at, dual.first_at,
        dual.to_second, dual.to_first, share, rest, edge_lows,
    )  # fmt: skip
    bound = sum(map(Fraction, lows.tolist()), Fraction(0)) + sum(map(Fraction, edge_lows.tolist()), Fraction(0))
    return rounded_down(bound - dual.charge), own, rest


def message_places(flat: Flat, ends: np.ndarray) -> np.ndarray:
    """For messages to these ends of the edges: the strategy each entry is about."""
    lengths = flat.sizes[ends]
    at = np.cumsum(lengths) - lengths
    return np.repeat(flat.offsets[ends] - at, lengths) + np.arange(int(lengths.sum()))


FIRST_RATE = 0.25
"""Largest relative change of a price in one step at first."""
SETTLED_RATE = 2e-3
MEAN_DECAY = 0.9
SQUARE_DECAY = 0.98
GROWING = 10
GROWTH = 1.3
"""After so many better bounds in a row, steps get so much longer again."""
PATIENCE = 25
"""Passes without a better bound after which steps are shortened and prices go back to the best ones."""


@dataclass
class Prices:
    """Search for good prices: exponentiated steps along a running mean of how full each slot was.

    current: price per slot. best: the prices of the best bound. mean, square: running first and second moments of the
    relative excess per slot. rate: size of a step. idle, streak: passes without a better bound, and with. wait:
    passes left before the next step, so that messages settle after a jump. scale: index of the first magnitude tried,
    or -1 once it is found.
    """

    current: np.ndarray
    best: np.ndarray
    shape: np.ndarray
    bound: float
    mean: np.ndarray
    square: np.ndarray
    steps: int = 0
    rate: float = FIRST_RATE
    idle: int = 0
    streak: int = 0
    wait: int = 0
    scale: int = 0

    @property
    def settled(self) -> bool:
        return self.rate < SETTLED_RATE


SETTLING_PASSES = 3
"""Double passes after a jump of the prices before the bound is judged."""
FIRST_SHARE = 3e-4
"""The first prices tried are together worth this part of the bound; each next try is worth 3 times more."""


def first_prices(dual: Dual, live: np.ndarray) -> Prices:
    """Prices to begin with: none yet; slots that the unpriced assignment overfills will weigh most."""
    flat = dual.flat
    assert flat.limit is not None
    shape = np.where(live > flat.limit, 1.0, 0.05)
    zero = np.zeros(flat.slots)
    shape /= max(1e-300, float(shape.sum()))
    return Prices(zero, zero, shape, dual.last, zero.copy(), zero.copy())


def known_prices(prices: np.ndarray, rate: float) -> Prices:
    """Go on from good prices, as those of a larger network are for a part of it."""
    zero = np.zeros(len(prices))
    return Prices(prices, prices, zero, -math.inf, zero.copy(), zero.copy(), rate=rate, scale=-1)


def adjust_prices(dual: Dual, prices: Prices, live: np.ndarray) -> None:
    """One step: dearer where `live` exceeds the limit, cheaper where it stays below. First the magnitude is found."""
    flat = dual.flat
    assert flat.limit is not None
    better = dual.last > prices.bound
    if better:
        prices.bound = dual.last
        prices.best = prices.current.copy()
        prices.idle = 0
    if prices.wait:
        prices.wait -= 1
        return
    if prices.scale >= 0:
        if prices.scale > 10 or (prices.scale > 3 and dual.last < prices.bound - 0.1 * abs(prices.bound)):
            # the magnitude of the best bound, or a small one when none beat no prices at all
            prices.scale = -1
            prices.current = prices.best if prices.best.any() else _scaled(dual, prices, 0)
            prices.wait = SETTLING_PASSES
        else:
            prices.current = _scaled(dual, prices, prices.scale)
            prices.scale += 1
            prices.wait = SETTLING_PASSES - 1
        set_prices(dual, prices.current)
        return
    prices.streak = prices.streak + 1 if better else 0
    if prices.streak >= GROWING:
        prices.rate = min(FIRST_RATE, GROWTH * prices.rate)
        prices.streak = 0
    if not better:
        prices.idle += 1
        if prices.idle >= PATIENCE or dual.last < prices.bound - 0.02 * abs(prices.bound):
            if prices.best.any():
                prices.current = prices.best.copy()
            prices.rate *= 0.6
            prices.idle = 0
            prices.wait = SETTLING_PASSES
            prices.mean = np.zeros(flat.slots)
    excess = np.clip(live / max(1, flat.limit) - 1.0, -1.0, 1.0)
    prices.steps += 1
    prices.mean = MEAN_DECAY * prices.mean + (1.0 - MEAN_DECAY) * excess
    prices.square = SQUARE_DECAY * prices.square + (1.0 - SQUARE_DECAY) * excess * excess
    mean = prices.mean / (1.0 - MEAN_DECAY**prices.steps)
    spread = np.sqrt(prices.square / (1.0 - SQUARE_DECAY**prices.steps)) + 0.01
    stepped = prices.current * np.exp(prices.rate * mean / spread)
    prices.current = np.maximum(stepped, 1e-7 * stepped.max(initial=0.0))
    set_prices(dual, prices.current)


def _scaled(dual: Dual, prices: Prices, k: int) -> np.ndarray:
    assert dual.flat.limit is not None
    worth = FIRST_SHARE * 3.0**k * (abs(prices.bound) if math.isfinite(prices.bound) and prices.bound else 1.0)
    return prices.shape * (worth / max(1, dual.flat.limit))
