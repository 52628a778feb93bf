"""The network that a certificate speaks of, changed step by step; each step is judged before it is done.

Nothing here comes from the solver. Numbers are exact integers; costs at or above `FORBIDDEN_COST` are not allowed. A
certificate names a state by its index in the original network, even where others before it are gone.
"""

from bisect import bisect_left
from collections.abc import Sequence

import numpy as np

from autoshard.verify.certificate.exact import (
    ALLOWED_BELOW,
    FORBIDDEN_COST,
    MOST_TOTAL,
    NOT_ALLOWED,
    as_kept,
    in_range,
    largest,
    summed,
)
from autoshard.verify.certificate.held import MOST_HELD, check_forgettable, stretches
from autoshard.verify.certificate.stream import CertificateFault

LATEST = 2**62  # moments are at most so far from 0


class Residual:
    """Nodes that are left, with the states that are left.

    unary[i]: costs of node i, None where it is gone. tables[i][j]: costs of an edge, rows are states of i. held[i]:
    (first slot, last slot + 1, amounts per state). domain[i]: original indices of its states. times: when each
    time slot begins that still counts. limit: for each slot. constant: of nodes folded away. most: nothing costs more.
    """

    def __init__(
        self,
        costs: Sequence[np.ndarray],
        edges: Sequence[tuple[int, int, np.ndarray]],
        usages: Sequence[Sequence[tuple[int, int, np.ndarray]]],
        limit: int | None,
    ) -> None:
        n = len(costs)
        self.unary: list[np.ndarray | None] = []
        self.domain = [np.arange(len(c)) for c in costs]
        self.tables: list[dict[int, np.ndarray]] = [{} for _ in range(n)]
        self.constant = self.most = total = 0
        for c in costs:
            own = np.asarray(c, dtype=np.int64)
            fine = own < FORBIDDEN_COST
            total += largest(own[fine])
            self.most += int(own[fine].max()) if fine.any() else 0
            self.unary.append(np.where(fine, own, NOT_ALLOWED))
        marked: dict[int, tuple[np.ndarray, np.ndarray, int, int]] = {}  # a table that several edges share is read once
        for i, j, table in edges:
            if id(table) not in marked:
                own = np.asarray(table, dtype=np.int64)
                fine = own < FORBIDDEN_COST
                top, most = largest(own[fine]), int(own[fine].max()) if fine.any() else 0
                marked[id(table)] = (table, own if fine.all() else np.where(fine, own, NOT_ALLOWED), top, most)
            _, own, top, most = marked[id(table)]
            total, self.most = total + top, self.most + most
            if total >= MOST_TOTAL:
                raise CertificateFault(f"the costs of the network add up to {total}, more than can be checked exactly")
            if i == j:
                self.unary[i] = summed(self._unary(i), np.ascontiguousarray(np.diagonal(own)))
            else:
                self._add(i, j, own)
        if total >= MOST_TOTAL:
            raise CertificateFault(f"the costs of the network add up to {total}, more than can be checked exactly")
        self.limit = limit
        records = []
        if limit is not None:
            for i, own in enumerate(usages):
                for start, stop, amounts in own:
                    amounts_held = np.asarray(amounts, dtype=np.int64)
                    if start < stop and amounts_held.any():
                        records.append((i, int(start), int(stop), amounts_held))
        holds = sum(largest(amounts_held) for *_, amounts_held in records)
        if holds > MOST_HELD:
            raise CertificateFault(f"what the network holds adds up to {holds}, more than can be checked exactly")
        moments = sorted({t for _, a, b, _ in records for t in (a, b)})
        if any(abs(t) > LATEST for t in moments[:1] + moments[-1:]):
            raise CertificateFault(f"the network names a moment beyond {LATEST}: checked are moments of 64 bits")
        self.times = np.array(moments[:-1], dtype=np.int64)
        self.held: list[list[tuple[int, int, np.ndarray]]] = [[] for _ in range(n)]
        for i, start, stop, amounts_held in records:
            self.held[i].append((bisect_left(moments, start), bisect_left(moments, stop), amounts_held))
        self.empty = False
        self._close(range(n))

    # -- what there is -------------------------------------------------------------------------------

    def nodes(self) -> list[int]:
        """The nodes that are left, in order."""
        return [i for i, own in enumerate(self.unary) if own is not None]

    def _unary(self, node: int) -> np.ndarray:
        own = self.unary[node] if 0 <= node < len(self.unary) else None
        if own is None:
            raise CertificateFault(f"node {node} is not there (any more)")
        return own

    def known(self, node: int) -> None:
        """Raise `CertificateFault` where the node is gone."""
        self._unary(node)

    def edges(self) -> list[tuple[int, int]]:
        """The edges (i, j) between nodes that are left, i < j."""
        return [(i, j) for i in self.nodes() for j in sorted(self.tables[i]) if i < j]

    def _add(self, i: int, j: int, table: np.ndarray) -> None:
        have = self.tables[i].get(j)
        self._set(i, j, table if have is None else summed(have, table))

    def _set(self, i: int, j: int, table: np.ndarray) -> None:
        self.tables[i][j] = table
        self.tables[j][i] = table.T

    def forget_costs(self) -> None:
        """Whatever is allowed costs nothing from here on: for proofs that there is no assignment at all."""
        self.constant = 0
        for i in self.nodes():
            self.unary[i] = np.where(self._unary(i) < ALLOWED_BELOW, 0, NOT_ALLOWED)
        for i, j in self.edges():
            self._set(i, j, np.where(self.tables[i][j] < ALLOWED_BELOW, 0, NOT_ALLOWED))

    def _remove(self, node: int) -> None:
        for other in self.tables[node]:
            del self.tables[other][node]
        self.tables[node] = {}
        self.unary[node] = None
        self.held[node] = []

    def keep(self, node: int, mask: np.ndarray) -> None:
        """Keep the states of a node for which `mask` is true."""
        self.unary[node] = self._unary(node)[mask]
        self.domain[node] = self.domain[node][mask]
        self.held[node] = [(a, b, amounts[mask]) for a, b, amounts in self.held[node]]
        for other, table in list(self.tables[node].items()):
            self._set(node, other, table[mask])
        if not mask.any():
            self.empty = True

    def places(self, node: int, states: np.ndarray) -> np.ndarray:
        """Places, among the states that a node has left, of some that are named by original index."""
        self._unary(node)
        domain = self.domain[node]
        at = np.searchsorted(domain, states)
        if len(states) and (not len(domain) or (domain[np.minimum(at, len(domain) - 1)] != states).any()):
            raise CertificateFault(f"node {node}: states {states.tolist()[:5]} are not all there (any more)")
        return at

    # -- states that cannot be -------------------------------------------------------------------

    def partnerless(self, node: int, places: np.ndarray) -> np.ndarray:
        """Which of the states at `places` are not allowed by their own cost, or have no partner on some edge."""
        out = self._unary(node)[places] >= ALLOWED_BELOW
        for table in self.tables[node].values():
            out = out | (table[places].min(axis=1, initial=NOT_ALLOWED) >= ALLOWED_BELOW)
        return out

    def least_live(self) -> np.ndarray:
        """For each time slot, what is held at least, whatever is chosen."""
        delta = np.zeros(len(self.times) + 1, dtype=np.int64)
        for i in self.nodes() if self.limit is not None else ():
            for a, b, amounts in stretches(self.held[i]):
                low = int(amounts.min()) if len(amounts) else 0
                delta[a] += low
                delta[b] -= low
        return np.cumsum(delta)[:-1]

    def roomless(self, node: int, places: np.ndarray, least: np.ndarray) -> np.ndarray:
        """Which of the states at `places` hold more than there is room for beside the least of all other nodes."""
        out = np.zeros(len(places), dtype=bool)
        if self.limit is None:
            return out
        for a, b, amounts in stretches(self.held[node]):
            room = self.limit - int(least[a:b].max(initial=-(2**62)))
            out |= amounts[places] - amounts.min() > room
        return out

    def overfull(self, least: np.ndarray) -> bool:
        """Whether the least that is held in some time slot is above the limit."""
        return self.limit is not None and bool(len(least)) and int(least.max()) > self.limit

    def drop(self, wanted: dict[int, np.ndarray]) -> None:
        """Drop states (places per node) that have no partner or no room, in an order in which each shows that."""
        least: np.ndarray | None = None
        if len(wanted) == 1:  # most steps are about one node
            ((node, places),) = wanted.items()
            gone = self.partnerless(node, places)
            if not gone.all():
                least = self.least_live()
                gone |= self.roomless(node, places, least) | self.overfull(least)
            if not gone.all():
                raise CertificateFault(
                    f"node {node}: state {int(self.domain[node][places[~gone][0]])} is dropped, but has partners on "
                    "all edges and room"
                )
            mask = np.ones(len(self._unary(node)), dtype=bool)
            mask[places] = False
            self.keep(node, mask)
            return
        left = {node: self.domain[node][places] for node, places in wanted.items() if len(places)}
        while left:
            some = False
            least = self.least_live()
            full = self.overfull(least)
            for node in list(left):
                places = self.places(node, left[node])
                gone = self.partnerless(node, places) | self.roomless(node, places, least) | full
                if gone.any():
                    some = True
                    mask = np.ones(len(self._unary(node)), dtype=bool)
                    mask[places[gone]] = False
                    left[node] = left[node][~gone]
                    if not len(left[node]):
                        del left[node]
                    self.keep(node, mask)
            if not some:
                node = min(left)
                raise CertificateFault(
                    f"node {node}: state {int(left[node][0])} is dropped, but has partners on all edges and room"
                )

    def _close(self, nodes: Sequence[int]) -> None:
        """Drop states that are not allowed by their own cost."""
        for i in nodes:
            mask = self._unary(i) < ALLOWED_BELOW
            if not mask.all():
                self.keep(i, mask)

    # -- steps ---------------------------------------------------------------------------------------

    def dominated(self, node: int, states: np.ndarray, better: np.ndarray) -> None:
        """Drop states for others (`better`) that never cost more, whatever the neighbours choose, nor hold more."""
        a, b = self.places(node, states), self.places(node, better)
        if np.isin(b, a).any():
            raise CertificateFault(f"node {node}: a state goes because of another one that goes as well")
        own = self._unary(node)
        worse = own[b] - own[a]  # by how much the better one can cost more
        fine, alone = np.ones(len(worse), dtype=bool), np.zeros(len(worse), dtype=bool)
        for table in self.tables[node].values():
            better_costs, dropped_costs = table[b], table[a]
            free = dropped_costs >= ALLOWED_BELOW  # where the dropped one is not allowed anyway
            least = np.where(free, -NOT_ALLOWED, better_costs - dropped_costs).max(axis=1, initial=-NOT_ALLOWED)
            alone |= least == -NOT_ALLOWED
            worse = np.maximum(worse + np.maximum(least, -ALLOWED_BELOW), -ALLOWED_BELOW)
            fine &= (least < ALLOWED_BELOW) & (worse < ALLOWED_BELOW)  # what is not allowed is made up for by nothing
            worse = np.minimum(worse, ALLOWED_BELOW)
        fine = alone | fine & (worse <= 0)
        for _, _, amounts in stretches(self.held[node]) if self.limit is not None else ():
            fine &= amounts[b] <= amounts[a]
        if not fine.all():
            raise CertificateFault(
                f"node {node}: state {int(states[~fine][0])} is not dominated by {int(better[~fine][0])}"
            )
        mask = np.ones(len(own), dtype=bool)
        mask[a] = False
        self.keep(node, mask)

    def eliminate(self, node: int) -> None:
        """Fold a node that holds nothing into its neighbours; it has at most two, or one state left."""
        own, others = self._unary(node), sorted(self.tables[node])
        if self.limit is not None and any(amounts.any() for _, _, amounts in self.held[node]):
            raise CertificateFault(f"node {node} is eliminated, but what it holds can count")
        if len(own) == 1:
            self.constant += int(own[0])
            for j in others:
                self.unary[j] = summed(self._unary(j), self.tables[node][j][0])
        elif not others:
            self.constant += int(own.min(initial=NOT_ALLOWED))
        elif len(others) == 1:
            (j,) = others
            folded = summed(own[:, None], self.tables[node][j]).min(axis=0, initial=NOT_ALLOWED)
            self.unary[j] = summed(self._unary(j), folded)
        elif len(others) == 2:
            i, j = others
            left, right = summed(own[:, None], self.tables[node][i]), self.tables[node][j]
            best = np.full((left.shape[1], right.shape[1]), NOT_ALLOWED, dtype=np.int64)
            for x in range(len(own)):
                np.minimum(best, left[x][:, None] + right[x][None, :], out=best)
            self._add(i, j, as_kept(best))
        else:
            raise CertificateFault(f"node {node} is eliminated, but has {len(others)} neighbours and {len(own)} states")
        self._remove(node)
        self._close(others)

    def follow(self, node: int, leader: int) -> None:
        """Merge a node into a neighbour each of whose states allows exactly one of the node's."""
        own = self._unary(node)
        if leader not in self.tables[node]:
            raise CertificateFault(f"node {node} is said to follow {leader}, but there is no edge between them")
        table = self.tables[node][leader]
        allowed = table < ALLOWED_BELOW
        if (allowed.sum(axis=0) != 1).any():
            raise CertificateFault(f"node {node} does not follow from {leader}: some state allows none or several")
        partner = np.argmax(allowed, axis=0)
        columns = np.arange(table.shape[1])
        self.unary[leader] = summed(summed(self._unary(leader), own[partner]), table[partner, columns])
        for other, costs in self.tables[node].items():
            if other != leader:
                self._add(leader, other, costs[partner])
        self.held[leader] = [*self.held[leader], *((a, b, amounts[partner]) for a, b, amounts in self.held[node])]
        self._remove(node)
        self._close([leader])

    def separate(self, i: int, j: int) -> None:
        """Fold an edge of the form row + column into its nodes."""
        self.known(i)
        if j not in self.tables[i]:
            raise CertificateFault(f"there is no edge between {i} and {j}")
        table = self.tables[i][j]
        row, column = table[:, 0], table[0] - table[0, 0]
        if (table >= ALLOWED_BELOW).any() or not np.array_equal(table, row[:, None] + column[None, :]):
            raise CertificateFault(f"the edge between {i} and {j} is not the sum of a row and a column")
        self.unary[i] = in_range(self._unary(i) + row)
        self.unary[j] = in_range(self._unary(j) + column)
        del self.tables[i][j]
        del self.tables[j][i]

    def only_times(self, times: np.ndarray) -> None:
        """Keep only these time slots; the others cannot exceed the limit, or hold no more than one that stays."""
        if self.limit is None:
            return
        stay = np.searchsorted(self.times, times)
        if (stay >= len(self.times)).any() or (self.times[stay] != times).any():
            raise CertificateFault("time slots are kept that are not there (any more)")
        if (np.diff(stay) <= 0).any():
            raise CertificateFault("time slots are not in order")
        check_forgettable([self.held[i] for i in self.nodes()], self.times, stay, self.limit)
        held: list[list[tuple[int, int, np.ndarray]]] = [[] for _ in self.held]
        for i in self.nodes():
            for a, b, amounts in self.held[i]:
                start, stop = int(np.searchsorted(stay, a)), int(np.searchsorted(stay, b))
                if start < stop:
                    held[i].append((start, stop, amounts))
        self.held = held
        self.times = times.copy()
        if not len(times):
            self.limit = None
