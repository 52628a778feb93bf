"""A plan's problem again, as it was or with something changed: the ground of all questions that begin with *what if*.

A plan holds its program, machine and statements, so nothing is traced again. The network, the search and the checks
are those of planning; only what the caller changes differs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from autoshard.constraints import (
    HostMemoryLimit,
    MatchedGroup,
    MatchedPin,
    MemoryLimit,
    Restriction,
    in_memories,
)
from autoshard.constraints.giving_way import added, with_further
from autoshard.constraints.orders import in_orders
from autoshard.costmodels.machine import Machine
from autoshard.costs.memory import doubts
from autoshard.errors import ShardingError, UnsupportedError
from autoshard.formulation.assign import assignment_of
from autoshard.formulation.domains import satisfies
from autoshard.plan_record import AskedRecord, PlanRecord, ToldChange, ToldLimit, ToldOptions
from autoshard.planning import Decision, Model, Problem, answer, build_model, notes_on_parts
from autoshard.planning.named_stages import named_stages
from autoshard.planning.over_links import decide_over_links
from autoshard.planning.parts import Splits, cuts_stated, with_cuts
from autoshard.planning.sharing import unpriced
from autoshard.planning.stages import StagePlan, decide_staged, stated_stages
from autoshard.program.as_json import plain
from autoshard.program.program import Program
from autoshard.program.ties import layout_ties
from autoshard.questions.carried import carry_notes
from autoshard.request.placed_arrays import notes_on_uneven
from autoshard.search.strategy import decide_by, settled
from autoshard.search_options import RECORDED, SearchOptions
from autoshard.sharding.layout import AtomMesh, Layout
from autoshard.strategies.choice import SEARCHES, StrategyName

KEEP: Any = object()
"""Stands for *as in the plan*, where None has a meaning of its own."""


@dataclass(frozen=True)
class Changed:
    """What is different from the plan's own problem.

    pins: further pins; the plan's own pins that contradict them give way (`constraints.giving_way.displaced`). machine,
    memory_limit (bytes; None: no limit) and program replace the plan's.
    """

    pins: tuple[MatchedPin, ...] = ()
    machine: Machine | None = None
    memory_limit: Any = KEEP
    program: Program | None = None


def stated_pins(plan: AskedRecord) -> tuple[MatchedPin, ...]:
    """The pins of a plan, matched to its values."""
    return plan.stated_as(MatchedPin)


def stated_groups(plan: AskedRecord) -> tuple[MatchedGroup, ...]:
    """The sharding groups of a plan."""
    return plan.stated_as(MatchedGroup)


def limit_of(plan: AskedRecord) -> int | None:
    """Bytes per device that the plan was to stay within: those stated, or the device's."""
    stated = next((limit.bytes for limit in plan.stated_as(MemoryLimit)), None)
    if stated is None and plan.memory_limit is not None and plan.memory_limit.source == "device":
        return plan.memory_limit.bytes
    return stated


def limit_of_device(plan: AskedRecord) -> bool:
    """Whether the limit of `limit_of` is what the device has room for, and nobody stated it."""
    return limit_of(plan) is not None and not plan.stated_as(MemoryLimit)


def new_pins(plan: PlanRecord, pins: Sequence[MatchedPin]) -> tuple[MatchedPin, ...]:
    """Those of further pins that the plan's statements on another order of the devices do not say already."""
    return added(stated_pins(plan), pins)


def problem_of(plan: AskedRecord, changed: Changed | None = None) -> Problem:
    """The problem that a plan answers (or that is refused), with what is `changed`.

    Raises `InfeasibleError` where the pins that are left contradict each other.
    """
    changed = changed or Changed()
    program = plan.program if changed.program is None else changed.program
    groups, restrictions = stated_groups(plan), plan.stated_as(Restriction)
    every = with_further(stated_pins(plan), changed.pins)
    if any(pin.moves for pin in every) or program.orders or changed.program is not None:
        program = in_orders(in_memories(replace(program, orders=()), restrictions), every, groups)
    limit = limit_of(plan) if changed.memory_limit is KEEP else changed.memory_limit
    return Problem.make(
        program, plan.atoms.mesh, plan.machine if changed.machine is None else changed.machine, pins=every,
        memory_limit=limit, sub_axes=_splits(plan.atoms, every, restrictions), trips=plan.trips,
        groups=groups, restrictions=restrictions,
        share_repeats=_shares(plan),
        device_limit=changed.memory_limit is KEEP and limit_of_device(plan),
        host_limit=next((limit.bytes for limit in plan.stated_as(HostMemoryLimit)), None),
    ).minimising(plan.objective).staged_by_name(plan.priorities is not None)  # fmt: skip


