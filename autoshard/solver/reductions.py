"""Exact reductions: each keeps the optimum, and its step can bring the removed node back.

Consistency (strategies without support, memory that cannot fit), separable edges, dominated
strategies, and elimination of nodes with up to two neighbours that hold no memory. Tables stay
exact integers. `reduce_network` repeats them until nothing changes or the budget of table work is used.
"""

import heapq
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from autoshard.solver.work import FORBIDDEN, FORBIDDEN_FROM, Held, Infeasible, Work, clipped


@dataclass(frozen=True, slots=True)
class Eliminated:
    """A node whose best choice follows from its neighbours' choices."""

    node: int
    cost: np.ndarray
    domain: np.ndarray
    neighbours: tuple[tuple[int, np.ndarray, np.ndarray], ...]
    """(neighbour, its domain then, table [node, neighbour])."""

    def invert(self, choice: dict[int, int]) -> None:
        total = self.cost
        for other, domain, table in self.neighbours:
            total = total + table[:, np.searchsorted(domain, choice[other])]
        choice[self.node] = int(self.domain[int(np.argmin(total))])


@dataclass(frozen=True, slots=True)
class Followed:
    """A node whose strategy follows from another's: `domain[partner[b]]` when that one has `leader_domain[b]`."""

    node: int
    domain: np.ndarray
    leader: int
    leader_domain: np.ndarray
    partner: np.ndarray

    def invert(self, choice: dict[int, int]) -> None:
        at = np.searchsorted(self.leader_domain, choice[self.leader])
        choice[self.node] = int(self.domain[self.partner[at]])


def functional(table: np.ndarray) -> bool:
    """Whether every column allows exactly one row: the row node's strategy follows from the column node's."""
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
    return joined


def follow_all(work: Work) -> int:
    """Merge every node that a neighbour determines, where that does not enlarge the tables; returns how many."""
    merged = 0
    queue = dict.fromkeys(sorted(work.nodes(), key=lambda i: (len(work.tables[i]), i)))
    while queue:
        node = next(iter(queue))
        del queue[node]
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
        queue.update(dict.fromkeys([leader, *around]))
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


def compressed(held: Sequence[Held]) -> tuple[Held, ...]:
    """Equal intervals added up; intervals that touch and hold the same amounts joined."""
    if len(held) < 2:
        return tuple(held)
    total: dict[tuple[int, int], np.ndarray] = {}
    for h in held:
        have = total.get((h.start, h.stop))
        total[h.start, h.stop] = h.amounts if have is None else have + h.amounts
    ending: dict[tuple[int, bytes], list[int]] = {}  # starts of what ends there with these amounts
    for (start, stop), amounts in sorted(total.items(), key=lambda item: item[0]):
        key = amounts.tobytes()
        before = ending.get((start, key))
        ending.setdefault((stop, key), []).append(before.pop() if before else start)
    joined = [
        Held(start, stop, np.frombuffer(key, dtype=np.int64))
        for (stop, key), starts in ending.items()
        for start in starts
    ]
    return tuple(sorted(joined, key=lambda h: (h.start, h.stop)))


def arc_consistency(work: Work, nodes: Iterable[int] | None = None) -> int:
    """Remove strategies that some edge leaves without a partner; returns how many went."""
    queue = dict.fromkeys(work.nodes() if nodes is None else nodes)
    removed = 0
    while queue:
        i = next(iter(queue))
        del queue[i]
        for j in list(work.tables[i]):  # strategies of j need a partner in i
            table = work.tables[i][j]
            if np.maximum.reduce(table, axis=None) < FORBIDDEN_FROM:  # most tables forbid nothing
                continue
            supported = np.asarray(np.minimum.reduce(table, axis=0) < FORBIDDEN_FROM)
            if supported.all():
                continue
            if not supported.any():
                raise Infeasible(
                    f"the edge between nodes {min(i, j)} and {max(i, j)} forbids every pair of strategies "
                    f"that is left ({len(work.domains[i])} x {len(work.domains[j])})"
                )
            removed += int((~supported).sum())
            work.keep(j, supported)
            queue[j] = None
    return removed


