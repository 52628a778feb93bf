"""The Python API: compose the rooms."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from autoshard.api.carry_hint import tells_of_carry
from autoshard.api.plans import Plan
from autoshard.config.mesh_sizes import MeshSearch
from autoshard.constraints import MatchedPin, Pin, in_memories, match_pins
from autoshard.constraints.carry import carried
from autoshard.constraints.groups import MatchedGroup, SameSharding, match_groups
from autoshard.constraints.in_code import groups_in_code, in_code_given, manual_statements, statements_in_code
from autoshard.constraints.orders import in_orders
from autoshard.constraints.restrictions import Restricting, Restriction, match_restrictions
from autoshard.costmodels import Machine, Profile, ProfileError, load_profile, place_mesh
from autoshard.errors import InputError
from autoshard.planning import (
    ACCEPTED_GAP,
    STOPPED_BY_USER,
    Decision,
    Problem,
    best_seen,
    build_model,
    check_room,
    named_stages,
    price_of_sharing,
)
from autoshard.planning.memory_cap import memory_cap
from autoshard.planning.named_stages import Named, named_words
from autoshard.program.program import Program
from autoshard.request.arguments import (
    Limits,
    argument_numbers,
    check_axis_names,
    limit_notes,
    limit_seconds,
    limits_given,
    match_jax_pins,
    mesh_given,
    pins_of_specs,
    stated_order,
    statements_given,
)
from autoshard.request.specs import is_stated, with_stated
from autoshard.search.starts import each_start
from autoshard.search.strategy import decide_by, default_strategy
from autoshard.sharding.mesh import Mesh
from autoshard.sharding.tensor_sharding import TensorSharding
from autoshard.strategies.choice import SEARCHES, StrategyName

if TYPE_CHECKING:
    from autoshard.frontends.jax.function import TracedFunction
    from autoshard.search.baselines import Baseline
    from autoshard.strategies.named import Roles

Progress = Callable[[str], None]

Constraint = Pin | SameSharding | Restricting
"""What `constraints` may hold."""

_STATEMENTS = (
    "Pin, SameSharding, Replicated, AxisOnly, NoCollective, MaxReshards, Barrier, MemoryKind and ManualComputation"
)

START_SHARE = 0.2
"""The part of what is then left of it that looking for starts may take."""

BASELINE_SHARE = 0.4
"""The part of what is left of a time limit that pricing all baselines may take."""


def plan(
    f: Callable[..., Any],
    *specs: Any,
    mesh: Mesh | Mapping[str, Any] | Any,
    hardware: str | Path | Profile | Machine,
    constraints: Constraint | Sequence[Constraint] = (),
    memory_limit: float | str | Mapping[str, Any] | None = None,
    time_limit: float | str | None = None,
    donate_argnums: int | Sequence[int] | None = None,
    static_argnums: int | Sequence[int] | None = None,
    static_argnames: str | Sequence[str] | None = None,
    carry: bool | str | Mapping[str, str] | None = None,
    effects: str | None = None,
    in_code: str | None = None,
    argnames: Sequence[str] | None = None,
    baselines: Sequence[Baseline] = (),
    roles: Roles | None = None,
    sub_axes: Mapping[str, Sequence[int]] | None = None,
    effort: float = 1.0,
    seed: int = 0,
    accepted_gap: float = ACCEPTED_GAP,
    strategy: str | None = None,
    priorities: Sequence[Named] = (),
    share_repeats: bool = True,
    price_sharing: bool = False,
    solver_memory: int | None = None,
    progress: Progress | None = None,
    **keywords: Any,
) -> Plan:
    """Decide the sharding of every value of `f`, minimising the seconds of one call.

    specs: pytrees of anything with shape and dtype; nothing is executed or allocated. A `jax.ShapeDtypeStruct` with a
        `NamedSharding` states where that argument lies. Python numbers are weakly typed scalars; leaves that are no
        arrays (text, functions) are static. keywords: other arguments of `f`, by name.
    mesh: a `Mesh`, ``{"data": 2, "model": 4}``, or with links ``{"data": {"size": 2, "link": "dcn"}, ...}``, or a
        `jax.sharding.Mesh`; with ``{"devices": 8, "axes": ["data", "model"]}`` the sizes are searched too
        (`Plan.mesh_search`).
    hardware: a profile's name (``tpu_v5e``), a profile file, or a placed machine.
    constraints: `Pin`, `SameSharding`, `Replicated`, `AxisOnly`, `NoCollective`, `MaxReshards`, `Barrier`,
        `ManualComputation`, `MemoryKind` (see docs/statements.md); they hold in the answer.
    memory_limit: bytes per device, at every point of the program, or text as in a config (``"14GiB"``, ``"90%"``), or
        both by kind of memory: ``{"device": "14GiB", "pinned_host": "64GiB"}``. Where none is given, the largest peak
        that fits the device with the headroom of compilers (docs/memory.md); ``"none"`` lifts that.
    accepted_gap: where the search within a memory limit may end, in large programs.
    time_limit: seconds of wall clock or text (``"10min"``), a guard: the best plan so far is returned with its bound.
    donate_argnums: positions of the arguments whose buffers the program may reuse, as in `jax.jit`; static_argnums,
        static_argnames: arguments that are no arrays, as there. Of a function that is jitted already these are known.
    carry: which outputs are the next values of which inputs and have their layouts, so that a loop can hand them back:
        found by paths and types where nothing is said (docs/statements.md), ``False`` for none, or a mapping such as
        ``{"out/0": "params"}``.
    effects: ``"drop"`` leaves debug output (`jax.debug.print`) out of the program, which is refused otherwise.
    in_code: what shardings in the code are: ``"hard"`` (they hold), ``"hints"`` (a baseline that the search starts
        from) or ``"ignore"``.
    baselines: named strategies (``fsdp+tensor``, see `autoshard.strategies.named`) or rules of one's own
        (``{"name": "mine", "rules": {"batch": ["data"]}}``) to price and to start from; `roles` names the logical axes
        of the inputs for them. Or shardings, ``{"name": "mine", "in_shardings": ..., "out_shardings": ...}``.
    sub_axes: how to split mesh axes, ``{"model": (8, 2)}``; chosen from the program where not given.
    strategy: how to decide, by name (docs/strategies.md): ``joint`` where nothing is said,
        ``staged`` where priorities are stated. What propagation and greedy find are starts of these two.
    priorities: named strategies (or rules) to be decided in this order, such as ``["data", "tensor", "zero1"]``; they
        need `roles`.
    share_repeats: let repeated layers share their decisions; price_sharing: work out what that costs at most also in
        large programs. solver_memory: bytes of this process at which the search ends with the best plan so far.

    Raises `InputError` for bad arguments, `InfeasibleError` where it is proved that no plan exists, `NotFoundError`
    where none was found and that is not proved (`OutOfTimeError`, of which it is one, where the time ended before),
    `UnsupportedError` for programs outside of what can be planned.
    """
    from autoshard.frontends.jax.function import trace

    say = progress or (lambda text: None)
    say("tracing")
    began = time.monotonic()
    limit_s, donated = limit_seconds(time_limit), argument_numbers(donate_argnums)
    traced = trace(
        f, *specs, donate_argnums=donated, static_argnums=argument_numbers(static_argnums, "static_argnums"),
        static_argnames=static_argnames, argnames=argnames, keywords=keywords, effects=effects,
    )  # fmt: skip
    traced_s = time.monotonic() - began
    left = None if limit_s is None else max(0.1, limit_s - traced_s)
    result = plan_traced(
        traced, mesh=mesh, hardware=hardware, constraints=constraints, memory_limit=memory_limit, time_limit=left,
        carry=carry, in_code=in_code,
        baselines=baselines, roles=roles, sub_axes=sub_axes, effort=effort, seed=seed, accepted_gap=accepted_gap,
        strategy=strategy, priorities=priorities, share_repeats=share_repeats,
        price_sharing=price_sharing, solver_memory=solver_memory, progress=progress,
    )  # fmt: skip
    return result.with_seconds("trace", traced_s)


@tells_of_carry
def plan_traced(
    traced: TracedFunction,
    *,
    mesh: Mesh | Mapping[str, Any],
    hardware: str | Path | Profile | Machine,
    constraints: Constraint | Sequence[Constraint] = (),
    memory_limit: float | str | Mapping[str, Any] | None = None,
    carry: bool | str | Mapping[str, str] | None = None,
    in_code: str | None = None,
    time_limit: float | None = None,
    baselines: Sequence[Baseline] = (),
    slow_axes: Collection[str] | None = None,
    roles: Roles | None = None,
    sub_axes: Mapping[str, Sequence[int]] | None = None,
    effort: float = 1.0,
    seed: int = 0,
    accepted_gap: float = ACCEPTED_GAP,
    strategy: str | None = None,
    priorities: Sequence[Named] = (),
    share_repeats: bool = True,
    price_sharing: bool = False,
    solver_memory: int | None = None,
    config: Mapping[str, Any] | None = None,
    notes: Sequence[str] = (),
    model_flop: float | None = None,
    decided: Decision | None = None,
    progress: Progress | None = None,
) -> Plan:
    """`plan` for a function that is traced already.

    slow_axes: mesh axes between slices (those with ``link: dcn`` where not given); model_flop: useful FLOP of a call,
    for MFU; decided: the decision about this very problem, where it was taken already (by a search over meshes that
    was stopped).
    """
    from autoshard.questions.carried import carry_notes
    from autoshard.search.baselines import PricedBaseline, each_baseline
    from autoshard.strategies.named import batch_size

    mesh = mesh_given(mesh)
    if not isinstance(mesh, Mesh) and MeshSearch.is_one(mesh):
        return _search_mesh(
            traced, MeshSearch.read(mesh), time_limit,
            {
                "hardware": hardware, "constraints": constraints, "memory_limit": memory_limit, "baselines": baselines,
                "slow_axes": slow_axes, "roles": roles, "sub_axes": sub_axes, "effort": effort, "seed": seed,
                "accepted_gap": accepted_gap, "strategy": strategy, "priorities": priorities, "config": config,
                "share_repeats": share_repeats, "price_sharing": price_sharing, "solver_memory": solver_memory,
                "notes": notes, "model_flop": model_flop, "progress": progress, "carry": carry,
                "in_code": in_code,
            },
        )  # fmt: skip
    began = time.monotonic()
    program = traced.program
    chosen = None if strategy is None else StrategyName.parse(strategy)
    asked = ask(
        traced, mesh=mesh, hardware=hardware, constraints=constraints, memory_limit=memory_limit, sub_axes=sub_axes,
        share_repeats=share_repeats, carry=carry, in_code=in_code,
    )  # fmt: skip
    problem = asked.problem
    program = problem.program
    traced = replace(traced, program=program)
    baselines = with_stated(baselines, traced, program, problem.mesh.mesh)
    model = build_model(problem, progress)
    check_room(model)
    built = time.monotonic()
    slow = _slow_axes(mesh) if slow_axes is None else slow_axes
    by = chosen or (StrategyName("staged") if priorities else default_strategy(model))
    priced: list[PricedBaseline] = []
    starts: list[tuple[int, ...]] = []
    decision = decided
    if decision is None:
        part = None if time_limit is None else BASELINE_SHARE * max(0.1, time_limit - (built - began))
        try:
            for one in each_baseline(model, baselines, roles, slow=slow, time_limit_s=part, progress=progress):
                priced.append(one)
                starts += [] if one.assignment is None else [one.assignment]
            part = None if time_limit is None else START_SHARE * max(0.1, time_limit - (time.monotonic() - began))
            if by.name in SEARCHES:
                for start in each_start(model, time_limit_s=part, progress=progress):
                    starts.append(start)
        except KeyboardInterrupt:
            if by.name not in SEARCHES:  # what there is was not made by that strategy
                raise
            decision = best_seen(model, starts)
    compared = time.monotonic()
    stages = named_stages(problem, priorities, roles, slow) if priorities else None
    with memory_cap(solver_memory) as cap:
        if decision is None:
            left = None if time_limit is None else max(0.1, time_limit - (compared - began))
            try:
                decision = decide_by(
                    model, by, stages=stages, starts=starts, time_limit_s=left, effort=effort, seed=seed,
                    accepted_gap=accepted_gap, progress=progress,
                )  # fmt: skip
            except KeyboardInterrupt:
                if by.name not in SEARCHES:
                    raise
                decision = best_seen(model, starts)
        left = None if time_limit is None else max(0.1, time_limit - (time.monotonic() - began))
        sharing = price_of_sharing(model, decision, always=price_sharing, time_limit_s=left, seed=seed)
    told = (*decision.notes, *(() if sharing is None else sharing.notes))
    if cap.reached:
        told = (*(n for n in told if n != STOPPED_BY_USER), cap.note)
    seconds = {"build": built - began, "baselines": compared - built, "solve": time.monotonic() - compared}
    cut = [b.cost.name for b in priced if b.timed_out]
    if cut:
        notes = (*notes, f"the wall clock ended the pricing of {', '.join(cut)}: another run may price them otherwise")
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
        statements=asked.statements,
        baselines=tuple(b.cost for b in priced),
        notes=(
            *notes,
            *program.warnings,
            *asked.notes,
            *problem.machine.notes,
            *told,
            *carry_notes(program, decision.schedule, model.shared.tables),
        ),
        config=config,
        trips=problem.trips,
        model_flop=model_flop,
        batch=None if roles is None else batch_size(program, roles),
        run={
            "seconds": {k: round(v, 3) for k, v in seconds.items()},
            "interrupted": decision.interrupted,
            **decision.stats,
        },
        traced=traced,
        stages=tuple(stage.to_dict() for stage in decision.stages),
        joint=decision.joint,
        sharing=None if sharing is None else sharing.to_dict(),
        priorities=None if roles is None or not stages else named_words(priorities, roles, slow),
        strategy=None if decided is not None or by.by_cost else str(by),
        options={
            "effort": effort,
            "seed": seed,
            "accepted_gap": accepted_gap,
            "share_repeats": share_repeats,
            "sub_axes": None if sub_axes is None else {axis: list(parts) for axis, parts in sub_axes.items()},
            "strategy": strategy,
        },
        certificate=decision.certificate,
        memory_limit={"bytes": problem.memory_limit, "from": "device" if problem.device_limit else "stated"},
    )


def _search_mesh(traced: TracedFunction, search: MeshSearch, time_limit: float | None, given: dict[str, Any]) -> Plan:
    """`plan_traced` with the sizes of the mesh searched; `given`: its other arguments."""
    from autoshard.search.baselines import read_baseline
    from autoshard.search.meshes import search_mesh

    hardware = given.pop("hardware")
    if isinstance(hardware, Machine):
        raise InputError("a machine is placed for one mesh; give a profile to search the sizes of the mesh")
    try:
        allowed, refused = search.allowed(hardware)
    except ProfileError as error:
        raise InputError(str(error)) from error
    if not allowed:
        raise InputError(f"no sizes of {', '.join(search.axes)} fit the machine: {refused[0][1]}")
    baselines = given.pop("baselines")
    words = {k: given[k] for k in ("constraints", "memory_limit", "carry", "in_code", "sub_axes", "share_repeats")}

    def solve(sizes: Mapping[str, int], left: float | None, decided: Decision | None) -> Plan:
        fits = [b for b in baselines if is_stated(b) or _reads(read_baseline, b, Mesh.from_dict(dict(sizes)))]
        return plan_traced(
            traced, mesh=dict(sizes), hardware=hardware, time_limit=left, baselines=fits, decided=decided, **given
        )

    return search_mesh(
        allowed, refused, lambda sizes: ask(traced, mesh=dict(sizes), hardware=hardware, **words).problem,
        solve, names_count=bool(given["priorities"]), effort=given["effort"], seed=given["seed"],
        accepted_gap=given["accepted_gap"], time_limit_s=time_limit, solver_memory=given["solver_memory"],
        progress=given["progress"],
    )  # fmt: skip


def _reads(read: Callable[..., Any], baseline: Baseline, mesh: Mesh) -> bool:
    """Whether a mesh has the axes that a baseline needs."""
    from autoshard.sharding.layout import AtomMesh

    try:
        read(baseline, AtomMesh.split(mesh))
    except InputError:
        return False
    return True


@dataclass(frozen=True)
class Asked:
    """A problem with its statements as they stand in plan.json, and what was noticed in the program's own."""

    problem: Problem
    statements: tuple[dict[str, Any], ...]
    notes: tuple[str, ...]


