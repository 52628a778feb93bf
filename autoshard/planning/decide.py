"""Deciding: solve the network of a problem, decode and check the answer.

The answer is re-priced from the schedule alone and its memory simulated before anyone sees it.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from autoshard.costs.memory import MemoryProfile
from autoshard.costs.price import PlanCost, price
from autoshard.errors import InfeasibleError, NotFoundError, OutOfTimeError
from autoshard.planning.certified import Proved
from autoshard.planning.contradiction import contradiction, limit_words, none_within
from autoshard.planning.fitting import first_fit
from autoshard.planning.heap import give_back
from autoshard.planning.model import Model, Problem, Progress
from autoshard.schedule import Schedule
from autoshard.solver.network import CostNetwork, evaluate
from autoshard.solver.solution import Solution
from autoshard.solver.work import Infeasible

ACCEPTED_GAP = 1e-3
"""Gap at which the search within a memory limit ends, in networks too large for exact search."""

MOST_NODES = 400
"""Larger networks do not know of copies for one use: working out what all choices hold takes too long there."""
_MOST_ROUNDS = 30
"""How often what an answer holds too much of is decided in the network and the search made again."""
_IDLE_ROUNDS = 3
"""Rounds that raise no bound, after which a plan that is known is the answer."""
_FIRST_SHARE = 0.1
"""The part of what is left of a time limit that one try to find a first plan within the memory limit may take."""
_LIMITED_SHARE = 0.9
"""The part of what is left of a time limit that one search within the memory limit may take."""

STOPPED_BY_USER = "the run was stopped by the user"
"""The note of a plan whose search Ctrl-C ended."""

_FREE_SHARE, _FREE_SHARE_OF_DEVICE = 0.5, 0.8
"""The part of a time limit that solving without the memory limit may take, and where the limit is only the device's:
most programs are within that."""


@dataclass(frozen=True)
class Decision:
    """A schedule with what is known about it.

    objective_s = cost.step_s + memory_price_s; bound_s: no plan under the same statements (in which repeated layers
    share their decisions, where they do: see `notes`) has a lower objective.
    stats: timings and engine reports, not reproducible, kept out of plan.json. stages: of a decision in stages (see
    `planning.stages`); bound_s is that of the last one. joint: the optimum all at once beside them. proved: what shows
    bound_s, or, of a decision in stages, the bound of the optimum all at once; None where nothing does.
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
    stages: tuple[Any, ...] = ()
    joint: Mapping[str, Any] | None = None
    proved: Proved | None = None

    @property
    def interrupted(self) -> bool:
        """Whether the user (or the cap on the memory of planning) stopped the run."""
        return _interrupted(self.stats.get("rounds", ()))

    @property
    def certificate(self) -> dict[str, Any] | None:
        """As ``certificate`` in plan.json."""
        if self.proved is None:
            return None
        return {"of": "plan" if self.joint is None else "joint", **self.proved.to_dict()}

    @property
    def gap(self) -> float:
        """(objective - bound) / objective."""
        return max(0.0, self.objective_s - self.bound_s) / max(self.objective_s, 1e-30)


def decide(
    model: Model,
    *,
    starts: Sequence[Sequence[int]] = (),
    time_limit_s: float | None = None,
    effort: float = 1.0,
    seed: int = 0,
    accepted_gap: float = ACCEPTED_GAP,
    explain: bool = True,
    progress: Progress | None = None,
) -> Decision:
    """Solve the model under its memory limit. `InfeasibleError` where it is proved that there is no plan, else
    `NotFoundError` or `OutOfTimeError`.

    First without the limit: where that optimum fits, it is the answer and its proof holds. Then within it, with nodes
    for what memory depends on several decisions for (`formulation.memory`): first for what the optimum without limit
    holds where it is too full, then for what each answer holds where it is, until an answer fits. No network says more
    than the simulation, so every bound on the way holds for every plan, and a network without an answer is a proof that
    there is no plan. Where a search ends without either, the cheapest plan within the limit that was seen is it.
    accepted_gap: (cost - bound) / cost at which the search within a limit may end.
    explain: where there is no plan, work out the smallest set of statements at odds.
    Ctrl-C at any moment gives the cheapest plan seen by then, `starts` among them; it is raised where there was none.
    """
    seen: list[Sequence[int]] = list(starts)
    rounds: list[dict[str, Any]] = []
    proofs: list[Search] = []
    try:
        return _decide(model, seen, rounds, proofs, starts, time_limit_s, effort, seed, accepted_gap, explain, progress)
    except KeyboardInterrupt:
        return best_seen(model, seen, rounds, proofs)


