"""Deciding what is asked: baselines and other starts first, then the search, and a plan with all that its record holds.

Where counts of reshards are stated, the problem is first decided without them (`planning.counts_kept`).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from autoshard.api.plans import Plan
from autoshard.costs.memory import doubts
from autoshard.errors import InfeasibleError, OutOfTimeError
from autoshard.formulation.assign import assignment_of
from autoshard.garbage import set_aside
from autoshard.plan_record import ToldLimit
from autoshard.planning import (
    STOPPED_BY_USER,
    Decision,
    Model,
    Problem,
    best_seen,
    build_model,
    check_room,
    named_stages,
    price_of_sharing,
)
from autoshard.planning.counts_kept import has_few_reshards, keeps_counts
from autoshard.planning.decision import STOPPED_BY_TIME
from autoshard.planning.memory_cap import memory_cap
from autoshard.planning.named_stages import named_words
from autoshard.program.program import Program
from autoshard.program.schedule import Schedule
from autoshard.request.asking import Asked
from autoshard.request.placed_arrays import notes_on_inputs
from autoshard.request.request import Request
from autoshard.request.specs import with_stated
from autoshard.search.starts import each_start
from autoshard.search.strategy import decide_by, default_strategy
from autoshard.search_options import SearchOptions
from autoshard.strategies.choice import SEARCHES, StrategyName

if TYPE_CHECKING:
    from autoshard.search.baselines import PricedBaseline

START_SHARE = 0.2
"""Share of the time then remaining that looking for starts may take."""
BASELINE_SHARE = 0.4
"""Share of the remaining time that pricing all baselines may take."""
UNCOUNTED_SHARE = 0.5
"""Share of the time that deciding without the stated counts of reshards may take."""


def decided_plan(request: Request, question: Asked, decided: Decision | None, chosen: StrategyName | None) -> Plan:
    """The plan of a request whose statements have been matched to its program.

    decided, chosen: the decision about it, and the strategy asked for, where there are any. Raises as `answer` does.
    """
    clock, problem, near = Clock(), question.problem, None
    if problem.counting and decided is None:
        free = _Free(request, problem, chosen, clock)
        if free.run is not None:
            return free.run.plan(question, free.notes, clock.seconds)
        near = free.schedule
    run = _Run.of(request, problem, decided, chosen, clock)
    notes = run.whole(clock, near)
    return run.plan(question, notes, clock.seconds)


class Clock:
    """Seconds of wall clock by part of a run."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.last = time.monotonic()

    def lap(self, name: str) -> None:
        """End the part that began at the last call, and add its seconds to those of `name`."""
        now = time.monotonic()
        self.seconds[name] = round(self.seconds.get(name, 0.0) + now - self.last, 3)
        self.last = now


