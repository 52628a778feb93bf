"""The bound that messages and prices prove, in whole numbers, over the states that are left of a network.

For any messages and any prices that are not negative: the sum over nodes of their least (cost, messages received,
price of what is held), less price times limit, is at most the cost of every assignment within the limit, as long as no
edge is left with less than nothing. One message of each edge is given; the other is the most that its table leaves.
"""

from dataclasses import dataclass

import numpy as np

from autoshard.verify.certificate.exact import ALLOWED_BELOW, largest
from autoshard.verify.certificate.held import stretches
from autoshard.verify.certificate.residual import Residual
from autoshard.verify.certificate.stream import CertificateFault, Stream

HUGE = 2**62
"""Stands for what is not allowed, or gone."""
MOST = 2.0**61
"""Sums of a record's numbers that may reach more are refused: they must fit into 64 bits."""
MOST_BITS = 64
"""The most bits behind the point that messages may have."""


@dataclass(frozen=True)
class Record:
    """A record of `docs/certificates.md`; its messages are for the states that are left, edge after edge."""

    threshold: int
    bits: int
    step: int
    price_bits: int
    slots: np.ndarray
    prices: np.ndarray
    messages: np.ndarray
    pairs: bool
    costs: bool


def read_record(stream: Stream, claimed: int) -> Record:
    """Read one record. claimed: the certificate's bound, from which the threshold is counted."""
    flags = stream.count(3, "a record's flags")
    threshold = stream.one() + claimed
    bits, step = stream.count(MOST_BITS, "bits of messages"), stream.count(MOST_BITS, "the step of messages")
    price_bits = stream.count(2**12, "bits of prices")
    n = stream.count(2**31, "the number of prices")
    steps, prices = stream.some(n), stream.some(n)
    if n and (int(prices.min()) < 0 or int(steps[0]) < 0 or int(steps[1:].min(initial=1)) <= 0):
        raise CertificateFault("prices are negative, or not in the order of time")
    if float(steps.sum(dtype=np.float64)) > MOST:
        raise CertificateFault("a record has a price for a time slot beyond 64 bits")
    slots = np.cumsum(steps)
    messages = stream.some(stream.count(2**33, "the number of messages"))
    return Record(threshold, bits, step, price_bits, slots, prices, messages, bool(flags & 1), bool(flags & 2))


