"""Rivals of a plan: other plans of its problem that the model prices almost as low.

Modelled seconds are some percent off what a compiler's schedule takes, so a plan that is proved optimal in them may be
beaten by one that costs little more. Candidates are the optimum under the other objective, the named strategies of the
library, and the optimum of the same machine with calibrated figures. All of them are priced on the plan's own network,
so its statements and limits hold in them, and the bound of the plan is a bound for them too. Where there are calibrated
figures they are closer to the compiler's schedule, so that what is near the least by them is a rival as well.
"""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Generic, TypeVar

from autoshard.costmodels.load import list_calibrated, load_profile
from autoshard.costmodels.machine import Machine
from autoshard.costs.exposure import Exposure, Objective, other_than
from autoshard.costs.price import price
from autoshard.costs.pricing import StepPrices
from autoshard.errors import AutoshardError, InputError, UnsupportedError
from autoshard.formulation.assign import assignment_of
from autoshard.plan_record import LeftOutRival, PlanRecord
from autoshard.planning import Model, build_model
from autoshard.planning.over_links import link_notes
from autoshard.planning.sharing import unpriced
from autoshard.program.as_json import schedule_to_json
from autoshard.program.schedule import Schedule
from autoshard.questions.again import Changed, decide_again, options_of, problem_of
from autoshard.questions.carried import carry_notes
from autoshard.search.baselines import Baseline, price_baselines
from autoshard.search_options import SearchOptions
from autoshard.solver.network import evaluate
from autoshard.solver.solution import Stopped
from autoshard.strategies.choice import SEARCHES, StrategyName
from autoshard.strategies.named import EXPERTS, SEQ, TENSOR, Roles
from autoshard.strategies.names import every_name, parts_of

P = TypeVar("P", bound=PlanRecord)

GIVEN: Final = "given plan"
"""The name of the plan that rivals are asked of."""
STRATEGIES: Final = "named strategies"
OPTIMUM_SHARE: Final = 0.4
"""The part of what is left of a time limit that the search of one optimum may take."""
CALIBRATION: Final = "compiler"
"""Whose figures the calibrated machine has: ``tpu_v5e@compiler``."""
_ABOUT: Final[Mapping[str, Collection[str]]] = {
    "tensor": TENSOR, "expert": (EXPERTS,), "context": (SEQ,), "sequence": (SEQ,)
}  # fmt: skip
"""Logical axes of which a part of a strategy needs one at least to be about anything."""


@dataclass(frozen=True, slots=True)
class Near(Generic[P]):
    """A plan that is near enough to be simulated, and what it is called.

    calibrated_s: its seconds by the calibrated figures of its chip, where there are any. also: further names of the
    same plan.
    """

    name: str
    plan: P
    calibrated_s: float | None = None
    also: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Rivals(Generic[P]):
    """The given plan and its rivals, no two of them alike, and the candidates that are none."""

    near: tuple[Near[P], ...]
    left_out: tuple[LeftOutRival, ...]


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A plan of the problem by its assignment on the plan's network; without one, why there is none."""

    name: str
    assignment: tuple[int, ...] | None
    reason: str = ""


