"""All checks of a plan: of the file itself, what was asked for, the collectives of its programs, and their results."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autoshard.constraints import MatchedKernel, registry
from autoshard.constraints.kernels_of import called_names, kernels_in, with_kernels
from autoshard.errors import AutoshardError
from autoshard.files import read_json
from autoshard.program.as_json import (
    carried_from_json,
    check_header,
    mesh_from_json,
    orders_from_json,
    plain,
    program_to_json,
    schedule_from_json,
    without_places,
)
from autoshard.program.choices import in_code_from_json, loop_parts_from_json
from autoshard.program.differing import program_difference
from autoshard.program.order import apart_from_json, order_from_json
from autoshard.program.program import Program
from autoshard.trust import placed_config, refusal
from autoshard.verify.derived import ASKED, NOT_DERIVED, check_derived
from autoshard.verify.plan.checker import check_plan
from autoshard.verify.plan.planned import AS_NUMBERS, collectives_of
from autoshard.verify.plan.work import MATRIX_KINDS
from autoshard.verify.report import Check, Verification, failed, not_done, ok
from autoshard.verify.runs.forms import FORM, check_form

if TYPE_CHECKING:
    from autoshard.config.workload import Workload
    from autoshard.frontends.jax.function import TracedFunction
    from autoshard.lowering.lower import Lowered
    from autoshard.verify.asked import Asked

PLAN = "statements, layouts, collectives, costs and memory, worked out again from the file"
TEXTS = "collectives of the lowered and the compiled program"
NUMBERS = "results against the unsharded program"

MAX_DEVICES = 64
"""Meshes with more devices are not simulated."""
MAX_LOWERED_DEVICES = 1024
"""Meshes with more devices are not lowered: program texts list every group of devices."""
MAX_RUN_BYTES = 2e9
"""Programs with more bytes of inputs are not run on simulated devices, which share the memory of one host."""
MAX_RUN_FLOP = 5e11
"""Programs with more FLOP are not run on simulated devices."""


@dataclass(frozen=True)
class Runnable:
    """The function that was planned: traced, as the user wrote it, and a function that makes arguments for it.

    problem: the workload of the config that it was built from, if any.
    """

    traced: "TracedFunction"
    function: Callable[..., Any]
    arguments: Callable[[], tuple[Any, ...]]
    problem: "Workload | None" = None


def verify_file(path: str | os.PathLike[str]) -> Verification:
    """Run the checks on a plan.json. Raises `InputError` where the file is missing or holds no plan.

    The function is built again from the config that the plan carries, and what was asked for is derived from it. JAX
    must see enough devices for checks that compile and run (see `autoshard.devices.simulate_devices`); a check that
    cannot be done says why.
    """
    data = check_header(read_json(path, what="plan"), str(path))
    data = {**data, "config": placed_config(data.get("config"), path)}
    return verify_plan(data, name=str(path))


def verify_plan(
    data: Mapping[str, Any],
    runnable: Runnable | None = None,
    *,
    asked: "Asked | None" = None,
    name: str = "the plan",
) -> Verification:
    """Run the checks on the content of a plan.json.

    runnable: the function; where not given, it is built from the plan's config, if that is ``trusted`` (see
    `autoshard.trust`: a plan as it stands in its file is not). asked: what the plan was asked for;
    where not given, that is the plan's config (see also `Plan.verify`). name: of the plan, for the report. Raises
    `InputError` where `asked` cannot be read.
    """
    checked = check_plan(dict(data))
    if not checked.ok:
        reason = "the file contradicts itself, see above"
        first = failed(PLAN, [str(f) for f in checked.findings])
        return Verification(name, (first, *(not_done(what, reason) for what in (ASKED, TEXTS, NUMBERS))))
    first, reason = ok(PLAN, checked.facts), ""
    if runnable is None:
        if data["config"] is None:
            reason = "the plan carries no config that says how to find its function; call Plan.verify with it"
        else:
            try:
                runnable = runnable_of(data["config"], data["program"])
            except AutoshardError as error:
                reason = f"the function cannot be built from the config of the plan: {error}"
    if asked is None and data["config"] is None:
        second = not_done(ASKED, *NOT_DERIVED)
    else:
        traced, problem = (None, None) if runnable is None else (runnable.traced, runnable.problem)
        second = check_derived(data, asked, traced, problem)
    if runnable is None:
        return Verification(name, (first, second, not_done(TEXTS, reason), not_done(NUMBERS, reason)))
    return Verification(name, (first, second, *_run(data, runnable, asked)))


def as_asked(runnable: Runnable, data: Mapping[str, Any]) -> Program:
    """The program of the function, with what the statements put into it: memories, orders and what is carried."""
    host = data["program"].get("host", {})
    return replace(
        runnable.traced.program,
        host_inputs=frozenset(host.get("inputs", ())), host_outputs=frozenset(host.get("outputs", ())),
        orders=orders_from_json(data["program"]), carried=carried_from_json(data["program"]),
        in_code=in_code_from_json(data["program"]),
    )  # fmt: skip


def difference_to(program: Program, data: Mapping[str, Any]) -> str:
    """In which way a program is not the one in the file; empty where it is."""
    now, then = (without_places(p) for p in (plain(program_to_json(program)), data["program"]))
    change = program_difference(now, then)
    if not change:
        return ""
    return f"the function does not trace to the program of the plan: {change}; it or the version of jax has changed"


def _run(data: Mapping[str, Any], runnable: Runnable, asked: "Asked | None") -> tuple[Check, ...]:
    """The checks that lower, compile and run the function."""
    from autoshard.config.problem import imported_locals
    from autoshard.frontends.jax.function import with_locals
    from autoshard.verify.asked import Asked, config_of, locals_asked

    placed = as_asked(runnable, data)
    kernels = registry.read_only(MatchedKernel, data["statements"])
    folder = Path((data["config"] or {}).get("folder") or ".")
    config = config_of(data) if asked is None and data["config"] is not None else None
    if config is not None:
        asked = Asked.of_config(config, runnable.problem)
    stated = locals_asked(asked, placed)
    named = [local for local in stated.values() if isinstance(local, str)]
    if config is not None and not config.trusted and named:
        why = str(refusal(named[0], config.directory, config.file))
        return not_done(TEXTS, why), not_done(NUMBERS, why)
    functions = imported_locals(stated, folder)
    whole = with_locals(replace(runnable.traced, program=with_kernels(placed, kernels)), functions)
    runnable = replace(runnable, traced=whole)
    if reason := difference_to(runnable.traced.program, data):
        return failed(TEXTS, [reason]), not_done(NUMBERS, reason)
    from autoshard.lowering.lower import lower

    try:
        mesh = mesh_from_json(data["mesh"])  # type: ignore[arg-type]
        schedule = schedule_from_json(data["schedule"], mesh, runnable.traced.program)
        program = runnable.traced.program
        order, apart = order_from_json(data.get("order"), program), apart_from_json(data.get("apart"), program)
        lowered = lower(runnable.traced, schedule, order, apart)
    except AutoshardError as error:
        return failed(TEXTS, [f"cannot be lowered: {error}"]), not_done(NUMBERS, str(error))
    done = (
        _where_kernels_run(TEXTS, runnable, lambda: _texts(data, lowered)),
        _where_kernels_run(NUMBERS, runnable, lambda: _numbers(lowered, runnable)),
    )
    form = data.get("form")
    if form is None:
        return done
    results = partial(_numbers, lowered, runnable)
    planned = collectives_of(data, as_numbers=AS_NUMBERS["tpu"])  # of forms in which XLA places them
    return (*done, _where_kernels_run(FORM, runnable, lambda: check_form(form, lowered, planned, results)))


def _where_kernels_run(what: str, runnable: Runnable, check: Callable[[], Check]) -> Check:
    """A check that compiles or runs the program; not done where its kernels are not for the devices of this machine."""
    try:
        return check()
    except Exception as error:  # what JAX and XLA say of a kernel depends on the kernel
        names = kernels_in(runnable.traced.program)
        if not names:
            raise
        first = str(error).strip().partition("\n")[0]
        return not_done(what, f"the kernels {', '.join(names)} are not for the devices of this machine: {first}")


def _unsharded(runnable: Runnable) -> Callable[..., Any]:
    """The function without a plan. Where it has Pallas kernels, they are interpreted on CPUs, which `evaluate` does."""
    import jax

    from autoshard.frontends.jax.interpret import evaluate

    traced = runnable.traced
    if jax.default_backend() != "cpu" or not any(op.kind == "pallas_call" for op, _ in traced.program.walk()):
        return runnable.function
    leaves = jax.tree_util.tree_leaves
    return lambda *args: jax.tree_util.tree_unflatten(traced.out_tree, evaluate(traced, *leaves(args)))


def runnable_of(config: Mapping[str, Any], program: Mapping[str, Any]) -> Runnable:
    """The function of the config that a plan carries, with its loops in the parts that the plan's program has.

    `AutoshardError` for wrong configs.
    """
    from autoshard.config.load import Config
    from autoshard.config.problem import build_problem, told_of_tracing
    from autoshard.frontends.jax.function import trace
    from autoshard.verify.runs.numeric import arguments_like

    read = Config.from_dict(config)
    problem = build_problem(read)
    with told_of_tracing(read, problem.name):
        traced = trace(
            problem.function,
            *problem.specs,
            donate_argnums=problem.donate_argnums,
            argnames=problem.argnames,
            name=program["name"],
            effects=read.settings.effects,
            kernels=called_names(read.statements),
            loop_parts=loop_parts_from_json(program),
        )

    def arguments() -> tuple[Any, ...]:
        if problem.model is not None:
            return _without_zeros(problem.model.init(0)), next(iter(problem.model.batches(0)))
        return arguments_like(problem.specs) if problem.arguments is None else problem.arguments(0)

    return Runnable(traced, traced.function, arguments, problem)


def runnable_from(
    f: Callable[..., Any],
    specs: tuple[Any, ...],
    *,
    name: str,
    argnames: Sequence[str] | None = None,
    **options: Any,
) -> Runnable:
    """The function that a caller passes, to be run with random arguments. options: those of `trace`."""
    import jax

    from autoshard.frontends.jax.calls import by_position
    from autoshard.frontends.jax.function import trace
    from autoshard.frontends.jax.stated import typed_like
    from autoshard.verify.runs.numeric import arguments_like

    traced = trace(f, *specs, argnames=argnames, name=name, **options)
    if traced.call is not None:
        specs = traced.call.arrays(traced.call.arguments)
    else:
        specs = by_position(f, len(traced.arguments), specs, dict(options.get("keywords") or {}))
    return Runnable(traced, traced.function, lambda: jax.tree.map(typed_like, arguments_like(specs), specs))


def _without_zeros(state: Any) -> Any:
    """A state with small positive numbers in place of arrays of floats that are all zero.

    From moments of zero the first step of Adam is the sign of the gradient; where that is about zero, rounding decides.
    """
    import numpy as np
    from jax import tree_util

    from autoshard.verify.runs.numeric import random_arguments

    leaves, tree = tree_util.tree_flatten(state)
    fresh = random_arguments(leaves)
    chosen = [
        new if np.issubdtype(np.asarray(old).dtype, np.inexact) and not np.any(np.asarray(old)) else old
        for old, new in zip(leaves, fresh, strict=True)
    ]
    return tree_util.tree_unflatten(tree, chosen)


# -- collectives of the lowered and the compiled program ---------------------------------------------


def _texts(data: Mapping[str, Any], lowered: "Lowered") -> Check:
    import jax

    from autoshard.interop.jax import auto_abstract_mesh
    from autoshard.verify.runs.able import unable
    from autoshard.verify.runs.collectives import UNCOMBINED, compare
    from autoshard.verify.runs.hlo import compiled_text, hlo_collectives
    from autoshard.verify.runs.stablehlo import stablehlo_collectives

    mesh = lowered.schedule.mesh
    devices = mesh.mesh.size
    there = jax.default_backend() if devices <= jax.device_count() else "cpu"
    planned = collectives_of(data, as_numbers=AS_NUMBERS.get(there, ()))
    if devices > MAX_LOWERED_DEVICES:
        return not_done(TEXTS, f"the mesh has {devices} devices; at most {MAX_LOWERED_DEVICES} are lowered here")
    enough, cannot = devices <= min(MAX_DEVICES, jax.device_count()), unable(lowered.traced.program)
    args = [jax.ShapeDtypeStruct(t.shape, t.dtype) for t in lowered.traced.in_types]
    specs = jax.tree_util.tree_unflatten(lowered.traced.in_tree, args)
    if enough:
        staged = lowered.jit().lower(*specs)
    else:
        abstract = auto_abstract_mesh(mesh.sizes, mesh.names)
        staged = jax.jit(lowered.function(abstract, as_they_lie=True)).trace(*specs).lower(lowering_platforms=("cpu",))
    collectives = stablehlo_collectives(staged.as_text())
    lines = [f"lowered: {d}" for d in compare(planned, collectives, mesh)]
    if not enough or cannot:
        why = cannot or (
            f"the mesh has {devices} devices; up to {MAX_DEVICES} are simulated"
            if devices > MAX_DEVICES
            else f"the mesh has {devices} devices, JAX sees {jax.device_count()}"
        )
        if lines:
            return failed(TEXTS, lines)
        return not_done(TEXTS, f"lowered: all {len(collectives)} collectives as planned; compiled: not done, {why}")
    run = hlo_collectives(compiled_text(staged, UNCOMBINED if jax.default_backend() == "cpu" else None))
    # XLA for CPU computes collectives of narrow floats in float32
    lines += [f"compiled: {d}" for d in compare(planned, run, mesh, dtypes=False)]
    if lines:
        return failed(TEXTS, lines)
    return ok(
        TEXTS,
        [
            f"{len(planned)} planned, {len(collectives)} lowered, {len(run)} compiled: equal by kind, axes, count "
            "and bytes"
        ],
    )


# -- results against the unsharded program -----------------------------------------------------------


def _numbers(lowered: "Lowered", runnable: Runnable, form: Callable[..., Any] | None = None) -> Check:
    import jax

    from autoshard.verify.runs.able import unable
    from autoshard.verify.runs.numeric import numeric_check

    devices = lowered.schedule.mesh.mesh.size
    if devices > min(MAX_DEVICES, jax.device_count()):
        limit = MAX_DEVICES if devices > MAX_DEVICES else jax.device_count()
        return not_done(NUMBERS, f"the mesh has {devices} devices, {limit} can be had here")
    program = runnable.traced.program
    if cannot := unable(program):
        return not_done(NUMBERS, cannot)
    size = sum(program.type_of(v).bytes for v in program.body.args)
    if size > MAX_RUN_BYTES:
        return not_done(NUMBERS, f"its inputs take {size:.3g} bytes; programs up to {MAX_RUN_BYTES:.3g} are run here")
    work = _flop(program)
    if work > MAX_RUN_FLOP:
        return not_done(NUMBERS, f"it is about {work:.3g} FLOP; programs up to {MAX_RUN_FLOP:.3g} are run here")
    jitted, shardings = form or lowered.jit(donate_argnums=()), lowered.in_shardings

    def run(*args: Any) -> Any:  # arguments in host memory have to lie there, those made while a mesh is set lie on it
        return jitted(*jax.device_put(args, shardings))

    try:
        report = numeric_check(run, _unsharded(runnable), runnable.arguments(), names=program.output_names)
    except ValueError as error:
        if not any(words in str(error) for words in _CANNOT_RUN):
            raise
        return not_done(NUMBERS, f"JAX does not run the function itself, with nothing planned: {error}")
    lines = str(report).split("\n")
    if report.wrong:
        return failed(NUMBERS, lines)
    return ok(NUMBERS, lines) if report.ok else not_done(NUMBERS, *lines)


_CANNOT_RUN = ("incompatible devices", "only AbstractMesh exists", "is incompatible with mesh_shape")
"""What JAX says of a function whose own shardings name other devices than it would run on, or none, or several meshes,
one of which it takes for that of a result stated on another."""


def _flop(program: Any) -> float:
    """FLOP of the matrix multiplications and convolutions of a program, loops of unknown length counted once."""

    def of(block: Any) -> float:
        total = 0.0
        for op in block.ops:
            if op.kind in MATRIX_KINDS and op.rule is not None:
                # what a window reads is counted by the window; a row of a ragged product meets one group
                read, made = op.rule.operands[0 if op.kind.startswith("ragged") else 1], op.rule.results[0]
                total += 2.0 * prod(op.rule.factor_sizes[f] for f in {f for dim in (*read, *made) for f in dim})
            trips = op.attrs["length"] if op.kind == "scan" else op.attrs.get("trips") if op.kind == "while" else None
            total += sum(of(r) for r in op.regions) * (1 if trips is None else int(trips))
        return total

    return of(program.body)