class Layout:
    """A network laid out flat: all states, then all pairs, edge after edge in the order of their nodes.

    State s is of node `of[s]`. Pair p is of edge `edge[p]`, of states one[p] and two[p], rows first.
    """

    def __init__(self, residual: Residual) -> None:
        self.nodes = residual.nodes()
        number = {node: k for k, node in enumerate(self.nodes)}
        units = [residual.unary[i] for i in self.nodes]
        sizes = np.array([len(u) for u in units if u is not None], dtype=np.int64)
        self.sizes = sizes
        self.at = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        self.cost = np.concatenate([*(u for u in units if u is not None), np.zeros(0, dtype=np.int64)])
        self.of = np.repeat(np.arange(len(sizes)), sizes)
        edges = [(number[i], number[j]) for i, j in residual.edges()]
        ends = np.array(edges, dtype=np.int64).reshape(-1, 2)
        self.first, self.second = ends[:, 0], ends[:, 1]
        tables = [residual.tables[self.nodes[a]][self.nodes[b]].ravel() for a, b in edges]
        self.pair_cost = np.concatenate([*tables, np.zeros(0, dtype=np.int64)])
        counts = np.array([len(t) for t in tables], dtype=np.int64)
        self.pair_at = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        self.edge = np.repeat(np.arange(len(edges)), counts)
        inside = np.arange(len(self.pair_cost)) - self.pair_at[:-1][self.edge]
        columns = sizes[self.second][self.edge]
        self.one = self.at[self.first][self.edge] + inside // np.maximum(columns, 1)
        self.two = self.at[self.second][self.edge] + inside % np.maximum(columns, 1)
        self.allowed = self.pair_cost < ALLOWED_BELOW
        # a message is written down for the end with fewer states, for the second where both have as many
        self.to_second = sizes[self.second] <= sizes[self.first]
        near = np.where(self.to_second, self.second, self.first)
        self.message_at = np.concatenate([[0], np.cumsum(sizes[near])]).astype(np.int64)
        of_edge = np.repeat(np.arange(len(edges)), sizes[near])
        self.message_for = self.at[near][of_edge] + np.arange(int(self.message_at[-1])) - self.message_at[:-1][of_edge]
        # for each pair: its message at that end, and its place among all (edge, state of the other end)
        towards = np.where(self.to_second[self.edge], self.two - self.at[self.second][self.edge],
                           self.one - self.at[self.first][self.edge])  # fmt: skip
        self.message_of = self.message_at[:-1][self.edge] + towards
        far = np.where(self.to_second, self.first, self.second)
        self.other_at = np.concatenate([[0], np.cumsum(sizes[far])]).astype(np.int64)
        away = np.where(self.to_second[self.edge], self.one - self.at[self.first][self.edge],
                        self.two - self.at[self.second][self.edge])  # fmt: skip
        self.other_of = self.other_at[:-1][self.edge] + away
        of_far = np.repeat(np.arange(len(edges)), sizes[far])
        self.other_for = self.at[far][of_far] + np.arange(int(self.other_at[-1])) - self.other_at[:-1][of_far]
        self.limit, self.slots = residual.limit, len(residual.times)
        self._known: dict[bool, tuple[np.ndarray, int, np.ndarray]] = {}
        counts_held = residual.limit is not None
        self.held = [
            (k, a, b, amounts)
            for k, i in enumerate(self.nodes)
            for a, b, amounts in (stretches(residual.held[i]) if counts_held else ())
        ]

    # -- what cannot be ------------------------------------------------------------------------------

    def consistent(self, alive: np.ndarray) -> bool:
        """Clear from `alive` states without a partner on some edge or without room, until none is left of these.

        Returns False where a node has no state left, or where the least that is held exceeds the limit.
        """
        while True:
            before = int(alive.sum())
            fine = self.allowed & alive[self.one] & alive[self.two]
            for first in (True, False):
                place, count, state = self._per_edge(first)
                seen = np.zeros(count, dtype=bool)
                seen[place[fine]] = True
                alive[state[~seen]] = False
            if not self._some_left(alive):
                return False
            if self.limit is not None and not self._fit(alive, self.limit):
                return False
            if not self._some_left(alive):
                return False
            if int(alive.sum()) == before:
                return True

    def _some_left(self, alive: np.ndarray) -> bool:
        return bool((np.bincount(self.of[alive], minlength=len(self.sizes)) > 0).all())

    def _fit(self, alive: np.ndarray, limit: int) -> bool:
        delta = np.zeros(self.slots + 1, dtype=np.int64)
        lows = []
        for k, a, b, amounts in self.held:
            low = int(amounts[alive[self.at[k] : self.at[k + 1]]].min())
            lows.append(low)
            delta[a] += low
            delta[b] -= low
        least = np.cumsum(delta)[:-1]
        if len(least) and int(least.max()) > limit:
            return False
        for (k, a, b, amounts), low in zip(self.held, lows, strict=True):
            room = limit - int(least[a:b].max(initial=-(2**62)))
            over = amounts - low > room
            if over.any():
                alive[self.at[k] : self.at[k + 1]] &= ~over
        return True

    # -- bounds --------------------------------------------------------------------------------------

    def weigh(self, alive: np.ndarray, record: Record) -> tuple[int, np.ndarray, np.ndarray | None]:
        """The bound of a record, the states that can cost less than its threshold, and the pairs that cannot.

        The bound is without the constant of the residual. `alive` must be consistent.

        Raises `CertificateFault` where the record's numbers do not fit the network.
        """
        bits = record.bits
        kept = alive[self.message_for]
        if int(kept.sum()) != len(record.messages):
            raise CertificateFault(
                f"a record has {len(record.messages)} messages, the states that are left need {int(kept.sum())}"
            )
        top = float(largest(record.messages)) * 2.0**record.step
        most = float(largest(self.pair_cost[self.allowed])) + float(largest(self.cost))
        degree = int(np.bincount(np.concatenate([self.first, self.second]), minlength=1).max(initial=0)) + 1
        if (most * 2.0**bits + top) * degree > MOST:
            raise CertificateFault("a record's numbers are too large for 64 bits")
        messages = np.zeros(len(kept), dtype=np.int64)
        messages[kept] = record.messages << record.step
        fine = self.allowed & alive[self.one] & alive[self.two]
        pairs = np.flatnonzero(fine)
        entry = self.pair_cost[pairs] << bits if record.costs else np.zeros(len(pairs), dtype=np.int64)
        left = entry - messages[self.message_of[pairs]]
        others = np.full(int(self.other_at[-1]), HUGE, dtype=np.int64)
        np.minimum.at(others, self.other_of[pairs], left)
        slack = left - others[self.other_of[pairs]]
        own = self.cost << bits if record.costs else np.zeros(len(self.cost), dtype=np.int64)
        own = own.copy()
        np.add.at(own, self.message_for, messages)
        real = others < HUGE
        np.add.at(own, self.other_for[real], others[real])
        charge = self._charge(own, record)
        own = np.where(alive, own, HUGE)
        lows = np.minimum.reduceat(own, self.at[:-1])
        excess = np.where(alive, own - lows[self.of], HUGE)
        exact = sum(map(int, lows.tolist())) - charge
        bound = -((-exact) >> bits)
        room = (record.threshold << bits) - exact
        if room > HUGE // 2:  # more than can be compared in 64 bits: the record rules out nothing
            return bound, alive.copy(), None
        return bound, *self._within(alive, record, pairs, slack, excess, max(-(HUGE // 2), room))

    def _within(
        self, alive: np.ndarray, record: Record, pairs: np.ndarray, slack: np.ndarray, excess: np.ndarray, room: int
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """States that cost less than `room` above the bound, and, where the record asks, pairs that cost more."""
        one, two = self.one[pairs], self.two[pairs]
        out = alive & (excess < room)
        total = np.where(out, excess, 0)
        for theirs, first in ((two, True), (one, False)):
            place, count, state = self._per_edge(first)
            beside = np.full(count, HUGE, dtype=np.int64)
            np.minimum.at(beside, place[pairs], slack + excess[theirs])
            far = beside >= room
            out[state[far]] = False
            near = ~far
            np.add.at(total, state[near], beside[near])
        out &= total < room
        dead = None
        if record.pairs:
            dead = np.zeros(len(self.pair_cost), dtype=bool)
            dead[pairs] = slack + excess[one] + excess[two] >= room
        return out, dead

    def _per_edge(self, first: bool) -> tuple[np.ndarray, int, np.ndarray]:
        """Places of (edge, state of its first or second node): those of pairs, their number, their states."""
        if first not in self._known:
            node, owner = (self.first, self.one) if first else (self.second, self.two)
            sizes = self.sizes[node]
            at = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
            shift = self.at[node] - at[:-1]
            of_edge = np.repeat(np.arange(len(node)), sizes)
            self._known[first] = (owner - shift[self.edge], int(at[-1]), shift[of_edge] + np.arange(int(at[-1])))
        return self._known[first]

    def _charge(self, own: np.ndarray, record: Record) -> int:
        """Add to `own` prices times what is held, rounded down; returns prices times limit, rounded up."""
        if not len(record.slots):
            return 0
        if self.limit is None:
            raise CertificateFault("a record has prices, but there is no limit (any more)")
        if int(record.slots[-1]) >= self.slots:
            raise CertificateFault("a record has a price for a time slot that is not there (any more)")
        running = [0] * (self.slots + 1)
        for slot, price in zip(record.slots.tolist(), record.prices.tolist(), strict=True):
            running[slot + 1] = price
        for t in range(self.slots):
            running[t + 1] += running[t]
        down = record.price_bits - record.bits
        sums: dict[int, list[int]] = {}
        for k, a, b, amounts in self.held:
            price = running[b] - running[a]
            if price:
                before = sums.get(k, [0] * len(amounts))
                sums[k] = [x + price * y for x, y in zip(before, amounts.tolist(), strict=True)]
        for k, values in sums.items():
            rounded = [_down(v, down) for v in values]
            if max(map(abs, rounded), default=0) > MOST:
                raise CertificateFault("a record's prices are too large for 64 bits")
            own[self.at[k] : self.at[k + 1]] += np.array(rounded, dtype=np.int64)
        return -_down(-running[-1] * self.limit, down)


def _down(value: int, bits: int) -> int:
    """value / 2**bits, rounded down."""
    return value >> bits if bits >= 0 else value << -bits
