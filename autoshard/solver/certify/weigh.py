"""The bound of a network by one set of messages and prices, in whole numbers: what a record of a certificate says.

Message passing works in floating point; what it finds is rounded to whole multiples of a power of two and weighed again
here, exactly. For every edge one message is written down, to the end with fewer states (the second one where they
are as many); the other message is the most that the table leaves beside it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from autoshard.solver.certify.balance import NEVER, Sent, Tied, balance, reached
from autoshard.solver.compiled import compiled
from autoshard.solver.dual import passes as duals
from autoshard.solver.dual.flat import Flat

LARGEST = 2.0**60
"""Whole numbers up to this magnitude are added up in int64."""
MOST_ADDED = 2.0**61
"""Records of which a state might add up more than this are refused by the checker of certificates."""
SPLIT_BITS = 20
"""Lower bits of an amount that are multiplied apart from the others."""


@dataclass(frozen=True)
class Whole:
    """A flat network in whole numbers: costs in int64, forbidden entries `NEVER`.

    at_second: per edge, where its message goes; at: where it starts among all messages.
    """

    flat: Flat
    unary: np.ndarray
    tables: np.ndarray
    at_second: np.ndarray
    at: np.ndarray
    other_at: np.ndarray
    largest: float
    total: float

    @staticmethod
    def of(flat: Flat) -> "Whole | None":
        """None where costs are too large to be exact in float64."""
        finite = np.isfinite(flat.tables)
        largest = max(
            float(np.abs(flat.unary).max(initial=0.0)),
            float(np.abs(flat.tables, where=finite, out=np.zeros(len(flat.tables))).max(initial=0.0)),
        )
        if largest >= 2.0**52 or not np.isfinite(flat.unary).all():
            return None
        sizes = flat.sizes
        at_second = sizes[flat.second] <= sizes[flat.first]
        near, far = np.where(at_second, flat.second, flat.first), np.where(at_second, flat.first, flat.second)
        total = largest * (len(flat.first) + flat.n + 1)
        return Whole(
            flat, flat.unary.astype(np.int64), whole_entries(flat.tables), at_second, starts_of(sizes[near]),
            starts_of(sizes[far]), largest, total,
        )  # fmt: skip

    def cut(self, part: Flat) -> "Whole":
        """The same network with fewer states; `part` has them as `fixing.restrict` leaves them."""
        sizes = part.sizes
        near, far = np.where(self.at_second, part.second, part.first), np.where(self.at_second, part.first, part.second)
        return Whole(
            part, part.unary.astype(np.int64), whole_entries(part.tables), self.at_second, starts_of(sizes[near]),
            starts_of(sizes[far]), self.largest, self.total,
        )  # fmt: skip

    @cached_property
    def ends(self) -> np.ndarray:
        """Per message entry the state (of all nodes) that it is about."""
        near = np.where(self.at_second, self.flat.second, self.flat.first)
        return duals.message_places(self.flat, near)

    @cached_property
    def degree(self) -> int:
        """The most numbers that a state adds up: its own costs, and a message of each edge."""
        return 1 + int(np.bincount(np.concatenate([self.flat.first, self.flat.second]), minlength=1).max())


@dataclass(frozen=True)
class Record:
    """One set of messages and prices, as it is written down.

    threshold: states that cost as much or more are dropped. bits: messages count in units of 2**-bits of a cost;
    step: they are multiples of 2**step such units. prices: (time slot, price) in units of 2**-price_bits per unit live.
    messages: of the states that were left, edge after edge. pairs: pairs that cost too much are dropped as well.
    costs: whether costs count; without them the record shows that memory or forbidden pairs leave nothing.
    """

    threshold: int
    bits: int
    step: int
    price_bits: int
    prices: tuple[tuple[int, int], ...]
    messages: np.ndarray
    pairs: bool = False
    costs: bool = True


@dataclass(frozen=True)
class Weighed:
    """bound: whole units of cost, rounded up; nothing left costs less. alive: what stays below the threshold.

    dead: per table entry, the pairs that do not (None where pairs are left alone).
    """

    bound: int
    alive: np.ndarray
    dead: np.ndarray | None
    reach: np.ndarray


@compiled
def whole_entries(tables):
    """Entries of tables as whole numbers, forbidden ones as `NEVER`."""
    out = np.empty(len(tables), dtype=np.int64)
    for k in range(len(tables)):
        out[k] = np.int64(tables[k]) if tables[k] < np.inf else NEVER
    return out


def weigh(whole: Whole, alive: np.ndarray, record: Record) -> Weighed | None:
    """The bound that a record proves for the states in `alive`, and what it leaves; None where numbers overflow."""
    flat = whole.flat
    spread = np.zeros(int(whole.at[-1]), dtype=np.int64)
    spread[alive[whole.ends]] = record.messages << record.step
    asked = charged(flat, record)
    if asked is None:
        return None
    extra, charge = asked
    own = (whole.unary << record.bits) + extra if record.costs else extra
    tables, entries = whole.tables, whole_entries(flat.classes.entries)
    if not record.costs:
        tables, entries = (np.where(some < NEVER, 0, NEVER) for some in (tables, entries))
    other = np.zeros(int(whole.other_at[-1]), dtype=np.int64)
    tied = Tied(flat.offsets, flat.first, flat.second, flat.table_at, tables, flat.classes._replace(entries=entries))
    sent = Sent(whole.at_second, whole.at, spread, whole.other_at, other)
    lows, most = balance(record.bits, tied, alive, sent, own)
    if most > LARGEST:
        return None
    exact = sum(lows.tolist()) - charge
    bound = -((-exact) >> record.bits)
    room = (record.threshold << record.bits) - exact
    if room > NEVER // 2 or room < -NEVER // 2:
        room = NEVER // 2 if room > 0 else -NEVER // 2
    reach = np.zeros(len(own), dtype=np.int64)
    dead = np.zeros(len(whole.tables) if record.pairs else 0, dtype=bool)
    reached(record.bits, tied, alive, sent, own, room, reach, dead)
    return Weighed(bound, alive & (reach < room), dead if record.pairs else None, reach)


def charged(flat: Flat, record: Record) -> tuple[np.ndarray, int] | None:
    """What prices add to every state, rounded down, and the limit's share, rounded up; in units of the record.

    None where it does not fit.
    """
    if not record.prices:
        return np.zeros(len(flat.unary), dtype=np.int64), 0
    assert flat.limit is not None
    prices = np.zeros(flat.slots + 1, dtype=np.int64)
    slots, listed = np.array(record.prices, dtype=np.int64).T
    prices[slots + 1] = listed
    running = np.cumsum(prices)
    down = record.price_bits - record.bits
    charge = -_shifted(-int(running[-1]) * flat.limit, down)
    upper, lower = np.zeros(len(flat.unary), dtype=np.int64), np.zeros(len(flat.unary), dtype=np.int64)
    # a price times an amount may need more than 64 bits: its upper and lower part are added up apart
    largest = float(np.abs(flat.amounts).max(initial=0)) / 2.0**SPLIT_BITS + 1.0
    records = 1 + len(flat.held_node)
    up = max(0, SPLIT_BITS - down)
    if down >= 0 and float(running[-1]) * records * max(2.0**SPLIT_BITS, largest * 2.0**up) < LARGEST:
        _charges(flat.held, flat.offsets, running, upper, lower)
        if up:
            return (upper << up) + (lower >> down), charge
        return (upper + (lower >> SPLIT_BITS)) >> (down - SPLIT_BITS), charge
    per_unit = np.repeat(running[flat.held_stop] - running[flat.held_start], flat.held_lengths)
    total = np.zeros(len(flat.unary), dtype=object)
    np.add.at(total, flat.held_places, per_unit.astype(object) * flat.amounts.astype(object))
    extra = [_shifted(int(x), down) for x in total]
    return None if max(map(abs, extra), default=0) > LARGEST else (np.array(extra, dtype=np.int64), charge)


@compiled
def _charges(held, offsets, running, upper, lower):
    """Adds up per state what it is charged, whose upper and lower part are taken apart at `SPLIT_BITS`."""
    for r in range(len(held.node)):
        per_unit = running[held.stop[r]] - running[held.start[r]]
        if per_unit == 0:
            continue
        low = offsets[held.node[r]]
        at = held.at[r]
        for a in range(held.at[r + 1] - at):
            amount = held.amounts[at + a]
            upper[low + a] += per_unit * (amount >> SPLIT_BITS)
            lower[low + a] += per_unit * (amount & (2**SPLIT_BITS - 1))


def _shifted(value: int, down: int) -> int:
    """value / 2**down, rounded down."""
    return value >> down if down >= 0 else value << -down


def starts_of(lengths: Sequence[int] | np.ndarray) -> np.ndarray:
    """Where each of several runs begins in an array that holds them one after the other, and where the last ends."""
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
