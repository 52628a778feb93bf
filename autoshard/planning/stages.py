"""Stages: what has priority is decided first, and later stages only extend it.

Stage p solves the joint model, with the axes of later stages free and the memory limit on, under the statements of
priority <= p, their conflict-free propagation as placements of ops, and what earlier stages placed. Then the positive
placements of its axes are fixed: this axis on this dimension or factor; never absences, and never the choice between
all-reduce and reduce-scatter. So costs rise from stage to stage, and each rise is the price of that stage.

All statements hold in the end, and so does the memory limit. So a stage keeps a placement only where it can hold beside
those kept before it under all statements, later ones included: earlier stages first, within a stage what its statements
propagate before what its optimum chose, each in the order of `pieces_of`. The others are told as ``relaxed``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from autoshard.constraints import MatchedPin
from autoshard.errors import InfeasibleError, NotFoundError, OutOfTimeError
from autoshard.formulation.assign import assignment_of
from autoshard.formulation.fixed import Fixed, placed
from autoshard.formulation.pieces import holds
from autoshard.plan_record import JointOptimum, StageRecord
from autoshard.planning.answer import answer
from autoshard.planning.certified import Proved
from autoshard.planning.decision import Decision
from autoshard.planning.keep import Dropped, Keeper
from autoshard.planning.model import Model, build_model
from autoshard.planning.over_links import decide_over_links
from autoshard.planning.problem import Problem
from autoshard.planning.relaxed import CHOSEN, PROPAGATED, priced, relaxed_note, relaxed_words, still_missing
from autoshard.planning.spread import factor_cuts, spread
from autoshard.planning.stage_proofs import left_out, placed_words
from autoshard.program.schedule import Schedule
from autoshard.search_options import SearchOptions
from autoshard.solver.solution import Stopped

JOINT_SHARE = 0.3
"""The part of a time limit that the joint optimum beside the stages may take."""


@dataclass(frozen=True)
class StagePlan:
    """What one stage is to decide.

    name: of its strategy or rule, empty for a user priority. pins: the statements in force. given: placements that it
    takes as given. atoms: those whose placements it fixes. statements: what is new in it, in the user's words.
    """

    priority: int
    pins: tuple[MatchedPin, ...]
    atoms: frozenset[int]
    statements: tuple[str, ...]
    given: Fixed = field(default_factory=Fixed)
    name: str = ""


def stated_stages(problem: Problem) -> list[StagePlan]:
    """One stage for each user priority that the pins carry, in order (gaps do not count, S0.45)."""
    levels = sorted({p for pin in problem.pins for p in pin.priorities})
    out = []
    for level in levels:
        pins = tuple(pin.up_to(level) for pin in problem.pins if min(pin.priorities) <= level)
        new = [pin for pin in problem.pins if level in pin.priorities]
        atoms = frozenset(
            a
            for pin in new
            for d in pin.sharding.dims
            if (pin.priority if d.priority is None else d.priority) == level
            for ref in d.axes
            for a in problem.mesh.atoms_for(ref)
        )
        propagated = spread(problem.program, problem.mesh, pins, problem.groups, problem.restrictions)
        fixed = Fixed(ops=factor_cuts(propagated, problem.program, problem.mesh))
        out.append(StagePlan(level, pins, atoms, tuple(pin.cited for pin in new), fixed))
    return out


def decide_staged(
    problem: Problem,
    plans: Sequence[StagePlan] | None = None,
    options: SearchOptions | None = None,
    *,
    joint_model: Model | None = None,
    starts: Sequence[Sequence[int]] = (),
) -> Decision:
    """Decide stage after stage; `Decision.stages` tells them and `Decision.joint` the joint optimum beside them.

    plans: the stages; those that the statements' priorities make where not given. With less than two the joint
    optimum is the answer (S0.51). joint_model: the model of the whole problem, where it is built already, and `starts`
    of it. bound_s of the answer is that of the last stage. Raises `InfeasibleError` where the statements cannot hold.
    """
    options = options or SearchOptions()
    say = options.say
    model = joint_model
    if model is None:  # tells contradictions first
        model = build_model(problem, options.progress, deadline=options.deadline)
    plans = stated_stages(problem) if plans is None else list(plans)
    alone = len(plans) < 2 and not any(plan.name for plan in plans)
    say("solving all at once")
    joint = answer(model, options if alone else options.part(JOINT_SHARE), starts=starts)
    if not alone and joint.interrupted:
        note = "the user stopped the run before any stage was decided: this is the best plan all at once"
        return replace(joint, notes=(*joint.notes, note))
    if alone:
        return replace(joint, stages=tuple(_only(plan, joint, problem) for plan in plans))
    run = _Run(model, plans, joint, options)
    try:
        try:
            stages = run.stages(searching=False)
        except (InfeasibleError, OutOfTimeError):
            say("not all placements can hold: keeping them one by one")
            stages = run.stages(searching=True)
    except (InfeasibleError, OutOfTimeError):
        note = "no plan was found for one of the stages, though there is one: this is the best plan all at once"
        if options.deadline.passed:
            note = "the time limit was reached before all stages were decided: this is the best plan all at once"
        return replace(joint, notes=(*joint.notes, note))
    except KeyboardInterrupt:
        note = "the user stopped the run before all stages were decided: this is the best plan all at once"
        rounds = [*joint.stats.get("rounds", ()), {"what": "stages", "stopped": Stopped.INTERRUPT}]
        return replace(joint, notes=(*joint.notes, note), stats={**joint.stats, "rounds": rounds})
    last = run.last
    beside = _beside(joint, last)
    notes = [*last.notes, *(run.notes(stages))]
    notes.append(
        f"decided in {len(stages)} stages; bound and gap are those of the last one, all at once costs "
        f"{beside.cost_s:.6g} s"
    )
    plans_of_stages = tuple(decision.schedule for *_, decision in run.decided)
    return replace(
        last, notes=tuple(notes), stages=tuple(stages), joint=beside, proved=joint.proved,
        on_the_way=(joint.schedule, *plans_of_stages),
    )  # fmt: skip


def _beside(joint: Decision, last: Decision) -> JointOptimum:
    """What all statements cost at once. The plan of the last stage has them all too, and may be the cheaper one where
    the search of all at once ended with a gap.
    """
    if last.objective_s < joint.objective_s:
        bound = min(joint.bound_s, last.objective_s)
        joint = replace(last, bound_s=bound, status=_status(last, bound))
    return JointOptimum(
        cost_s=joint.objective_s, bound_s=joint.bound_s, gap=joint.gap, status=joint.status,
        price_of_stages_s=last.objective_s - joint.objective_s,
    )  # fmt: skip


class _Run:
    """Deciding all stages in order; `decided` remembers their optima, so that going over them again costs little."""

    def __init__(self, whole: Model, plans: Sequence[StagePlan], joint: Decision, options: SearchOptions) -> None:
        self.whole, self.plans, self.joint, self.options = whole, plans, joint, options
        self.problem = whole.problem
        self.last = joint
        self.free_s = joint.objective_s
        self.decided: list[tuple[Problem, list[Fixed], Decision]] = []

    def stages(self, *, searching: bool) -> list[StageRecord]:
        """All stages. Without searching for what can hold beside each other, a stage may turn out to have no plan; the
        last one then holds all statements and everything that was kept, and so shows that it could be.
        """
        keeper = Keeper(self.whole, self.options, [self.joint.schedule], searching=searching)
        fixed: list[Fixed] = []
        atoms: frozenset[int] = frozenset()
        decisions: list[Decision] = []
        told: list[_Told] = []
        for number, plan in enumerate(self.plans):
            last = number == len(self.plans) - 1
            part = self.problem if last else self.problem.under(plan.pins)
            title = plan.name or f"priority {plan.priority}"
            self.options.say(f"stage {number + 1} of {len(self.plans)}: {title}")
            keeper.checks = 0
            wanted = keeper.new(plan.given, (entry for before in told for entry in before.dropped[: before.propagated]))
            kept, dropped = keeper.keep(fixed, wanted)
            fixed.append(kept)
            share = len(self.plans) - number
            decision = self._solve(part, fixed, share, keeper.witnesses if searching else ())
            if not last and decision.interrupted:
                raise KeyboardInterrupt
            if number == 0 and not plan.name:
                self.free_s = self._free(share)
            entries = [relaxed_words(entry, PROPAGATED, self.problem) for entry in dropped]
            unlimited = None
            if not decision.interrupted:
                unlimited = priced(
                    entries, dropped, fixed, wanted, decision.objective_s, partial(self._unlimited, part, share)
                )
            atoms |= plan.atoms
            chosen, lost = placed(decision.schedule, self.problem.program, atoms), []
            if not last:
                chosen, lost = keeper.keep(fixed, chosen)
                entries += [relaxed_words(entry, CHOSEN, self.problem) for entry in lost]
            without = left_out(keeper.left, plan.given, kept, self.problem)
            words = placed_words(chosen, self.problem, fixed)
            told.append(_Told(words, without, entries, [*dropped, *lost], len(dropped), unlimited, decision.proved))
            fixed.append(chosen)
            decisions.append(decision)
        self.last = decisions[-1]
        return self._as_told(decisions, told)

    def _as_told(self, decisions: Sequence[Decision], told: Sequence["_Told"]) -> list[StageRecord]:
        """Stages with their prices. Every plan of a stage is one of the stage before, too, which costs no more."""
        cheapest = list(decisions)
        for k in reversed(range(len(decisions) - 1)):
            if cheapest[k + 1].objective_s < cheapest[k].objective_s:
                better, bound = cheapest[k + 1], min(cheapest[k].bound_s, cheapest[k + 1].objective_s)
                cheapest[k] = replace(better, bound_s=bound, status=_status(better, bound))
        before = min(cheapest[0].objective_s, self.free_s)
        stages: list[StageRecord] = []
        for plan, decision, report in zip(self.plans, cheapest, told, strict=True):
            stage = _stage(plan, decision, decision.objective_s - before, report.placed, self.problem)
            missing = still_missing(report.relaxed, report.dropped, self.last.schedule)
            for_memory = any((entry["why"], entry["source"]) == ("memory", PROPAGATED) for entry in missing)
            told_of = {
                "relaxed": tuple(missing), "left_out": report.left_out,
                "unlimited": report.unlimited if for_memory else None,
                "certificate": None if report.proved is None else report.proved.told("stage"),
            }  # fmt: skip
            stages.append(stage.model_copy(update=told_of))
            before = decision.objective_s
        return stages

    def notes(self, stages: Sequence[StageRecord]) -> list[str]:
        """What was relaxed, a line for each stage, and whose bounds have no certificate."""
        limit = self.problem.memory_limit
        notes = [relaxed_note(s.name or f"priority {s.priority}", s.relaxed, limit, s.unlimited) for s in stages]
        bare = [s.name or f"priority {s.priority}" for s in stages if s.certificate is None]
        notes += [f"not certified: the bounds of {', '.join(bare)}"] if bare else []
        return [note for note in notes if note]

    def _solve(self, part: Problem, fixed: Sequence[Fixed], share: int, witnesses: Sequence[Schedule]) -> Decision:
        """The optimum of a stage; not worse than those witnesses that have its placements."""
        for problem, placements, decision in self.decided:
            if problem == part and placements == list(fixed):
                return decision
        known = [plan for plan in witnesses if all(holds(plan, cuts) for cuts in fixed)]
        try:
            decision = self._decide(part, fixed, share, known)
        except (InfeasibleError, NotFoundError):
            if not known or not part.share_repeats:
                raise
            # a plan is known in which layers differ, but there is none in which all of them share their decisions
            decision = self._decide(replace(part, share_repeats=False), fixed, share, known)
            if decision.proved is not None:
                decision = replace(decision, proved=replace(decision.proved, shares=False))
        self.decided.append((part, list(fixed), decision))
        return decision

    def _decide(self, part: Problem, fixed: Sequence[Fixed], share: int, known: Sequence[Schedule]) -> Decision:
        model = build_model(
            part, self.options.progress, fixed=fixed, shared=self.whole.shared, deadline=self.options.deadline
        )
        assignments = [assignment_of(model.collected, model.encoded, model.repeats, plan) for plan in known]
        starts = [start for start in assignments if start is not None]
        return decide_over_links(model, self.options.part(1 / share), starts=starts)

    def _unlimited(self, part: Problem, share: int, fixed: Sequence[Fixed]) -> Decision:
        decision = self._solve(replace(part, memory_limit=None), fixed, share, ())
        if decision.interrupted:
            raise KeyboardInterrupt
        return decision

    def _free(self, share: int) -> float:
        """What the step costs without any pin."""
        try:
            decision = self._solve(self.problem.under(()), [], share, [self.joint.schedule])
        except (InfeasibleError, OutOfTimeError):
            return self.joint.objective_s
        if decision.interrupted:
            raise KeyboardInterrupt
        return min(decision.objective_s, self.joint.objective_s)


@dataclass(frozen=True)
class _Told:
    """What is told of one stage.

    placed: the placements that it fixed. left_out: what its statements propagate and it did not take as given. relaxed,
    dropped: the placements that it could not keep, in words and as they were; the first `propagated` of them came from
    its statements. unlimited: the stage with all of them and without the memory limit. proved: the proof of its bound.
    """

    placed: dict[str, Any]
    left_out: dict[str, Any]
    relaxed: list[dict[str, Any]]
    dropped: list[Dropped]
    propagated: int
    unlimited: Mapping[str, Any] | None
    proved: Proved | None


def _status(decision: Decision, bound_s: float) -> str:
    return "optimal" if decision.objective_s - bound_s <= decision.rounding_s else "feasible"


def _stage(
    plan: StagePlan,
    decision: Decision,
    price_s: float,
    words: Mapping[str, Any],
    problem: Problem,
) -> StageRecord:
    axes = tuple(n for n in problem.mesh.mesh.axis_names if set(problem.mesh.atoms_of[n]) & plan.atoms)
    return StageRecord(
        priority=plan.priority, name=plan.name, statements=plan.statements, axes=axes, cost_s=decision.objective_s,
        bound_s=decision.bound_s, gap=decision.gap, status=decision.status, peak_bytes=decision.memory.peak_bytes,
        price_s=price_s, placed=dict(words),
    )  # fmt: skip


def _only(plan: StagePlan, joint: Decision, problem: Problem) -> StageRecord:
    return _stage(plan, joint, 0.0, placed_words(placed(joint.schedule, problem.program, plan.atoms), problem), problem)
