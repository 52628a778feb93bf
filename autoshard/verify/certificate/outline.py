"""Networks whose tables are rows and columns of smaller ones, as certificates of bounds on them begin.

Messages to the first node of every edge are given, one for each row of its smaller table; to the second one goes what
the table leaves beside them. They prove a bound, and the least that an assignment with each state costs: what costs at
least the bound that is claimed is left out. Whole tables are made only of the states that the certificate names at the
end.
"""

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from autoshard.verify.certificate.exact import FORBIDDEN_COST, NOT_ALLOWED, largest
from autoshard.verify.certificate.residual import Residual
from autoshard.verify.certificate.stream import CertificateFault, Stream
from autoshard.verify.certificate.weights import MOST, MOST_BITS

EXACT = 2.0**53
"""Whole numbers up to this one are exact in float64, in which messages are weighed."""
SHARE = 8
"""A cost, an entry or a price of more than `EXACT` / (`SHARE` x the most edges at a node) counts as that: a bound on
what costs less is one on all, and sums stay exact however many edges meet.
"""
MOST_PRICE_BITS = 2**12
SPLIT = 20
"""Lower bits of amounts, which are multiplied by prices apart from the others."""
MOST_ENTRIES = 2**27
"""A certificate may leave states whose tables have so many entries (1 GiB) together; more are refused."""


