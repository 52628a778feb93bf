"""Break-even: at which link bandwidth, batch size or memory limit the sharding of a value flips.

A parameter is moved away from where it is, further and further, and the plan solved again each time; between the last
point where the decision stands and the first where it does not, the border is bisected. A decision has flipped where
keeping it is proved to cost more than the best plan found, so that ties and what a search missed are no flips. Of plans
made in stages, the costs of the first stage in which they differ are compared. With another sharding named, the
question is where that one becomes the cheaper of the two.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import sqrt
from typing import Any

from autoshard.constraints import MatchedPin
from autoshard.costmodels.machine import Machine
from autoshard.errors import InfeasibleError, InputError, OutOfTimeError
from autoshard.plan_record import PlanRecord
from autoshard.planning import Model, build_model
from autoshard.program.program import Program
from autoshard.program.ties import layout_ties
from autoshard.questions.again import (
    KEEP,
    Changed,
    decide_again,
    limit_of,
    new_pins,
    on_inputs,
    options_of,
    plan_of,
    problem_of,
)
from autoshard.questions.explain import explain_plan
from autoshard.questions.flips import BreakEven, Flip, NoPlan
from autoshard.questions.instead import pin_for
from autoshard.report.amounts import bytes_text
from autoshard.search_options import SearchOptions
from autoshard.sharding.tensor_sharding import TensorSharding

BY = ("bandwidth", "batch", "memory")
STRIDE, STEPS = 4.0, 3
"""How far a parameter is moved by one step, and steps in each direction."""
CLOSE = 1.05
"""Ratio of the two ends of the border at which bisection ends."""
MOST_BYTES = 2.0**62
"""No memory limit is asked about beyond this."""
EFFORT = 0.1
"""Work of the solver at one point, as a share of the plan's effort. Little is enough: verdicts rest on bounds, not on
how good the plans are.
"""


Solve = Callable[..., PlanRecord | NoPlan]
"""(pin or None, since=number of a stage) -> the plan at one value of the parameter, under that further pin."""


def break_even(
    plan: PlanRecord,
    pattern: str,
    by: str,
    *,
    instead: str | TensorSharding | None = None,
    options: SearchOptions | None = None,
    each_s: float | None = None,
) -> BreakEven:
    """Where the sharding of the one value that `pattern` addresses flips as `by` moves (see `BY`).

    instead: the sharding to hold it against; the best other one where not given. options: of each
    search (`quick_options` where not given). each_s: seconds of wall clock of each search, a guard.
    Raises `InputError` where `pattern` addresses several values that differ or `by` is unknown, `UnsupportedError` for
    batch where the plan does not say how to find its function again.
    """
    if by not in BY:
        raise InputError(f"unknown break-even {by!r}; choices: {', '.join(BY)}")
    rival = None if instead is None else _with_carried(plan, pin_for(plan, pattern, instead))
    kept, name, sharding = _kept(plan, pattern)
    options = options or quick_options(plan)
    quiet = replace(options, progress=None)
    models: dict[object, Model] = {}  # limits share a network

    def solve(changed: Changed, what: str, pin: MatchedPin | None, since: int | None = None) -> PlanRecord | NoPlan:
        options.say(f"break-even by {by} at {what}")  # each a stage of its own
        pinned = replace(changed, pins=() if pin is None else (pin,))
        try:
            key = (pin, id(changed.machine), id(changed.program))
            if by != "memory" or key not in models:
                models.clear() if by != "memory" else None
                models[key] = build_model(problem_of(plan, pinned))
            model = models[key]
            limit = limit_of(plan) if changed.memory_limit is KEEP else changed.memory_limit
            model = replace(model, problem=replace(model.problem, memory_limit=limit))
            own = new_pins(plan, pinned.pins) if pin is kept else ()
            decision = decide_again(plan, model, quiet.within(each_s), explain=False, kept=own, since=since)
            if decision.interrupted:  # half a search is no verdict
                raise KeyboardInterrupt
            return plan_of(plan, model, pinned, decision, kept=own)
        except InfeasibleError:
            return NoPlan(True)
        except OutOfTimeError:  # its time ended, or the search by itself
            return NoPlan(False)

    judge = _Judge(name, kept, rival, plan.strategy)
    told = None if rival is None else str(rival.sharding)
    if by == "memory":
        return _by_memory(plan, judge, name, sharding, told, solve)
    if by == "batch":
        return _by_batch(plan, judge, name, sharding, told, solve)
    return _by_bandwidth(plan, judge, name, sharding, told, solve)


def quick_options(plan: PlanRecord) -> SearchOptions:
    """The plan's own options, with a part of its effort: there are many searches."""
    own = options_of(plan)
    return own.but(effort=own.effort_of_one(EFFORT))


