"""The Python API: compose the rooms."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autoshard.api.carry_hint import tells_of_carry
from autoshard.api.deciding import decided_plan
from autoshard.api.loops import plan_loops, with_part_notes
from autoshard.api.plans import Plan
from autoshard.config.problem import imported_locals
from autoshard.constraints.kernels_of import called_names
from autoshard.costmodels import Machine, Profile, ProfileError
from autoshard.deadline import Deadline
from autoshard.errors import InfeasibleError, InputError
from autoshard.garbage import set_aside
from autoshard.interrupts import heeded
from autoshard.plan_record import RefusalRecord, ToldLimit
from autoshard.planning import (
    Decision,
)
from autoshard.planning.interrupting import TRACE_LESS, TRACING, ended_at
from autoshard.planning.named_stages import Named, named_words
from autoshard.program.program import Program
from autoshard.request.arguments import argument_numbers, limit_seconds
from autoshard.request.asking import Asked, Constraint, asked, placed
from autoshard.request.request import AUTO, Request, SearchWords, request_of
from autoshard.search_options import Progress, SearchOptions
from autoshard.sharding.mesh import Mesh
from autoshard.strategies.choice import StrategyName

if TYPE_CHECKING:
    from autoshard.frontends.jax.function import TracedFunction
    from autoshard.search.baselines import Baseline
    from autoshard.strategies.named import Roles

__all__ = ["Asked", "Constraint", "ask", "placed", "plan", "plan_request", "plan_traced"]


@heeded()
def plan(
    f: Callable[..., Any],
    *specs: Any,
    mesh: Mesh | Mapping[str, Any] | Any,
    hardware: str | Path | Profile | Machine,
    constraints: Constraint | Sequence[Constraint] = (),
    memory_limit: float | str | Mapping[str, Any] | None = None,
    time_limit: float | str | None = None,
    donate_argnums: int | Sequence[int] | None = None,
    carry: bool | str | Mapping[str, str] | None = None,
    baselines: Sequence[Baseline] = (),
    roles: Roles | None = None,
    priorities: Sequence[Named] = (),
    progress: Progress | None = None,
    **words: Any,
) -> Plan:
    """Decide the sharding of every value of `f`, minimising the seconds of one call.

    specs: pytrees of anything with shape and dtype; nothing is executed or allocated. A `jax.ShapeDtypeStruct` with a
        `NamedSharding` states where that argument lies; an array states nothing. Python numbers are weakly typed
        scalars; other leaves (text, functions) are static. words: arguments of `f` by name, and keywords listed below.
    mesh: a `Mesh`, ``{"data": 2, "model": 4}``, or with links ``{"data": {"size": 2, "link": "dcn"}, ...}``, or a
        `jax.sharding.Mesh`; with ``{"devices": 8, "axes": ["data", "model"]}`` the sizes are searched too
        (`Plan.mesh_search`).
    hardware: a profile's name (``tpu_v5e``), a profile file, or a placed machine.
    constraints: `Pin`, `SameSharding`, `Replicated`, `AxisOnly`, `NoCollective`, `MaxReshards`, `Barrier`,
        `ManualComputation`, `MemoryKind` (see docs/statements.md); they hold in the answer.
    memory_limit: bytes per device, at every point of the program, or text as in a config (``"14GiB"``, ``"90%"``), or
        both by kind of memory: ``{"device": "14GiB", "pinned_host": "64GiB"}``. By default the largest peak that fits
        the device with the headroom of compilers (docs/memory.md); ``"none"`` lifts that limit.
    time_limit: seconds of wall clock or text (``"10min"``), a guard on all of it: the best plan so far is returned with
        its bound, or `OutOfTimeError` where tracing or building had not ended. Compiling our own code does not count.
    donate_argnums: positions of the arguments whose buffers the program may reuse, as in `jax.jit`.
    carry: which outputs are the next values of which inputs and have their layouts, so that a loop can hand them back.
        By default they are found by paths and types (docs/statements.md); ``False`` for none, or a mapping such as
        ``{"out/0": "params"}``.
    baselines: named strategies (``fsdp+tensor``, see `autoshard.strategies.named`) or rules of one's own
        (``{"name": "mine", "rules": {"batch": ["data"]}}``) to price and to start from; `roles` names the logical axes
        of the inputs for them. Or shardings, ``{"name": "mine", "in_shardings": ..., "out_shardings": ...}``, with
        ``"in_code": True`` together with those in the code.
    priorities: named strategies (or rules) to be decided in this order, such as ``["data", "tensor", "zero1"]``; they
        need `roles`.
    progress: called with lines of text about the work that begins.

    Of the function: static_argnums, static_argnames: arguments that are no arrays, as in `jax.jit` (known of a function
        that is jitted already). argnames: what to call the arguments. effects: ``"drop"`` leaves debug output
        (`jax.debug.print`) out of the program, which is refused otherwise. in_code: what shardings in the code are:
        ``"hard"`` (they hold), ``"hints"`` (a baseline that the search starts from) or ``"ignore"``.
    Of the search: `SearchWords`: effort, seed, accepted_gap, strategy, sub_axes, share_repeats, price_sharing,
        solver_memory, loop_parts.

    Raises `InputError` for bad arguments, `InfeasibleError` where it is proved that no plan exists, `NotFoundError`
    where the search ended without a plan and nothing is proved, its base `OutOfTimeError` where the time ended before,
    `UnsupportedError` for programs outside of what can be planned.
    """
    request, traced_s = request_of_call(
        f, specs, mesh=mesh, hardware=hardware, constraints=constraints, memory_limit=memory_limit,
        time_limit=time_limit, donate_argnums=donate_argnums, carry=carry, baselines=baselines, roles=roles,
        priorities=priorities, progress=progress, **words,
    )  # fmt: skip
    return plan_request(request).with_seconds("trace", traced_s)


def request_of_call(
    f: Callable[..., Any],
    specs: Sequence[Any],
    *,
    constraints: Any = (),
    time_limit: float | str | None = None,
    donate_argnums: int | Sequence[int] | None = None,
    progress: Progress | None = None,
    **words: Any,
) -> tuple[Request, float]:
    """The request that the arguments of `plan` make, and the seconds that tracing took."""
    from autoshard.frontends.jax.calls import told_to_planning
    from autoshard.frontends.jax.function import trace
    from autoshard.frontends.jax.keywords import check_keywords

    if progress is not None and not callable(progress):
        raise InputError(f"progress: expected a function of a text, found {progress!r}")
    if progress is not None:
        progress("tracing")
    deadline = Deadline.after(limit_seconds(time_limit))
    options = (*_keywords(), *SearchWords.__annotations__, *_OF_FUNCTION, "static_argnums", "in_code")
    also = dict(words, constraints=constraints, time_limit=time_limit, donate_argnums=donate_argnums, progress=progress)
    notes = told_to_planning(f, len(specs), {name: also.get(name) for name in options})
    search = {name: words.pop(name) for name in SearchWords.__annotations__ if name in words}
    search |= {name: words.pop(name) for name in _ASKED if name in words}
    told: dict[str, Any] = {name: words.pop(name, None) for name in _OF_FUNCTION}
    static = argument_numbers(words.pop("static_argnums", None), "static_argnums")
    check_keywords(f, words, options)
    with set_aside(), ended_at(deadline, TRACING, TRACE_LESS):
        traced = trace(
            f, *specs, donate_argnums=argument_numbers(donate_argnums), static_argnums=static, keywords=words,
            kernels=called_names(constraints), loop_parts=search.get("loop_parts"), **told,
        )  # fmt: skip
    traced_s = deadline.spent()
    request = request_of(traced, constraints=constraints, time_limit=deadline.left(), progress=progress, **search)
    return replace(request, notes=notes), traced_s


_ASKED = ("mesh", "hardware", "memory_limit", "baselines", "roles", "priorities", "carry", "in_code")
"""Keywords of `plan` that are handed on as they are; the others that it does not know are arguments of the function."""
_OF_FUNCTION = ("static_argnames", "argnames", "effects")
"""Keywords of `plan` that tracing takes as they are."""


def _keywords() -> list[str]:
    """The keywords in the signature of `plan`."""
    return [name for name, p in inspect.signature(plan).parameters.items() if p.kind is p.KEYWORD_ONLY]


def plan_traced(traced: TracedFunction, **words: Any) -> Plan:
    """`plan` for a function that is traced already, with the same keywords (`request_of`)."""
    return plan_request(request_of(traced, **words))


def ask(traced: TracedFunction | Program, **words: Any) -> Asked:
    """The problem that keywords of `plan` state about a traced function (or its program alone)."""
    return asked(request_of(traced, **words))


@heeded()
@tells_of_carry
def plan_request(request: Request, decided: Decision | None = None) -> Plan:
    """The plan that a request asks for.

    decided: the decision about this problem, where a search over meshes that was stopped has already made it.
    """
    if request.form != "explicit":
        from autoshard.api.forms import planned_in_form

        return planned_in_form(request, lambda written_out: plan_request(written_out, decided))
    if request.mesh_search is not None:
        return _search_mesh(request)
    if request.loop_parts == AUTO:
        return plan_loops(request, plan_request)
    chosen = None if request.strategy is None else StrategyName.parse(request.strategy)
    question = asked(request)
    folder = Path((request.config or {}).get("folder") or ".")
    question = replace(question, locals=imported_locals(question.locals, folder))
    try:
        return _answered(request, question, decided, chosen)
    except InfeasibleError as error:
        error.refusal = error.refusal or _refusal(request, question, error)
        raise


def _answered(request: Request, question: Asked, decided: Decision | None, chosen: StrategyName | None) -> Plan:
    """The plan of a request whose statements have been matched to its program."""
    plan = decided_plan(request, question, decided, chosen)
    return with_part_notes(plan) if request.loop_parts not in (None, (), 1) else plan


def _refusal(request: Request, question: Asked, error: InfeasibleError) -> RefusalRecord:
    """What is refused, with the proof."""
    problem = question.problem
    return RefusalRecord(
        program=problem.program, mesh=problem.mesh, machine=problem.machine, statements=question.statements,
        config=request.config, trips=problem.trips, options=request.told_options(), reason=str(error),
        priorities=named_words(request.priorities, request.roles, request.between_slices),
        conflict=error.conflict, facts=error.facts,
        certificate=None if error.proof is None else error.proof.told("refusal"),
        memory_limit=ToldLimit(bytes=problem.memory_limit, source="device" if problem.device_limit else "stated"),
    )  # fmt: skip


def _search_mesh(request: Request) -> Plan:
    """The plan of a request whose mesh leaves its sizes open."""
    from autoshard.search.meshes import search_mesh

    search = request.mesh_search
    assert search is not None
    try:
        allowed, refused = search.allowed(request.hardware)
    except ProfileError as error:
        raise InputError(str(error)) from error
    if not allowed:
        raise InputError(f"no sizes of {', '.join(search.axes)} fit the machine: {refused[0][1]}")

    def solve(sizes: Mapping[str, int], options: SearchOptions, decided: Decision | None) -> Plan:
        return plan_request(replace(request.on(sizes, _reads), options=options, loop_parts=()), decided)

    return search_mesh(
        allowed, refused, lambda sizes: asked(request.on(sizes, _reads)).problem, solve, request.options,
        names_count=bool(request.priorities), solver_memory=request.solver_memory, tighter=request.frontier,
    )  # fmt: skip


def _reads(baseline: Baseline, mesh: Mesh) -> bool:
    """Whether a mesh has the axes that a baseline needs; `InputError` for the name of no baseline."""
    from autoshard.strategies.named import named_strategy
    from autoshard.strategies.names import parts_of

    if not isinstance(baseline, str):
        return True  # rules name axes, and all meshes have the same
    parts_of(baseline)
    try:
        named_strategy(baseline, mesh)
    except InputError:
        return False
    return True