def near_rivals(
    plan: P,
    within: float,
    *,
    roles: Roles | None = None,
    slow: Collection[str] = (),
    further: Sequence[Baseline] = (),
    options: SearchOptions | None = None,
) -> Rivals[P]:
    """The plans whose modelled seconds are at most a share `within` above those of the plan, and those whose seconds by
    calibrated figures are at most so far above the least such; cheapest first.

    roles: the logical axes of the inputs, without which no strategy can be asked. slow: mesh axes between slices.
    further: strategies beside those of the library. options: of the searches; by default those of the plan.
    `UnsupportedError` for plans that were not decided all at once by cost: no bound of theirs is one for rivals.
    """
    _check_by_cost(plan)
    options = options or options_of(plan)
    model = build_model(problem_of(plan), options.progress)
    own = assignment_of(model.collected, model.encoded, model.repeats, plan.schedule)
    optimal = None
    if own is not None and plan.status == "optimal":
        optimal = evaluate(model.with_limit(None), own).cost
    calibrated = _calibrated(plan.machine)
    found = {_key(plan.schedule): _Found(GIVEN, plan, _calibrated_s(model, plan.schedule, calibrated))}
    left_out: list[LeftOutRival] = []
    if not roles:
        left_out.append(LeftOutRival(name=STRATEGIES, reason="the program has no logical axes: not asked"))
    for candidate in _candidates(plan, model, roles, slow, further, options):
        name, assignment = candidate.name, candidate.assignment
        if assignment is None:
            left_out.append(LeftOutRival(name=name, reason=candidate.reason))
            continue
        schedule = model.schedule(assignment)
        known = found.get(key := _key(schedule))
        if known is not None:
            known.also.append(name)
            continue
        tied = optimal is not None and evaluate(model.with_limit(None), assignment).cost == optimal
        rival = _plan_of(plan, model, schedule, assignment, optimal=tied)
        room, peak = model.problem.memory_limit, rival.memory.peak_bytes
        if room is not None and peak > room:
            reason = f"it holds {peak} bytes per device at its peak; the limit is {room}"
            left_out.append(LeftOutRival(name=name, objective_s=rival.objective_s, reason=reason))
            continue
        found[key] = _Found(name, rival, _calibrated_s(model, schedule, calibrated))
    near, beyond = _told_apart(list(found.values()), within)
    return Rivals(near, (*left_out, *beyond))


@dataclass(frozen=True, slots=True)
class _Found(Generic[P]):
    """A plan within the limits, near or not."""

    name: str
    plan: P
    calibrated_s: float | None
    also: list[str] = field(default_factory=list)


def _told_apart(found: Sequence[_Found[P]], within: float) -> tuple[tuple[Near[P], ...], list[LeftOutRival]]:
    """The given plan, which is the first, with those that are near, and the others."""
    given = found[0]
    limit = given.plan.objective_s * (1 + within)
    least = min((one.calibrated_s for one in found if one.calibrated_s is not None), default=0.0)
    near: list[Near[P]] = []
    beyond: list[LeftOutRival] = []
    for one in found:
        cost_s, calibrated_s = one.plan.objective_s, one.calibrated_s
        close = calibrated_s is not None and calibrated_s <= least * (1 + within)
        if one is given or cost_s <= limit or close:
            near.append(Near(one.name, one.plan, calibrated_s, tuple(one.also)))
            continue
        reason = f"its modelled seconds are {cost_s / given.plan.objective_s - 1:.1%} above those of the {GIVEN}"
        if calibrated_s is not None:
            reason += f", by calibrated figures {calibrated_s / least - 1:.1%} above the least"
        beyond.append(LeftOutRival(name=one.name, objective_s=cost_s, reason=reason))
    first, *rivals = near
    return (first, *sorted(rivals, key=lambda one: one.plan.objective_s)), beyond


def _calibrated(machine: Machine) -> Machine | None:
    """The machine with the calibrated figures of its chip; None where it is not the plain packaged one, or has none."""
    name = f"{machine.profile.name}@{CALIBRATION}"
    if name not in list_calibrated() or machine.profile != load_profile(machine.profile.name):
        return None
    return replace(machine, profile=load_profile(name))


def _calibrated_s(model: Model, schedule: Schedule, machine: Machine | None) -> float | None:
    """Seconds by calibrated figures, as `objective: overlap` counts them: their shares are those of schedules."""
    if machine is None:
        return None
    problem = model.problem
    prices = StepPrices(machine, schedule.mesh)
    cost = price(problem.program, schedule, model.fusion, prices, problem.trips)
    return Exposure.of("overlap", problem.program, machine).seconds(cost, prices)


def _check_by_cost(plan: PlanRecord) -> None:
    if plan.stages:
        raise UnsupportedError(
            "this plan was decided in stages of priorities, and its bound is of plans that keep what each stage "
            "placed: rivals are found for plans that are decided all at once. Solve those that you want to compare, "
            "and give all their files to simulate"
        )
    by = None if plan.strategy is None else StrategyName.parse(plan.strategy)
    if by is not None and by.name not in SEARCHES:
        raise UnsupportedError(
            f"this plan was decided by {plan.strategy}, not by cost, so no rivals are near its optimum; solve without "
            "strategy"
        )


