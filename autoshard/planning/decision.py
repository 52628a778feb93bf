"""A decision: a schedule with what is known about it, and how a solution of the network becomes one.

The answer is re-priced from the schedule alone and its memory simulated before anyone sees it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from autoshard.costs.copied import notes_on_copies
from autoshard.costs.memory import MemoryProfile
from autoshard.costs.price import PlanCost, price
from autoshard.plan_record import BoundProof, JointOptimum, StageRecord
from autoshard.planning.certified import Proved
from autoshard.planning.model import Model
from autoshard.planning.problem import Problem
from autoshard.program.schedule import Schedule
from autoshard.search_options import SearchOptions
from autoshard.solver.incumbent import Progress
from autoshard.solver.network import evaluate
from autoshard.solver.solution import Solution, Stopped
from autoshard.units import seconds_text

STOPPED_BY_USER = "the run was stopped by the user"
"""The note of a plan whose search Ctrl-C ended."""
STOPPED_BY_TIME = "the run was stopped by the time limit"
"""The note of a plan whose search the time limit ended."""

Known = tuple[Solution, Schedule, MemoryProfile]
"""A plan within the memory limit, as a solution."""


@dataclass(frozen=True)
class Decision:
    """A schedule with its price and its bound.

    objective_s: seconds as the problem's objective counts them, and memory_price_s. bound_s: no plan under the same
    statements (in which repeated layers share their decisions, where `notes` says so) has a lower objective. stats:
    timings and engine reports, not reproducible, not part of plan.json. stages: of a decision in stages (see
    `planning.stages`); bound_s is then that of the last stage. joint: the optimum with all statements at once, beside
    the stages. proved: the proof of bound_s, or, of a decision in stages, of the bound of `joint`; None where there is
    no proof. on_the_way: of a decision in stages, the plans that it was built from, those of all stages and of `joint`.
    """

    schedule: Schedule
    cost: PlanCost
    memory: MemoryProfile
    status: str
    objective_s: float
    memory_price_s: float
    bound_s: float
    rounding_s: float
    notes: tuple[str, ...] = ()
    stats: dict[str, Any] = field(default_factory=dict)
    stages: tuple[StageRecord, ...] = ()
    joint: JointOptimum | None = None
    proved: Proved | None = None
    on_the_way: tuple[Schedule, ...] = ()

    @property
    def interrupted(self) -> bool:
        """Whether the user (or the cap on the memory of planning) stopped the run."""
        return interrupted_in(self.stats.get("rounds", ()))

    @property
    def certificate(self) -> BoundProof | None:
        """The proof of the bound, as the plan's record has it."""
        return None if self.proved is None else self.proved.told("plan" if self.joint is None else "joint")

    @property
    def gap(self) -> float:
        """(objective - bound) / objective."""
        return max(0.0, self.objective_s - self.bound_s) / max(self.objective_s, 1e-30)


@dataclass(frozen=True)
class Search:
    """A search whose bound holds for every plan, and the facts that tell which network it was about (see `Proved`).

    spared: ticks by which plans may cost less than in that network.
    """

    solution: Solution
    limit: int | None = None
    moments: Mapping[int, frozenset[int]] | None = None
    prices: tuple[int, ...] = ()
    spared: int = 0

    @property
    def bound(self) -> int:
        """In ticks: no plan costs less."""
        return self.solution.lower_bound - self.spared


def best_seen(
    model: Model, seen: Sequence[Sequence[int]], rounds: Sequence[Mapping[str, Any]] = (), proofs: Sequence[Search] = ()
) -> Decision:
    """The cheapest of these assignments that fits, as the decision of a stopped run; `KeyboardInterrupt` where none
    fits.
    """
    best = best_start(model, seen, model.problem.memory_limit)
    if best is None:
        raise KeyboardInterrupt
    solution, schedule, memory = best
    assert solution.cost is not None
    from autoshard.solver.driver import trivial_bound

    bounds = [trivial_bound(model.with_limit(None)), *(r["bound"] for r in rounds if r["proves"])]
    bound = max(bounds)
    solution = replace(
        solution, status="optimal" if bound == solution.cost else "feasible", stats={"stopped": Stopped.SEEN}
    )
    reports = [*map(dict, rounds), {"what": "the cheapest plan seen", "stopped": Stopped.INTERRUPT}]
    return finish(model, solution, schedule, memory, bound, reports, proofs)


