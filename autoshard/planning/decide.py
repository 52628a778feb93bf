"""Deciding: solve the network of a problem, without its memory limit and then within it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

from autoshard.deadline import Deadline
from autoshard.errors import OutOfTimeError
from autoshard.formulation.memory import leaves_something
from autoshard.planning import fewer_orders, fitting
from autoshard.planning.decision import (
    Decision,
    Known,
    Search,
    best_seen,
    best_start,
    cheaper,
    earlier_fit,
    finish,
    interrupted_in,
    is_close,
)
from autoshard.planning.in_turns import bound_closer, plan_in_turns
from autoshard.planning.model import Model
from autoshard.planning.no_plan import NoAnswerError, no_answer
from autoshard.planning.priced_counts import without_limit
from autoshard.planning.searches import Searches
from autoshard.planning.steps import (
    ANYTHING,
    AT_ALL,
    CLOSELY,
    SOON_NODES,
    WHOLE_ENTRIES,
    Step,
    is_few,
    steps,
    wider,
)
from autoshard.search_options import SearchOptions
from autoshard.solver.solution import Solution, Stopped
from autoshard.solver.work import Infeasible

_MOST_ROUNDS = 30
"""Most rounds: after each, the network gets nodes for what its answer holds too much of, and is searched again."""
_IDLE_ROUNDS = 3
"""Rounds that raise no bound, after which a plan that is known is the answer."""
_FIRST_SHARE, _FIRST_TRIES = 0.1, 11
"""The part of what is left of a time limit, and how many searches, that a first plan within the limit may take."""
_LOOSE_SHARE, _LOOSE_TRIES, _LOOSELY_CLOSE = 0.3, 4, 1.02
"""The part of what is left of a time limit, and how many searches, that a plan may take in a network that does not know
what copies hold; one of at most so many times the bound is not also looked for within less."""
_BOUND_SHARE = 0.3
"""The part of what is left of a time limit that a bound within the limit may take in networks whose plan is looked for
among few states."""
_LIMITED_SHARE, _NEAR = 0.9, 1.1
"""The part of the time left that one search within the limit may take; annealing looks until a plan is that near."""
_FREE_SHARE, _FREE_SHARE_OF_DEVICE = 0.5, 0.8
"""The part of a time limit for solving without the memory limit; where that is only the device's, most are within."""


def decide(model: Model, options: SearchOptions | None = None, *, starts: Sequence[Sequence[int]] = ()) -> Decision:
    """`search_plan`, with an error for people where there is no plan: `InfeasibleError` where it is proved that none
    exists, else `NotFoundError` or `OutOfTimeError`. `answer` says more of why.
    """
    try:
        return search_plan(model, options, starts=starts)
    except NoAnswerError as end:
        raise end.plain() from None


def search_plan(
    model: Model, options: SearchOptions | None = None, *, starts: Sequence[Sequence[int]] = ()
) -> Decision:
    """Solve the model under its memory limit. Raises `NoAnswerError` where a search ends without a plan.

    First without the limit: where that optimum fits, it is the answer and its proof holds. Then within it, with further
    nodes for memory that depends on several decisions (`formulation.memory`): first for what the optimum without limit
    holds at the moments at which it is too full, then for what each answer holds at such moments, until an answer fits.
    No network says more than the simulation, so every bound on the way holds for every plan, and a network without an
    answer is a proof that there is no plan. Where a search ends without either, the cheapest plan within the limit that
    was seen is the answer.
    Ctrl-C at any moment gives the cheapest plan seen by then, `starts` among them; it is raised where there was none.
    """
    run = _Run(model, options or SearchOptions(), tuple(starts))
    try:
        return run.decision()
    except KeyboardInterrupt:
        return best_seen(model, run.seen, run.rounds, run.proofs)