def ask(
    traced: TracedFunction | Program,
    *,
    mesh: Mesh | Mapping[str, Any],
    hardware: str | Path | Profile | Machine,
    constraints: Constraint | Sequence[Constraint] = (),
    memory_limit: float | str | Mapping[str, Any] | None = None,
    carry: bool | str | Mapping[str, str] | None = None,
    in_code: str | None = None,
    sub_axes: Mapping[str, Sequence[int]] | None = None,
    share_repeats: bool = True,
) -> Asked:
    """The problem that a traced function (or its program alone) and the user's words make; arguments as of `plan`."""
    program, of_carry = carried(traced if isinstance(traced, Program) else traced.program, carry)
    program = replace(program, in_code=in_code_given(in_code))
    traced = program if isinstance(traced, Program) else replace(traced, program=program)
    constraints = (*statements_given(constraints, get_args(Constraint), _STATEMENTS), *of_carry)
    logical, machine = placed(mesh, hardware)
    of_jax = [c for c in constraints if isinstance(c, Pin) and not isinstance(c.sharding, TensorSharding)]
    order = stated_order(traced, of_jax, logical.size)
    if not isinstance(mesh, Mesh):
        logical = replace(logical, device_ids=order)
    in_specs = () if isinstance(traced, Program) else pins_of_specs(traced, logical)
    of_code, code_notes = statements_in_code(program, logical)
    pins = [c for c in constraints if isinstance(c, Pin) and isinstance(c.sharding, TensorSharding)]
    matched = (
        *match_pins(pins, program, logical, compare=False), *match_jax_pins(of_jax, program, logical),
        *in_specs, *of_code,
    )  # fmt: skip
    groups = match_groups([c for c in constraints if isinstance(c, SameSharding)], program) + groups_in_code(program)
    restrictions = match_restrictions([c for c in constraints if isinstance(c, Restricting)], program, logical)
    program = in_orders(in_memories(program, restrictions), matched, groups)
    if program.host_inputs or program.host_outputs:
        try:
            machine.host_copy_s(0.0)
        except ProfileError as error:
            raise InputError(str(error)) from error
    limits = limits_given(memory_limit, machine)
    problem = Problem.make(
        program, logical, machine, pins=matched, memory_limit=limits.device, sub_axes=sub_axes, groups=groups,
        restrictions=restrictions, host_limit=limits.host, share_repeats=share_repeats, device_limit=limits.of_device,
    )  # fmt: skip
    stated = (*_statements(matched, groups, restrictions, limits), *manual_statements(program))
    return Asked(problem, stated, (*code_notes, *limit_notes(limits, machine)))