def _kept(plan: PlanRecord, pattern: str) -> tuple[MatchedPin, str, str]:
    """The plan's own sharding of the values that `pattern` addresses as a pin, the name of the first, and its text."""
    explained = explain_plan(plan, pattern, alternatives=False)
    shardings = {item.sharding for item in explained}
    if len(shardings) > 1:
        raise InputError(
            f"{pattern!r} addresses {len(explained)} values with {len(shardings)} shardings; ask about one, such as "
            f"{explained[0].name}"
        )
    name, sharding = explained[0].name, explained[0].sharding
    return on_inputs(plan, _with_carried(plan, pin_for(plan, pattern, sharding))), name, sharding


def _with_carried(plan: PlanRecord, pin: MatchedPin) -> MatchedPin:
    """The pin, of the inputs too whose next values its outputs are: the two are one decision in the plan, and an output
    that is pinned alone would leave as no next call takes it.
    """
    names, ties = plan.program.output_names, layout_ties(plan.program)
    tied = [(names[k], ties[k]) for k in pin.outputs if k in ties]
    inputs = [v for name, v in tied if plan[name] == plan[plan.program.values[v].name] and v not in pin.values]
    return replace(pin, values=(*pin.values, *inputs))


@dataclass(frozen=True)
class _Verdict:
    """Whether the decision stands at one point.

    sharding: what the value has there. kept_s, best_s: objective of the best plan that keeps the decision (None: there
    is none, or it was not asked for) and of the best plan. proved: False where a missing plan was only not found.
    """

    stands: bool
    sharding: str | None = None
    kept_s: float | None = None
    best_s: float | None = None
    proved: bool = True


@dataclass(frozen=True)
class _Judge:
    """Whether a decision stands at one point."""

    name: str
    kept: MatchedPin
    rival: MatchedPin | None
    strategy: str | None = None
    """The strategy of a plan that was not decided by cost: the decision is what it decides, at whatever cost."""

    def __call__(self, solve: Solve) -> _Verdict:
        best = solve(self.rival)
        if self.rival is not None:
            kept = solve(self.kept)
            if isinstance(best, NoPlan) or isinstance(kept, NoPlan):
                stands, proved = (
                    isinstance(kept, PlanRecord),
                    all(p.proved for p in (best, kept) if isinstance(p, NoPlan)),
                )
                sharding = best[self.name] if isinstance(best, PlanRecord) else None
                return _Verdict(stands, sharding, _cost(kept), _cost(best), proved)
            slack = kept.rounding_s + best.rounding_s
            stands = kept.objective_s <= best.objective_s + slack
            return _Verdict(stands, best[self.name], kept.objective_s, best.objective_s)
        if isinstance(best, NoPlan):
            return _Verdict(False, proved=best.proved)
        if best[self.name] == str(self.kept.sharding):
            return _Verdict(True, best[self.name], best.objective_s, best.objective_s)
        if self.strategy is not None:
            return _Verdict(False, best[self.name], None, best.objective_s)
        kept = solve(self.kept)
        if isinstance(kept, PlanRecord) and (parted := _parted(kept, best)) is not None:
            kept = solve(self.kept, since=parted)  # that stage placed it otherwise: does it have to?
        return _Verdict(_may_be_kept(kept, best), best[self.name], _cost(kept), best.objective_s)