@dataclass
class _Run:
    """One run: baselines and other starts first, then the search itself. decision: None until it is made; capped:
    whether the cap on the memory of planning ended it.
    """

    request: Request
    model: Model
    by: StrategyName
    priced: list[PricedBaseline] = field(default_factory=list)
    starts: list[tuple[int, ...]] = field(default_factory=list)
    decision: Decision | None = None
    sharing: Any = None
    capped: bool = False

    @staticmethod
    def of(
        request: Request, problem: Problem, decided: Decision | None, chosen: StrategyName | None, clock: Clock
    ) -> _Run:
        """A run on the network of a problem, which is built for it."""
        model = build_model(problem, request.options.progress, deadline=request.options.deadline)
        check_room(model, request.options)
        clock.lap("build")
        by = chosen or (StrategyName("staged") if request.priorities else default_strategy(model))
        by = by if decided is None else StrategyName("joint")  # the strategy of a search over meshes at its first look
        return _Run(request, model, by, decision=decided)

    def whole(self, clock: Clock, near: Schedule | None = None) -> tuple[str, ...]:
        """All of it; returns notes. near: a plan that the search begins from beside others."""
        with set_aside():
            self.look_for_starts()
            self.begin_from(near)
            clock.lap("baselines")
            notes = self.decide()
            clock.lap("solve")
        return notes

    def begin_from(self, near: Schedule | None) -> None:
        """Take a plan as one of the starts, where the network has it."""
        model = self.model
        start = None if near is None else assignment_of(model.collected, model.encoded, model.repeats, near)
        self.starts += [] if start is None else [start]

    def look_for_starts(self) -> None:
        """Price the baselines, and find starts by propagation and greedy where the strategy searches by cost."""
        from autoshard.search.baselines import each_baseline

        request, model, options = self.request, self.model, self.request.options
        if self.decision is not None:
            return
        try:
            for priced_baseline in each_baseline(
                model, self.baselines(), request.roles, slow=request.between_slices,
                options=options.part(BASELINE_SHARE), until=options.deadline,
            ):  # fmt: skip
                self.priced.append(priced_baseline)
                self.starts += [] if priced_baseline.assignment is None else [priced_baseline.assignment]
            if self.by.name in SEARCHES:
                for start in each_start(model, options.part(START_SHARE)):
                    self.starts.append(start)
        except KeyboardInterrupt:
            if self.by.name not in SEARCHES:  # the starts at hand are not of that strategy
                raise
            self.decision = best_seen(model, self.starts)

    def price_again(self, counted: Problem, options: SearchOptions) -> None:
        """Price those baselines with the counts of a problem whose best forms without them do not keep them."""
        from autoshard.search.baselines import each_baseline

        model, request = self.model, self.request
        many = {
            one.cost.name
            for one in self.priced
            if one.assignment is not None and not has_few_reshards(counted, model.schedule(one.assignment))
        }
        if not many:
            return
        counting = build_model(counted, options.progress, shared=model.shared, deadline=options.deadline)
        again = {
            one.cost.name: one
            for one in each_baseline(
                counting, self.baselines(), request.roles, slow=request.between_slices,
                options=options.part(BASELINE_SHARE), only=many,
            )
        }  # fmt: skip
        self.priced = [again.get(one.cost.name, one) for one in self.priced]

    def baselines(self) -> Sequence[Any]:
        """The request's baselines, with PartitionSpecs read as shardings, and the hints in the code."""
        traced, problem = self.request.traced, self.model.problem
        if isinstance(traced, Program):
            return self.request.baselines
        return with_stated(self.request.baselines, traced, problem.program, problem.mesh.mesh)

    def decide(self) -> tuple[str, ...]:
        """Make the decision and price sharing; returns notes on both."""
        request, options = self.request, self.request.options
        stages = None
        if request.priorities:
            stages = named_stages(self.model.problem, request.priorities, request.roles, request.between_slices)
        with memory_cap(request.solver_memory) as cap:
            if self.decision is None:
                try:
                    self.decision = decide_by(self.model, self.by, options, stages=stages, starts=self.starts)
                except KeyboardInterrupt:
                    if self.by.name not in SEARCHES:
                        raise
                    self.decision = best_seen(self.model, self.starts)
            assert self.decision is not None
            self.sharing = price_of_sharing(self.model, self.decision, options, always=request.price_sharing)
        self.capped = cap.reached
        notes = (*self.decision.notes, *(() if self.sharing is None else self.sharing.notes))
        return (*(n for n in notes if n != STOPPED_BY_USER), cap.note) if cap.reached else notes

    def plan(self, question: Asked, told: Sequence[str], seconds: Mapping[str, float]) -> Plan:
        """The plan, with everything that its record holds."""
        from autoshard.frontends.jax.function import with_locals
        from autoshard.questions.carried import carry_notes
        from autoshard.strategies.named import batch_size

        request, problem, decision = self.request, question.problem, self.decision
        assert decision is not None and not isinstance(request.traced, Program)
        program, roles = problem.program, request.roles
        notes = list(request.notes)
        cut = [b.cost.name for b in self.priced if b.timed_out]
        if cut:
            notes.append(f"the wall clock ended the pricing of {', '.join(cut)}: another run may price them otherwise")
        carried = carry_notes(program, decision.schedule, self.model.shared.tables)
        lie = notes_on_inputs(replace(request.traced, program=program), decision.schedule, question.statements)
        doubted = doubts(program, decision.memory, problem.machine, problem.memory_limit)
        return Plan(
            program=program,
            schedule=decision.schedule,
            machine=problem.machine,
            cost=decision.cost,
            memory=decision.memory,
            status=decision.status,
            objective_s=decision.objective_s,
            bound_s=decision.bound_s,
            gap=decision.gap,
            memory_price_s=decision.memory_price_s,
            rounding_s=decision.rounding_s,
            statements=question.statements,
            baselines=tuple(b.cost for b in self.priced),
            notes=(*notes, *program.warnings, *question.notes, *problem.machine.notes, *doubted, *told, *carried, *lie),
            config=request.config,
            trips=problem.trips,
            model_flop=request.model_flop,
            batch=None if roles is None else batch_size(program, roles),
            run={"seconds": dict(seconds), "interrupted": decision.interrupted, **decision.stats},
            traced=with_locals(replace(request.traced, program=program, devices=question.devices), question.locals),
            stages=decision.stages,
            joint=decision.joint,
            sharing=None if self.sharing is None else self.sharing.price,
            priorities=named_words(request.priorities, roles, request.between_slices),
            strategy=None if self.by.by_cost else str(self.by),
            options=request.told_options(),
            certificate=decision.certificate,
            memory_limit=ToldLimit(bytes=problem.memory_limit, source="device" if problem.device_limit else "stated"),
        )


class _Free:
    """The decision of a problem without its counts of reshards.

    run: None unless its plan keeps them; notes: of that run. schedule: the plan where it does not keep them.
    """

    def __init__(self, request: Request, problem: Problem, chosen: StrategyName | None, clock: Clock) -> None:
        self.run: _Run | None = None
        self.schedule: Schedule | None = None
        request.options.say("deciding without the counts of reshards")
        run = _Run.of(request, problem.leaving_counts_out(), None, chosen, clock)
        run.request = replace(request, options=request.options.part(UNCOUNTED_SHARE))
        try:
            self.notes = run.whole(clock)
        except InfeasibleError:
            if not run.model.repeats.shared:  # else there may be a plan in which layers differ
                raise
            return
        except OutOfTimeError:
            return
        assert run.decision is not None
        if not keeps_counts(problem, run.decision):
            self.schedule = run.decision.schedule
            if run.decision.interrupted and not run.capped:  # no search begins after one that Ctrl-C ended
                raise KeyboardInterrupt
            return
        self.run, run.request = run, request
        if STOPPED_BY_TIME in run.decision.notes and run.by.name == "joint":
            self._go_on(problem, clock)
        run.price_again(problem, request.options)
        clock.lap("baselines")

    def _go_on(self, problem: Problem, clock: Clock) -> None:
        """Search on from the plan, in the time that was kept back; it stays where what is found breaks the counts."""
        run = self.run
        assert run is not None
        before = run.decision
        assert before is not None
        sharing, notes = run.sharing, self.notes
        run.begin_from(before.schedule)
        run.decision = None
        self.notes = run.decide()
        assert run.decision is not None
        if not keeps_counts(problem, run.decision):
            run.decision, run.sharing, self.notes = before, sharing, notes
        clock.lap("solve")
