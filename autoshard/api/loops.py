"""Planning with loops in parts: in how many parts it pays to run loops whose iterations do not wait for each other.

The program is planned as it stands, then with as many parts as the devices could take, then with those parts that this
plan has cut (parts that are not cut cost memory and gain nothing). The cheapest of the plans is the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import gcd
from typing import TYPE_CHECKING, Any

from autoshard import interrupts
from autoshard.errors import AutoshardError, InfeasibleError, OutOfTimeError
from autoshard.program.program import Origin, Program
from autoshard.request.asking import asked
from autoshard.request.request import Request

if TYPE_CHECKING:
    from autoshard.api.plans import Plan
    from autoshard.frontends.jax.function import TracedFunction

WORTH = 1e-3
"""Share of a step that parts must gain: plans that close are taken as the program stands."""

FIRST_SHARE, SECOND_SHARE = 0.4, 0.6
"""Shares of the time then remaining for the plan of the program as it stands, and for that with the most parts."""

STOPPED = "loop_parts='auto': the run was stopped before loops were tried in all parts: this is the best plan by then"

PlanOf = Callable[[Request], "Plan"]


def plan_loops(request: Request, plan_of: PlanOf) -> Plan:
    """The cheapest plan of a request, with its loops as they stand or in parts. plan_of: plans with the parts given.

    Errors are those of the program as it stands.
    """
    whole = replace(request, loop_parts=())
    traced: Any = request.traced
    loops = getattr(traced, "loops", ())
    most = [gcd(loop.length, devices_of(request)) for loop in loops]
    if all(n == 1 for n in most):
        return with_part_notes(plan_of(whole))
    refused = _says_otherwise(whole, most)
    if refused:
        return _noted(plan_of(whole), f"loop_parts='auto': loops run as they stand, since {refused}")
    candidates: list[Plan] = []
    stopped = False
    with interrupts.noticed() as ctrl_c:
        best, error = _tried(replace(whole, options=request.options.part(FIRST_SHARE)), plan_of)
        try:
            for plan in _plans_in_parts(whole, most, plan_of, ctrl_c):
                candidates.insert(0, plan)
        except KeyboardInterrupt:
            if best is None and not candidates:
                raise
            stopped = True
    for plan in candidates:
        if best is None or plan.objective_s < best.objective_s * (1 - WORTH):
            gained = "" if best is None else f", which saves {1 - plan.objective_s / best.objective_s:.1%} of the step"
            best, told = plan, gained
            best = _noted(best, f"loop_parts='auto': {_described(plan)}{told}")
    if best is None:
        assert error is not None
        raise error
    if stopped:
        best = replace(_noted(best, STOPPED), run={**best.run, "interrupted": True})
    return with_part_notes(best)


def _plans_in_parts(whole: Request, most: Sequence[int], plan_of: PlanOf, ctrl_c: interrupts.Noticed) -> Iterator[Plan]:
    """Plans with the most parts that there can be, then with those that this one cut; Ctrl-C ends them."""
    options = whole.options
    ctrl_c.check()
    options.say(f"loops in up to {max(most)} parts")
    plan, _ = _tried(replace(_in_parts(whole, most), options=options.part(SECOND_SHARE)), plan_of)
    if plan is not None:
        yield plan
    else:
        ctrl_c.check()
        free = replace(_in_parts(whole, most), options=options.part(SECOND_SHARE), memory_limit="none")
        plan, _ = _tried(free, plan_of)
    ctrl_c.check()
    cut = () if plan is None else parts_cut(plan)
    if plan is not None and any(n > 1 for n in cut) and cut != plan.program.loop_parts:
        plan, _ = _tried(_in_parts(whole, cut), plan_of)
        if plan is not None:
            yield plan


def with_part_notes(plan: Plan) -> Plan:
    """The plan with a note on each loop that does not run in as many parts as were asked for."""
    notes = () if plan.traced is None else plan.traced.part_notes
    return replace(plan, notes=(*plan.notes, *(f"loop_parts: {sentence}" for sentence in notes)))


def devices_of(request: Request) -> int:
    """The number of devices of the request's mesh."""
    return asked(replace(request, loop_parts=())).problem.mesh.mesh.size


def parts_cut(plan: Plan) -> tuple[int, ...]:
    """The parts of each loop along which the plan cuts it: fewer than it has where devices hold several of them."""
    assert plan.traced is not None
    program, schedule = plan.program, plan.schedule
    out = []
    for loop in plan.traced.loops:
        cut = 1
        if loop.op is not None and loop.parts > 1:
            op = program.ops[loop.op]
            for value in op.regions[0].args[op.attrs["num_consts"] :]:
                layout = schedule.definitions.get(value)
                if layout is not None and layout.dims and program.type_of(value).shape[0] == loop.parts:
                    cut = max(cut, schedule.mesh.size(layout.dims[0]))
        out.append(cut if loop.parts % cut == 0 else loop.parts)
    return tuple(out)


def _in_parts(request: Request, parts: Sequence[int]) -> Request:
    traced: Any = request.traced
    return replace(request, traced=traced.in_parts(tuple(parts)))


def _tried(request: Request, plan_of: PlanOf) -> tuple[Plan | None, AutoshardError | None]:
    try:
        return plan_of(request), None
    except (InfeasibleError, OutOfTimeError) as error:
        return None, error


def _noted(plan: Plan, note: str) -> Plan:
    return replace(plan, notes=(*plan.notes, note))


def _described(plan: Plan) -> str:
    assert plan.traced is not None
    loops = [
        f"the loop at {plan.program.ops[loop.op].source or 'an unknown line'} in {loop.parts} parts"
        for loop in plan.traced.loops
        if loop.op is not None and loop.parts > 1
    ]
    return ", ".join(dict.fromkeys(loops)) + (" run" if len(loops) > 1 else " runs")


def _says_otherwise(request: Request, parts: Sequence[int]) -> str:
    """Why the statements would mean something else with loops in parts; '' where they mean the same.

    In parts, values inside of loops have one more dimension, and ops have other numbers.
    """
    try:
        divided = _in_parts(request, parts)
        before, after = (_stated(asked(r).statements, _program(r)) for r in (request, divided))
    except AutoshardError as error:
        return f"a statement does not fit the program with loops in parts: {error}"
    return "" if before == after else "a statement is about values or ops inside of the program, which then change"


def _program(request: Request) -> Program:
    traced: TracedFunction | Program = request.traced
    return traced if isinstance(traced, Program) else traced.program


def _stated(statements: Sequence[Mapping[str, Any]], program: Program) -> list[Any]:
    def told(value: int) -> object:
        held = program.values[value]
        if held.origin is Origin.INPUT:
            return held.name
        return (held.tags, held.type) if held.tags else object()

    return [
        {key: [told(v) for v in entry] if key == "values" else entry for key, entry in statement.items()}
        for statement in statements
    ]
