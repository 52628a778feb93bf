"""A plan's problem again, as it was or with something changed: the ground of all questions that begin with *what if*.

A plan holds its program, machine and statements, so nothing is traced again. The strategies that are open, the search
and the judges are those of planning; only what the caller changes differs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from autoshard.constraints import (
    HostMemoryLimit,
    MatchedGroup,
    MatchedPin,
    MemoryLimit,
    Restriction,
    conflict,
    in_memories,
)
from autoshard.constraints.orders import in_orders
from autoshard.costmodels.machine import Machine
from autoshard.errors import ShardingError, UnsupportedError
from autoshard.formulation.assign import assignment_of
from autoshard.formulation.domains import satisfies
from autoshard.placements.atoms import stated_splits
from autoshard.plan_record import PlanRecord, ToldLimit, ToldOptions
from autoshard.planning import Decision, Model, Problem, SearchOptions, answer, build_model, decide
from autoshard.planning.named_stages import named_stages
from autoshard.planning.sharing import unpriced
from autoshard.planning.stages import decide_staged, stated_stages
from autoshard.program.program import Program
from autoshard.search.strategy import decide_by, settled
from autoshard.sharding.layout import AtomMesh, Layout
from autoshard.sharding.tensor_sharding import TensorSharding
from autoshard.strategies.choice import SEARCHES, StrategyName

KEEP: Any = object()
"""Stands for *as in the plan*, where None has a meaning of its own."""


@dataclass(frozen=True)
class Changed:
    """What is different from the plan's own problem.

    pins: further pins, of which statements that contradict them give way (`displaced`). machine, memory_limit (bytes,
    None for none), program: instead of the plan's.
    """

    pins: tuple[MatchedPin, ...] = ()
    machine: Machine | None = None
    memory_limit: Any = KEEP
    program: Program | None = None


def stated_pins(plan: PlanRecord) -> tuple[MatchedPin, ...]:
    """The pins of a plan, matched to its values."""
    return plan.stated_as(MatchedPin)


def stated_groups(plan: PlanRecord) -> tuple[MatchedGroup, ...]:
    """The sharding groups of a plan."""
    return plan.stated_as(MatchedGroup)


def limit_of(plan: PlanRecord) -> int | None:
    """Bytes per device that the plan was to stay within: those stated, or the device's."""
    stated = next((limit.bytes for limit in plan.stated_as(MemoryLimit)), None)
    if stated is None and plan.memory_limit is not None and plan.memory_limit.source == "device":
        return plan.memory_limit.bytes
    return stated


def limit_of_device(plan: PlanRecord) -> bool:
    """Whether that is what the device has room for, and nobody stated it."""
    return limit_of(plan) is not None and not plan.stated_as(MemoryLimit)


def displaced(pins: Sequence[MatchedPin], by: Sequence[MatchedPin]) -> tuple[list[MatchedPin], list[MatchedPin]]:
    """`pins` without what contradicts `by`, and the pins that lost a value in this way, as they were."""
    kept: list[MatchedPin] = []
    lost: list[MatchedPin] = []
    for pin in pins:
        against = [new for new in by if _meets(pin, new) and conflict(pin.sharding, new.sharding)]
        if not against:
            kept.append(pin)
            continue
        lost.append(pin)
        values = tuple(v for v in pin.values if not any(v in new.values for new in against))
        outputs = tuple(k for k in pin.outputs if not any(k in new.outputs for new in against))
        if values or outputs:
            kept.append(replace(pin, values=values, outputs=outputs))
    return kept, lost


def _meets(one: MatchedPin, other: MatchedPin) -> bool:
    return bool(set(one.values) & set(other.values) or set(one.outputs) & set(other.outputs))


def new_pins(plan: PlanRecord, pins: Sequence[MatchedPin]) -> tuple[MatchedPin, ...]:
    """Those of further pins that say what statements on another order of the devices do not say already.

    Such a statement settles where its values are, and a pin that it agrees with means the same order.
    """
    moved = [pin for pin in displaced(stated_pins(plan), pins)[0] if pin.moves]
    values, outputs = {v for pin in moved for v in pin.values}, {k for pin in moved for k in pin.outputs}
    left = (
        replace(
            pin, values=tuple(v for v in pin.values if v not in values),
            outputs=tuple(k for k in pin.outputs if k not in outputs),
        )
        for pin in pins
    )  # fmt: skip
    return tuple(pin for pin in left if pin.values or pin.outputs)


def problem_of(plan: PlanRecord, changed: Changed | None = None) -> Problem:
    """The problem that a plan answers, with what is `changed`.

    Raises `InfeasibleError` where the pins that are left contradict each other.
    """
    changed = changed or Changed()
    program = plan.program if changed.program is None else changed.program
    pins, _ = displaced(stated_pins(plan), changed.pins)
    groups, restrictions = stated_groups(plan), plan.stated_as(Restriction)
    every = (*pins, *new_pins(plan, changed.pins))
    if any(pin.moves for pin in every) or program.orders or changed.program is not None:
        program = in_orders(in_memories(replace(program, orders=()), restrictions), every, groups)
    limit = limit_of(plan) if changed.memory_limit is KEEP else changed.memory_limit
    return Problem.make(
        program, plan.schedule.mesh.mesh, plan.machine if changed.machine is None else changed.machine, pins=every,
        memory_limit=limit, sub_axes=_splits(plan.schedule.mesh, [p.sharding for p in every]), trips=plan.trips,
        groups=groups, restrictions=restrictions,
        share_repeats=_shares(plan),
        device_limit=changed.memory_limit is KEEP and limit_of_device(plan),
        host_limit=next((limit.bytes for limit in plan.stated_as(HostMemoryLimit)), None),
    )  # fmt: skip


