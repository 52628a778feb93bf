"""Deciding: solve the network of a problem, without its memory limit and then within it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from autoshard.errors import OutOfTimeError
from autoshard.planning import fewer_orders, fitting
from autoshard.planning.beginning import LIMITED_SHARE, Beginning
from autoshard.planning.decision import (
    Decision,
    Known,
    best_seen,
    best_start,
    finish,
    interrupted_in,
    is_close,
)
from autoshard.planning.in_turns import bound_closer, plan_in_turns
from autoshard.planning.model import Model
from autoshard.planning.no_plan import NoAnswerError, no_answer
from autoshard.planning.priced_counts import without_limit
from autoshard.planning.steps import CLOSELY, WHOLE_ENTRIES, Step, is_few, steps, wider
from autoshard.search_options import SearchOptions
from autoshard.solver.solution import Solution, Stopped
from autoshard.solver.work import Infeasible

_MOST_ROUNDS = 30
"""Most rounds: after each, the network gets nodes for what its answer holds too much of, and is searched again."""
_IDLE_ROUNDS = 3
"""Rounds that raise no bound, after which a plan that is known is the answer."""
_BOUND_SHARE = 0.3
"""The part of what is left of a time limit that a bound within the limit may take in networks whose plan is looked for
among few states."""
_NEAR = 1.1
"""Annealing looks until a plan is within so many times the bound."""
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
class _Run(Beginning):
    """One decision."""

    is_annealed: bool = False

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
                model.with_limit(limit), "proving that nothing fits", (), self.options.deadline.part(LIMITED_SHARE),
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
        full, chosen, nearest = self._begun(limit, free)
        stopped = Stopped.INTERRUPT if interrupted_in(self.rounds) else None
        solved: dict[int, frozenset[int]] | None = None
        idle, kinds = 0, steps(model.repeats.network.n_nodes, self.options.effort, self.options.endless)
        step = next(kinds)
        if nearest is None:  # a quick search of this network was the rough one
            step = next(kinds)
        for number in range(_MOST_ROUNDS):
            if interrupted_in(self.rounds) or (idle >= _IDLE_ROUNDS and self.known is not None):
                break
            if step.whole or not fitting.costs_at_most(self.known, _NEAR * self.bound):
                self.known = self._annealed(limit, free)
            chosen = self._more(step, nearest, limit, chosen)
            assert nearest is None or chosen != solved or not room.knows(nearest), "it knows all, and says less"
            network, solved = model.within(limit, chosen), chosen
            extended = self.extended(nearest, chosen)
            extended += fitting.anything(network, self.options.deadline) if self.known is None else []
            what = "solving within the memory limit" + (f", round {number + 1}" if number else "")
            before, until = self.bound, self.options.deadline.part(LIMITED_SHARE)
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
        others = fitting.entries(self.model.within(limit, missing)) if self.small else self.entries
        return around if fitting.entries(self.model.within(limit, around)) <= wider(self.small) * others else missing

    def _finished(self, known: Known) -> Decision:
        return finish(self.model, *known, self.bound, self.rounds, self.proofs)

    def _annealed(self, limit: int, free: Sequence[int]) -> Known | None:
        """What annealing finds, once and in small networks; what is known, where that is no dearer."""
        small = self.small and self.entries <= WHOLE_ENTRIES
        wanted, self.is_annealed = small and not self.is_annealed and not interrupted_in(self.rounds), True
        return fitting.annealed(self.model, limit, free, self.options, self.known) if wanted else self.known
