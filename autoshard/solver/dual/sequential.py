"""Messages passed over all of a network whose tables are rows and columns of smaller ones, node after node.

They prove a bound, and for every state the least that an assignment with it costs. All numbers are whole, and so much
below 2**53 that sums are exact. States that are known not to be part of a better assignment are left out as soon as
that is known, and no message is sent from or to them any more.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from autoshard.solver.dual.ways import Way, Ways, capped
from autoshard.solver.network import IMPOSSIBLE, CostNetwork, Edge
from autoshard.solver.work import Infeasible

Standing = tuple[list[np.ndarray], list[np.ndarray]]
"""Messages to the first and to the second nodes of all edges, for rows and columns of the smaller tables."""
EXACT = 2**53
"""Whole numbers up to this one are exact in float64."""
SHARE = 8
"""A cost, an entry, a price or a message of more than `EXACT` / (`SHARE` x the most edges at a node) counts as that, so
that sums are exact however many edges meet: what costs so much is part of no good assignment."""


class Sequential:
    """The messages of a network. late: asked before every node and edge; passes end early where it says so.

    lower: the best bound proved, on assignments of the states that are left; last: that of the last pass. least: per
    node and state that is left, what an assignment with it costs at least; empty before the first `weigh`. left: their
    numbers in the network. unary: what states cost, with what is asked for what they hold; unpriced: without.
    charge: what the limit gives back. to_first, to_second: messages of every edge to its ends.
    """

    def __init__(self, network: CostNetwork, late: Callable[[], bool]) -> None:
        self.network, self.late = network, late
        self.lower = self.last = -math.inf
        self.charge = 0
        self.least: list[np.ndarray] = []
        self.left = [np.arange(len(costs)) for costs in network.costs]
        ends = np.array([(edge.first, edge.second) for edge in network.edges], dtype=np.int64).ravel()
        self.most = float(EXACT // (SHARE * (1 + int(np.bincount(ends, minlength=1).max()))))
        self.unary = [np.where(c >= IMPOSSIBLE, np.inf, c.astype(np.float64)) for c in network.costs]
        self.edges = [_in_order(edge) for edge in network.edges if edge.first != edge.second]
        for edge in network.edges:
            if edge.first == edge.second:
                own = edge.costs.diagonal()
                self.unary[edge.first] = self.unary[edge.first] + np.where(own >= IMPOSSIBLE, np.inf, own)
        self.unary = [capped(u, self.most) for u in self.unary]
        self.unpriced, self.asked = list(self.unary), [np.zeros(len(u)) for u in self.unary]
        ways = Ways(self.most)
        self.ways = [ways.of(edge.costs) for edge in self.edges]
        # of the smaller table, those that any states of the two nodes have
        self.rows, self.columns = [there.sources for there, _ in self.ways], [back.sources for _, back in self.ways]
        self.to_first = [np.zeros(len(network.costs[edge.first])) for edge in self.edges]
        self.to_second = [np.zeros(len(network.costs[edge.second])) for edge in self.edges]
        self.stood: Standing | None = None  # where messages stood when all states were left
        self.around: list[list[tuple[int, bool]]] = [[] for _ in network.costs]  # (edge, whether the node is its first)
        for k, edge in enumerate(self.edges):
            self.around[edge.first].append((k, True))
            self.around[edge.second].append((k, False))

    @property
    def states(self) -> int:
        """How many states are left."""
        return sum(map(len, self.left))

    def price(self, asked: Sequence[np.ndarray], charge: int) -> None:
        """Ask so much of every state (of all, node after node) for what it holds; the limit gives back `charge`."""
        self.asked, self.charge = [np.minimum(own, int(self.most)).astype(np.float64) for own in asked], charge
        self.unary = [u + own[left] for u, own, left in zip(self.unpriced, self.asked, self.left, strict=True)]

    def narrow(self, left: Sequence[np.ndarray]) -> None:
        """Leave out all other states: these are numbers in the network, some of those that are left.

        Bounds are on assignments of what is left from here on.
        """
        stood, distinct = self.standing(), Ways(self.most).distinct
        places = [np.searchsorted(before, now) for before, now in zip(self.left, left, strict=True)]
        unary, unpriced = (
            [own[at] for own, at in zip(all_of, places, strict=True)] for all_of in (self.unary, self.unpriced)
        )
        least = [own[at] for own, at in zip(self.least, places, strict=False)]
        ends = [(places[edge.first], places[edge.second]) for edge in self.edges]
        ways = [
            (there.among(first, second, distinct), back.among(second, first, distinct))
            for (there, back), (first, second) in zip(self.ways, ends, strict=True)
        ]
        to_first = [message[first] for message, (first, _) in zip(self.to_first, ends, strict=True)]
        to_second = [message[second] for message, (_, second) in zip(self.to_second, ends, strict=True)]
        # all at once: where Ctrl-C comes before, nothing is left out
        self.stood, self.left, self.unary, self.unpriced, self.least = stood, list(left), unary, unpriced, least
        self.ways, self.to_first, self.to_second = ways, to_first, to_second

    def own(self, node: int) -> np.ndarray:
        """What the states of a node cost with all messages."""
        total = self.unary[node].copy()
        for k, first in self.around[node]:
            total += self.to_first[k] if first else self.to_second[k]
        return total

    def forward(self) -> None:
        """Messages from every node to those behind it."""
        for node in range(self.network.n_nodes):
            if self.late():
                return
            self._send(node, self.own(node), forward=True)

    def back(self) -> list[int] | None:
        """Messages from every node to those before it; the states that look best on the way, or None where it is late.

        What nodes keep of their costs when they have sent their shares is a bound.
        """
        chosen, bound = [0] * self.network.n_nodes, 0
        for node in reversed(range(self.network.n_nodes)):
            if self.late():
                return None
            own = self.own(node)
            decode = self.unary[node].copy()
            for k, first in self.around[node]:
                edge = self.edges[k]
                decode += self._row(edge, chosen[edge.second]) if first else self.to_second[k]
            best = int(np.argmin(decode if np.isfinite(decode).any() else own))
            chosen[node] = int(self.left[node][best])
            bound += self._send(node, own, forward=False)
        self.last = bound - self.charge
        self.lower = max(self.lower, self.last)
        return chosen

    def _send(self, node: int, own: np.ndarray, *, forward: bool) -> int:
        """The messages of one pass from a node; the least of what it keeps, and of what each message has in common."""
        there = sum(first for _, first in self.around[node])
        able = np.isfinite(own)
        weight = 1.0 / max(1, there, len(self.around[node]) - there)
        part = np.floor(own[able] * weight)
        kept, bound = own[able], 0
        for k, first in self.around[node]:
            if first != forward:
                continue
            message = self.to_first[k] if first else self.to_second[k]
            share = np.full(len(own), np.inf)  # states without a partner have infinite messages
            share[able] = part - message[able]
            sent = self.ways[k][0 if first else 1].send(share)
            least = sent.min()
            if not np.isfinite(least):
                edge = self.edges[k]
                other = edge.second if first else edge.first
                raise Infeasible(f"nodes {node} and {other} have no states that fit together")
            sent = capped(sent - least, self.most)
            if first:
                self.to_second[k] = sent
            else:
                self.to_first[k] = sent
            kept = kept - part
            bound += int(least)
        return bound + (int(kept.min()) if len(kept) else 0)

    def weigh(self, step: int = 0) -> float:
        """The bound that the messages prove, exactly, and the least that an assignment with each state costs; -inf
        where it is late.

        Of every edge, messages to its first node are taken in multiples of 2**step, and to its second one what the
        table leaves beside them.
        """
        owns = [u.copy() for u in self.unary]
        able = [np.isfinite(self.own(node)) for node in range(self.network.n_nodes)]
        for k, edge in enumerate(self.edges):
            if self.late():
                return -math.inf
            message = np.floor(self.to_first[k] / 2.0**step) * 2.0**step
            owns[edge.first] += message
            owns[edge.second] += self.ways[k][0].send(np.where(able[edge.first], -message, np.inf))
        low = [own.min() for own in owns]
        if not np.isfinite(low).all():
            raise Infeasible(f"node {int(np.argmax(low))} has no state left that its neighbours allow")
        bound = sum(map(int, low)) - self.charge
        self.lower = max(self.lower, bound)
        least = [bound + (own - minimum) for own, minimum in zip(owns, low, strict=True)]
        self.least = [*map(np.maximum, self.least, least)] if self.least else least
        return bound

    def outlined(self, step: int) -> np.ndarray:
        """The messages to the first nodes of all edges, in 2**step, as `certify.proof.Outlined` has them."""
        sent = [
            np.floor(_by_place(rows, there, message) / 2.0**step)
            for rows, (there, _), message in zip(self.rows, self.ways, self.to_first, strict=True)
        ]
        return np.concatenate(sent).astype(np.int64) if sent else np.zeros(0, dtype=np.int64)

    def standing(self) -> Standing:
        """Where the messages stand, or stood when states were first left out, since later ones say nothing of what had
        gone: for another search of the same tables to go on from.
        """
        if self.stood is not None:
            return self.stood
        columns = zip(self.columns, self.ways, self.to_second, strict=True)
        rows = zip(self.rows, self.ways, self.to_first, strict=True)
        to_first = [_by_place(own, there, message) for own, (there, _), message in rows]
        return to_first, [_by_place(own, back, message) for own, (_, back), message in columns]

    def go_on_from(self, standing: Standing) -> bool:
        """Take messages of another search of the same tables; nothing where these have other rows or columns. One of
        the two may have further edges behind those of both; returns whether this one has.
        """
        to_first, to_second = standing
        both = min(len(to_first), len(self.edges))
        to_first, to_second = to_first[:both], to_second[:both]
        mine = [*map(len, self.rows[:both]), *map(len, self.columns[:both])]
        if mine == [*map(len, to_first), *map(len, to_second)]:
            to_first, to_second = ([capped(m, self.most) for m in sent] for sent in standing)
            taken = list(zip(to_first, to_second, self.ways, strict=False))
            self.to_first[:both] = [m[there.source_of] for m, _, (there, _) in taken]
            self.to_second[:both] = [m[back.source_of] for _, m, (_, back) in taken]
        return both < len(self.edges)

    def _row(self, edge: Edge, state: int) -> np.ndarray:
        """What an edge costs for each state left of its first node beside a state of its second one."""
        costs: Any = edge.costs
        row = costs.T[state][self.left[edge.first]]
        return np.where(row >= IMPOSSIBLE, np.inf, row)


def _by_place(places: np.ndarray, way: Way, message: np.ndarray) -> np.ndarray:
    """A message for rows (or columns) of the smaller table; 0 for those that no state has any more, or no partner."""
    out = np.zeros(len(places))
    out[np.searchsorted(places, way.sources)[way.source_of]] = np.where(np.isfinite(message), message, 0.0)
    return out


def _in_order(edge: Edge) -> Edge:
    """The edge with the node that comes first as its first: passes go from node to node in their order."""
    costs: Any = edge.costs
    return edge if edge.first < edge.second else Edge(edge.second, edge.first, costs.T)