def least_usage(work: Work) -> np.ndarray:
    """Per time slot the sum of every node's smallest amount: a lower bound on what is live."""
    delta = np.zeros(work.slots + 1, dtype=np.int64)
    for i in work.nodes():
        for h in work.held[i]:
            low = h.amounts.min()
            delta[h.start] += low
            delta[h.stop] -= low
    return np.cumsum(delta)[:-1]


def undominated_slots(work: Work) -> int:
    """Keep only the time slots whose set of live usages is in no other's; how many go (0 with negative amounts)."""
    if work.limit is None or not work.slots:
        return 0
    begins = np.zeros(work.slots + 1, dtype=bool)
    ends = np.zeros(work.slots + 1, dtype=bool)
    for i in work.nodes():
        for h in work.held[i]:
            if h.amounts.min() < 0:
                return 0
            begins[h.start] = True
            ends[h.stop] = True
    kept, fresh = [], False
    for slot in range(work.slots):  # a maximal set: something began since the last one, and something ends now
        fresh |= bool(begins[slot])
        if fresh and ends[slot + 1]:
            kept.append(slot)
            fresh = False
    gone = work.slots - len(kept)
    only_slots(work, kept)
    return gone


def only_slots(work: Work, kept: Sequence[int]) -> None:
    """Forget all time slots but `kept` (increasing): a relaxation, unless the others cannot bind."""
    keep = np.array(kept, dtype=np.int64)
    for i in work.nodes():
        if work.held[i]:
            starts = np.searchsorted(keep, [h.start for h in work.held[i]])
            stops = np.searchsorted(keep, [h.stop for h in work.held[i]])
            work.held[i] = compressed(
                [
                    Held(int(a), int(b), h.amounts)
                    for a, b, h in zip(starts, stops, work.held[i], strict=True)
                    if a < b and h.amounts.any()
                ]
            )
    work.slots = len(keep)
    if not work.slots:
        work.limit = None


def loose_slots(work: Work) -> int:
    """Forget the slots that stay within the limit whatever is chosen; returns how many."""
    if work.limit is None or not work.slots:
        return 0
    delta = np.zeros(work.slots + 1, dtype=np.int64)
    for i in work.nodes():
        for h in work.held[i]:
            high = h.amounts.max()
            delta[h.start] += high
            delta[h.stop] -= high
    kept = np.flatnonzero(np.cumsum(delta)[:-1] > work.limit)
    gone = work.slots - len(kept)
    if gone:
        only_slots(work, kept.tolist())
    return gone


def usage_consistency(work: Work) -> int:
    """Remove strategies that exceed the limit even when every other node takes its least."""
    if work.limit is None:
        return 0
    removed = 0
    while True:
        least = least_usage(work)
        if len(least) and int(least.max()) > work.limit:
            raise Infeasible(
                f"memory: at least {int(least.max())} is live at once whatever is chosen, the limit is {work.limit}"
            )
        went = 0
        for i in work.nodes():
            if not work.held[i]:
                continue
            fits = np.ones(len(work.domains[i]), dtype=bool)
            for h in work.held[i]:
                fits &= h.amounts - h.amounts.min() <= work.limit - int(least[h.start : h.stop].max())
            if len(work.held[i]) > 1 and not fits.any():
                raise Infeasible(f"memory: no strategy of node {i} fits beside the least of all others")
            if not fits.all():
                went += int((~fits).sum())
                work.keep(i, fits)
        removed += went
        if not went:
            return removed
        arc_consistency(work)


def separable_edge(work: Work, i: int, j: int) -> bool:
    """Fold the edge into its nodes if it has the form row + column."""
    table = work.tables[i][j]
    row, column = table[:, 0], table[0, :]
    # cheap refusals first: most edges are not separable
    if row[0] >= FORBIDDEN_FROM or row[-1] >= FORBIDDEN_FROM or column[-1] >= FORBIDDEN_FROM:
        return False
    if table[-1, -1] - row[-1] - column[-1] + row[0]:
        return False
    if (row >= FORBIDDEN_FROM).any() or (column >= FORBIDDEN_FROM).any():
        return False
    if not np.array_equal(table, row[:, None] + (column - row[0])[None, :]):
        return False
    work.costs[i] = work.cost(i) + row
    work.costs[j] = work.cost(j) + (column - row[0])
    work.drop_edge(i, j)
    return True