def _cost(plan: PlanRecord | NoPlan) -> float | None:
    return plan.objective_s if isinstance(plan, PlanRecord) else None


def _parted(kept: PlanRecord, best: PlanRecord) -> int | None:
    """The number of the first stage but the last that places different things in the two plans; None: no stage does."""
    for number, (stage_kept, stage_best) in enumerate(zip(kept.stages[:-1], best.stages[:-1], strict=False)):
        if stage_kept.placed != stage_best.placed:
            return number
    return None


def _may_be_kept(kept: PlanRecord | NoPlan, best: PlanRecord) -> bool:
    """Whether nothing proves that keeping the decision costs more than the best plan.

    With stages, the first one in which the two differ decides.
    """
    if isinstance(kept, NoPlan):
        return not kept.proved
    slack = kept.rounding_s + best.rounding_s
    if len(kept.stages) == len(best.stages):
        for stage_kept, stage_best in zip(kept.stages, best.stages, strict=True):
            if stage_kept.bound_s > stage_best.cost_s + slack:
                return False
            if stage_kept.cost_s + slack < stage_best.bound_s:
                return True
    return kept.bound_s <= best.objective_s


def _borders(
    directions: dict[str, list[float]],
    now: float,
    test: Callable[[float], _Verdict],
    between: Callable[[float, float], float | None],
) -> tuple[bool, tuple[Flip, ...]]:
    """Whether the decision stands `now`, and in each direction the first border at which that changes.

    directions: ``down`` and ``up`` with their points, moving away from `now`.
    """
    here = test(now)
    flips = []
    for direction, points in directions.items():
        border = _border(points, (now, here), test, between)
        if border is not None:
            (stands, _), (flips_at, verdict) = border
            way = direction if here.stands else {"down": "up", "up": "down"}[direction]
            flips.append(Flip(way, stands, flips_at, verdict.sharding, verdict.kept_s, verdict.best_s, verdict.proved))
    return here.stands, tuple(flips)


def _border(
    points: list[float],
    now: tuple[float, _Verdict],
    test: Callable[[float], _Verdict],
    between: Callable[[float, float], float | None],
) -> tuple[tuple[float, _Verdict], tuple[float, _Verdict]] | None:
    """The border before the first of `points` with another verdict than `now`, bisected: where the decision stands, and
    where it does not.
    """
    near = now
    for point in points:
        far = (point, test(point))
        if far[1].stands == now[1].stands:
            near = far
            continue
        while (middle := between(near[0], far[0])) is not None:
            at = (middle, test(middle))
            if at[1].stands == now[1].stands:
                near = at
            else:
                far = at
        return (near, far) if near[1].stands else (far, near)
    return None


def _ratio(near: float, far: float) -> float | None:
    """The geometric middle, None where the two are close."""
    return None if max(near / far, far / near) <= CLOSE else sqrt(near * far)


# -- the parameters -------------------------------------------------------------------------------------


def _by_bandwidth(
    plan: PlanRecord, judge: _Judge, name: str, sharding: str, rival: str | None, solve: Any
) -> BreakEven:
    machine = plan.machine
    used = {s.level for segments in machine.layout for s in segments if s.size > 1}
    levels = tuple((lv.name, _rate(lv)) for lv in machine.profile.levels if lv.name in used)

    def test(factor: float) -> _Verdict:
        changed = Changed(machine=with_bandwidth(machine, factor))
        return judge(lambda pin, since=None: solve(changed, f"{factor:.3g} x the bandwidth", pin, since))

    up, down = [STRIDE**k for k in range(1, STEPS + 1)], [STRIDE**-k for k in range(1, STEPS + 1)]
    stands, flips = _borders({"down": down, "up": up}, 1.0, test, _ratio)
    return BreakEven(
        name, sharding, "bandwidth", "factor", 1.0, (down[-1], up[-1]), flips, levels, rival, stands
    )  # fmt: skip


