"""Lower bounds by message passing, with prices on memory; the reparametrised network that comes with them.

The bound of the priced network minus price times limit bounds the network with its memory limit (weak duality). All
arithmetic that enters the reported bound is exact: see `messages`.
"""

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from autoshard.solver.dual.arrays import Messages
from autoshard.solver.dual.flat import Flat
from autoshard.solver.dual.messages import message_pass, rests
from autoshard.solver.dual.pricing import (
    AIMED,
    FIRST_RATE,
    FOUND,
    UNPRICED,
    Pace,
    PerSlot,
    begin_prices,
    charge,
    fill_live,
    step_prices,
)
from autoshard.solver.dual.settling import COARSER, EXACT_QUANTA, Moving, Stop
from autoshard.solver.dual.settling import settle as run_settle
from autoshard.solver.work import TOGETHER

QUANTA_BITS = 44
"""The largest cost has so many bits of quanta at first: eight below `EXACT_QUANTA`, for sums to grow into."""
FINEST_BITS = 6
"""The quantum is at most 2 to the minus this, so that shares of small whole costs are no whole numbers."""
SETTLED_RATE = 2e-3
"""Steps of prices this short change nothing any more."""


@dataclass
class Dual:
    """Messages on a flat network.

    quantum: what all numbers are multiples of. Messages are laid out as `arrays.Messages` says. total: per state its
    cost plus all incoming messages when a pass last visited it. prices: per time slot, on what is live in it.
    priced: costs of states with them. charge: what the limit gives back for them. bound: best proven so far
    (without the work network's constant), -inf before any. last: of the last pass. passes: made so far.
    """

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

    @property
    def messages(self) -> Messages:
        """The messages as compiled functions take them."""
        return Messages(self.second_at, self.first_at, self.to_second, self.to_first)

    def go_on_from(self, other: "Dual") -> None:
        """Take the messages of another run on the same nodes, states and edges; nothing where these differ."""
        mine, its = self.flat, other.flat
        if all(
            np.array_equal(a, b)
            for a, b in ((mine.offsets, its.offsets), (mine.first, its.first), (mine.second, its.second))
        ):
            self.to_second, self.to_first, self.quantum = other.to_second.copy(), other.to_first.copy(), other.quantum


def rounded_down(exact: Fraction) -> float:
    """The largest float64 that is not above an exact number."""
    value = float(exact)
    return value if Fraction(value) <= exact else math.nextafter(value, -math.inf)


def pick_quantum(flat: Flat) -> float:
    """A power of two small against the costs, with room for sums: the largest cost stays below 2**44 quanta."""
    finite = flat.unary[np.isfinite(flat.unary)]
    scale = float(np.abs(finite).max(initial=1.0)) + 1.0
    for at in range(0, len(flat.tables), TOGETHER):
        part = np.abs(flat.tables[at : at + TOGETHER])
        scale = max(scale, float(part[np.isfinite(part)].max(initial=0.0)))
    return 2.0 ** min(-FINEST_BITS, math.ceil(math.log2(scale)) - QUANTA_BITS)


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
    flat = dual.flat
    chosen = np.zeros(flat.n, dtype=np.int64)
    value, largest = message_pass(
        forward, dual.quantum, flat.graph, flat.classes, dual.priced, dual.messages, dual.total, chosen
    )  # fmt: skip
    dual.passes += 1
    dual.last = -math.inf
    if largest < dual.quantum * EXACT_QUANTA:
        exact = Fraction(float(value)) - dual.charge
        dual.last = rounded_down(exact)
        dual.bound = max(dual.bound, dual.last)
    elif dual.quantum < 1.0:  # a coarser quantum makes the sums exact again (costs are integers: up to 1)
        dual.quantum = min(1.0, dual.quantum * COARSER)
        dual.priced = np.floor(dual.priced / dual.quantum) * dual.quantum
        dual.to_first = np.round(dual.to_first / dual.quantum) * dual.quantum
        dual.to_second = np.round(dual.to_second / dual.quantum) * dual.quantum
    return chosen


def set_prices(dual: Dual, prices: np.ndarray) -> None:
    """Charge `prices[t] >= 0` per unit live in slot t; the limit's share is given back in the bound."""
    flat = dual.flat
    assert flat.limit is not None
    dual.prices, dual.priced = np.empty(flat.slots), np.empty(len(flat.unary))
    total = charge(flat.held, flat.offsets, flat.unary, dual.quantum, prices, dual.prices, dual.priced)
    dual.charge = Fraction(total) * flat.limit


def usage(flat: Flat, chosen: np.ndarray) -> np.ndarray:
    """Live amount per slot (exact int64)."""
    live = np.empty(flat.slots, dtype=np.int64)
    fill_live(flat.held, chosen, live)
    return live


def flat_cost(flat: Flat, chosen: np.ndarray) -> float:
    """Cost of positions in the flat domains; inf when forbidden."""
    value = flat.unary[flat.offsets[:-1] + chosen].sum()
    columns = flat.sizes[flat.second]
    entries = flat.tables[flat.table_at[:-1] + chosen[flat.first] * columns + chosen[flat.second]]
    return float(value + entries.sum())


