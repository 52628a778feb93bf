"""Stages: what has priority is decided first, and later stages only extend it.

Stage p solves the joint model, with the axes of later stages free and the memory limit on, under the statements of
priority <= p, their conflict-free propagation as placements of ops, and what earlier stages placed. Then the positive
placements of its axes are fixed: this axis on this dimension or factor; never absences, and never the choice between
all-reduce and reduce-scatter. So costs rise from stage to stage, and each rise is the price of that stage.

Where what an early stage placed leaves a later statement no room (in memory, say), the stages are decided again with
all statements in force from the start; their placements then always leave room for each other.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from autoshard.constraints import MatchedPin
from autoshard.errors import InfeasibleError, NotFoundError
from autoshard.formulation.fixed import Cut, Fixed, joined, placed, possible
from autoshard.planning.contradiction import contradiction
from autoshard.planning.decide import ACCEPTED_GAP, Decision, decide
from autoshard.planning.model import Model, Problem, Progress, Shared, build_model
from autoshard.planning.spread import factor_cuts, spread

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


@dataclass(frozen=True)
class Stage:
    """What one stage decided.

    cost_s, bound_s: of its optimum, and the proof. price_s: how much dearer than the stage before; the first one than
    the optimum without any pin (than the joint optimum, where all statements are in force from the start). placed: what
    it placed that stages before had not.
    """

    priority: int
    name: str
    statements: tuple[str, ...]
    axes: tuple[str, ...]
    cost_s: float
    bound_s: float
    gap: float
    status: str
    peak_bytes: int
    price_s: float
    placed: Mapping[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """As an entry of ``stages`` in plan.json."""
        return {
            "priority": self.priority, "name": self.name, "statements": list(self.statements), "axes": list(self.axes),
            "cost_s": self.cost_s, "bound_s": self.bound_s, "gap": self.gap, "status": self.status,
            "peak_bytes": self.peak_bytes, "price_s": self.price_s, "placed": dict(self.placed),
        }  # fmt: skip


def stated_stages(problem: Problem) -> list[StagePlan]:
    """One stage for each user priority that the pins carry, in order (gaps do not count, S0.45)."""
    levels = sorted({p for pin in problem.pins for p in pin.priorities})
    out = []
    for level in levels:
        pins = tuple(pin.up_to(level) for pin in problem.pins if min(pin.priorities) <= level)
        new = [pin for pin in problem.pins if level in pin.priorities]
        axes = {
            ref.name
            for pin in new
            for d in pin.sharding.dims
            if (pin.priority if d.priority is None else d.priority) == level
            for ref in d.axes
        }
        atoms = frozenset(a for axis in axes for a in problem.mesh.atoms_of[axis])
        found = spread(problem.program, problem.mesh, pins, problem.groups, problem.restrictions)
        given = Fixed(ops=factor_cuts(found, problem.program, problem.mesh))
        out.append(StagePlan(level, pins, atoms, tuple(pin.cited for pin in new), given))
    return out


def decide_staged(
    problem: Problem,
    plans: Sequence[StagePlan] | None = None,
    *,
    joint_model: Model | None = None,
    starts: Sequence[Sequence[int]] = (),
    time_limit_s: float | None = None,
    effort: float = 1.0,
    seed: int = 0,
    accepted_gap: float = ACCEPTED_GAP,
    progress: Progress | None = None,
) -> Decision:
    """Decide stage after stage; `Decision.stages` tells them and `Decision.joint` the joint optimum beside them.

    plans: the stages; those that the statements' priorities make where not given. With less than two the joint
    optimum is the answer (S0.51). joint_model: the model of the whole problem, where it is built already, and `starts`
    of it. bound_s of the answer is that of the last stage. Raises `InfeasibleError` where the statements cannot hold.
    """
    say = progress or (lambda text: None)
    began = time.monotonic()
    model = build_model(problem, progress) if joint_model is None else joint_model  # tells contradictions first
    plans = stated_stages(problem) if plans is None else list(plans)
    alone = len(plans) < 2 and not any(plan.name for plan in plans)
    options: dict[str, Any] = {"effort": effort, "seed": seed, "accepted_gap": accepted_gap, "progress": progress}
    limit = time_limit_s if time_limit_s is None or alone else JOINT_SHARE * time_limit_s
    say("solving all at once")
    joint = decide(model, starts=starts, time_limit_s=limit, **options)
    if not alone and joint.interrupted:
        note = "the user stopped the run before any stage was decided: this is the best plan all at once"
        return replace(joint, notes=(*joint.notes, note))
    if alone:
        return replace(joint, stages=tuple(_only(plan, joint, problem) for plan in plans))
    for full in (False, True):
        left = None if time_limit_s is None else max(0.2, time_limit_s - (time.monotonic() - began))
        try:
            last, stages = _run(model, plans, full, left, options, joint)
            break
        except KeyboardInterrupt:
            note = "the user stopped the run before all stages were decided: this is the best plan all at once"
            rounds = [*joint.stats.get("rounds", ()), {"what": "stages", "stopped": "interrupt"}]
            return replace(joint, notes=(*joint.notes, note), stats={**joint.stats, "rounds": rounds})
        except (InfeasibleError, NotFoundError):
            if full:
                raise contradiction(problem, proved=False, reason="the stages leave no room for each other") from None
            say("an early stage leaves no room for later statements: deciding with all of them in force")
    notes = list(last.notes)
    if full:
        notes.append(
            "stages: what the first ones would place left no room for later statements, so all statements were in "
            "force from the first stage on"
        )
    notes.append(
        f"decided in {len(stages)} stages; bound and gap are those of the last one, all at once costs "
        f"{joint.objective_s:.6g} s"
    )
    beside = {
        "cost_s": joint.objective_s, "bound_s": joint.bound_s, "gap": joint.gap, "status": joint.status,
        "price_of_stages_s": last.objective_s - joint.objective_s,
    }  # fmt: skip
    return replace(last, notes=tuple(notes), stages=tuple(stages), joint=beside)


def _run(
    whole: Model,
    plans: Sequence[StagePlan],
    full: bool,
    time_limit_s: float | None,
    options: Mapping[str, Any],
    joint: Decision,
) -> tuple[Decision, list[Stage]]:
    """All stages in order; `full`: with all statements in force from the first on."""
    began = time.monotonic()
    problem = whole.problem
    say = options["progress"] or (lambda text: None)
    fixed, atoms = Fixed(), frozenset()
    stages: list[Stage] = []
    decision = joint
    before: float | None = None
    for number, plan in enumerate(plans):
        last = number == len(plans) - 1
        part = problem if full or last else replace(problem, pins=plan.pins)
        say(f"stage {number + 1} of {len(plans)}" + (f": {plan.name}" if plan.name else f": priority {plan.priority}"))
        left = None if time_limit_s is None else max(0.2, time_limit_s - (time.monotonic() - began))
        share = None if left is None else left / (len(plans) - number)
        decision = _solve(part, fixed, plan.given, share, options, whole.shared)
        if not last and decision.interrupted:
            raise KeyboardInterrupt
        atoms |= plan.atoms
        # what a later statement forbids is not fixed: it starts with that statement in the end (S0.48)
        now = possible(whole.collected, problem.program, placed(decision.schedule, problem.program, atoms))
        if before is None:
            free = None if full or plan.name else replace(problem, pins=())
            reference = joint if free is None else _solve(free, Fixed(), Fixed(), share, options, whole.shared)
            if reference.interrupted and not last:
                raise KeyboardInterrupt
            before = min(reference.objective_s, decision.objective_s)  # either may be the better one within their gaps
        stages.append(_stage(plan, decision, decision.objective_s - before, placed_words(now, problem, fixed), problem))
        before = decision.objective_s
        fixed = joined(fixed, now)
    return decision, stages


def _solve(
    problem: Problem,
    fixed: Fixed,
    given: Fixed,
    time_limit_s: float | None,
    options: Mapping[str, Any],
    shared: Shared,
) -> Decision:
    """The optimum with placements fixed and given; without the given ones where those leave no plan."""
    for wanted in (given, Fixed()):
        try:
            model = build_model(problem, options["progress"], fixed=fixed, given=wanted, shared=shared)
            return decide(model, time_limit_s=time_limit_s, explain=False, **options)
        except (InfeasibleError, NotFoundError):
            if not wanted:
                raise
    raise AssertionError("the second try has nothing given")


def _stage(plan: StagePlan, decision: Decision, price_s: float, words: Mapping[str, Any], problem: Problem) -> Stage:
    axes = tuple(n for n in problem.mesh.mesh.axis_names if set(problem.mesh.atoms_of[n]) & plan.atoms)
    return Stage(
        plan.priority, plan.name, plan.statements, axes, decision.objective_s, decision.bound_s, decision.gap,
        decision.status, decision.memory.peak_bytes, price_s, words,
    )  # fmt: skip


def _only(plan: StagePlan, joint: Decision, problem: Problem) -> Stage:
    return _stage(plan, joint, 0.0, placed_words(placed(joint.schedule, problem.program, plan.atoms), problem), problem)


def placed_words(now: Fixed, problem: Problem, before: Fixed | None = None) -> dict[str, Any]:
    """Placements as they stand in plan.json: atoms by dimension of values, by factor of ops; without those of
    `before`.
    """
    program, names = problem.program, problem.mesh.names
    old = before or Fixed()

    def text(cuts: Mapping[int, Cut], known: Mapping[int, Cut]) -> dict[str, list[list[str]]]:
        return {
            str(key): [[names[a] for a in atoms] for atoms in cut]
            for key, cut in sorted(cuts.items())
            if known.get(key) != cut
        }

    inputs = {v: cut for v, cut in now.values.items() if v in set(program.body.args)}
    return {
        "inputs": text(inputs, old.values),
        "boundaries": text({v: c for v, c in now.values.items() if v not in inputs}, old.values),
        "shared": text(now.forms, old.forms),
        "outputs": text(now.outputs, old.outputs),
        "ops": text(now.ops, old.ops),
    }