@dataclass(frozen=True)
class Search:
    """A search whose bound holds for every plan, and which network it was about (see `Proved`)."""

    solution: Solution
    limit: int | None = None
    moments: Mapping[int, frozenset[int]] | None = None


def best_seen(
    model: Model, seen: Sequence[Sequence[int]], rounds: Sequence[Mapping[str, Any]] = (), proofs: Sequence[Search] = ()
) -> Decision:
    """The cheapest of some assignments that fits, as what a stopped run had; `KeyboardInterrupt` where none does."""
    best = _best_start(model, seen, model.problem.memory_limit)
    if best is None:
        raise KeyboardInterrupt
    found, schedule, memory = best
    assert found.cost is not None
    from autoshard.solver.driver import trivial_bound

    bounds = [trivial_bound(model.with_limit(None)), *(r["bound"] for r in rounds if r["proves"])]
    bound = min(max(bounds), found.cost)
    found = replace(found, status="optimal" if bound == found.cost else "feasible", stats={"stopped": "seen"})
    told = [*map(dict, rounds), {"what": "the cheapest plan seen", "stopped": "interrupt"}]
    return finish(model, found, schedule, memory, bound, told, proofs)


def _interrupted(rounds: Sequence[Mapping[str, Any]]) -> bool:
    return any(r.get("stopped") == "interrupt" for r in rounds)