def reparametrise(dual: Dual) -> tuple[float, np.ndarray, np.ndarray]:
    """(bound, left-over per state, rest per table entry): non-negative, and together equal to the priced network
    minus `bound`; laid out as `Flat.unary` and `Flat.tables`.

    `bound` already gives back the charge for the limit.
    """
    own, rest, lows, edge_lows = left_over(dual)
    bound = sum(map(Fraction, lows.tolist()), Fraction(0)) + sum(map(Fraction, edge_lows.tolist()), Fraction(0))
    return rounded_down(bound - dual.charge), own, rest


def left_over(dual: Dual) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """What is left per state, and per table entry, above the least of each node and each table, which follow.

    Follows the messages of a backward pass.
    """
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
    rests(flat.graph, dual.messages, share, rest, edge_lows)
    return own, rest, lows, edge_lows


def message_places(flat: Flat, ends: np.ndarray) -> np.ndarray:
    """For messages to these ends of the edges: the state each entry is about."""
    lengths = flat.sizes[ends]
    at = np.cumsum(lengths) - lengths
    return np.repeat(flat.offsets[ends] - at, lengths) + np.arange(int(lengths.sum()))


@dataclass
class Prices:
    """A search for good prices: exponentiated steps along a running mean of how full each slot was."""

    slots: PerSlot
    pace: Pace

    @property
    def best(self) -> np.ndarray:
        """The prices of the best bound; a copy."""
        return self.slots.best.copy()

    @property
    def scale(self) -> int:
        """Number of the first magnitude tried, or -1 once it is found."""
        return self.pace.scale

    @property
    def asked(self) -> bool:
        """Whether there are prices at all."""
        return self.pace.scale != UNPRICED

    @property
    def searching(self) -> bool:
        """Whether the bound says little, since prices have just jumped or their magnitude is still looked for."""
        return self.pace.scale >= 0 or self.pace.wait > 0

    def close_with(self, bound: float) -> None:
        """The current prices have closed the network: they are the best, whatever steps would follow."""
        if self.asked and bound > self.pace.bound:
            self.slots.best[:] = self.slots.current
            self.pace = self.pace._replace(bound=bound)

    @property
    def settled(self) -> bool:
        """Whether steps have become too short to change the bound."""
        return self.pace.rate < SETTLED_RATE


def no_prices(slots: int) -> Prices:
    """Before any are asked."""
    arrays = PerSlot(*np.zeros((5, slots)))
    return Prices(arrays, Pace(-math.inf, 0, FIRST_RATE, 0, 0, 0, UNPRICED))


def aiming_prices(slots: int, known: np.ndarray | None = None, rate: float = AIMED) -> Prices:
    """For `settle`, whose steps aim at a bound: from good prices, or before any are asked. rate: of the first."""
    begun = no_prices(slots) if known is None else known_prices(known, rate)
    begun.pace = begun.pace._replace(rate=rate)
    return begun


def first_prices(dual: Dual, live: np.ndarray) -> Prices:
    """Prices to begin with: none yet; slots that the unpriced assignment overfills will weigh most."""
    assert dual.flat.limit is not None
    begun = no_prices(dual.flat.slots)
    begun.pace = begin_prices(begun.slots, live, dual.flat.limit, dual.last)
    return begun


def prefix_of(prices: np.ndarray) -> np.ndarray:
    """Sums of prices from the left: what one unit costs over the slots [start, stop) is their difference."""
    return np.concatenate([[0.0], np.cumsum(prices)]) if len(prices) else np.zeros(2)


def known_prices(prices: np.ndarray, rate: float) -> Prices:
    """Go on from good prices, as those of a larger network are for a part of it."""
    known = no_prices(len(prices))
    known.slots.current[:] = prices
    known.slots.best[:] = prices
    known.pace = known.pace._replace(rate=rate, scale=FOUND)
    return known


def adjust_prices(dual: Dual, prices: Prices, live: np.ndarray) -> None:
    """One step: dearer where `live` exceeds the limit, cheaper where it stays below. First the magnitude is found."""
    assert dual.flat.limit is not None
    prices.pace, new = step_prices(prices.slots, prices.pace, dual.flat.limit, dual.last, live)
    if new:
        set_prices(dual, prices.slots.current)


def settle(dual: Dual, prices: Prices, most: int, stop: Stop) -> tuple[np.ndarray, np.ndarray]:
    """Double passes with steps of the prices, at most so many, as one compiled loop (see `settling.settle`).

    Returns per double pass the decoded assignment (positions in the flat domains), and whether it is worth having.
    `bound` and `last` are rounded, no proofs.
    """
    flat = dual.flat
    moving = Moving(
        dual.messages, dual.total, dual.prices.copy(), dual.priced.copy(),
        np.zeros((most, flat.n), dtype=np.int64), np.zeros(most, dtype=np.bool_),
    )  # fmt: skip
    share = float(dual.charge)
    prices.pace, found = run_settle(
        flat.graph, flat.classes, flat.held, moving, prices.slots, prices.pace, stop, dual.quantum, share
    )
    dual.bound, dual.last, dual.quantum = found.bound, found.last, found.quantum
    dual.passes += 2 * found.passes
    dual.prices, dual.priced = moving.prices, moving.priced
    dual.charge = Fraction(float(dual.prices.sum())) * (flat.limit or 0)
    return moving.decoded[: found.passes], moving.worth[: found.passes]
