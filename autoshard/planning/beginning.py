"""A first plan within a memory limit, before the rounds of a search that knows what several decisions hold together.

Three kinds of searches look for one, the cheapest first: of the network as it is, which knows nothing of copies
(`_loosely`); of networks that know what is held at the moments at which the last answer was too full (`_quickly`); and,
where none of these has an answer, of all moments at once, whatever a plan costs (`_at_all`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

from autoshard.deadline import Deadline
from autoshard.formulation.memory import leaves_something
from autoshard.planning import fitting
from autoshard.planning.decision import Known, Search, cheaper, earlier_fit, interrupted_in
from autoshard.planning.model import Model
from autoshard.planning.no_plan import no_answer
from autoshard.planning.searches import Searches
from autoshard.planning.steps import (
    ANYTHING,
    AT_ALL,
    AT_MOMENTS,
    CLOSELY,
    KNOWN_NODES,
    QUICKLY,
    SOON_NODES,
    WHOLE_ENTRIES,
    Step,
    is_few,
)
from autoshard.search_options import SearchOptions
from autoshard.solver.solution import Solution

_FIRST_SHARE, _FIRST_TRIES = 0.1, 11
"""The part of what is left of a time limit, and how many searches, that a first plan within the limit may take."""
_LOOSE_SHARE, _LOOSE_TRIES, _LOOSELY_CLOSE = 0.3, 4, 1.02
"""The part of what is left of a time limit, and how many searches, that a plan may take in a network that does not know
what copies hold; one of at most so many times the bound is not also looked for within less."""
_MOMENTS_SHARE, _MOMENTS_TRIES = 0.6, 4
"""The part of what is left of a time limit, and how many searches, that a plan may take in networks that know of the
moments at which answers were too full."""
LIMITED_SHARE = 0.9
"""The part of the time left that one search within the limit may take."""


@dataclass
class Beginning:
    """What is known in one decision.

    seen: what searches found; rounds: how they went; proofs: what they proved; known: what fits.
    """

    model: Model
    options: SearchOptions
    starts: tuple[Sequence[int], ...]
    seen: list[Sequence[int]] = field(default_factory=list)
    rounds: list[dict[str, Any]] = field(default_factory=list)
    proofs: list[Search] = field(default_factory=list)
    known: Known | None = None

    def __post_init__(self) -> None:
        self.seen.extend(self.starts)
        self.searches = Searches(self.model, self.options, self.seen, self.rounds, self.proofs)

    @property
    def small(self) -> bool:
        """Whether rough searches are worth it."""
        return self.searches.small

    @property
    def soon(self) -> bool:
        """Whether what several decisions hold together is soon worked out."""
        return self.small and len(self.model.repeats.class_of) <= SOON_NODES

    @property
    def bound(self) -> int:
        """In ticks: no plan costs less."""
        return self.searches.bound

    @cached_property
    def entries(self) -> int:
        """Table entries of the network that knows of nothing that several decisions hold together."""
        return fitting.entries(self.model.within(self.model.problem.memory_limit or 0, {}))

    def _begun(
        self, limit: int, free: Sequence[int]
    ) -> tuple[dict[int, frozenset[int]], dict[int, frozenset[int]], Sequence[int] | None]:
        """A first plan, where one is found before the rounds. Returns which moments are too full for what is free; what
        the first network knows of; and `free`, or None where a plan was found in just this network (see `_quickly`)."""
        full, chosen = self._nothing_fits({}, free, limit), {}
        if not self.small and self.known is None:
            chosen = self._quickly(limit, free)
        self.known = self.known or self._first(limit, free) or (self._loosely(limit, None) if self.soon else None)
        if self.small and self.known is None:
            chosen = self._quickly(limit, free)
        found = bool(chosen) and self.known is not None and not self.small
        self._at_all(limit)
        return full, chosen, None if found else free

    def _nothing_fits(
        self, full: dict[int, frozenset[int]], nearest: Sequence[int], limit: int
    ) -> dict[int, frozenset[int]]:
        """While no plan is known: the moments at which answers were too full; the error where nothing fits these."""
        room = self.model.memory
        if self.known is not None or not room.knows(nearest):
            return full
        more = room.there(nearest, limit, full)
        if more == full:
            return full
        network = self.model.within(limit, more)
        if leaves_something(network):
            return more
        what = "looking whether anything fits the memory limit"
        solution = self._search(
            network, what, (), self.options.deadline.part(LIMITED_SHARE), within=limit, moments=more
        )
        if solution.status == "infeasible":
            raise no_answer(self.model, solution, self.seen, limit, more)
        return more

    def _loosely(self, limit: int, known: Known | None) -> Known | None:
        """A plan within the limit by searches of the network as it is, which knows nothing of copies for one use: under
        a loose limit it is close to their bound, and what copies hold need not be worked out."""
        model = self.model

        def search(room: Any, given: Sequence[Sequence[int]], until: Deadline, step: Step | None = None) -> Solution:
            what = f"looking for a plan within {'less than the' if step else 'a loose'} memory limit"
            network = model.with_limit(room) if isinstance(room, int) else model.with_limit(limit, room)
            tells = step is None and room == limit
            near = (*self.starts, *given) if tells else given
            closely = CLOSELY if tells else QUICKLY
            found = self._search(network, what, near, until, step or closely, proves=tells, within=limit)
            if tells and found.status == "infeasible":
                raise no_answer(model, found, self.seen, limit)
            if step is None and not tells and self._is_loosely_close(found, limit):  # worth more than a first search
                near = [] if found.assignment is None else [found.assignment]
                return self._search(network, what, near, until, CLOSELY, proves=False, within=limit)
            return found

        by = partial(fitting.first_fit, tries=_LOOSE_TRIES, network=model.repeats.network)
        few = is_few(model.repeats.network.n_nodes, self.options.effort)
        fits = (() if few else (fitting.fit_by_moments,)) if self.soon else (by, fitting.tightened_fit)
        for fit in fits[:1] if len(model.repeats.class_of) <= KNOWN_NODES else fits:
            loose = self.searches.fitted(limit, self.seen[-1], _LOOSE_SHARE, search, fit)
            known = loose if loose is not None and (known is None or not cheaper(known[0], loose[0])) else known
            if fitting.costs_at_most(known, _LOOSELY_CLOSE * self.bound):
                break
        return known

    def _is_loosely_close(self, found: Solution, limit: int) -> bool:
        """Whether an answer is a plan within the limit that costs little more than the bound."""
        if found.assignment is None or found.cost is None or found.cost > _LOOSELY_CLOSE * self.bound:
            return False
        return self.model.simulate(self.model.schedule(found.assignment)).peak_bytes <= limit

    def _quickly(self, limit: int, free: Sequence[int]) -> dict[int, frozenset[int]]:
        """A plan by quick searches of networks that know of all that plans may hold at the moment at which the last
        answer was fullest; what the last of these networks knows of."""
        room, chosen, near = self.model.memory, {}, free
        until = self.options.deadline.part(_MOMENTS_SHARE)
        for _ in range(_MOMENTS_TRIES):
            if interrupted_in(self.rounds) or until.passed or not room.knows(near):
                break
            more = room.there(near, limit, chosen)
            if more == chosen:
                break
            chosen = more
            network, what = (
                self.model.within(limit, chosen),
                "looking for a plan within the memory limit at full moments",
            )
            given = self.extended(near, chosen)
            found = self._search(network, what, given, until, AT_MOMENTS, within=limit, moments=chosen)
            if found.status == "infeasible":
                raise no_answer(self.model, found, self.seen, limit, chosen)
            if found.assignment is None or self._fits(found, found.assignment, limit):
                break
            near = found.assignment
        return chosen

    def _first(self, limit: int, free: Sequence[int]) -> Known | None:
        """A first plan within the limit, which later searches are to beat."""

        def search(room: int, given: Sequence[Sequence[int]], until: Deadline) -> Solution:
            what = "looking for a plan within the memory limit"
            return self._search(self.model.within(room, {}), what, given, until, proves=False)

        return self.searches.fitted(limit, free, _FIRST_SHARE, search, partial(fitting.first_fit, tries=_FIRST_TRIES))

    def _at_all(self, limit: int) -> None:
        """While no plan is known: whether anything fits all moments at once, to which rounds take long to come."""
        model = self.model
        if self.known is not None or interrupted_in(self.rounds) or self.entries > WHOLE_ENTRIES:
            return
        chosen, until = model.memory.all_of_them(), self.options.deadline.part(LIMITED_SHARE)
        network, what = model.within(limit, chosen), "looking whether anything fits the memory limit at all"
        found = self._search(network, what, (), until, ANYTHING, within=limit, moments=chosen)
        if found.status == "infeasible":
            raise no_answer(model, found, self.seen, limit, chosen)
        if found.assignment is not None:
            self._fits(found, found.assignment, limit)
        if interrupted_in(self.rounds):
            return
        if starts := fitting.allowed(network, self.options, self.rounds):
            found = self._search(network, "improving what fits", starts, until, AT_ALL, proves=False)
            if found.assignment is not None:
                self._fits(found, found.assignment, limit)

    def _fits(self, solution: Solution, assignment: Sequence[int], limit: int) -> bool:
        """Whether an answer is within the limit: known then, unless a cheaper one is; else what led to it may be."""
        schedule = self.model.schedule(assignment)
        memory = self.model.simulate(schedule)
        if memory.peak_bytes > limit:
            self.known = earlier_fit(self.model, solution, limit, self.known)
            return False
        if self.known is None or not cheaper(self.known[0], solution):
            self.known = solution, schedule, memory
        return True

    def extended(self, nearest: Sequence[int] | None, chosen: Mapping[int, frozenset[int]]) -> list[Sequence[int]]:
        """The starts, what is known, and `nearest`, as assignments of the network that knows of `chosen`."""
        known, room = None if self.known is None else self.known[0].assignment, self.model.memory
        given = dict.fromkeys(tuple(one) for one in (*self.starts, known, nearest) if one is not None)
        return [room.extended(start, chosen) for start in given if room.knows(start)]

    def _search(self, *what: Any, **words: Any) -> Solution:
        """Solve a network (see `Searches.solve`)."""
        return self.searches.solve(*what, known=self.known, **words)