def _shares(plan: AskedRecord) -> bool:
    """Whether repeated layers share decisions. Plans of earlier versions do not say: there, whether any layers did."""
    told = None if plan.options is None else plan.options.share_repeats
    return isinstance(plan, PlanRecord) and plan.sharing is not None if told is None else told


def _splits(mesh: AtomMesh, pins: Sequence[MatchedPin], restrictions: Sequence[Restriction]) -> Splits:
    """Sizes of the sub-axes by axis: those of the plan, cut further where statements ask for it."""
    known = {name: tuple(mesh.sizes[a] for a in atoms) for name, atoms in mesh.atoms_of.items()}
    out = dict(known)
    for axis, cuts in cuts_stated(pins, restrictions, mesh.mesh).items():
        parts = with_cuts(known[axis], cuts)
        if parts is None:
            raise ShardingError(
                f'the plan splits axis "{axis}" of {mesh.mesh.axis_size(axis)} devices into the parts '
                f"{list(known[axis])}, and these do not fit:\n  "
                + "\n  ".join(dict.fromkeys(cuts.values()))
                + "\nask for parts that end where those of the plan do, or plan again with this as a statement"
            )
        out[axis] = parts
    return out


def options_of(plan: PlanRecord) -> SearchOptions:
    """The options that the plan was made with; for plans of earlier versions those of its config, else the defaults."""
    settings = (plan.config or {}).get("settings") or {}
    made = plan.options or ToldOptions.from_dict(settings.get("solver") or {})
    return SearchOptions().like(made)


def solve_again(
    plan: PlanRecord,
    changed: Changed | None = None,
    options: SearchOptions | None = None,
) -> PlanRecord:
    """The plan of the same program under what is `changed`; starts from the plan itself where that is still allowed.

    The answer's statements are those that hold in it, its notes those of a plan that is made so. options: where not
    given, those that the plan was made with.
    Raises `InfeasibleError`, `NotFoundError` and `OutOfTimeError` as planning does.
    """
    changed = changed or Changed()
    changed = replace(changed, pins=tuple(on_inputs(plan, pin) for pin in changed.pins))
    options = options or options_of(plan)
    model = build_model(problem_of(plan, changed), options.progress)
    kept = kept_pins(plan, new_pins(plan, changed.pins))
    decision = decide_again(plan, model, options, kept=kept)
    found = plan_of(plan, model, changed, decision, options, kept)
    problem = model.problem
    notes = (
        *notes_on_parts(problem), *doubts(problem.program, found.memory, problem.machine, problem.memory_limit),
        *found.notes, *carry_notes(found.program, found.schedule, model.shared.tables),
        *notes_on_uneven(found.program, found.schedule),
    )  # fmt: skip
    return replace(found, notes=notes)


def on_inputs(plan: PlanRecord, pin: MatchedPin) -> MatchedPin:
    """A pin of outputs that a plan in stages has anyway, of the inputs whose next values they are in their place.

    The two are one decision. An output with a pin of its own need not leave as its input comes in, so that stages
    before that pin is in force would decide otherwise.
    """
    program = plan.program
    ties, own = layout_ties(program), {slot for stated in stated_pins(plan) for slot in stated.outputs}
    tied = [ties[k] for k in pin.outputs if k in ties and k not in own]
    values = tuple(dict.fromkeys((*pin.values, *tied)))
    if not plan.stages or not pin.outputs or len(tied) < len(pin.outputs) or not kept_pins(plan, [pin]):
        return pin
    name = pin.pattern if pin.values else program.values[values[0]].name
    moved = replace(pin, pattern=name, values=values, outputs=())
    return moved if kept_pins(plan, [moved]) else pin


def kept_pins(plan: PlanRecord, pins: Sequence[MatchedPin]) -> tuple[MatchedPin, ...]:
    """Those of the pins that hold in the plan already."""
    schedule, mesh = plan.schedule, plan.schedule.mesh

    def layout(value: int) -> Layout:
        stored = value in plan.program.body.args
        return schedule.definitions[value] if stored else schedule.form_before_use(value)

    def holds(pin: MatchedPin) -> bool:
        layouts = [layout(v) for v in pin.values] + [plan.output_layouts[k] for k in pin.outputs]
        try:
            return all(satisfies(form, pin.sharding, mesh) for form in layouts)
        except ShardingError:  # it cuts an axis into parts that the plan does not know
            return False

    return tuple(pin for pin in pins if holds(pin))