def interrupted_in(rounds: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the user, or the cap on the memory of planning, ended one of these searches."""
    return any(r.get("stopped") is Stopped.INTERRUPT for r in rounds)


def best_start(model: Model, starts: Sequence[Sequence[int]], limit: int | None) -> Known | None:
    """The cheapest start whose plan is within the limit, as a solution; None where there is none."""
    best: Known | None = None
    network = model.with_limit(None)
    for start in starts:
        evaluation = evaluate(network, start)
        dearer = best is not None and not (evaluation.cost or 0) < (best[0].cost or 0)
        if evaluation.cost is None or not evaluation.feasible or dearer:  # it may break a count, or the host's limit
            continue
        schedule = model.schedule(start)
        memory = model.simulate(schedule)
        if limit is None or memory.peak_bytes <= limit:
            whole = tuple(int(x) for x in start)
            best = (
                Solution(whole, evaluation.cost, 0, "feasible", stats={"stopped": Stopped.BASELINE}),
                schedule,
                memory,
            )
    return best


def earlier_fit(model: Model, solution: Solution, limit: int, known: Known | None) -> Known | None:
    """The cheapest assignment that a search met on its way and whose plan is within the limit, unless `known` is
    cheaper.

    The last assignment of the search exceeds the limit; an earlier one may not.
    """
    network = model.with_limit(None)
    for assignment in solution.earlier:
        cost = evaluate(network, assignment).cost
        earlier = Solution(assignment, cost, 0, "feasible", stats={"stopped": Stopped.COPIES})
        if known is not None and not cheaper(earlier, known[0]):
            return known
        schedule = model.schedule(assignment)
        memory = model.simulate(schedule)
        if memory.peak_bytes <= limit:
            return earlier, schedule, memory
    return known


def cheaper(one: Solution, other: Solution) -> bool:
    """Whether one solution has a plan that costs less, or the other has none."""
    return one.cost is not None and (other.cost is None or one.cost < other.cost)


def is_close(solution: Solution, bound: int, options: SearchOptions) -> bool:
    """Whether a plan is within the accepted gap of a bound, or nearly: a certificate may prove a little less than the
    bound that the search ended with."""
    return solution.cost is not None and solution.cost - bound <= 1.1 * options.accepted_gap * abs(solution.cost)


def assumptions(problem: Problem) -> list[str]:
    """Assumptions of the price about control flow, in words."""
    kinds = {op.kind for op, _ in problem.program.walk()}
    out = []
    if any(op.kind == "while" and op.attrs.get("trips") is None for op, _ in problem.program.walk()):
        out.append(f"a while loop whose number of trips is not known is priced as {problem.trips}")
    if "cond" in kinds:
        out.append("every branch of a cond is priced as if it were taken")
    return out


def finish(
    model: Model,
    solution: Solution,
    schedule: Schedule,
    memory: MemoryProfile,
    bound: int,
    rounds: list[dict[str, Any]],
    proofs: Sequence[Search] = (),
) -> Decision:
    """A solution as a decision: re-evaluated on the unreduced network, priced from its schedule, with its notes.

    bound: in ticks, of a network that holds no more than the simulation. rounds: reports of the searches, for the
    stats.
    """
    assert solution.assignment is not None and solution.cost is not None
    assert bound <= solution.cost, f"a plan costs {solution.cost}, and it was proved that none costs less than {bound}"
    problem, tick = model.problem, model.encoded.tick_s
    if model.encoded.left_out[0]:  # the network of all layers has no edges, so only the price below is known
        checked = evaluate(model.repeats.network, solution.assignment)
    else:
        checked = evaluate(model.encoded.network, model.repeats.expand(solution.assignment))
    assert checked.cost == solution.cost, "the solution's cost does not survive re-evaluation on the unreduced network"
    cost = price(problem.program, schedule, model.fusion, model.prices, problem.trips)
    extra = model.memory_price_s(solution.assignment)
    rounding = model.encoded.rounding_s
    counted = model.network_s(cost) + extra
    assert abs(counted - solution.cost * tick) <= rounding + 1e-6 * counted + 1e-12, (
        f"the schedule costs {counted} s, the network says {solution.cost * tick} s"
    )
    objective = model.seconds(cost) + extra
    bound_s = min(max(bound * tick - rounding, model.encoded.least_s), objective)
    notes = [*assumptions(problem), *notes_on_copies(problem.program, cost.op_seconds)]
    if not np.isfinite(bound_s) or bound_s <= 0:
        bound_s = 0.0
    if model.repeats.shared:
        notes.append(model.repeats.note)
    status = "optimal" if bound == solution.cost and objective - counted <= rounding else "feasible"
    stopped = solution.stopped
    if stopped is Stopped.INTERRUPT or interrupted_in(rounds):
        notes.append(STOPPED_BY_USER)
    if stopped is Stopped.TIME:
        notes.append(STOPPED_BY_TIME)
    elif stopped is Stopped.GAP:
        notes.append("the search ended at the accepted gap")
    elif stopped is Stopped.COPIES:
        notes.append("the cheapest plan that was seen within the limit; the search itself went on and found no other")
    elif stopped is Stopped.BASELINE:
        notes.append("the best named baseline that fits: no search found a cheaper plan within the memory limit")
    if stopped not in (Stopped.TIME, Stopped.INTERRUPT) and any(r.get("stopped") is Stopped.TIME for r in rounds):
        notes.append("one of its searches was ended by the wall clock: another run may give another plan")
    return Decision(
        schedule, cost, memory, status, objective, extra, bound_s, rounding, tuple(notes), {"rounds": rounds},
        proved=_proved(bound, proofs, not problem.uncounted),
    )  # fmt: skip


def _proved(bound: int, proofs: Sequence[Search], counts: bool) -> Proved | None:
    """The certificate of a bound, from the search with the highest bound; None where no search proved so much.
    counts: see `Proved`."""
    best = max(proofs, key=lambda search: search.bound, default=None)
    if best is None or best.bound < bound:
        return None
    proved = Proved.by(best.solution, best.limit, best.moments)
    return None if proved is None else replace(proved, counts=counts, prices=best.prices)


def progress_words(now: Progress, tick_s: float) -> str:
    """How far a search is, in seconds of a step."""
    if now.cost is None:
        return f"{now.stage}, no plan yet"
    if now.lower_bound is None:
        return f"{now.stage}, {seconds_text(now.cost * tick_s)}, no bound yet"
    cost, bound = now.cost * tick_s, max(0, min(now.lower_bound, now.cost)) * tick_s
    gap = (cost - bound) / cost if cost else 0.0
    return f"{now.stage}, {seconds_text(cost)}, none below {seconds_text(bound)}, gap {gap:.2%}"