def _decide(
    model: Model,
    seen: list[Sequence[int]],
    rounds: list[dict[str, Any]],
    proofs: list[Search],
    starts: Sequence[Sequence[int]],
    time_limit_s: float | None,
    effort: float,
    seed: int,
    accepted_gap: float,
    explain: bool,
    progress: Progress | None,
) -> Decision:
    """`decide`; `seen`, `rounds` and `proofs` collect what searches found, how they went and what they proved."""
    say = progress or (lambda text: None)
    limit = model.problem.memory_limit
    began = time.monotonic()

    def run(
        network: CostNetwork,
        what: str,
        given: Sequence[Sequence[int]],
        share: float,
        proves: bool = True,
        within: int | None = None,
        moments: Mapping[int, frozenset[int]] | None = None,
    ) -> Solution:
        from autoshard.solver import solve

        left = None if time_limit_s is None else max(0.1, time_limit_s - (time.monotonic() - began)) * share
        say(what)
        solution = solve(
            network, time_limit_s=left, effort=effort, seed=seed, starts=given,
            gap=0.0 if network.usage_limit is None else accepted_gap, progress=lambda p: say(f"{what}: {p}"),
        )  # fmt: skip
        bound = solution.lower_bound
        rounds.append({"what": what, "status": solution.status, "bound": bound, "proves": proves, **solution.stats})
        if proves:
            proofs.append(Search(solution, within, moments))
        solution = model.without_memory(solution)
        if solution.assignment is not None:
            seen.append(solution.assignment)
        if model.encoded.left_out[0]:
            give_back()
        return solution

    share = 1.0 if limit is None else _FREE_SHARE_OF_DEVICE if model.problem.device_limit else _FREE_SHARE
    free = run(model.with_limit(None), "solving", starts, share)
    if free.assignment is None:
        _no_answer(model, free, explain, [])
    assert free.assignment is not None
    schedule = model.schedule(free.assignment)
    memory = model.simulate(schedule)
    bound = free.lower_bound
    if limit is None or memory.peak_bytes <= limit:
        return finish(model, free, schedule, memory, bound, rounds, proofs)
    if model.repeats.network.n_nodes > MOST_NODES:
        return _apart(model, run, free, starts, bound, rounds, proofs, seen, explain)
    try:
        room = model.memory
    except Infeasible as why:
        _no_answer(model, Solution(None, None, 0, "infeasible", reason=str(why)), explain, seen)
        raise AssertionError("an infeasible network has no answer") from why
    nearest = free.assignment
    known = _best_start(model, starts, limit)
    if known is None and free.stats.get("stopped") != "interrupt":
        quick = partial(run, what="looking for a plan within the memory limit", share=_FIRST_SHARE, proves=False)
        first = first_fit(model, limit, nearest, lambda room, given: quick(model.within(room, {}), given=given))
        known = None if first is None else _best_start(model, [first], limit)
    starts = starts if known is None or known[0].assignment is None else (*starts, known[0].assignment)
    chosen: dict[int, frozenset[int]] = {}
    solved: dict[int, frozenset[int]] | None = None
    stopped = rounds[-1].get("stopped")
    idle = 0
    for number in range(_MOST_ROUNDS):
        if stopped == "interrupt" or (idle >= _IDLE_ROUNDS and known is not None):
            break
        if room.knows(nearest):
            chosen = room.missing(nearest, limit, chosen)
            assert chosen != solved, "the network says less than the simulation although it knows of all that is held"
        network, solved = model.within(limit, chosen), chosen
        given = [room.extended(start, chosen) for start in (*starts, nearest) if room.knows(start)]
        what = "solving within the memory limit" + (f", round {number + 1}" if number else "")
        solution = run(network, what, given, _LIMITED_SHARE, within=limit, moments=chosen)
        stopped = solution.stats.get("stopped")
        if solution.status == "infeasible":
            _no_answer(model, solution, explain, seen)
        idle = 0 if solution.lower_bound > bound else idle + 1
        bound = max(bound, solution.lower_bound)
        if solution.assignment is None:
            break
        schedule = model.schedule(solution.assignment)
        memory = model.simulate(schedule)
        if memory.peak_bytes <= limit:
            if known is not None and _cheaper(known[0], solution):
                break
            return finish(model, solution, schedule, memory, bound, rounds, proofs)
        known = _earlier(model, solution, limit, known)
        nearest = solution.assignment
        if stopped == "time":
            break
    if known is not None:
        kept, schedule, memory = known
        return finish(model, kept, schedule, memory, bound, rounds, proofs)
    if stopped == "interrupt":
        raise KeyboardInterrupt
    raise _none_found(model, seen, explain, stopped)


def _apart(
    model: Model,
    run: Callable[..., Solution],
    free: Solution,
    starts: Sequence[Sequence[int]],
    bound: int,
    rounds: list[dict[str, Any]],
    proofs: Sequence[Search],
    seen: Sequence[Sequence[int]],
    explain: bool,
) -> Decision:
    """The cheapest plan that was found within the limit, in a network that does not know of copies for one use.

    The network is searched as it is, for a bound, and then with room left for copies.
    """
    limit = model.problem.memory_limit
    assert limit is not None and free.assignment is not None
    given = [*starts, free.assignment]
    searched: list[Solution] = []

    def within(room: int, near: Sequence[Sequence[int]]) -> Solution:
        what = "solving within the memory limit" + (f", {limit - room} bytes left for copies" if room < limit else "")
        found = run(
            model.with_limit(room), what, near if searched else given, _LIMITED_SHARE, room == limit, within=limit
        )
        searched.append(found)
        return found

    first = None
    if free.stats.get("stopped") != "interrupt":
        first = first_fit(model, limit, free.assignment, within)
        if searched[0].status == "infeasible":
            _no_answer(model, searched[0], explain, seen)
        bound = max(bound, searched[0].lower_bound)
    earlier = [assignment for found in searched for assignment in found.earlier]
    known = _best_start(model, [*starts, *earlier, *([] if first is None else [first])], limit)
    if known is not None:
        kept, schedule, memory = known
        last = searched[-1] if searched else free
        if first is not None and kept.assignment == tuple(first):
            kept = replace(kept, status=last.status, stats=last.stats)
        return finish(model, kept, schedule, memory, bound, rounds, proofs)
    if _interrupted(rounds):
        raise KeyboardInterrupt
    raise _none_found(model, seen, explain, (searched[-1] if searched else free).stats.get("stopped"))


