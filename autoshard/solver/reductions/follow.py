"""Nodes whose state follows from a neighbour's are merged into it, with their edges and their memory.

`Followed.invert` reads their state off the neighbour's.
"""

from collections import deque
from dataclasses import dataclass

import numpy as np

from autoshard.solver.reductions.consistency import arc_consistency, consistent_edge
from autoshard.solver.reductions.slots import compressed
from autoshard.solver.work import FORBIDDEN_FROM, Held, Work


@dataclass(frozen=True, slots=True)
class Followed:
    """A node whose state follows from another's: `domain[partner[b]]` when that one has `leader_domain[b]`."""

    node: int
    domain: np.ndarray
    leader: int
    leader_domain: np.ndarray
    partner: np.ndarray

    def invert(self, choice: dict[int, int]) -> None:
        """Read the node's state off its leader's."""
        at = np.searchsorted(self.leader_domain, choice[self.leader])
        choice[self.node] = int(self.domain[self.partner[at]])


def functional(table: np.ndarray) -> bool:
    """Whether every column allows exactly one row: the row node's state follows from the column node's."""
    rows, columns = table.shape
    if rows > columns or (rows > 1 and table[0, 0] < FORBIDDEN_FROM and table[1, 0] < FORBIDDEN_FROM):
        return False
    allowed = table < FORBIDDEN_FROM
    return np.count_nonzero(allowed) == columns and bool(allowed.any(axis=0).all())


def follow(work: Work, node: int, leader: int) -> list[int]:
    """Merge a node into the leader that determines it (see `functional`), with its edges and its memory.

    Returns the nodes whose edge with the leader got new costs added.
    """
    table = work.tables[node][leader]
    partner = np.argmax(table < FORBIDDEN_FROM, axis=0)
    columns = np.arange(table.shape[1])
    work.costs[leader] = work.cost(leader) + work.cost(node)[partner] + table[partner, columns]
    identity = len(partner) == table.shape[0] and bool((partner == columns).all())
    joined = []
    for other, costs in list(work.tables[node].items()):
        if other != leader:
            if other in work.tables[leader]:
                joined.append(other)
            work.add_edge(leader, other, costs if identity else costs[partner])
    own = work.held[node]
    if own:  # the leader's list grows in place: hubs gather thousands
        gathered = work.held[leader]
        if not isinstance(gathered, list):
            gathered = work.held[leader] = list(gathered)
        gathered.extend(own if identity else [Held(h.start, h.stop, h.amounts[partner]) for h in own])
    work.remove(node, Followed(node, work.domains[node], leader, work.domains[leader], partner))
    work.note("follow", node, leader)
    return joined


def follow_all(work: Work) -> int:
    """Merge every node that a neighbour determines, where that does not enlarge the tables; returns how many."""
    merged = 0
    waiting = deque(sorted(work.nodes(), key=lambda i: (len(work.tables[i]), i)))
    inside = set(waiting)
    while waiting:
        node = waiting.popleft()
        inside.discard(node)
        if work.costs[node] is None:
            continue
        leader = _leader(work, node)
        if leader < 0:
            continue
        around = [k for k in work.tables[node] if k != leader]
        for k in follow(work, node, leader):
            sizes = (len(work.domains[leader]), len(work.domains[k]))
            consistent_edge(work, leader, k)
            if sizes != (len(work.domains[leader]), len(work.domains[k])):
                arc_consistency(work, [leader, k])
        merged += 1
        for again in (leader, *around):
            if again not in inside:
                inside.add(again)
                waiting.append(again)
    for node in work.nodes():
        work.held[node] = compressed(work.held[node])
    return merged


def _leader(work: Work, node: int) -> int:
    """A neighbour that determines the node and may take it over, or -1."""
    size = len(work.domains[node])
    degree = len(work.tables[node])
    best = -1
    for other, table in work.tables[node].items():
        growth = table.shape[1] - size
        if growth < 0 or (growth == 0 and degree > len(work.tables[other])):
            continue
        if growth * (degree - 1) > table.size or not functional(table):  # hubs are refused without a look around
            continue
        if growth:
            elsewhere = sum(len(work.domains[k]) for k in work.tables[node] if k != other)
            if growth * elsewhere > table.size:
                continue
        if best < 0 or (len(work.tables[other]), -other) > (len(work.tables[best]), -best):
            best = other
    return best