def _key(schedule: Schedule) -> str:
    return json.dumps(schedule_to_json(schedule), sort_keys=True)


def _candidates(
    plan: PlanRecord,
    model: Model,
    roles: Roles | None,
    slow: Collection[str],
    further: Sequence[Baseline],
    options: SearchOptions,
) -> Iterator[_Candidate]:
    other = other_than(plan.objective)
    yield _optimum(f"objective {other}", plan, model, Changed(), other, options)
    if (machine := _calibrated(plan.machine)) is not None:
        name = f"{plan.machine.profile.name}@{CALIBRATION}"
        yield _optimum(name, plan, model, Changed(machine=machine), "overlap", options)
    if roles:
        names = _names(model, roles)
        for baseline in (*names, *(b for b in further if b not in names)):
            try:
                (priced,) = price_baselines(model, [baseline], roles, slow=slow, options=options)
            except InputError as error:  # what the user's own rules name is not there
                name = baseline if isinstance(baseline, str) else "a strategy of the config"
                yield _Candidate(name, None, str(error))
                continue
            yield _Candidate(priced.cost.name, priced.assignment, priced.cost.reason)


def _names(model: Model, roles: Roles) -> list[str]:
    """The strategies of the library that are about something that the program has."""
    there = {name for axes in roles.values() for name in axes if name}
    return [
        name
        for name in every_name(model.problem.mesh.mesh)
        if all(there & set(_ABOUT[part]) for part in parts_of(name) if part in _ABOUT)
    ]


def _optimum(
    name: str, plan: PlanRecord, model: Model, changed: Changed, objective: Objective, options: SearchOptions
) -> _Candidate:
    """The plan of the least cost on another machine or under another objective, on the network of the plan.

    Where the time limit ended its search, its name says so: it may be no more than what the search began with.
    """
    options.say(f"searching the optimum of {name}")
    try:
        its = build_model(problem_of(plan, changed).minimising(objective), options.progress)
        found = decide_again(plan, its, options.part(OPTIMUM_SHARE), explain=False)
    except AutoshardError as error:
        return _Candidate(name, None, str(error))
    if found.interrupted:
        raise KeyboardInterrupt
    if any(r.get("stopped") is Stopped.TIME for r in found.stats.get("rounds", ())):
        name = f"{name} (time limit)"
    assignment = assignment_of(model.collected, model.encoded, model.repeats, found.schedule)
    return _Candidate(name, assignment, "" if assignment is not None else "the plan's network has no such plan")


def _plan_of(plan: P, model: Model, schedule: Schedule, assignment: Sequence[int], *, optimal: bool) -> P:
    """Another plan of the same problem, with the bound and the certificate of the given one, which hold for it.

    optimal: its cost is that of an optimum.
    """
    cost = price(model.problem.program, schedule, model.fusion, model.prices, model.problem.trips)
    extra = model.memory_price_s(assignment)
    objective_s = model.seconds(cost) + extra
    bound_s = min(plan.bound_s, objective_s)
    ties = optimal and objective_s - plan.objective_s <= plan.rounding_s  # links may work for longer
    tables, weights = model.shared.tables, () if plan.certificate is None else plan.certificate.weights
    own = (*carry_notes(plan.program, plan.schedule, tables), *link_notes(model, plan.cost, weights))
    others = (*carry_notes(plan.program, schedule, tables), *link_notes(model, cost, weights))
    notes = (*(n for n in plan.notes if n not in own), *others)
    return replace(
        plan, schedule=schedule, cost=cost, memory=model.simulate(schedule), objective_s=objective_s,
        memory_price_s=extra, bound_s=bound_s, gap=max(0.0, objective_s - bound_s) / max(objective_s, 1e-30),
        status="optimal" if ties else "feasible", notes=notes, run={}, mesh_search=None, form=None, rivals=None,
        sharing=unpriced(model) if model.repeats.shared else None,
    )  # fmt: skip