def decide_again(
    plan: PlanRecord,
    model: Model,
    options: SearchOptions,
    *,
    explain: bool = True,
    kept: Sequence[MatchedPin] = (),
    since: int | None = None,
) -> Decision:
    """Decide a changed problem as the plan was decided: all at once, its stages one after the other, by its strategy.

    kept: those of its pins that say what the plan has anyway. They make no stage and are not spread; they are in force
    from stage number `since` on (the last one where not given), and stages before fix nothing that they forbid. So
    asking for what the plan has gives the plan.
    """
    start = assignment_of(model.collected, model.encoded, model.repeats, plan.schedule)
    starts = [] if start is None else [start]
    by = None if plan.strategy is None else StrategyName.parse(plan.strategy)
    stated = replace(model.problem, pins=tuple(pin for pin in model.problem.pins if pin not in kept))
    if by is not None and by.name not in SEARCHES:
        return decide_by(replace(model, problem=stated), by, options)
    by_name = None if plan.options is None else plan.options.strategy
    in_stages = any(level for pin in stated.pins for level in pin.priorities)
    if plan.stages:
        in_stages |= by is not None or by_name is not None or any(stage.name for stage in plan.stages)
    else:
        in_stages &= by_name is None
    if in_stages:
        stages = stages_again(plan, replace(model, problem=stated))
        first = len(stages) if since is None else since
        stages = [replace(s, pins=(*s.pins, *kept)) if k >= first else s for k, s in enumerate(stages)]
        return decide_staged(model.problem, stages, options, joint_model=model, starts=starts)
    return (answer if explain else decide_over_links)(model, options, starts=starts)


def stages_again(plan: PlanRecord, model: Model) -> list[StagePlan]:
    """The stages of the model's statements or, in a plan of named strategies, of what it tells of these.

    Raises `UnsupportedError` for plans of an earlier version that do not tell what the names stood for.
    """
    if any(stage.name for stage in plan.stages):
        priorities = plan.priorities
        if priorities is None:
            raise UnsupportedError(
                "this plan was decided in stages by names of strategies by an earlier version, whose plans do not say "
                "what the names stood for; solve again"
            )
        return named_stages(model.problem, priorities.names, priorities.roles, priorities.slow)
    stages = stated_stages(model.problem)
    by = None if plan.strategy is None else StrategyName.parse(plan.strategy)
    return stages if by is None else [settled(model, stage, by.rule) for stage in stages]


def plan_of(
    plan: PlanRecord, model: Model, changed: Changed, decision: Decision, options: SearchOptions | None = None,
    kept: Sequence[MatchedPin] = (),
) -> PlanRecord:  # fmt: skip
    """A decision about a changed problem as a plan, which tells what was changed. kept: see `decide_again`."""
    pins = with_further(stated_pins(plan), changed.pins)
    statements: list[Mapping[str, Any]] = [pin.to_dict() for pin in pins]
    both = list(zip(plan.statements, plan.stated, strict=True))
    statements += [said for said, statement in both if not isinstance(statement, MatchedPin | MemoryLimit)]
    if changed.memory_limit is KEEP:
        limit = plan.memory_limit
        statements += [said for said, statement in both if isinstance(statement, MemoryLimit)]
    else:
        limit = ToldLimit(bytes=changed.memory_limit, source="stated")
        if changed.memory_limit is not None:
            statements.append(MemoryLimit(changed.memory_limit).to_dict())
    program = model.problem.program
    sharing = unpriced(model) if model.repeats.shared else None  # what it costs is worked out for the plan alone
    made = options or options_of(plan)
    searched = (plan.options or ToldOptions()).model_copy(update=made.recorded())
    traced = None if plan.traced is None or changed.program is not None else replace(plan.traced, program=program)
    return replace(
        plan, program=program, traced=traced, sharing=sharing, mesh_search=None, rivals=None,
        options=searched,
        schedule=decision.schedule, machine=model.problem.machine,
        cost=decision.cost, memory=decision.memory, status=decision.status, objective_s=decision.objective_s,
        bound_s=decision.bound_s, gap=decision.gap, memory_price_s=decision.memory_price_s,
        rounding_s=decision.rounding_s, statements=tuple(statements), baselines=(), notes=decision.notes,
        run={"interrupted": decision.interrupted, **decision.stats},
        stages=decision.stages, joint=decision.joint, memory_limit=limit,
        certificate=decision.certificate, changed=(*plan.changed, _told(plan, changed, searched, kept)),
    )  # fmt: skip


def _told(plan: PlanRecord, changed: Changed, searched: ToldOptions, kept: Sequence[MatchedPin]) -> ToldChange:
    """What is changed, for the plan's record."""
    before = plan.options or ToldOptions()
    other = {key: getattr(searched, key) for key in RECORDED if getattr(searched, key) != getattr(before, key)}
    limit = None
    if changed.memory_limit is not KEEP:
        limit = ToldLimit(bytes=changed.memory_limit, source="stated")
    return ToldChange(
        pins=tuple(pin.to_dict() for pin in changed.pins), kept=tuple(pin.to_dict() for pin in kept),
        memory_limit=limit, machine=None if changed.machine is None else plain(changed.machine.to_dict()),
        program=changed.program is not None, options=other,
    )  # fmt: skip