@dataclass
class _Run:
    """One decision. seen: what searches found; rounds: how they went; proofs: what they proved; known: what fits."""

    model: Model
    options: SearchOptions
    starts: tuple[Sequence[int], ...]
    seen: list[Sequence[int]] = field(default_factory=list)
    rounds: list[dict[str, Any]] = field(default_factory=list)
    proofs: list[Search] = field(default_factory=list)
    known: Known | None = None
    is_annealed: bool = False

    def __post_init__(self) -> None:
        self.seen.extend(self.starts)
        self.searches = Searches(self.model, self.options, self.seen, self.rounds, self.proofs)

    def decision(self) -> Decision:
        """The cheapest plan, or an error that says that there is none or that none was found."""
        model, limit = self.model, self.model.problem.memory_limit
        share = 1.0 if limit is None else _FREE_SHARE_OF_DEVICE if model.problem.device_limit else _FREE_SHARE
        free, self.starts = without_limit(self.searches, self.starts, self.options.deadline.part(share))
        if free.assignment is None:
            raise no_answer(model, free, [])
        schedule = model.schedule(free.assignment)
        memory = model.simulate(schedule)
        if limit is None or memory.peak_bytes <= limit:
            goes_on, known = share < 1.0 and free.stopped is Stopped.TIME, (free, schedule, memory)
            return self._finished(self._longer(known) if goes_on and free.standing is not None else known)
        self.starts += fewer_orders.starts(model, self.options, search_plan, self.seen)
        self.known = known = best_start(model, self.starts, limit)
        if model.repeats.network.is_factored and not model.counts:
            return self._among_few(limit)
        if not self.soon:
            self.known = known = self._loosely(limit, known)
            if known is not None and (is_close(known[0], self.bound, self.options) or interrupted_in(self.rounds)):
                return self._finished(known)
        if interrupted_in(self.rounds):  # no further work, which may take long: the best seen is the answer
            raise KeyboardInterrupt
        if model.repeats.network.is_factored:  # too large to work out what several decisions hold together
            if known is None:
                raise NoAnswerError(model, False, True, "", free.stopped, self.seen)
            return self._finished(known)
        try:
            model.work_out_memory(self._check)
        except Infeasible as why:  # what is looked at has no certificate, but the search does the same and more
            solution = self._search(
                model.with_limit(limit), "proving that nothing fits", (), self.options.deadline.part(_LIMITED_SHARE),
                within=limit,
            )  # fmt: skip
            if solution.status != "infeasible":
                solution = Solution(None, None, 0, "infeasible", reason=str(why))
            raise no_answer(model, solution, self.seen, limit) from None
        except OutOfTimeError:
            return self._out_of_time()
        return self._within(limit, free.assignment)

    def _longer(self, known: Known) -> Known:
        """The plan of a search that its part of the time ended, or a cheaper one within the limit that it finds when it
        goes on from where it stood: the rest was kept back for searches within the limit, and the plan fits.
        """
        model, limit = self.model, self.model.problem.memory_limit
        starts = [start for start in (known[0].assignment, *self.starts) if start is not None]
        found = self._search(model.with_limit(None), "solving on", starts, self.options.deadline)
        if found.assignment is None or limit is None:
            return known
        schedule = model.schedule(found.assignment)
        memory = model.simulate(schedule)
        return (found, schedule, memory) if memory.peak_bytes <= limit else known

    def _among_few(self, limit: int) -> Decision:
        """The cheapest plan within the limit that is found among few states of every decision; the bound is of all."""
        model, until, near = self.model, self.options.deadline.part(_BOUND_SHARE), self.seen[-1]
        what = "bounding within the memory limit"
        solution = self._search(model.with_limit(limit), what, self.starts, until, within=limit)
        if solution.status == "infeasible":
            raise no_answer(model, solution, self.seen, limit)
        self.known = plan_in_turns(self.searches, limit, near, self.known)
        closer = bound_closer(self.searches, limit, self.known, self.starts)
        if closer is not None and closer.assignment is not None:
            self._fits(closer, closer.assignment, limit)
        return self._ended(CLOSELY, Stopped.INTERRUPT if interrupted_in(self.rounds) else (closer or solution).stopped)

    def _check(self) -> None:
        self.options.deadline.check("what several decisions hold together is worked out", "raise it")

    def _within(self, limit: int, free: Sequence[int]) -> Decision:
        """The cheapest plan within the limit. free: the optimum without it, which is too full."""
        quantities = self.model.memory.q
        quantities.check = self._check
        try:
            return self._in_rounds(limit, free)
        except OutOfTimeError:
            return self._out_of_time()
        finally:
            quantities.check = lambda: None

    def _out_of_time(self) -> Decision:
        if self.known is None:
            raise NoAnswerError(self.model, False, True, fitting.doubt(self.rounds), Stopped.TIME, self.seen) from None
        stats = self.known[0].stats | {"stopped": Stopped.TIME}
        return self._finished((replace(self.known[0], stats=stats), *self.known[1:]))

    def _in_rounds(self, limit: int, free: Sequence[int]) -> Decision:
        model, room = self.model, self.model.memory
        nearest: Sequence[int] | None = free
        chosen: dict[int, frozenset[int]] = {}
        full = self._begun(limit, free)
        stopped = Stopped.INTERRUPT if interrupted_in(self.rounds) else None
        solved: dict[int, frozenset[int]] | None = None
        idle, kinds = 0, steps(model.repeats.network.n_nodes, self.options.effort, self.options.endless)
        step = next(kinds)
        for number in range(_MOST_ROUNDS):
            if interrupted_in(self.rounds) or (idle >= _IDLE_ROUNDS and self.known is not None):
                break
            if step.whole or not fitting.costs_at_most(self.known, _NEAR * self.bound):
                self.known = self._annealed(limit, free)
            chosen = self._more(step, nearest, limit, chosen)
            assert nearest is None or chosen != solved or not room.knows(nearest), "it knows all, and says less"
            network, solved = model.within(limit, chosen), chosen
            extended = self._extended(nearest, chosen)
            extended += fitting.anything(network, self.options.deadline) if self.known is None else []
            what = "solving within the memory limit" + (f", round {number + 1}" if number else "")
            before, until = self.bound, self.options.deadline.part(_LIMITED_SHARE)
            solution = self._search(network, what, extended, until, step, within=limit, moments=chosen)
            stopped = solution.stopped
            if solution.status == "infeasible":
                raise no_answer(model, solution, self.seen, limit, chosen)
            idle = 0 if not step.last or self.bound > before or stopped is Stopped.UNWANTED else idle + 1
            if solution.assignment is None:
                if step.last or stopped is not Stopped.EFFORT:
                    break
                nearest, step = None, next(kinds)
                continue
            if self._fits(solution, solution.assignment, limit):
                if step.last or stopped in (Stopped.DONE, Stopped.TIME, Stopped.INTERRUPT):
                    break
                nearest, step = None, next(kinds)
                continue
            nearest = solution.assignment
            if stopped is Stopped.TIME:
                break
            if stopped is not Stopped.INTERRUPT:
                full = self._nothing_fits(full, nearest, limit)
            if not step.rough and not step.last and stopped is Stopped.EFFORT:
                step = next(kinds)
        return self._ended(step, stopped)

    def _begun(self, limit: int, free: Sequence[int]) -> dict[int, frozenset[int]]:
        """A first plan, where one is found before the rounds; returns which moments are too full for what is free."""
        full = self._nothing_fits({}, free, limit)
        self.known = self.known or self._first(limit, free) or (self._loosely(limit, None) if self.soon else None)
        self._at_all(limit)
        return full

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

    def _extended(self, nearest: Sequence[int] | None, chosen: Mapping[int, frozenset[int]]) -> list[Sequence[int]]:
        """The starts, what is known, and `nearest`, as assignments of the network that knows of `chosen`."""
        known, room = None if self.known is None else self.known[0].assignment, self.model.memory
        given = dict.fromkeys(tuple(one) for one in (*self.starts, known, nearest) if one is not None)
        return [room.extended(start, chosen) for start in given if room.knows(start)]

    def _ended(self, step: Step, stopped: Stopped | None) -> Decision:
        """The cheapest plan of all rounds, or the error where none is known. step, stopped: of the last search."""
        known = self.known
        if known is not None:
            if not step.rough and known[0].stopped is Stopped.GAP:  # told is what ended the finer searches after it
                known = replace(known[0], stats=known[0].stats | {"stopped": stopped}), *known[1:]
            return self._finished(known)
        if interrupted_in(self.rounds):
            raise KeyboardInterrupt
        raise NoAnswerError(self.model, False, True, fitting.doubt(self.rounds), stopped, self.seen)

    def _more(
        self, step: Step, nearest: Sequence[int] | None, limit: int, chosen: dict[int, frozenset[int]]
    ) -> dict[int, frozenset[int]]:
        """What the next network knows of: `chosen`, and what an answer holds where it is too full; where that does not
        make the network much larger, all that any plan may hold there; or all there is, where the step says so."""
        room = self.model.memory
        if step.whole:
            return room.all_of_them()
        if nearest is None or not room.knows(nearest):
            return chosen
        around = room.around(nearest, limit, chosen)
        if is_few(self.model.repeats.network.n_nodes, self.options.effort):
            return around
        missing = room.missing(nearest, limit, chosen)
        others = fitting.entries(self.model.within(limit, missing)) if self.small else self._entries
        return around if fitting.entries(self.model.within(limit, around)) <= wider(self.small) * others else missing

    @cached_property
    def _entries(self) -> int:
        """Table entries of the network that knows of nothing that several decisions hold together."""
        return fitting.entries(self.model.within(self.model.problem.memory_limit or 0, {}))

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
            network, what, (), self.options.deadline.part(_LIMITED_SHARE), within=limit, moments=more
        )
        if solution.status == "infeasible":
            raise no_answer(self.model, solution, self.seen, limit, more)
        return more

    def _at_all(self, limit: int) -> None:
        """While no plan is known: whether anything fits all moments at once, to which rounds take long to come."""
        model = self.model
        if self.known is not None or interrupted_in(self.rounds) or self._entries > WHOLE_ENTRIES:
            return
        chosen, until = model.memory.all_of_them(), self.options.deadline.part(_LIMITED_SHARE)
        network = model.within(limit, chosen)
        for step, said in (
            (AT_ALL, "looking whether anything fits the memory limit at all"),
            (ANYTHING, "looking for anything within the memory limit, whatever it costs"),
        ):
            found = self._search(network, said, (), until, step, within=limit, moments=chosen)
            if found.status == "infeasible":
                raise no_answer(model, found, self.seen, limit, chosen)
            if found.assignment is not None:
                self._fits(found, found.assignment, limit)
            if interrupted_in(self.rounds) or (step is AT_ALL and found.assignment is not None):
                return
        if starts := fitting.allowed(network, self.options, self.rounds):
            found = self._search(network, "improving what fits", starts, until, AT_ALL, proves=False)
            if found.assignment is not None:
                self._fits(found, found.assignment, limit)

    @property
    def small(self) -> bool:  # whether rough searches are worth it
        return self.searches.small

    @property
    def soon(self) -> bool:
        """Whether what several decisions hold together is soon worked out."""
        return self.small and len(self.model.repeats.class_of) <= SOON_NODES

    @property
    def bound(self) -> int:
        """In ticks: no plan costs less."""
        return self.searches.bound

    def _finished(self, known: Known) -> Decision:
        return finish(self.model, *known, self.bound, self.rounds, self.proofs)

    def _loosely(self, limit: int, known: Known | None) -> Known | None:
        """A plan within the limit by searches of the network as it is, which knows nothing of copies for one use: under
        a loose limit it is close to their bound, and what copies hold need not be worked out."""
        model = self.model

        def search(room: Any, given: Sequence[Sequence[int]], until: Deadline, step: Step | None = None) -> Solution:
            what = f"looking for a plan within {'less than the' if step else 'a loose'} memory limit"
            network = model.with_limit(room) if isinstance(room, int) else model.with_limit(limit, room)
            tells = step is None and room == limit
            near = (*self.starts, *given) if tells else given
            found = self._search(network, what, near, until, step or CLOSELY, proves=tells, within=limit)
            if tells and found.status == "infeasible":
                raise no_answer(model, found, self.seen, limit)
            return found

        by = partial(fitting.first_fit, tries=_LOOSE_TRIES, network=model.repeats.network)
        few = is_few(model.repeats.network.n_nodes, self.options.effort)
        fits = (() if few else (fitting.fit_by_moments,)) if self.soon else (by, fitting.tightened_fit)
        for fit in fits:
            loose = self.searches.fitted(limit, self.seen[-1], _LOOSE_SHARE, search, fit)
            known = loose if loose is not None and (known is None or not cheaper(known[0], loose[0])) else known
            if fitting.costs_at_most(known, _LOOSELY_CLOSE * self.bound):
                break
        return known

    def _annealed(self, limit: int, free: Sequence[int]) -> Known | None:
        """What annealing finds, once and in small networks; what is known, where that is no dearer."""
        small = self.small and self._entries <= WHOLE_ENTRIES
        wanted, self.is_annealed = small and not self.is_annealed and not interrupted_in(self.rounds), True
        return fitting.annealed(self.model, limit, free, self.options, self.known) if wanted else self.known

    def _first(self, limit: int, free: Sequence[int]) -> Known | None:
        """A first plan within the limit, which later searches are to beat."""

        def search(room: int, given: Sequence[Sequence[int]], until: Deadline) -> Solution:
            what = "looking for a plan within the memory limit"
            return self._search(self.model.within(room, {}), what, given, until, proves=False)

        return self.searches.fitted(limit, free, _FIRST_SHARE, search, partial(fitting.first_fit, tries=_FIRST_TRIES))

    def _search(self, *what: Any, **words: Any) -> Solution:
        """Solve a network (see `Searches.solve`)."""
        return self.searches.solve(*what, known=self.known, **words)
