"""Which of the user's statements can hold together, and the smallest set that cannot.

A subset is judged in steps, the cheap ones first: the layouts that its statements leave (`conflicts`), the least memory
that its decisions hold, and last a search for a plan under it. A subset that the search cannot settle in its time
counts as possible; then `settled` is False, because a smaller set may exist.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from autoshard.deadline import Deadline, clock
from autoshard.errors import InfeasibleError, OutOfTimeError
from autoshard.formulation.loose import Loose, Masks
from autoshard.planning.decide import decide
from autoshard.planning.least_memory import Least, LeastMemory
from autoshard.planning.minimal import minimal_conflict
from autoshard.planning.model import Model, build_model, collect_loosely
from autoshard.planning.problem import Problem
from autoshard.search_options import SearchOptions
from autoshard.solver.network import IMPOSSIBLE, without_costs
from autoshard.solver.solution import Stopped

SEARCH_S = 12.0
"""Seconds that all searches for plans under subsets may take together."""
LEAST_S = 0.5
"""Seconds that one of them has in any case."""


@dataclass(frozen=True)
class MinimalSet:
    """A minimal set of statements that cannot hold together.

    statements: their numbers in the order of `Problem.statements`. with_limit: the memory limit belongs to the set.
    settled: every smaller set was shown to hold.
    """

    statements: tuple[int, ...]
    with_limit: bool
    settled: bool


class Subsets:
    """Subsets of a problem's statements; number ``len(problem.statements)`` stands for the memory limit.

    seconds: what all searches may take together, where that is less than `SEARCH_S`.
    """

    def __init__(self, problem: Problem, seconds: float | None = None) -> None:
        self.problem = problem
        self.limit_number = len(problem.statements)
        self.loose: Loose
        self.loose, liveness = collect_loosely(problem)
        self.memory = LeastMemory(self.loose, liveness)
        self.settled = True
        self._left_s = SEARCH_S if seconds is None else min(SEARCH_S, seconds)
        self._known: dict[tuple[int, ...], bool] = {}
        self._masks: dict[tuple[int, ...], Masks] = {}

    def smallest(self) -> MinimalSet:
        """A minimal set of statements that cannot hold together; empty where every set may hold."""
        everything = list(range(self.limit_number))
        if self.problem.memory_limit is not None:
            everything.append(self.limit_number)
        if self.surely_not(everything):
            among = minimal_conflict(everything, lambda kept: not self.surely_not(kept))
        else:
            among = everything
        self._known[tuple(everything)] = False
        self._known[tuple(sorted(among))] = False
        conflict = minimal_conflict(among, self.holds)
        statements = tuple(n for n in conflict if n != self.limit_number)
        return MinimalSet(statements, self.limit_number in conflict, self.settled)

    @property
    def surely_none(self) -> bool:
        """Whether it is proved, without any search, that no plan exists."""
        everything = list(range(self.limit_number))
        return self.surely_not([*everything, *([self.limit_number] if self.problem.memory_limit is not None else [])])

    def masks(self, kept: Sequence[int]) -> Masks:
        """For each node, the states that these statements leave."""
        key = tuple(n for n in kept if n != self.limit_number)
        if key not in self._masks:
            self._masks[key] = self.loose.masks(key)
        return self._masks[key]

    def least(self, kept: Sequence[int]) -> Least:
        """The bound on the peak under these statements."""
        return self.memory.under(self.masks(kept))

    def surely_not(self, kept: Sequence[int]) -> bool:
        """Whether it is proved, without any search, that these statements cannot hold together."""
        if any(not mask.any() for mask in self.masks(kept).values()):
            return True
        limit = self.problem.memory_limit
        return limit is not None and self.limit_number in kept and self.least(kept).bytes > limit

    def holds(self, kept: Sequence[int]) -> bool:
        """Whether these statements can hold together; True also where the search could not settle it in its time."""
        key = tuple(kept)
        if key not in self._known:
            self._known[key] = not self.surely_not(kept) and self._searched(kept)
        return self._known[key]

    def _searched(self, kept: Sequence[int]) -> bool:
        if not kept:
            return True
        began = clock()
        if self._left_s <= 0:
            self.settled = False
            return True
        try:
            return self._plan_exists(self.part(kept))
        except KeyboardInterrupt:  # go on with the set as it is by now, without further searches
            self.settled, self._left_s = False, 0.0
            return True
        finally:
            self._left_s -= clock() - began

    def part(self, kept: Sequence[int]) -> Problem:
        """The problem with some of its statements only."""
        problem, chosen = self.problem, set(kept)
        pins, groups = len(problem.pins), len(problem.groups)
        return replace(
            problem,
            pins=tuple(p for k, p in enumerate(problem.pins) if k in chosen),
            groups=tuple(g for k, g in enumerate(problem.groups) if pins + k in chosen),
            restrictions=tuple(r for k, r in enumerate(problem.restrictions) if pins + groups + k in chosen),
            memory_limit=problem.memory_limit if self.limit_number in chosen else None,
        )

    def _plan_exists(self, part: Problem) -> bool:
        deadline = Deadline.after(max(LEAST_S, self._left_s))
        try:
            model = build_model(part, deadline=deadline)
            possible = may_hold(model, deadline)
        except InfeasibleError:
            return False
        except OutOfTimeError:
            possible = None
        if possible is None:
            self.settled = False
            return True
        if not possible:
            return False
        if part.memory_limit is None:
            return True
        try:
            hard = SearchOptions().rougher(0.5, 0.3).within(deadline.left(least=LEAST_S))
            if decide(model, hard).interrupted:
                raise KeyboardInterrupt
        except InfeasibleError:
            return False
        except OutOfTimeError:  # none found is no proof
            self.settled = False
        return True


def may_hold(model: Model, deadline: Deadline) -> bool | None:
    """Whether the model has an assignment at all, memory apart: costs do not count, only what is forbidden.

    None where that could not be found out in time.
    """
    from autoshard.solver import solve

    bare = without_costs(model.with_limit(None))
    if not bare.edges and bare.usage_limit is None:
        return all((c < IMPOSSIBLE).any() for c in bare.costs)
    solution = solve(bare, effort=0.3, gap=1.0, deadline=deadline)
    if solution.stopped is Stopped.INTERRUPT:
        raise KeyboardInterrupt
    return None if solution.status == "unknown" else solution.status != "infeasible"
