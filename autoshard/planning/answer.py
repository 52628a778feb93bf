"""Answering: a decision, or an error that explains why there is none."""

from collections.abc import Sequence
from dataclasses import replace

from autoshard.errors import AutoshardError, InfeasibleError
from autoshard.planning.certified import Proved
from autoshard.planning.contradiction import contradiction
from autoshard.planning.decision import Decision
from autoshard.planning.model import Model
from autoshard.planning.no_plan import NoAnswerError
from autoshard.planning.over_links import search_over_links
from autoshard.search_options import SearchOptions
from autoshard.solver.solution import Stopped

EXPLAINING_SHARE, EXPLAINING_S = 0.8, 2.0
"""The part of what is left of a time limit that searches for what would make room may take, and seconds that they may
take in any case."""

_LEAST_EFFORT = 1e-3
"""Of a search that is to end with its reductions."""


def answer(model: Model, options: SearchOptions | None = None, *, starts: Sequence[Sequence[int]] = ()) -> Decision:
    """As `decide`; where there is no plan the error names the smallest set of statements at odds, and what helps."""
    try:
        return search_over_links(model, options, starts=starts)
    except NoAnswerError as end:
        raise explained(end, options) from None


def explained(end: NoAnswerError, options: SearchOptions | None = None) -> AutoshardError:
    """The error that tells why there is no plan, as far as there is time to find out."""
    problem = end.model.problem.leaving_counts_out(False)
    seconds = None if options is None else options.deadline.left(EXPLAINING_SHARE, least=EXPLAINING_S)
    if end.proved:
        lowest = None if problem.memory_limit is None else end.lowest
        error = contradiction(problem, proved=True, reason=end.reason, achieved_bytes=lowest, seconds=seconds)
        if isinstance(error, InfeasibleError):
            error.proof = end.proof
        return error
    if end.within and end.stopped is not Stopped.TIME:
        return contradiction(problem, proved=False, achieved_bytes=end.lowest, seconds=seconds)
    return end.plain()


def check_room(model: Model, options: SearchOptions | None = None) -> None:
    """Raise `InfeasibleError` at once where the decisions hold more than the memory limit whatever is chosen."""
    seconds = None if options is None else options.deadline.left(EXPLAINING_SHARE, least=EXPLAINING_S)
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
            error = contradiction(model.problem.leaving_counts_out(False), proved=True, seconds=seconds)
            if isinstance(error, InfeasibleError):
                error.proof = _proof_of_no_room(model, limit)
            raise error


def _proof_of_no_room(model: Model, limit: int) -> Proved | None:
    """The certificate that the decisions have no room: the reductions that every search begins with find it."""
    from autoshard.solver import solve

    proof = Proved.none(solve(model.with_limit(limit), effort=_LEAST_EFFORT), limit)
    return None if proof is None else replace(proof, counts=not model.problem.uncounted)