class Factors(NamedTuple):
    """A table of costs: entry [a, b] is ``scale * base[rows[a], columns[b]]``.

    base: whole numbers, in float64 below 2**53; inf where a pair is not allowed.
    """

    base: np.ndarray
    rows: np.ndarray
    columns: np.ndarray
    scale: int = 1

    def whole(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """The table of these states of its two nodes, int64."""
        entries = _allowed(self.base[np.ix_(self.rows[first], self.columns[second])] * float(self.scale))
        fine = np.isfinite(entries)
        return np.where(fine, np.where(fine, entries, 0.0).astype(np.int64), NOT_ALLOWED)


Table = np.ndarray | Factors
Edges = Sequence[tuple[int, int, Table]]
Usages = Sequence[Sequence[tuple[int, int, np.ndarray]]]


class Sent(NamedTuple):
    """Messages to the first nodes of all edges, in units of 2**step; prices of 2**-bits per unit live at moments."""

    step: int
    bits: int
    moments: np.ndarray
    prices: np.ndarray
    messages: np.ndarray


def read_messages(stream: Stream) -> Sent:
    """Read one set of messages. Raises `CertificateFault` where its prices are none."""
    step, bits = stream.count(MOST_BITS, "the step of messages"), stream.count(MOST_PRICE_BITS, "bits of prices")
    n = stream.count(2**31, "the number of prices")
    steps, prices = stream.some(n), stream.some(n)
    if n and (int(prices.min()) < 0 or int(steps[1:].min(initial=1)) <= 0):
        raise CertificateFault("prices are negative, or not in the order of time")
    if float(np.abs(steps.astype(np.float64)).sum()) > MOST or float(prices.sum(dtype=np.float64)) > MOST:
        raise CertificateFault("prices, or their moments, are beyond 64 bits")
    messages = stream.some(stream.count(2**31, "the number of messages"))
    return Sent(step, bits, np.cumsum(steps), prices, messages)


class _Edge:
    """An edge from the node that comes first. rows, columns: of its base, those that states of its two nodes have;
    row_of, column_of: of every state its place among them. barred: whether some pair may not be allowed. most: what
    larger entries count as.
    """

    def __init__(self, first: int, second: int, table: Factors, barred: bool, most: float) -> None:
        self.first, self.second, self.table, self.barred, self.most = first, second, table, barred, most
        self.rows, self.row_of = np.unique(table.rows, return_inverse=True)
        self.columns, self.column_of = np.unique(table.columns, return_inverse=True)

    def living(self, alive: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """The places, among rows and columns, that belong to a state that is left, in order."""
        return np.unique(self.row_of[alive[self.first]]), np.unique(self.column_of[alive[self.second]])

    def entries(self, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """Entries at these places, inf where a pair is not allowed; a copy."""
        some = self.table.base[np.ix_(self.rows[rows], self.columns[columns])]
        some *= float(self.table.scale)
        return _capped(_allowed(some) if self.barred else some, self.most)


def _capped(costs: np.ndarray, most: float) -> np.ndarray:
    costs[(costs > most) & (costs < np.inf)] = most
    return costs


def _allowed(entries: np.ndarray) -> np.ndarray:
    entries[entries >= FORBIDDEN_COST] = np.inf
    return entries


def factors(table: Table) -> Factors:
    """Any table as rows and columns of one."""
    if isinstance(table, Factors):
        return table
    own = np.asarray(table, dtype=np.int64)
    base = np.where(own < FORBIDDEN_COST, own, np.inf)
    return Factors(base, np.arange(base.shape[0]), np.arange(base.shape[1]))


class OutlinedNetwork:
    """What is left of such a network. alive: per node, which of its states. costs: those of states, with those of edges
    from a node to itself.
    """

    def __init__(self, costs: Sequence[np.ndarray], edges: Edges, usages: Usages, limit: int | None) -> None:
        self.usages, self.limit = usages, limit
        own = [np.asarray(c, dtype=np.int64) for c in costs]
        ends = np.array([(i, j) for i, j, _ in edges], dtype=np.int64).ravel()
        degree = 1 + int(np.bincount(ends, minlength=1).max())  # the most numbers that a state adds up
        self.most = float(int(EXACT) // (SHARE * degree))
        self.costs = [np.where(c < FORBIDDEN_COST, c, np.inf) for c in own]
        lows = [int(c.min(initial=0)) for c in own]
        self.edges: list[_Edge] = []
        self._looked: dict[int, tuple[np.ndarray, float, bool, float]] = {}  # many edges share a base
        for i, j, table in edges:
            one = factors(table)
            low, barred = self._look(one)
            lows.append(low)
            if i == j:
                self.costs[i] = self.costs[i] + _allowed(one.base[one.rows, one.columns] * float(one.scale))
            elif i < j:
                self.edges.append(_Edge(i, j, one, barred, self.most))
            else:
                turned = Factors(one.base.T, one.columns, one.rows, one.scale)
                self.edges.append(_Edge(j, i, turned, barred, self.most))
        if min(lows, default=0) < -self.most:
            raise CertificateFault(f"the network has a cost of {min(lows)}, too far below 0 for exact sums")
        self.alive = [np.isfinite(c) for c in self.costs]
        self.costs = [_capped(c, self.most) for c in self.costs]

    def _look(self, table: Factors) -> tuple[int, bool]:
        """The smallest entry, from 0, and whether some pair is not allowed."""
        base = table.base
        if id(base) not in self._looked:
            fine = np.isfinite(base)
            numbers = np.where(fine, base, 0.0)
            if np.abs(numbers).max(initial=0.0) >= EXACT or not (numbers == np.rint(numbers)).all():
                raise CertificateFault("a table of the network has costs that are no whole numbers below 2^53")
            self._looked[id(base)] = base, numbers.min(initial=0.0), bool(fine.all()), numbers.max(initial=0.0)
        _, low, fine, top = self._looked[id(base)]
        return int(low) * table.scale, not fine or int(top) * table.scale >= FORBIDDEN_COST

    def consistent(self) -> bool:
        """Leave out states without a partner on some edge, until none is without; False where nothing is left, or too
        much is held whatever is chosen."""
        changed = set(range(len(self.costs)))
        while changed:
            now, changed = changed, set()
            for edge in self.edges:
                if not edge.barred or not now & {edge.first, edge.second}:
                    continue
                rows, columns = edge.living(self.alive)
                fine = np.isfinite(edge.entries(rows, columns))
                for node, place, places, some in (
                    (edge.first, edge.row_of, rows, fine.any(axis=1)),
                    (edge.second, edge.column_of, columns, fine.any(axis=0)),
                ):
                    if not some.all():
                        self.alive[node] &= ~np.isin(place, places[~some])
                        changed.add(node)
        return all(alive.any() for alive in self.alive) and not self._overfull()

    def _overfull(self) -> bool:
        """Whether the least that is held at some moment is above the limit."""
        if self.limit is None:
            return False
        changes: dict[int, int] = {}
        for own, alive in zip(self.usages, self.alive, strict=False):
            for start, stop, amounts in own:
                if start < stop:
                    least = int(np.asarray(amounts)[alive].min())
                    changes[start] = changes.get(start, 0) + least
                    changes[stop] = changes.get(stop, 0) - least
        return max(accumulate(changes[moment] for moment in sorted(changes)), default=0) > self.limit

    def _charge(self, sent: Sent) -> tuple[list[np.ndarray], int]:
        """What prices add to every state, rounded down, at most `most`, and what the limit gives back, rounded up."""
        extra = [np.zeros(len(c)) for c in self.costs]
        if not len(sent.prices):
            return extra, 0
        if self.limit is None:
            raise CertificateFault("messages come with prices, but there is no limit")
        running = np.concatenate([[0], np.cumsum(sent.prices)])
        for node, own in enumerate(self.usages):
            total, high = 0.0, np.zeros(len(extra[node]), dtype=np.int64)
            low = high
            for start, stop, amounts in own:
                a, b = np.searchsorted(sent.moments, [start, stop])
                price, held = int(running[b] - running[a]) if a < b else 0, np.asarray(amounts, dtype=np.int64)
                total += float(price) * max(float(largest(held >> SPLIT)), 2.0**SPLIT)
                if total > MOST:
                    raise CertificateFault("prices are too large for 64 bits")
                high = high + price * (held >> SPLIT)
                low = low + price * (held & (2**SPLIT - 1))
            if sent.bits >= SPLIT:
                rounded = (high + (low >> SPLIT)) >> min(sent.bits - SPLIT, 63)
            else:
                shift = SPLIT - sent.bits
                room = int(self.most) >> shift  # more is more than `most`, and might not fit when it is shifted
                rounded = (np.clip(high, -room, room + 1) << shift) + (low >> sent.bits)
                if int(high.min()) < -room:
                    raise CertificateFault("prices are too large for exact sums")
            if int(rounded.min()) < -self.most:
                raise CertificateFault("prices are too large for exact sums")
            extra[node] = np.minimum(rounded, int(self.most)).astype(np.float64)
        return extra, -(-(int(running[-1]) * self.limit) >> sent.bits)

    def weigh(self, told: Sent, claimed: int | None) -> bool:
        """Leave out what these messages show to cost at least what is claimed; True where that is all.

        What is left is consistent before. Raises `CertificateFault` where the messages do not fit the network.
        """
        messages = told.messages
        if claimed is None:
            raise CertificateFault("messages count costs, but what is claimed is that there is no assignment")
        if len(messages) != sum(len(edge.rows) for edge in self.edges):
            raise CertificateFault("there are more or fewer messages than rows of the network's smaller tables")
        if float(largest(messages)) * 2.0**told.step > self.most:
            raise CertificateFault("messages are too large for exact sums")
        extra, charge = self._charge(told)
        own, at = [c + more for c, more in zip(self.costs, extra, strict=True)], 0
        for edge in self.edges:
            sent = messages[at : at + len(edge.rows)] * 2.0**told.step
            at += len(edge.rows)
            rows, columns = edge.living(self.alive)
            left = edge.entries(rows, columns)
            left -= sent[rows][:, None]
            to_second = np.zeros(len(edge.columns))
            to_second[columns] = left.min(axis=0)
            own[edge.first] += sent[edge.row_of]
            own[edge.second] += to_second[edge.column_of]
        lows = [int(o[alive].min()) for o, alive in zip(own, self.alive, strict=True)]
        room = claimed - sum(lows) + charge
        if room <= 0:
            return True
        for alive, o, low in zip(self.alive, own, lows, strict=True):
            alive &= o - low < float(min(room, 2**60))
        return False

    def residual(self, stream: Stream, costs: Sequence[np.ndarray], edges: Edges) -> Residual:
        """Read which states are left, and make the network of these, which are counted anew.

        Raises `CertificateFault` where another state may be part of an assignment that costs less than what is claimed.
        """
        left = [self._read(stream, node) for node in range(len(self.costs))]
        if sum(len(left[i]) * len(left[j]) for i, j, _ in edges) > MOST_ENTRIES:
            raise CertificateFault(f"what is left has tables of more than {MOST_ENTRIES} entries")
        tables = [(i, j, factors(table).whole(left[i], left[j])) for i, j, table in edges]
        held = [[(a, b, np.asarray(h)[s]) for a, b, h in own] for own, s in zip(self.usages, left, strict=False)]
        return Residual([np.asarray(c)[s] for c, s in zip(costs, left, strict=True)], tables, held, self.limit)

    def _read(self, stream: Stream, node: int) -> np.ndarray:
        """The states of a node that are left: stretches, each with how far it begins from where the one before began,
        and its length.
        """
        size = len(self.costs[node])
        stretches = stream.some(2 * stream.count(size, "the number of stretches of states")).reshape(-1, 2)
        if len(stretches) and not 0 <= int(stretches.min()) <= int(stretches.max()) <= size:
            raise CertificateFault(f"states of node {node} are left that it does not have")
        begins = np.cumsum(stretches[:, 0])
        ends = begins + stretches[:, 1]
        if (ends > size).any() or (begins[1:] < ends[:-1]).any():
            raise CertificateFault(f"states of node {node} are left that it does not have, or twice")
        named = np.zeros(size, dtype=bool)
        for a, b in zip(begins.tolist(), ends.tolist(), strict=True):
            named[a:b] = True
        lost = np.flatnonzero(self.alive[node] & ~named)
        if len(lost):
            raise CertificateFault(f"node {node}: state {int(lost[0])} is left out, but may cost less than the bound")
        return np.flatnonzero(named)
