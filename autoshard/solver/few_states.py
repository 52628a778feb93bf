"""Few states of every node, where a network is too large to be searched as it is.

Messages over the whole network say which states look best, or that no others are part of a better assignment. The
network of these alone is small, and soon searched; its assignments are those of the whole network.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from autoshard.solver.network import CostNetwork
from autoshard.solver.solution import Solution

States = Sequence[np.ndarray]
"""Per node of a network some of its states, in order."""


def union(sets: Sequence[States], assignments: Sequence[Sequence[int]]) -> list[np.ndarray]:
    """The states of every node that are in one of the sets, or part of an assignment."""
    chosen = [[np.array([state], dtype=np.int64) for state in one] for one in assignments]
    return [np.unique(np.concatenate(node)) for node in zip(*sets, *chosen, strict=True)]


class Few:
    """A network with these states alone, and the way back to the whole one."""

    def __init__(self, whole: CostNetwork, states: States) -> None:
        self.network, self.states = whole.restricted(states), states

    def within(self, assignments: Sequence[Sequence[int]]) -> list[list[int]]:
        """Those of the assignments whose states are all here, by their numbers here."""
        places = [{int(state): k for k, state in enumerate(node)} for node in self.states]
        fitting = [one for one in assignments if all(int(x) in at for x, at in zip(one, places, strict=True))]
        return [[at[int(x)] for x, at in zip(one, places, strict=True)] for one in fitting]

    def back(self, solution: Solution) -> Solution:
        """A solution as one of the whole network; without its proof, which is not of that."""

        def whole(one: Sequence[int]) -> tuple[int, ...]:
            return tuple(int(node[x]) for node, x in zip(self.states, one, strict=True))

        best = None if solution.assignment is None else whole(solution.assignment)
        return replace(solution, assignment=best, earlier=tuple(map(whole, solution.earlier)), proof=None)
