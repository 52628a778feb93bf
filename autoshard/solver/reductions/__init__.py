"""Exact reductions: each keeps the optimum, and what it removed can be brought back.

Every reduction is *applied* by a function that rewrites a `Work` in place (tables stay exact integers, states keep
their original indices) and is *inverted* by the `Step` it leaves in `Work.trail`: `Work.complete` runs them backwards.
A reduction that only drops states, edges or time slots leaves no step: its inverse is the identity.
"""

from collections.abc import Callable
from dataclasses import dataclass

from autoshard.solver.reductions.consistency import arc_consistency, consistent_edge, least_usage, usage_consistency
from autoshard.solver.reductions.dominance import dominated_states
from autoshard.solver.reductions.edges import separable_edge, separable_edges
from autoshard.solver.reductions.elimination import Eliminated, eliminate, fix_single, min_plus
from autoshard.solver.reductions.fixpoint import reduce_network
from autoshard.solver.reductions.follow import Followed, follow, follow_all, functional
from autoshard.solver.reductions.slots import compressed, fewer_slots, loose_slots, only_slots, undominated_slots
from autoshard.solver.work import Step, Work


@dataclass(frozen=True, slots=True)
class Reduction:
    """A reduction and its inverse.

    apply: reduces a network wherever it can, until nothing changes; returns how much was removed. step: the kind of
    step that it leaves in the trail, whose `invert` completes an assignment; None where nothing has to be undone.
    """

    apply: Callable[[Work], int]
    step: type[Step] | None = None

    @staticmethod
    def invert(work: Work, choice: dict[int, int]) -> dict[int, int]:
        """Original states of all nodes, from those of the remaining ones."""
        return work.complete(choice)


def _dominance(work: Work) -> int:
    return sum(dominated_states(work, node) for node in work.nodes())


def _elimination(work: Work) -> int:
    before = len(work.trail)
    for node in work.nodes():
        if len(work.tables[node]) <= 2 and (work.limit is None or not work.held[node]):
            eliminate(work, node)
    return len(work.trail) - before


def _single(work: Work) -> int:
    before = len(work.trail)
    for node in work.nodes():
        if len(work.domains[node]) == 1 and (work.limit is None or not work.held[node]):
            fix_single(work, node)
    return len(work.trail) - before


REDUCTIONS = {
    "arc_consistency": Reduction(arc_consistency),
    "usage_consistency": Reduction(usage_consistency),
    "separable_edges": Reduction(separable_edges),
    "dominance": Reduction(_dominance),
    "elimination": Reduction(_elimination, Eliminated),
    "single": Reduction(_single, Eliminated),
    "follow": Reduction(follow_all, Followed),
    "undominated_slots": Reduction(undominated_slots),
    "loose_slots": Reduction(loose_slots),
    "fewer_slots": Reduction(fewer_slots),
}
"""Each reduction by itself; `reduce_network` interleaves them."""

__all__ = [
    "REDUCTIONS",
    "Eliminated",
    "Followed",
    "Reduction",
    "arc_consistency",
    "compressed",
    "consistent_edge",
    "dominated_states",
    "eliminate",
    "fewer_slots",
    "fix_single",
    "follow",
    "follow_all",
    "functional",
    "least_usage",
    "loose_slots",
    "min_plus",
    "only_slots",
    "reduce_network",
    "separable_edge",
    "separable_edges",
    "undominated_slots",
    "usage_consistency",
]