def separable_edges(work: Work, nodes: Iterable[int] | None = None) -> int:
    """Fold all edges of the form row + column into their nodes; returns how many vanished."""
    every = nodes is None
    return sum(
        separable_edge(work, i, j)
        for i in list(work.nodes() if nodes is None else nodes)
        for j in list(work.tables[i])
        if i < j or not every
    )


def consistent_edge(work: Work, i: int, j: int) -> None:
    """Arc consistency of one edge."""
    if np.maximum.reduce(work.tables[i][j], axis=None) < FORBIDDEN_FROM:
        return
    for a, b in ((i, j), (j, i)):
        supported = np.asarray(np.minimum.reduce(work.tables[a][b], axis=1) < FORBIDDEN_FROM)
        if not supported.any():
            raise Infeasible(f"nodes {i} and {j} have no pair of strategies that the nodes between them allow")
        if not supported.all():
            work.keep(a, supported)


def dominated_strategies(work: Work, node: int, budget: int = 2_000_000) -> int:
    """Remove strategies that another one beats whatever the neighbours choose, with no more memory.

    Of equal strategies the first stays. Skipped (0) when the comparison needs more than `budget` operations.
    """
    cost = work.cost(node)
    d = len(cost)
    if d < 2 or d * d * len(work.tables[node]) > budget:
        return 0
    width = sum(t.shape[1] for t in work.tables[node].values()) + len(work.held[node]) + 1
    if d * d * width > budget:
        return 0
    # worse[a, b]: how much b can cost more than a
    worse = cost[None, :] - cost[:, None]
    for table in work.tables[node].values():
        difference = table[None, :, :] - table[:, None, :]
        worse = worse + difference.max(axis=2)
        worse = np.minimum(worse, FORBIDDEN)  # forbidden for b where a is allowed: never dominated
    beats = worse <= 0
    if work.limit is not None:
        for h in work.held[node]:
            beats &= h.amounts[None, :] <= h.amounts[:, None]
    order = np.arange(d)
    strictly = beats & (~beats.T | (order[None, :] < order[:, None]))
    keep = np.asarray(~strictly.any(axis=1))
    if keep.all():
        return 0
    work.keep(node, keep)
    return int((~keep).sum())


