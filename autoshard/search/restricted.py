"""Solving a network of which only some states are left, within the memory limit."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autoshard.costs.memory import MemoryProfile
from autoshard.deadline import Deadline
from autoshard.errors import NotFoundError
from autoshard.planning import Model, name_nodes
from autoshard.program.schedule import Schedule
from autoshard.search_options import ACCEPTED_GAP
from autoshard.solver.solution import Solution, Stopped

MEMORY_ROUNDS = 4
"""How often the limit is tightened for copies that the network does not count."""
EFFORT = 0.05
"""Effort of the solver: reductions decide most of what is left open."""
LEAST_S = 1.0
"""Least seconds of one search, however late it begins."""


@dataclass(frozen=True)
class Restricted:
    """The best assignment found among the states that were left.

    timed_out: the wall clock ended a search for it.
    """

    solution: Solution
    assignment: tuple[int, ...]
    schedule: Schedule
    memory: MemoryProfile
    timed_out: bool


class CannotBe(NotFoundError):
    """No plan was found among the states that were left, which proves nothing about other states.

    timed_out: the wall clock ended the search. exhausted: it is proved that none of these states gives a plan.
    """

    def __init__(self, message: str, timed_out: bool = False, *, exhausted: bool = False) -> None:
        super().__init__(message)
        self.timed_out, self.exhausted = timed_out, exhausted


def best_within(
    model: Model, allowed: Sequence[np.ndarray], *, deadline: Deadline | None = None, effort: float = EFFORT
) -> Restricted:
    """The best assignment with `allowed` states (per node of the model's network) that is within the memory limit.

    Raises `CannotBe` where none is found.
    """
    limit = model.problem.memory_limit
    best = unlimited(model, allowed, deadline=deadline, effort=effort)
    slack = 0
    for attempt in range(MEMORY_ROUNDS):
        if limit is None or best.memory.peak_bytes <= limit:
            break
        if attempt:  # make room for copies that one op alone makes: the network does not count them
            slack += best.memory.peak_bytes - limit
        try:
            best = _search(model, allowed, limit - slack, deadline, effort, best.timed_out, whole=not slack)
        except CannotBe as error:
            if not slack:
                raise
            raise _over(best, limit, error.timed_out) from None  # nobody stated the tightened limit
    if limit is not None and best.memory.peak_bytes > limit:
        raise _over(best, limit, best.timed_out)
    return best


def _over(best: Restricted, limit: int, timed_out: bool) -> CannotBe:
    memory = best.memory
    return CannotBe(f"it holds {memory.peak_bytes} bytes at {memory.where}, the limit is {limit} bytes", timed_out)


def unlimited(
    model: Model, allowed: Sequence[np.ndarray], *, deadline: Deadline | None = None, effort: float = EFFORT
) -> Restricted:
    """The best assignment with `allowed` states, whatever memory it takes; `CannotBe` where there is none."""
    for cls, keep in enumerate(allowed):
        if not len(keep):
            node = model.collected.nodes[model.repeats.representative(cls)]
            raise CannotBe(f"the statements leave no layout for {node.kind.value} {node.label}", exhausted=True)
    return _search(model, allowed, None, deadline, effort, False)


def _search(
    model: Model,
    allowed: Sequence[np.ndarray],
    limit: int | None,
    deadline: Deadline | None,
    effort: float,
    late: bool,
    *,
    whole: bool = True,
) -> Restricted:
    """One search within a limit.

    whole: the limit is the user's and not one tightened for copies, so finding no plan within it proves that none
    exists.
    """
    from autoshard.solver import solve

    network = model.with_limit(limit).restricted(allowed)
    until = None if deadline is None else deadline.part(1.0, least=LEAST_S)
    solution = solve(network, effort=effort, gap=ACCEPTED_GAP, deadline=until)
    timed_out = late or solution.stopped is Stopped.TIME
    if solution.stopped is Stopped.INTERRUPT:
        raise KeyboardInterrupt
    if solution.assignment is None:
        exhausted = whole and solution.status == "infeasible"
        reason = name_nodes(model, solution.reason or "no assignment was found")
        raise CannotBe(reason, timed_out, exhausted=exhausted)
    assignment = tuple(int(keep[choice]) for keep, choice in zip(allowed, solution.assignment, strict=True))
    schedule = model.schedule(assignment)
    return Restricted(solution, assignment, schedule, model.simulate(schedule), timed_out)
