"""`simulate`: plans on a clock, as the machine's compiler orders them or as our own scheduler does."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, get_args

from autoshard.costs.steptime import whole_bytes
from autoshard.errors import InputError, UnsupportedError
from autoshard.interrupts import heeded
from autoshard.plan_record import OWN_SCHEDULER, PLACED_FORMS, RUN_FORMS
from autoshard.report.amounts import bytes_text
from autoshard.simulation.ahead import Compiler, judge_of
from autoshard.simulation.compiled import Compiled
from autoshard.simulation.libraries import unknown_call
from autoshard.simulation.own import WINDOWED_BYTES, own_timeline, windowed
from autoshard.simulation.result import Simulation, Traffic, changes_between
from autoshard.simulation.scheduled import Module, read_module
from autoshard.simulation.timeline import timeline
from autoshard.simulation.work import Clock

if TYPE_CHECKING:
    from collections.abc import Callable

    from autoshard.api.plans import Plan

CLOCKS: tuple[Clock, ...] = get_args(Clock)


@heeded()
def simulate(
    plan: Plan,
    *,
    form: str = "explicit",
    compiler: str = "auto",
    clock: str = "expected",
    name: str | None = None,
    keep: Callable[[str], None] | None = None,
) -> Simulation:
    """A step of the plan on a clock.

    form: how the plan is handed to the compiler (`autoshard.api.targets.TARGETS`, without ``mlir``). compiler: ``tpu``
    and ``gpu`` compile ahead of time, with libtpu and with XLA's compiler for NVIDIA GPUs, and read the schedule;
    ``own`` orders the plan itself, by the plan's seconds (as ``explicit`` or ``constraints``); ``auto`` takes the
    compiler of the machine where it can be had and knows such a slice, our own scheduler otherwise, and says which.
    clock: how compiled work is timed (`autoshard.simulation.work.Work.seconds`). keep: is handed the compiled text.

    Raises `InputError` for unknown names, and for a compiler where the plan was loaded without its function,
    `UnsupportedError` where the compiler cannot be asked or refuses the program.
    """
    for what, stated, known in (("form", form, RUN_FORMS), ("clock", clock, CLOCKS)):
        if stated not in known:
            raise InputError(f"no {what} {stated!r}; there are {', '.join(known)}")
    title = name or plan.program.name
    judge, why = judge_of(plan.machine, compiler)
    devices: list[Any] = []
    if judge is not None:
        try:
            devices = judge.devices_of(plan.machine, plan.schedule.mesh.mesh.device_ids)
        except UnsupportedError as error:  # not every mesh is one that can be bought
            if compiler != "auto":
                raise UnsupportedError(f"{error}; our own scheduler (own, or auto) knows any") from error
            judge, why = None, str(error)
    if judge is None:
        return _own(plan, title, form, (f"no compiler was asked: {why}",) if why else ())
    began = time.monotonic()
    compiled = compile_for(judge, plan, form, devices)
    took = time.monotonic() - began
    if keep is not None:
        keep(compiled.text)
    found = read(plan, read_module(compiled.text), title, form, clock, judge)
    return replace(found, compile_s=took, peak_bytes=compiled.peak_bytes)


def compile_for(judge: Compiler, plan: Plan, form: str, devices: list[Any]) -> Compiled:
    """The plan's program, compiled for the described devices of its machine; takes seconds to minutes.

    Raises `UnsupportedError` where it is refused, or holds more than the device has for programs.
    """
    compiled, usable = judge.compiled(plan.lower(form).staged(devices)), plan.machine.usable_bytes
    if compiled.peak_bytes is not None and compiled.peak_bytes > usable:  # not every compiler refuses it by itself
        raise UnsupportedError(
            f"as {form} the compiled program holds {bytes_text(compiled.peak_bytes)} per device at its peak, of "
            f"{bytes_text(usable)} that programs get (the plan says {bytes_text(plan.memory.peak_bytes)}); "
            "a lower memory_limit makes room"
        )
    return compiled


def read(plan: Plan, module: Module, title: str, form: str, clock: str, judge: Compiler) -> Simulation:
    """A compiled module on the clocks of the plan's machine."""
    notes = list(judge.notes())
    clocks: list[Clock] = sorted(CLOCKS, key=lambda c: c != clock)  # stable: the one that was asked for comes first
    if judge.name == "gpu":
        clocks.remove("cycles")
        if clock == "cycles":
            notes.append("the compiler for GPUs expects no cycles: work is timed as such kernels were measured")
            clocks.sort(key=lambda c: c != "expected")
        calls = {unknown_call(i) for c in module.computations.values() for i in c.instructions.values()} - {""}
        if calls:
            notes.append(f"nothing is known of the FLOP of {', '.join(sorted(calls))}: timed by their bytes")
    elif not module.cycles_known:
        clocks = ["roofline"]
        notes.append("the compiler printed no cycles for this program: work is timed by its roofline")
    if not module.is_scheduled:
        notes.append("the compiled text has no schedule: its order is that of the text, not of execution")
    lines = {c: timeline(module, plan.machine, c) for c in clocks}
    first = lines[clocks[0]]
    notes += [f"nothing says how often the compiled loop {x} runs: counted as one trip" for x in first.unknown_loops]
    planned = planned_traffic(plan)
    return Simulation(
        plan=title, form=form, scheduler=f"{judge.version()}, ahead of time", clocks=dict(lines),
        planned_s=plan.cost.step_s, estimate_s=plan.step_time.estimate_s,
        planned=planned, changes=changes_between(planned, first), notes=tuple(notes),
        planned_peak_bytes=plan.memory.peak_bytes,
    )  # fmt: skip


def _own(plan: Plan, title: str, form: str, notes: tuple[str, ...]) -> Simulation:
    if form not in PLACED_FORMS:
        raise UnsupportedError(f"our own scheduler knows the forms {' and '.join(PLACED_FORMS)}, found {form!r}")
    if form != "explicit":
        check_form(plan, form)
        notes += (
            f"assumed: XLA's partitioner keeps the planned collectives, but for {len(windowed(plan))} reduce-scatters "
            f"of gradients of at least {WINDOWED_BYTES >> 20} MiB, which become loops of permutes beside their matmuls",
        )
    return Simulation(
        plan=title, form=form, scheduler=OWN_SCHEDULER, clocks={"plan": own_timeline(plan, form)},
        planned_s=plan.cost.step_s, estimate_s=plan.step_time.estimate_s, planned=planned_traffic(plan),
        notes=notes, planned_peak_bytes=plan.memory.peak_bytes,
    )  # fmt: skip


def check_form(plan: Plan, form: str) -> None:
    """`UnsupportedError` where a form cannot say what is stated about the plan's program, or hold it."""
    from autoshard.api.targets import check_target

    check_target(form, plan.program)
    if plan.traced is not None and form != "explicit":
        plan.lower(form).stablehlo()


def planned_traffic(plan: Plan) -> Traffic:
    """Executions and bytes of the planned collectives by kind."""
    out: Traffic = {}
    for row in plan.cost.rows:
        if row.is_collective:
            times, bytes_ = out.get(row.kind, (0.0, 0.0))
            out[row.kind] = (times + row.times, bytes_ + row.times * whole_bytes(row, plan.schedule.mesh))
    return out
