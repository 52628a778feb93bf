"""A first plan within a memory limit: quick searches of a network that counts few copies, until a plan fits; and one
search of any network for anything that fits.

This proves nothing: its plan is what the search of the whole network has to be cheaper than.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import Any

import numpy as np

from autoshard.deadline import Deadline
from autoshard.planning.decision import Known, best_start, cheaper
from autoshard.planning.model import Model
from autoshard.planning.steps import QUICKLY, Step
from autoshard.search_options import SearchOptions
from autoshard.solver.network import CostNetwork, evaluate, usage_profile, without_costs
from autoshard.solver.solution import Solution, Stopped

_ANYTHING_SHARE, _ANYTHING_EFFORT = 0.05, 0.3
"""The part of what is left of a time limit, and the effort, that a search for anything that fits may take."""
_ALLOWED_SHARE, _ALLOWED_EFFORT, _ALLOWED_LEAST_S = 0.4, 15.0, 4.0
"""The part of what is left of a time limit, and the seconds of CP-SAT's deterministic time at effort 1, that an engine
without costs may take; with fewer seconds than the last it is not asked: it seldom ends sooner."""
ONE_ENGINE = "CP-SAT says that none exists, which nothing else confirms"
_ANNEALED_SHARE = 0.2
"""The part of what is left of a time limit in which rounds of annealing may begin."""
_TIGHTER, _FINE = 16, 64
"""By one part in so many the limit is tightened first, and two that give different answers differ at the end."""
_TIGHTER_TRIES, _LEAST_SHARE = 12, 0.1
"""How many quick searches look within less than the limit; where none has an answer, by how small a share of what the
last one exceeds it."""
_EXACT = 5
"""How often the limit is tightened by exactly the excess, before larger steps."""

Run = Callable[[int, Sequence[Sequence[int]]], Solution | None]


def first_fit(
    model: Model, limit: int, near: Sequence[int], run: Run, tries: int, network: CostNetwork | None = None
) -> Sequence[int] | None:
    """An assignment within the limit, or None where none of a few tries gives one.

    near: a good assignment that exceeds the limit. run: searches within so many bytes, from these starts; a None from
    it ends the tries. tries: how often the limit is tightened by what copies take. network: where the searches are of
    one network within several limits, that network. The limit is tightened by what an answer holds beyond it; where the
    same answer comes again, by all that it holds beside what the network counts, so that it comes no third time.
    """
    slack, low, high = 0, 0, limit + 1  # slacks up to `low` were too little, from `high` on no answer was found
    for attempt in range(tries):
        solution = run(limit - slack, [near])
        if solution is None:
            return None
        if solution.assignment is None:
            if slack == 0:
                return None
            high, wanted = slack, slack
        else:
            again, near = list(near) == list(solution.assignment), solution.assignment
            peak = model.simulate(model.schedule(near)).peak_bytes
            if peak <= limit:
                return near
            low = slack
            wanted = low + peak - limit
            if again and network is not None:
                wanted = peak - max((live for _, live in usage_profile(network, near)), default=0)
            elif attempt >= _EXACT:  # small steps may never make room for all copies at the peak: twice the slack
                wanted = max(wanted, low + max(low, limit // 100))
        slack = wanted if wanted < high else (low + high) // 2
        if slack in (low, high):
            return None
    return None


def fit_of(model: Model, first: Sequence[int] | None, limit: int) -> Known | None:
    """The plan of an assignment, where there is one and it is within the limit."""
    fitting = None if first is None else best_start(model, [first], limit)
    return None if fitting is None else (replace(fitting[0], stats={"stopped": Stopped.COPIES}), *fitting[1:])


def costs_at_most(known: Known | None, ticks: float) -> bool:
    """Whether a plan is known that costs no more."""
    return known is not None and (known[0].cost or 0) <= ticks


def tightened_fit(
    model: Model, limit: int, near: Sequence[int], run: Callable[[int, Sequence[Sequence[int]], Step], Solution | None]
) -> Sequence[int] | None:
    """The cheapest assignment within the limit that a few quick searches within less than that give, or None.

    near: a good assignment that exceeds the limit. run: searches within so many bytes, from these starts, so closely; a
    None from it is the end. The limit is tightened in ever larger steps until an answer fits, then by bisection.
    """
    low, high = 0, limit + 1  # slacks up to `low` were too little, from `high` on an answer fits, or there is none
    slack, best = limit // _TIGHTER, None
    for _ in range(_TIGHTER_TRIES):
        solution = run(limit - slack, [near], QUICKLY)
        if solution is None:
            break
        near = near if solution.assignment is None else solution.assignment
        if solution.assignment is None:
            high = slack
        elif model.simulate(model.schedule(near)).peak_bytes > limit:
            low = slack
        else:
            high, best = slack, best if best is not None and cheaper(best, solution) else solution
        slack = (low + high) // 2 if high <= limit else min(2 * slack, (slack + limit) // 2)
        if high - low <= limit // _FINE or slack in (low, high):
            break
    return None if best is None else best.assignment


def fit_by_moments(
    model: Model,
    limit: int,
    near: Sequence[int],
    run: Callable[[np.ndarray, Sequence[Sequence[int]], Step], Solution | None],
) -> Sequence[int] | None:
    """The cheapest assignment within the limit that a few quick searches within less than that give, or None.

    near: a good assignment that exceeds the limit. run: searches without so many bytes at every moment, from these
    starts, so closely; a None from it is the end. How much copies take, and when, hangs on the plan, but plans of like
    cost are much alike: first that is left out which `near` holds beside what the network counts, moment by moment. Of
    an answer that exceeds the limit that too is left out where it does, or less of it where no answer is left; of one
    that fits this alone, everywhere.
    """
    counting, best = model.repeats.network, None
    live, counted = model.live(near), counted_live(counting, near, model.liveness.points)
    taken, before, share = live - counted, np.zeros_like(live), 1.0
    for number in range(_TIGHTER_TRIES):
        solution = run(taken, [near] if best is None or best.assignment is None else [near, best.assignment], QUICKLY)
        if solution is None:
            break
        if solution.assignment is None:
            share = share / 2 if number else share
            if share < _LEAST_SHARE:
                break
        else:
            near, before = solution.assignment, taken
            live, counted = model.live(near), counted_live(counting, near, model.liveness.points)
            if best is not None and not cheaper(solution, best):
                break
            if live.max() <= limit:
                best, taken, share = solution, live - counted, 1.0
                continue
        least = limit - counted + 1  # with less left out the same answer would come again
        more = least + (share * (live - limit - 1)).astype(np.int64)
        taken = np.where(live > limit, np.maximum(before, more), before)
    return None if best is None else best.assignment


def counted_live(network: CostNetwork, assignment: Sequence[int], points: int) -> np.ndarray:
    """What a network counts of an assignment at every moment."""
    out = np.zeros(points + 2, np.int64)
    times = usage_profile(network, assignment)
    for (start, live), (stop, _) in zip(times, [*times[1:], (len(out), 0)], strict=True):
        out[start:stop] = live
    return out


def annealed(
    model: Model, limit: int, near: Sequence[int], options: SearchOptions, known: Known | None
) -> Known | None:
    """A plan that annealing finds in a network that knows of all moments; what is known, where that is no dearer.

    near: an assignment whose cost tells what steps may cost.
    """
    from autoshard.solver.local.annealing import anneal

    options.say("looking for a plan within the memory limit by annealing")
    until, nodes = options.deadline.part(_ANNEALED_SHARE), model.repeats.network.n_nodes
    network, cost = model.within(limit, model.memory.all_of_them()), evaluate(model.with_limit(None), near).cost
    chosen = anneal(network, nodes, near, abs(cost or 0), options.seed, lambda: not until.passed)
    found = fit_of(model, None if chosen is None else chosen[:nodes], limit)
    if found is None or (known is not None and not cheaper(found[0], known[0])):
        return known
    return found


def anything(network: CostNetwork, deadline: Deadline) -> list[Sequence[int]]:
    """An assignment of a network, whatever it costs, where one is soon found: a search with costs may miss all.

    Raises `KeyboardInterrupt` where the user stopped it.
    """
    from autoshard.solver import solve

    part = deadline.part(_ANYTHING_SHARE)
    solution = solve(without_costs(network), deadline=part, effort=_ANYTHING_EFFORT, gap=1.0)
    if solution.stopped is Stopped.INTERRUPT:
        raise KeyboardInterrupt
    return [] if solution.assignment is None else [solution.assignment]


def allowed(network: CostNetwork, options: SearchOptions, rounds: list[dict[str, Any]]) -> list[tuple[int, ...]]:
    """An assignment of a network within its limit, whatever it costs, by an engine that knows no costs; it proves
    nothing. rounds: how searches went, this one too.
    """
    from autoshard.solver.engines.feasible import any_fit

    what = "looking for anything within the memory limit, whatever it costs"
    seconds = options.deadline.part(_ALLOWED_SHARE).left()
    if seconds is not None and seconds < _ALLOWED_LEAST_S:
        return []
    options.say(what)
    found = any_fit(network, effort=_ALLOWED_EFFORT * options.effort, seconds=inf if seconds is None else seconds)
    status = "unknown" if found.assignment is None else "feasible"
    told = {"what": what, "status": status, "bound": 0, "proves": False, "trace": []}
    rounds.append({**told, "doubt": ONE_ENGINE} if found.none else told)
    return [] if found.assignment is None else [found.assignment]


def doubt(rounds: Sequence[Mapping[str, Any]]) -> str:
    """What an engine said of there being no plan that nothing else confirms; empty where none did."""
    return next((str(one["doubt"]) for one in rounds if "doubt" in one), "")


def entries(network: CostNetwork) -> int:
    """Entries of all tables of pairs of decisions."""
    return sum(len(network.costs[edge.first]) * len(network.costs[edge.second]) for edge in network.edges)


def fits_within(model: Model, limit: int) -> Callable[[Sequence[int]], bool]:
    """Whether the plan of an assignment of a network within the limit holds no more than that, all counted."""
    nodes = model.repeats.network.n_nodes
    return lambda assignment: model.simulate(model.schedule(assignment[:nodes])).peak_bytes <= limit
