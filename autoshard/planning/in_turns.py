"""A plan within a memory limit where a network is too large to work out what several decisions hold together.

In turns: messages with prices on memory say which states look best beside what copies hold of the last plan; the
network of these states is searched within the limit until its plans fit with all of their copies
(`fitting.fit_by_moments`).
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from autoshard.deadline import Deadline
from autoshard.planning.decision import Known, best_start, cheaper, interrupted_in, is_close
from autoshard.planning.fitting import counted_live, fit_by_moments
from autoshard.planning.model import Model
from autoshard.planning.no_plan import no_answer
from autoshard.planning.searches import By, Searches
from autoshard.planning.steps import GUIDING, Step
from autoshard.solver.few_states import union
from autoshard.solver.solution import Solution, Stopped

_MOST_TURNS, _IDLE_TURNS, _SETS = 6, 2, 4
"""Most turns, and how many that find no better plan are the last; in each, the states count that looked best in so many
searches before."""
_SHARE = 0.9
"""The part of the time left that the searches of one turn may take."""
_TOO_DEAR = 2.0
"""Where the bound of messages is so many times that of all plans, less of the limit is left beside."""
_LESS = 6
"""In every other turn messages are to leave one part in so many of the limit beside what copies hold."""


def plan_in_turns(searches: Searches, limit: int, near: Sequence[int], known: Known | None) -> Known | None:
    """The cheapest plan that turns find, until some find no better one.

    near: an assignment whose copies are counted first. known: a plan within the limit.
    """
    idle, share = 0, 1.0
    searches = replace(searches)  # with messages of its own
    for turn in range(_MOST_TURNS):
        close = known is not None and is_close(known[0], searches.bound, searches.options)
        if close or interrupted_in(searches.rounds) or searches.options.deadline.passed:
            break
        share = _looked(searches, limit, _beside(searches.model, limit, near, share, turn), known, share)
        before = known = _best(searches, limit, known)
        searches.fitted(limit, near, _SHARE, _among(searches, limit, known), fit_by_moments)
        known = _best(searches, limit, known)
        near = searches.seen[-1] if known is None else known[0].assignment or near
        idle = 0 if before is None or known is None or cheaper(known[0], before[0]) else idle + 1
        if idle == _IDLE_TURNS:
            break
    if known is not None and known[0].stopped is Stopped.EFFORT and searches.options.deadline.passed:
        known = replace(known[0], stats={"stopped": Stopped.TIME}), *known[1:]
    return known


def bound_closer(
    searches: Searches, limit: int, known: Known | None, starts: Sequence[Sequence[int]]
) -> Solution | None:
    """A search of all states that counts what forms are kept (`formulation.kept`), from where the messages of one that
    does not stand: it raises the bound. None where no time is left, or there is no need.

    Raises `NoAnswerError` where it proves that there is no plan.
    """
    model, deadline = searches.model, searches.options.deadline
    close = known is not None and is_close(known[0], searches.bound, searches.options)
    if close or deadline.passed or interrupted_in(searches.rounds):
        return None
    what, given = "bounding closer within the memory limit", (*starts, None if known is None else known[0].assignment)
    kept = [model.kept.extended(one) for one in given if one is not None]
    network = model.within(limit, {})
    solution = searches.solve(network, what, kept, deadline, known=known, within=limit, moments={})
    if solution.status == "infeasible":
        raise no_answer(model, solution, searches.seen, limit, {})
    return solution


def _looked(searches: Searches, limit: int, room: np.ndarray, known: Known | None, share: float) -> float:
    """Look which states are best where `room` is left at every moment; the share that is left in the next turn."""
    what, stood = "looking at what is held within the memory limit", searches.standing
    network, until = searches.model.with_limit(limit, room), searches.options.deadline
    found = searches.solve(network, what, (), until, GUIDING, known=known, proves=False)
    if found.status != "infeasible" and found.lower_bound <= _TOO_DEAR * abs(searches.bound):
        return share
    searches.standing = stood  # next to nothing fits, or nothing at all: its prices would mislead
    return share / 2


def _among(searches: Searches, limit: int, known: Known | None) -> By:
    """A search of the states that looked best, as `fitting.fit_by_moments` runs it."""
    few = union(searches.likely[-_SETS:], searches.seen)

    def search(room: np.ndarray, given: Sequence[Sequence[int]], until: Deadline, step: Step) -> Solution:
        what = "looking for a plan within the memory limit among the states that look best"
        network = searches.model.with_limit(limit, room)
        return searches.solve(network, what, given, until, step, known=known, proves=False, within=limit, few=few)

    return search


def _best(searches: Searches, limit: int, known: Known | None) -> Known | None:
    """The cheapest plan within the limit that was seen, unless the known one is as cheap."""
    found = best_start(searches.model, searches.seen, limit)
    if found is None or (known is not None and not cheaper(found[0], known[0])):
        return known
    stopped = Stopped.TIME if searches.options.deadline.passed else Stopped.EFFORT
    return replace(found[0], stats={"stopped": stopped}), *found[1:]


def _beside(model: Model, limit: int, near: Sequence[int], share: float, turn: int) -> np.ndarray:
    """Bytes at every moment that are left to what a network does not count: a share of what an assignment holds of it,
    and in every other turn of a part of the limit beside.
    """
    taken = model.live(near) - counted_live(model.repeats.network, near, model.liveness.points)
    return (share * (np.maximum(taken, 0) + (limit // _LESS if turn % 2 else 0))).astype(np.int64)