def _none_found(model: Model, seen: Sequence[Sequence[int]], explain: bool, stopped: Any) -> Exception:
    """That a search within the limit ended without a plan and without a proof."""
    limit, achieved = model.problem.memory_limit, _lowest(model, seen)
    assert limit is not None
    if stopped == "time":
        smallest = "" if achieved is None else f" (the smallest plan seen holds {achieved} bytes)"
        return OutOfTimeError(
            f"no plan within {limit} bytes was found in the time given, and it is not proved that none exists"
            f"{smallest}; raise the time limit, or the memory limit",
            facts={"limit_bytes": limit, "achieved_bytes": achieved},
        )
    if explain:
        return contradiction(model.problem, proved=False, achieved_bytes=achieved)
    return NotFoundError(
        none_within(limit_words(model.problem), limit, achieved, None)
        + "; raise the limit, use more devices or recompute more",
        facts={"limit_bytes": limit, "achieved_bytes": achieved},
    )


def _lowest(model: Model, seen: Sequence[Sequence[int]]) -> int | None:
    """The lowest peak of the plans that were seen."""
    return min((model.simulate(model.schedule(one)).peak_bytes for one in seen if _is_plan(model, one)), default=None)


def _is_plan(model: Model, assignment: Sequence[int]) -> bool:
    return evaluate(model.with_limit(None), assignment).cost is not None


def check_room(model: Model) -> None:
    """Raise `InfeasibleError` at once where the decisions hold more than the memory limit whatever is chosen."""
    limit = model.problem.memory_limit
    delta: dict[int, int] = {}
    for usages in model.encoded.network.usages:
        for usage in usages:
            least = int(usage.amounts.min())
            delta[usage.start] = delta.get(usage.start, 0) + least
            delta[usage.stop] = delta.get(usage.stop, 0) - least
    live = 0
    for time_ in sorted(delta):
        live += delta[time_]
        if limit is not None and live > limit:
            raise contradiction(model.problem, proved=True)


def _best_start(
    model: Model, starts: Sequence[Sequence[int]], limit: int | None
) -> tuple[Solution, Schedule, MemoryProfile] | None:
    """The cheapest start whose plan is within the limit, as a solution."""
    best: tuple[Solution, Schedule, MemoryProfile] | None = None
    network = model.with_limit(None)
    for start in starts:
        found = evaluate(network, start)
        if found.cost is None or (best is not None and best[0].cost is not None and found.cost >= best[0].cost):
            continue
        schedule = model.schedule(start)
        memory = model.simulate(schedule)
        if limit is None or memory.peak_bytes <= limit:
            whole = tuple(int(x) for x in start)
            best = (Solution(whole, found.cost, 0, "feasible", stats={"stopped": "baseline"}), schedule, memory)
    return best


def _earlier(
    model: Model, solution: Solution, limit: int, known: tuple[Solution, Schedule, MemoryProfile] | None
) -> tuple[Solution, Schedule, MemoryProfile] | None:
    """The cheapest of the assignments that a search passed whose plan is within the limit, unless `known` is cheaper.

    What the search ended with is too full: what it had before may not be.
    """
    network = model.with_limit(None)
    for assignment in solution.earlier:
        cost = evaluate(network, assignment).cost
        found = Solution(assignment, cost, 0, "feasible", stats={"stopped": "copies"})
        if known is not None and not _cheaper(found, known[0]):
            return known
        schedule = model.schedule(assignment)
        memory = model.simulate(schedule)
        if memory.peak_bytes <= limit:
            return found, schedule, memory
    return known


def _cheaper(one: Solution, other: Solution) -> bool:
    return one.cost is not None and (other.cost is None or one.cost < other.cost)


def assumptions(problem: Problem) -> list[str]:
    """What the price takes for granted about control flow, in words."""
    kinds = {op.kind for op, _ in problem.program.walk()}
    out = []
    if any(op.kind == "while" and not op.attrs.get("trips") for op, _ in problem.program.walk()):
        out.append(f"a while loop whose number of trips is not known is priced as {problem.trips}")
    if "cond" in kinds:
        out.append("every branch of a cond is priced as if it were taken")
    return out