def _rate(level: Any) -> float:
    """Bytes per second, one way, of a level of a machine."""
    return level.egress.value if level.kind == "switch" else level.link.value


def with_bandwidth(machine: Machine, factor: float) -> Machine:
    """The machine with links of `factor` times the bandwidth, latencies as they are."""
    levels = []
    for level in machine.profile.levels:
        key = "egress" if level.kind == "switch" else "link"
        rate = getattr(level, key)
        levels.append(level.model_copy(update={key: rate.model_copy(update={"value": rate.value * factor})}))
    return replace(machine, profile=machine.profile.model_copy(update={"levels": tuple(levels)}))


def _by_memory(plan: PlanRecord, judge: _Judge, name: str, sharding: str, rival: str | None, solve: Any) -> BreakEven:
    limit, peak = limit_of(plan), float(max(1, plan.memory.peak_bytes))  # no limit is below a byte

    def test(amount: float) -> _Verdict:
        bound = None if amount == float("inf") else int(amount)
        what = "no limit" if bound is None else bytes_text(bound)
        return judge(lambda pin, since=None: solve(Changed(memory_limit=bound), what, pin, since))

    down = [point for k in range(1, 2 * STEPS + 1) if (point := peak * 2.0**-k) >= 1]
    now = float("inf") if limit is None else float(limit)
    known: dict[float, _Verdict] = {}

    def once(amount: float) -> _Verdict:
        if amount not in known:
            known[amount] = test(amount)
        return known[amount]

    up: list[float] = []
    if limit is not None and once(float("inf")).stands != once(now).stands:  # else no limit above changes it
        up = [point for k in range(1, 2 * STEPS + 1) if (point := limit * 2.0**k) < MOST_BYTES]
    # the search starts at the plan's own peak, not at its limit, unless these give two verdicts: the border is between
    first = peak
    if once(now).stands != once(peak).stands:
        down.insert(0, peak)
        first = now if limit is not None else 2 * peak
        while first < MOST_BYTES and once(first).stands != once(now).stands:  # only where there is no limit
            first *= 2
    stands, flips = _borders({"down": down}, first, once, _ratio)
    if up:
        flips += _borders({"up": up}, now, once, _ratio)[1]
    top = first if limit is None else limit * 2.0 ** (2 * STEPS)
    least = down[-1] if down else peak
    stated_limit = None if limit is None else float(limit)
    return BreakEven(name, sharding, "memory", "bytes", stated_limit, (least, top), flips, (), rival, stands)


def _by_batch(plan: PlanRecord, judge: _Judge, name: str, sharding: str, rival: str | None, solve: Any) -> BreakEven:
    from autoshard.questions.resize import batch_rows, with_rows

    rows = batch_rows(plan)
    devices = plan.schedule.mesh.mesh.size

    def test(count: float) -> _Verdict:
        program: Program = with_rows(plan, round(count))
        changed, what = Changed(program=program, memory_limit=KEEP), f"{count:.0f} rows"
        return judge(lambda pin, since=None: solve(changed, what, pin, since))

    def between(near: float, far: float) -> float | None:
        """The middle, a multiple of the number of devices: rows that do not divide flip decisions for that alone."""
        low, high = sorted((round(near), round(far)))
        if low % devices or high % devices or high - low < 2 * devices or high <= CLOSE * low:
            return None
        return float((low + high) // (2 * devices) * devices)

    up = [float(rows * 4**k) for k in range(1, STEPS + 1)]
    down = [float(rows // 2**k) for k in range(1, 2 * STEPS + 1) if rows % 2**k == 0]
    stands, flips = _borders({"down": down, "up": up}, float(rows), test, between)
    low = down[-1] if down else float(rows)
    return BreakEven(name, sharding, "batch", "rows", float(rows), (low, up[-1]), flips, (), rival, stands)
