"""All reductions, repeated until nothing changes or the budget of table work is used."""

import heapq
from collections.abc import Callable, Iterable

from autoshard.solver.reductions.consistency import arc_consistency, consistent_edge, usage_consistency
from autoshard.solver.reductions.dominance import compiled_comparison, dominated_states
from autoshard.solver.reductions.edges import separable_edge, separable_edges
from autoshard.solver.reductions.elimination import eliminate, fix_single
from autoshard.solver.reductions.follow import follow_all
from autoshard.solver.reductions.slots import fewer_slots
from autoshard.solver.work import Work

MOST_COMPARED = 3
"""How often one node's states are compared: later comparisons find little and cost as much."""
MANY_NODES = 200
"""Networks with more nodes left than this are worth compiled code: it takes 0.4 of the time, and within a memory limit
a network is reduced dozens of times."""
FEW_SLOTS = 0.05
"""Slots are compared again when the last comparison removed more than this share of those that are left."""
MOST_GROWTH = 4
SPARE_ENTRIES = 4096
"""A node with two neighbours is kept where its elimination adds a table more than so many times as large as the two
that go, and so many entries more."""
REVISITED_DEGREE = 16
"""Neighbours of a changed node are looked at again up to this degree: hubs would cost more than they give."""


# complexity: the cheapest reduction that fits comes first, so its conditions belong in one chain
def reduce_network(
    work: Work,
    *,
    dominance: int = 2_000_000,
    elimination: int = 2_000_000_000,
    renumber: bool = True,
    check: Callable[[], None] | None = None,
    enough: Callable[[], bool] = lambda: False,
) -> None:
    """All reductions until nothing changes, cheapest nodes first.

    dominance: most comparisons spent on one node. elimination: most additions spent on two-neighbour
    eliminations altogether (then only cheaper reductions go on). renumber: may drop time slots.
    check: called between steps; may raise to stop. enough: asked between steps; ends it where it stands (every state
    is a valid network). Raises `Infeasible`.
    """
    arc_consistency(work)
    follow_all(work)
    usage_consistency(work)
    separable_edges(work)
    while renumber and fewer_slots(work) > FEW_SLOTS * work.slots:
        pass
    heap = [(len(work.tables[i]), i) for i in work.nodes()]
    heapq.heapify(heap)
    waiting = {i for _, i in heap}

    def again(nodes: Iterable[int]) -> None:
        for t in nodes:
            if work.costs[t] is not None and t not in waiting:
                waiting.add(t)
                heapq.heappush(heap, (len(work.tables[t]), t))

    compared = dict.fromkeys(waiting, 0)
    compare = compiled_comparison if len(waiting) > MANY_NODES else None
    while heap and not enough():
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
        elif compared[node] < MOST_COMPARED:
            compared[node] += 1
            if not dominated_states(work, node, dominance, compare):
                continue
            before = {node: d}
        else:
            continue
        shrunk = {j for j, size in before.items() if len(work.domains[j]) < size}
        shrunk |= _spread(work, shrunk)
        touched = shrunk | set(before)
        again(t for t in sorted(touched) if len(work.tables[t]) <= REVISITED_DEGREE)
        for t in sorted(shrunk):  # a smaller domain may make an edge separable, or a neighbour's state dominated
            if len(work.tables[t]) <= REVISITED_DEGREE and work.costs[t] is not None:
                neighbours = list(work.tables[t])
                separable_edges(work, [t])
                again(u for u in neighbours if len(work.tables[u]) <= REVISITED_DEGREE)


def _affordable(work: Work, node: int, budget: int) -> int:
    """Additions needed to eliminate a node with two neighbours; 0 when too many or the tables would grow much."""
    i, j = work.tables[node]
    product = len(work.domains[i]) * len(work.domains[j])
    before = work.tables[node][i].size + work.tables[node][j].size
    grows = 0 if j in work.tables[i] else product
    work_needed = product * len(work.domains[node])
    return 0 if work_needed > budget or grows > MOST_GROWTH * before + SPARE_ENTRIES else work_needed


def _spread(work: Work, nodes: set[int]) -> set[int]:
    """Arc consistency from nodes whose domains have shrunk; returns the nodes that shrank in turn."""
    if not nodes:
        return set()
    before = {j: len(work.domains[j]) for i in nodes if work.costs[i] is not None for j in work.tables[i]}
    if not arc_consistency(work, sorted(i for i in nodes if work.costs[i] is not None)):
        return set()
    return {j for j, d in before.items() if len(work.domains[j]) < d}