def placed(mesh: Mesh | Mapping[str, Any], hardware: str | Path | Profile | Machine) -> tuple[Mesh, Machine]:
    """The mesh, and the machine with its axes on links."""
    links: dict[str, str] = {}
    if isinstance(mesh, Mesh):
        logical = mesh
    else:
        sizes: dict[str, int] = {}
        for name, axis in mesh.items():
            if isinstance(axis, Mapping):
                unknown = sorted(set(axis) - {"size", "link"})
                if unknown or "size" not in axis:
                    raise InputError(f"mesh axis {name!r}: give size and perhaps link, found {dict(axis)}")
                sizes[name] = axis["size"]
                if axis.get("link") is not None:
                    links[name] = axis["link"]
            else:
                sizes[name] = axis
        logical = Mesh.from_dict(sizes)
    if not logical.axis_names:
        raise InputError("the mesh has no axes; give at least one, such as {'data': 8}")
    check_axis_names(logical.axis_names)
    try:
        if isinstance(hardware, Machine):
            machine = hardware
            if dict(machine.axes) != dict(zip(logical.axis_names, logical.axis_sizes, strict=True)):
                raise InputError(f"the machine is placed for axes {dict(machine.axes)}, the mesh is {logical}")
        else:
            profile = hardware if isinstance(hardware, Profile) else load_profile(hardware)
            axes = dict(zip(logical.axis_names, logical.axis_sizes, strict=True))
            machine = place_mesh(profile, axes, links or None)
    except ProfileError as error:
        raise InputError(str(error)) from error
    return logical, machine


def _slow_axes(mesh: Mesh | Mapping[str, Any]) -> frozenset[str]:
    if isinstance(mesh, Mesh):
        return frozenset()
    links = {name: axis.get("link") for name, axis in mesh.items() if isinstance(axis, Mapping)}
    return frozenset(name for name, link in links.items() if link and str(link).split("=")[0].strip() == "dcn")


def _statements(
    pins: Sequence[MatchedPin],
    groups: Sequence[MatchedGroup],
    restrictions: Sequence[Restriction],
    limits: Limits,
) -> tuple[dict[str, Any], ...]:
    out: list[dict[str, Any]] = [dict(pin.to_dict()) for pin in pins]
    out += [dict(group.to_dict()) for group in groups]
    out += [restriction.to_dict() for restriction in restrictions]
    if limits.device is not None and not limits.of_device:
        out.append({"kind": "memory_limit", "bytes": limits.device, "source": ""})
    if limits.host is not None:
        out.append({"kind": "host_memory_limit", "memory": "pinned_host", "bytes": limits.host, "source": ""})
    return tuple(out)