def min_plus(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """out[a, b] = min over x of left[a, x] + right[x, b], forbidden entries kept."""
    left = np.ascontiguousarray(left)
    right = np.ascontiguousarray(right)
    out = left[:, :1] + right[:1, :]
    scratch = np.empty_like(out)
    for x in range(1, left.shape[1]):
        np.add(left[:, x : x + 1], right[x : x + 1, :], out=scratch)
        np.minimum(out, scratch, out=out)
    return clipped(out)


def eliminate(work: Work, node: int) -> None:
    """Remove a node with at most two neighbours and no memory."""
    others = tuple(work.tables[node])
    assert len(others) <= 2 and not (work.limit is not None and work.held[node])
    cost = work.cost(node)
    step = Eliminated(node, cost, work.domains[node], tuple((j, work.domains[j], work.tables[node][j]) for j in others))
    if not others:
        best = int(cost.min())
        work.constant += best
    elif len(others) == 1:
        (j,) = others
        folded = (cost[:, None] + work.tables[node][j]).min(axis=0)
        work.costs[j] = clipped(work.cost(j) + clipped(folded))
    else:
        i, j = others
        table = min_plus((cost[:, None] + work.tables[node][i]).T, work.tables[node][j])
        work.add_edge(i, j, table)
    work.remove(node, step)
    for j in others:
        _drop_forbidden(work, j, node)


def _drop_forbidden(work: Work, node: int, because: int) -> None:
    mask = work.cost(node) < FORBIDDEN_FROM
    if not mask.any():
        raise Infeasible(f"node {node} has no strategy left that its neighbour {because} allows")
    if not mask.all():
        work.keep(node, mask)


def fix_single(work: Work, node: int) -> None:
    """Fold a node with one strategy left and no memory into its neighbours, whatever its degree."""
    others = tuple(work.tables[node])
    step = Eliminated(node, work.cost(node), work.domains[node], ())
    work.constant += int(work.cost(node)[0])
    for j in others:
        work.costs[j] = clipped(work.cost(j) + work.tables[node][j][0])
    work.remove(node, step)
    for j in others:
        _drop_forbidden(work, j, node)


def reduce_network(
    work: Work,
    *,
    dominance: int = 2_000_000,
    elimination: int = 2_000_000_000,
    renumber: bool = True,
    check: Callable[[], None] | None = None,
) -> None:
    """All reductions until nothing changes, cheapest nodes first.

    dominance: most comparisons spent on one node. elimination: most additions spent on two-neighbour
    eliminations altogether (then only cheaper reductions go on). renumber: may drop time slots.
    check: called between steps; may raise to stop. Raises `Infeasible`.
    """
    arc_consistency(work)
    follow_all(work)
    usage_consistency(work)
    separable_edges(work)
    while renumber and undominated_slots(work) + loose_slots(work):
        pass
    heap = [(len(work.tables[i]), i) for i in work.nodes()]
    heapq.heapify(heap)
    waiting = {i for _, i in heap}

    def again(nodes: Iterable[int]) -> None:
        for t in nodes:
            if work.costs[t] is not None and t not in waiting:
                waiting.add(t)
                heapq.heappush(heap, (len(work.tables[t]), t))

    while heap:
        if check is not None:
            check()
        _, node = heapq.heappop(heap)
        waiting.discard(node)
        if work.costs[node] is None:
            continue
        free = work.limit is None or not work.held[node]
        degree = len(work.tables[node])
        d = len(work.domains[node])
        before = {j: len(work.domains[j]) for j in work.tables[node]} if (free and degree <= 2) or d == 1 else {}
        if free and d == 1:
            fix_single(work, node)
        elif free and degree <= 1:
            eliminate(work, node)
        elif free and degree == 2 and (product := _affordable(work, node, elimination)):
            elimination -= product
            i, j = work.tables[node]
            eliminate(work, node)
            consistent_edge(work, i, j)
            if j in work.tables[i]:
                separable_edge(work, i, j)
        elif dominated_strategies(work, node, dominance):
            before = {node: d}
        else:
            continue
        shrunk = {j for j, size in before.items() if len(work.domains[j]) < size}
        shrunk |= _spread(work, shrunk)
        touched = shrunk | set(before)
        again(t for t in sorted(touched) if len(work.tables[t]) <= REVISITED_DEGREE)
        for t in sorted(shrunk):  # a smaller domain may make an edge separable, or a neighbour's strategy dominated
            if len(work.tables[t]) <= REVISITED_DEGREE and work.costs[t] is not None:
                neighbours = list(work.tables[t])
                separable_edges(work, [t])
                again(u for u in neighbours if len(work.tables[u]) <= REVISITED_DEGREE)


REVISITED_DEGREE = 16
"""Neighbours of a changed node are looked at again up to this degree: hubs would cost more than they give."""


def _affordable(work: Work, node: int, budget: int) -> int:
    """Additions needed to eliminate a node with two neighbours; 0 when too many or the tables would grow much."""
    i, j = work.tables[node]
    product = len(work.domains[i]) * len(work.domains[j])
    before = work.tables[node][i].size + work.tables[node][j].size
    grows = 0 if j in work.tables[i] else product
    work_needed = product * len(work.domains[node])
    return 0 if work_needed > budget or grows > 4 * before + 4096 else work_needed


def _spread(work: Work, nodes: set[int]) -> set[int]:
    """Arc consistency from nodes whose domains have shrunk; returns the nodes that shrank in turn."""
    if not nodes:
        return set()
    before = {j: len(work.domains[j]) for i in nodes if work.costs[i] is not None for j in work.tables[i]}
    if not arc_consistency(work, sorted(i for i in nodes if work.costs[i] is not None)):
        return set()
    return {j for j, d in before.items() if len(work.domains[j]) < d}
