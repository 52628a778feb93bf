"""Descent over facets: keep all but one or two facets of every node, solve what is then open, repeat.

A facet is a label per state (the planner gives one per mesh axis); restricting every node to the states that
agree with the incumbent in all other facets leaves a small network that can be solved exactly or nearly so.
"""

import itertools
from collections.abc import Sequence

import numpy as np

from autoshard.solver.engines.exact import solve_work
from autoshard.solver.incumbent import Race
from autoshard.solver.network import CostNetwork
from autoshard.solver.reductions import reduce_network
from autoshard.solver.work import Infeasible, from_network

MOST_COMPARED = 200_000
MOST_ELIMINATED = 50_000_000
"""The most additions that reductions of one restricted network may take (see `reduce_network`)."""
LEAST_SECONDS = 0.1
"""Seconds that an engine gets at least."""


def facet_count(network: CostNetwork) -> int:
    """The number of facets of the node that has most of them."""
    return max((f.shape[1] for f in network.facets if f is not None), default=0)


def agreeing(network: CostNetwork, assignment: Sequence[int], free: Sequence[int]) -> list[np.ndarray | None]:
    """Per node the states that share every facet outside `free` with the assignment (nodes without facets: all)."""
    count = facet_count(network)
    fixed = [f for f in range(count) if f not in free]
    out: list[np.ndarray | None] = []
    for facets, choice in zip(network.facets, assignment, strict=True):
        if facets is None:
            out.append(None)
            continue
        columns = [f for f in fixed if f < facets.shape[1]]
        out.append((facets[:, columns] == facets[choice, columns]).all(axis=1))
    return out


def solve_restricted(
    race: Race, allowed: Sequence[np.ndarray | None], *, upper: int | None, backtracks: int, largest: int
) -> tuple[int, ...] | None:
    """The best assignment found within `allowed`, cheaper than `upper`; None when none is found or it is too large."""
    race.check()
    try:
        work = from_network(race.network, allowed)
        reduce_network(work, dominance=MOST_COMPARED, elimination=MOST_ELIMINATED)
    except Infeasible:
        return None
    if not work.nodes():
        choice = work.complete({})
        return tuple(choice[i] for i in range(race.network.n_nodes))
    if work.entries() > largest:
        return None
    result = solve_work(work, upper=upper, backtracks=backtracks, seconds=max(LEAST_SECONDS, race.left()), slots=[])
    if result is None or result[0] is None:
        return None
    return tuple(result[0][i] for i in range(race.network.n_nodes))


def build_up(race: Race, *, backtracks: int, largest: int) -> bool:
    """From scratch: facet by facet, the later ones at label 0 ("nothing chosen") where a node has such a state."""
    network = race.network
    count = facet_count(network)
    plain: list[np.ndarray | None] = []
    current: tuple[int, ...] | None = None
    improved = False
    for stage in range(count):
        plain = []
        for node, facets in enumerate(network.facets):
            if facets is None:
                plain.append(None)
                continue
            mask = np.ones(len(facets), dtype=bool)
            if current is not None:
                columns = range(min(stage, facets.shape[1]))
                mask &= (facets[:, list(columns)] == facets[current[node], list(columns)]).all(axis=1)
            later = (facets[:, stage + 1 :] == 0).all(axis=1) & mask
            plain.append(later if later.any() else mask)
        assignment = solve_restricted(race, plain, upper=None, backtracks=backtracks, largest=largest)
        if assignment is None:
            return improved
        current = assignment
        improved |= race.offer(current)
    return improved


def descend(race: Race, *, pairs: bool, backtracks: int, largest: int) -> None:
    """Sweep over single facets, then pairs, until no restriction improves the incumbent."""
    network = race.network
    count = facet_count(network)
    sizes = [1, 2] if pairs and count > 2 else [1]
    for size in sizes:
        groups = list(itertools.combinations(range(count), size))
        idle = 0
        k = 0
        while idle < len(groups):
            if race.assignment is None:
                return
            allowed = agreeing(network, race.assignment, groups[k % len(groups)])
            assignment = solve_restricted(race, allowed, upper=race.cost, backtracks=backtracks, largest=largest)
            idle = 0 if assignment is not None and race.offer(assignment) else idle + 1
            k += 1
