"""Assignments of a reduced network as assignments of the original one, and back, for thousands of nodes at a time.

Compiled code undoes all steps of a long trail at once, with the result of `Work.complete` in a fraction of its time.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from autoshard.solver.compiled import compiled
from autoshard.solver.dual.flat import Flat
from autoshard.solver.reductions.elimination import Eliminated
from autoshard.solver.reductions.follow import Followed
from autoshard.solver.work import Step, Work

FOLLOWED, ELIMINATED = 0, 1
"""Kinds of steps, as `Trail.kind` has them."""


class Trail(NamedTuple):
    """Steps in the order in which they are undone; step s is about node[s], whose states start at domain_at[s].

    Of a neighbour k = near_at[s]..near_at[s + 1]: its node, where its domain then starts and how long it is, and where
    its table [state of the node, place in that domain] starts in `tables` (for a followed node: its partners).
    """

    kind: np.ndarray
    node: np.ndarray
    domain_at: np.ndarray
    cost_at: np.ndarray
    size: np.ndarray
    near_at: np.ndarray
    near: np.ndarray
    near_domain_at: np.ndarray
    near_size: np.ndarray
    table_at: np.ndarray
    domains: np.ndarray
    costs: np.ndarray
    tables: np.ndarray

    def undo(self, chosen: np.ndarray) -> None:
        """Fill in the original states of the nodes that the steps removed."""
        _undo(self, chosen)


class _Pool:
    """Arrays laid one after the other; an array that comes again is not stored again."""

    def __init__(self) -> None:
        self.parts: list[np.ndarray] = []
        self.at: dict[int, int] = {}
        self.length = 0

    def place(self, part: np.ndarray) -> int:
        if id(part) not in self.at:
            self.at[id(part)] = self.length
            self.parts.append(part)
            self.length += part.size
        return self.at[id(part)]

    def array(self) -> np.ndarray:
        return np.concatenate([*(p.ravel() for p in self.parts), np.zeros(0, dtype=np.int64)], dtype=np.int64)


def trail_of(steps: Sequence[Step]) -> Trail | None:
    """The steps as arrays; None where one of them is of a kind that is not known here."""
    domains, costs, tables = _Pool(), _Pool(), _Pool()
    rows: list[tuple[int, int, int, int, int]] = []
    near: list[tuple[int, int, int, int]] = []
    near_at = [0]
    for step in reversed(steps):
        if isinstance(step, Followed):
            rows.append((FOLLOWED, step.node, domains.place(step.domain), 0, len(step.domain)))
            leader = step.leader_domain
            near.append((step.leader, domains.place(leader), len(leader), tables.place(step.partner)))
        elif isinstance(step, Eliminated):
            rows.append((ELIMINATED, step.node, domains.place(step.domain), costs.place(step.cost), len(step.domain)))
            for other, domain, table in step.neighbours:
                near.append((other, domains.place(domain), len(domain), tables.place(table)))
        else:
            return None
        near_at.append(len(near))
    kind, node, domain_at, cost_at, size = np.array(rows, dtype=np.int64).reshape(-1, 5).T.copy()
    other, near_domain_at, near_size, table_at = np.array(near, dtype=np.int64).reshape(-1, 4).T.copy()
    return Trail(
        kind, node, domain_at, cost_at, size, np.array(near_at, dtype=np.int64), other, near_domain_at, near_size,
        table_at, domains.array(), costs.array(), tables.array(),
    )  # fmt: skip


class Completion:
    """The way between positions in a flat network and original states. n: nodes of the original network."""

    def __init__(self, work: Work, flat: Flat, n: int) -> None:
        self.work, self.flat, self.n = work, flat, n
        domains = [work.domains[int(node)] for node in flat.nodes]
        self.states = np.concatenate([*domains, np.zeros(0, dtype=np.int64)], dtype=np.int64)
        self.span = int(self.states.max(initial=0)) + 1
        self.keys = np.repeat(np.arange(flat.n), flat.sizes) * self.span + self.states

    @cached_property
    def trail(self) -> Trail | None:
        """The steps of the network's trail as arrays; None where one is of a kind that is not known here."""
        return trail_of(self.work.trail)

    def complete(self, chosen: np.ndarray) -> np.ndarray:
        """Original states of all nodes, from positions in the flat network."""
        own = self.states[self.flat.offsets[:-1] + chosen]
        if self.trail is None:
            whole = self.work.complete(dict(zip(self.flat.nodes.tolist(), own.tolist(), strict=True)))
            return np.array([whole[i] for i in range(self.n)], dtype=np.int64)
        out = np.full(self.n, -1, dtype=np.int64)
        out[self.flat.nodes] = own
        self.trail.undo(out)
        return out

    def positions(self, assignment: Sequence[int] | np.ndarray) -> np.ndarray | None:
        """Positions in the flat network of original states; None where reductions dropped one of them."""
        positions, kept = self._found(assignment)
        return positions if kept.all() else None

    def nearest(self, assignment: Sequence[int] | np.ndarray) -> np.ndarray:
        """Positions of original states; where reductions dropped one, the cheapest beside the neighbours that have one.

        Pairs may be forbidden where neighbours were both dropped.
        """
        flat, (positions, placed) = self.flat, self._found(assignment)
        for node in np.flatnonzero(~placed).tolist():
            costs = flat.unary[flat.offsets[node] : flat.offsets[node + 1]].copy()
            for e in flat.incident[flat.incident_at[node] : flat.incident_at[node + 1]].tolist():
                first, second = int(flat.first[e]), int(flat.second[e])
                if placed[second if first == node else first]:
                    table = flat.tables[flat.table_at[e] :][: flat.sizes[first] * flat.sizes[second]]
                    table = table.reshape(flat.sizes[first], flat.sizes[second])
                    costs += table[:, positions[second]] if first == node else table[positions[first]]
            positions[node], placed[node] = np.argmin(costs), True
        return positions

    def _found(self, assignment: Sequence[int] | np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Positions in the flat network of original states, and for which nodes these are left."""
        own = np.asarray(assignment, dtype=np.int64)[self.flat.nodes]
        keys = np.arange(self.flat.n) * self.span + np.minimum(own, self.span - 1)
        at = np.searchsorted(self.keys, keys)
        kept = (own < self.span) & (self.keys[np.minimum(at, len(self.keys) - 1)] == keys)
        return at - self.flat.offsets[:-1], kept


@compiled
def _place(domains: np.ndarray, at: int, size: int, state: int):
    """Where a state stands in an increasing stretch of `domains`."""
    low = 0
    high = size
    while low < high:
        middle = (low + high) // 2
        if domains[at + middle] < state:
            low = middle + 1
        else:
            high = middle
    return low


@compiled
def _undo(trail: Trail, chosen: np.ndarray):
    """Fills in what the steps removed: a followed node's partner, or what is cheapest beside an eliminated one."""
    (
        kind, node, domain_at, cost_at, size, near_at, near, near_domain_at, near_size, table_at,
        domains, costs, tables,
    ) = trail  # fmt: skip
    widest = 1
    for s in range(len(size)):
        widest = max(widest, size[s])
    total = np.empty(widest, dtype=np.int64)
    for s in range(len(node)):
        if kind[s] == FOLLOWED:
            k = near_at[s]
            at = _place(domains, near_domain_at[k], near_size[k], chosen[near[k]])
            chosen[node[s]] = domains[domain_at[s] + tables[table_at[k] + at]]
            continue
        for a in range(size[s]):
            total[a] = costs[cost_at[s] + a]
        for k in range(near_at[s], near_at[s + 1]):
            at = table_at[k] + _place(domains, near_domain_at[k], near_size[k], chosen[near[k]])
            for a in range(size[s]):
                total[a] += tables[at + a * near_size[k]]
        best = 0
        for a in range(1, size[s]):
            if total[a] < total[best]:
                best = a
        chosen[node[s]] = domains[domain_at[s] + best]