def _no_answer(model: Model, solution: Solution, explain: bool, seen: Sequence[Sequence[int]]) -> None:
    """Raise what a search without an assignment says; `seen`: plans that are too full, where there is a limit."""
    limit = model.problem.memory_limit
    if solution.status == "infeasible":
        reason = name_nodes(model, solution.reason or "nothing satisfies all that is stated")
        if explain:
            achieved = _lowest(model, seen) if limit is not None else None
            raise contradiction(model.problem, proved=True, reason=reason, achieved_bytes=achieved)
        within = "" if limit is None else f" within the {limit_words(model.problem)}"
        raise InfeasibleError(f"no plan exists{within} (proved): {reason}", facts={"proved": True})
    stopped = solution.stats.get("stopped")
    if stopped == "interrupt":
        raise KeyboardInterrupt
    if stopped == "time":
        raise OutOfTimeError(
            "no plan was found in the time given, and it is not proved that none exists; raise the time limit"
        )
    raise NotFoundError(
        f"no plan was found, and it is not proved that none exists (the search ended: {stopped}); search with more "
        "effort"
    )


def name_nodes(model: Model, reason: str) -> str:
    """Replace `node 12` in a solver's message by what the node decides."""
    import re

    def name(match: "re.Match[str]") -> str:
        index = model.repeats.representative(int(match[1]))
        node = model.collected.nodes[index]
        return f"{node.kind.value} {node.label}"

    return re.sub(r"\bnode (\d+)", name, reason)


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

    bound: in ticks, of a network that holds no more than the simulation. rounds: what was searched, for the stats.
    """
    assert solution.assignment is not None and solution.cost is not None
    problem, tick = model.problem, model.encoded.tick_s
    if model.encoded.left_out[0]:  # of all layers only the price below is known
        checked = evaluate(model.repeats.network, solution.assignment)
    else:
        checked = evaluate(model.encoded.network, model.repeats.expand(solution.assignment))
    assert checked.cost == solution.cost, "the solution's cost does not survive re-evaluation on the unreduced network"
    cost = price(problem.program, schedule, model.fusion, model.prices, problem.trips)
    extra = model.memory_price_s(solution.assignment)
    rounding = model.encoded.rounding_s
    objective = cost.step_s + extra
    assert abs(objective - solution.cost * tick) <= rounding + 1e-6 * objective + 1e-12, (
        f"the schedule costs {objective} s, the network says {solution.cost * tick} s"
    )
    bound_s = min(max(bound * tick - rounding, model.encoded.least_s), objective)
    notes = list(assumptions(problem))
    if not np.isfinite(bound_s) or bound_s <= 0:
        bound_s = 0.0
    if model.repeats.shared:
        notes.append(model.repeats.note)
    status = "optimal" if solution.status == "optimal" and bound == solution.cost else "feasible"
    stopped = solution.stats.get("stopped")
    if stopped == "interrupt" or _interrupted(rounds):
        notes.append(STOPPED_BY_USER)
    if stopped == "time":
        notes.append("the run was stopped by the time limit")
    elif stopped == "gap":
        notes.append("the search ended at the accepted gap")
    elif stopped == "copies":
        notes.append("the cheapest plan that was seen within the limit; the search itself went on and found no other")
    elif stopped == "baseline":
        notes.append("the best named baseline that fits: no search found a cheaper plan within the memory limit")
    if stopped not in ("time", "interrupt") and any(r.get("stopped") == "time" for r in rounds):
        notes.append("one of its searches was ended by the wall clock: another run may give another plan")
    return Decision(
        schedule, cost, memory, status, objective, extra, bound_s, rounding, tuple(notes), {"rounds": rounds},
        proved=_proved(bound, proofs),
    )  # fmt: skip


def _proved(bound: int, proofs: Sequence[Search]) -> Proved | None:
    """The certificate of a bound, of the search that has shown most."""
    best = max(proofs, key=lambda search: search.solution.lower_bound, default=None)
    if best is None or best.solution.lower_bound < bound:
        return None
    return Proved.by(best.solution, best.limit, best.moments)