def _shares(plan: PlanRecord) -> bool:
    """Whether repeated layers share; in plans of earlier versions where nothing is shared, there was nothing to."""
    told = None if plan.options is None else plan.options.share_repeats
    return plan.sharing is not None if told is None else told


def _splits(mesh: AtomMesh, shardings: Sequence[TensorSharding]) -> Mapping[str, Sequence[int]]:
    """The parts of axes that the plan was made of, cut further where shardings ask for it."""
    known = {name: tuple(mesh.sizes[a] for a in atoms) for name, atoms in mesh.atoms_of.items()}
    out = dict(known)
    for axis, parts in stated_splits(shardings, mesh.mesh).items():
        points = sorted(_cuts(known[axis]) | _cuts(parts))
        if any(b % a for a, b in pairwise(points)):
            raise ShardingError(
                f'sub-axes of "{axis}" do not fit together: the plan cuts it into {list(known[axis])}, the sharding '
                f"asked for into {list(parts)}"
            )
        out[axis] = tuple(b // a for a, b in pairwise(points))
    return out


def _cuts(parts: Sequence[int]) -> set[int]:
    found = {1}
    size = 1
    for part in parts:
        size *= part
        found.add(size)
    return found


def options_of(plan: PlanRecord) -> SearchOptions:
    """What the plan was searched with; of earlier versions what its config says, else the defaults."""
    settings = (plan.config or {}).get("settings") or {}
    made = plan.options or ToldOptions.from_dict(settings.get("solver") or {})
    return SearchOptions().but(effort=made.effort, seed=made.seed, accepted_gap=made.accepted_gap)


def solve_again(
    plan: PlanRecord,
    changed: Changed | None = None,
    options: SearchOptions | None = None,
) -> PlanRecord:
    """The plan of the same program under what is `changed`; starts from the plan itself where that is still allowed.

    Statements are those that hold in the answer. options: those that the plan was made with where not given.
    Raises `InfeasibleError`, `NotFoundError` and `OutOfTimeError` as planning does.
    """
    changed = changed or Changed()
    options = options or options_of(plan)
    model = build_model(problem_of(plan, changed), options.progress)
    kept = kept_pins(plan, new_pins(plan, changed.pins))
    decision = decide_again(plan, model, options, kept=kept)
    return plan_of(plan, model, changed, decision, options)


def kept_pins(plan: PlanRecord, pins: Sequence[MatchedPin]) -> tuple[MatchedPin, ...]:
    """Those of the pins that hold in the plan already."""
    schedule, mesh = plan.schedule, plan.schedule.mesh

    def layout(value: int) -> Layout:
        stored = value in plan.program.body.args
        return schedule.definitions[value] if stored else schedule.form_before_use(value)

    def holds(pin: MatchedPin) -> bool:
        layouts = [layout(v) for v in pin.values] + [plan.output_layouts[k] for k in pin.outputs]
        try:
            return all(satisfies(it, pin.sharding, mesh) for it in layouts)
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
    named = any(stage.name for stage in plan.stages)
    if named and plan.priorities is None:
        raise UnsupportedError(
            "this plan was decided in stages by names of strategies by an earlier version, whose plans do not say what "
            "the names stood for; solve again"
        )
    if named or len(plan.stages) > 1:
        if named and plan.priorities is not None:
            told = plan.priorities
            stages = named_stages(stated, told.names, told.roles, told.slow)
        else:
            stages = stated_stages(stated)
            if by is not None:
                stages = [settled(model, stage, by.rule) for stage in stages]
        first = len(stages) if since is None else since
        stages = [replace(s, pins=(*s.pins, *kept)) if k >= first else s for k, s in enumerate(stages)]
        return decide_staged(model.problem, stages, options, joint_model=model, starts=starts)
    return (answer if explain else decide)(model, options, starts=starts)


def plan_of(
    plan: PlanRecord, model: Model, changed: Changed, decision: Decision, options: SearchOptions | None = None
) -> PlanRecord:
    """A decision about a changed problem as a plan."""
    kept, _ = displaced(stated_pins(plan), changed.pins)
    statements: list[Mapping[str, Any]] = [pin.to_dict() for pin in (*kept, *new_pins(plan, changed.pins))]
    both = list(zip(plan.statements, plan.stated, strict=True))
    statements += [said for said, one in both if not isinstance(one, MatchedPin | MemoryLimit)]
    if changed.memory_limit is KEEP:
        limit = plan.memory_limit
        statements += [said for said, one in both if isinstance(one, MemoryLimit)]
    else:
        limit = ToldLimit(bytes=changed.memory_limit, source="stated")
        if changed.memory_limit is not None:
            statements.append(MemoryLimit(changed.memory_limit).to_dict())
    program = model.problem.program
    sharing = unpriced(model) if model.repeats.shared else None  # what it costs is worked out for the plan alone
    made = options or options_of(plan)
    told = {"effort": made.effort, "seed": made.seed, "accepted_gap": made.accepted_gap}
    searched = (plan.options or ToldOptions()).model_copy(update=told)
    traced = None if plan.traced is None or changed.program is not None else replace(plan.traced, program=program)
    return replace(
        plan, program=program, traced=traced, sharing=sharing, mesh_search=None,
        options=searched,
        schedule=decision.schedule, machine=model.problem.machine,
        cost=decision.cost, memory=decision.memory, status=decision.status, objective_s=decision.objective_s,
        bound_s=decision.bound_s, gap=decision.gap, memory_price_s=decision.memory_price_s,
        rounding_s=decision.rounding_s, statements=tuple(statements), baselines=(), notes=decision.notes,
        run={"interrupted": decision.interrupted, **decision.stats},
        stages=decision.stages, joint=decision.joint, memory_limit=limit,
        certificate=decision.certificate,
    )  # fmt: skip
