"""Nogoods of a certificate: each must follow from what tables allow, what there is room for, and the ones before it.

A nogood says that every assignment gives one of some nodes one of some states. So all of these are taken out, and what
follows is taken out as well, to the end: if a node is left with nothing, or too much is held, the nogood holds (reverse
unit propagation; Goldberg and Novikov 2003). States of a node are the bits of a whole number.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator

import numpy as np

from autoshard.verify.certificate.stream import CertificateFault, Stream
from autoshard.verify.certificate.weights import Layout

Nogood = list[tuple[int, int]]
"""Nodes in order, each with the bits of its states."""


def read_nogoods(stream: Stream, layout: Layout) -> Iterator[Nogood]:
    """Read how many there are, and one by one: how many nodes, and of these the number, less that before, and the
    states."""
    for _ in range(stream.count(2**31, "the number of nogoods")):
        nogood, node = [], -1
        for _ in range(stream.count(len(layout.sizes), "the number of nodes of a nogood")):
            node += 1 + stream.count(len(layout.sizes), "a node")
            if node >= len(layout.sizes):
                raise CertificateFault("a nogood is about a node that is not there (any more)")
            size = int(layout.sizes[node])
            places = np.cumsum(stream.some(stream.count(size, "the number of states")))
            if len(places) and (int(places.min()) < 0 or int(places.max()) >= size):
                raise CertificateFault(f"node {layout.nodes[node]}: a nogood is about states that are not there")
            nogood.append((node, bits_of(places)))
        yield nogood


def bits_of(places: np.ndarray) -> int:
    """A whole number with these bits set."""
    out = 0
    for place in places.tolist():
        out |= 1 << place
    return out


class Nogoods:
    """What is left of a network without its costs, and the nogoods that were judged."""

    def __init__(self, layout: Layout, alive: np.ndarray) -> None:
        self.left = [bits_of(np.flatnonzero(alive[a:b])) for a, b in zip(layout.at[:-1], layout.at[1:], strict=True)]
        self.limit, self.slots = layout.limit, layout.slots
        self.arcs: list[list[tuple[int, list[tuple[int, int]]]]] = [[] for _ in self.left]
        """Of every node where its edges lead, and for each set of its states those there that need one of these."""
        for edge in range(len(layout.first)):
            i, j = int(layout.first[edge]), int(layout.second[edge])
            shape = int(layout.sizes[i]), int(layout.sizes[j])
            allowed = layout.allowed[layout.pair_at[edge] : layout.pair_at[edge + 1]].reshape(shape)
            if not allowed.all():
                self.arcs[i].append((j, _partners(allowed)))
                self.arcs[j].append((i, _partners(allowed.T)))
        self.held = [(k, a, b, _levels(amounts)) for k, a, b, amounts in layout.held]
        self.of_node: list[list[int]] = [[] for _ in self.left]
        for record, (node, *_) in enumerate(self.held):
            self.of_node[node].append(record)
        self.watching: list[list[Nogood]] = [[] for _ in self.left]
        self.low, self.live = [0] * len(self.held), [0] * self.slots
        self.broken = not self._settled(range(len(self.left)))

    def take(self, nogood: Nogood) -> bool:
        """Judge the next nogood; whether nothing is left by now. Raises `CertificateFault` where it does not follow."""
        if self.broken:
            return True
        before = list(self.left), list(self.low), list(self.live)
        for node, states in nogood:
            self.left[node] &= ~states
        follows = not self._settled([node for node, _ in nogood])
        self.left, self.low, self.live = before
        if not follows:
            raise CertificateFault("a nogood does not follow from the ones before it")
        # two of its nodes that still have some of its states watch it; with one, it says which states that one keeps
        free = [(node, states) for node, states in nogood if self.left[node] & states]
        if len(free) < 2:
            for node, states in free:
                self.left[node] &= states
            self.broken = not free or not self._settled([free[0][0]])
            return self.broken
        ordered = free + [one for one in nogood if one not in free]
        for node, _ in ordered[:2]:
            self.watching[node].append(ordered)
        return False

    def _settled(self, changed: Iterable[int]) -> bool:
        """Take out what follows, to the end; False where a node is left with nothing, or too much is held."""
        waiting = dict.fromkeys(changed)
        counted = dict(waiting)
        if not all(self.left[node] for node in waiting):
            return False
        while waiting:
            while waiting:
                node = next(iter(waiting))
                del waiting[node]
                counted[node] = None
                if not self._spread(node, waiting):
                    return False
            if self.limit is not None and not self._fits(counted, self.limit, waiting):
                return False
        return True

    def _spread(self, node: int, waiting: dict[int, None]) -> bool:
        """What follows from one node along its edges, and by nogoods; False where a node is left with nothing."""
        mine = self.left[node]
        for other, partners in self.arcs[node]:
            theirs = self.left[other]
            kept = 0
            for of_mine, of_theirs in partners:
                if of_mine & mine:
                    kept |= of_theirs
            if theirs & ~kept:
                self.left[other] = theirs & kept
                if not theirs & kept:
                    return False
                waiting[other] = None
        watching, self.watching[node] = self.watching[node], []
        fine = True
        for nogood in watching:
            if fine:
                fine = self._heard(nogood, node, waiting)
            else:
                self.watching[node].append(nogood)
        return fine

    def _heard(self, nogood: Nogood, node: int, waiting: dict[int, None]) -> bool:
        """A node that watches a nogood (one of its first two) has lost states; False where nothing is left."""
        own = 0 if nogood[0][0] == node else 1
        if nogood[own][1] & self.left[node]:
            self.watching[node].append(nogood)
            return True
        for at in range(2, len(nogood)):
            other, states = nogood[at]
            if states & self.left[other]:
                nogood[own], nogood[at] = nogood[at], nogood[own]
                self.watching[other].append(nogood)
                return True
        self.watching[node].append(nogood)
        other, states = nogood[1 - own]
        if self.left[other] & ~states:
            self.left[other] &= states
            waiting[other] = None
        return bool(self.left[other])

    def _fits(self, counted: dict[int, None], limit: int, waiting: dict[int, None]) -> bool:
        """Count what nodes hold at least, where they changed, and take out what there is no room for; False where the
        least of all is too much."""
        low, live, grown = self.low, self.live, False
        for node in counted:
            for record in self.of_node[node]:
                _, begin, end, levels = self.held[record]
                least = next(amount for amount, states, _ in levels if states & self.left[node])
                if least != low[record]:
                    grown = True
                    for slot in range(begin, end):
                        live[slot] += least - low[record]
                    low[record] = least
        counted.clear()
        if not grown:
            return True
        if max(live, default=0) > limit:
            return False
        for record, (node, begin, end, levels) in enumerate(self.held):
            room = limit - max(live[begin:end]) + low[record]
            if levels[-1][0] > room:
                kept = levels[bisect_right(levels, room, key=lambda level: level[0]) - 1][2]
                if self.left[node] & ~kept:
                    self.left[node] &= kept
                    waiting[node] = None
                    if not self.left[node]:
                        return False
        return True


def _partners(allowed: np.ndarray) -> list[tuple[int, int]]:
    """Of a table (rows: states of this end): sets of its rows, and the columns that go with just these."""
    kinds, of_column = np.unique(allowed, axis=1, return_inverse=True)
    columns = of_column.ravel()
    return [
        (bits_of(np.flatnonzero(kinds[:, kind])), bits_of(np.flatnonzero(columns == kind)))
        for kind in range(kinds.shape[1])
    ]


def _levels(amounts: np.ndarray) -> list[tuple[int, int, int]]:
    """Amounts that rise, each with the states that hold just as much, and those that hold no more."""
    out, so_far = [], 0
    for amount in np.unique(amounts).tolist():
        states = bits_of(np.flatnonzero(amounts == amount))
        so_far |= states
        out.append((amount, states, so_far))
    return out
