"""What is said where a search ends without a plan."""

from collections.abc import Sequence
from typing import NoReturn

from autoshard.errors import InfeasibleError, NotFoundError, OutOfTimeError
from autoshard.planning.contradiction import contradiction, limit_words, none_within
from autoshard.planning.model import Model
from autoshard.solver.network import evaluate
from autoshard.solver.solution import Solution, Stopped


def no_answer(model: Model, solution: Solution, explain: bool, seen: Sequence[Sequence[int]]) -> NoReturn:
    """Raise what a search without an assignment says; `seen`: plans that are too full, where there is a limit."""
    limit = model.problem.memory_limit
    if solution.status == "infeasible":
        reason = name_nodes(model, solution.reason or "nothing satisfies all that is stated")
        if explain:
            achieved = lowest(model, seen) if limit is not None else None
            raise contradiction(model.problem, proved=True, reason=reason, achieved_bytes=achieved)
        within = "" if limit is None else f" within the {limit_words(model.problem)}"
        raise InfeasibleError(f"no plan exists{within} (proved): {reason}", facts={"proved": True})
    if solution.stopped is Stopped.INTERRUPT:
        raise KeyboardInterrupt
    if solution.stopped is Stopped.TIME:
        raise OutOfTimeError(
            "no plan was found in the time given, and it is not proved that none exists; raise the time limit"
        )
    raise NotFoundError(
        f"no plan was found, and it is not proved that none exists (the search ended: {solution.stopped}); search with "
        "more effort"
    )


def name_nodes(model: Model, reason: str) -> str:
    """Replace `node 12` and `nodes 12 and 15` in a solver's message by what the nodes decide."""
    import re

    def name(number: str) -> str:
        if int(number) >= model.repeats.network.n_nodes:
            return "what several decisions hold together"
        node = model.collected.nodes[model.repeats.representative(int(number))]
        return f"{node.kind.value} {node.label}"

    def named(match: "re.Match[str]") -> str:
        return " and ".join(name(number) for number in match.groups() if number is not None)

    return re.sub(r"\bnodes? (\d+)(?: and (\d+))?", named, reason)


def none_found(model: Model, seen: Sequence[Sequence[int]], explain: bool, stopped: Stopped | None) -> Exception:
    """That a search within the limit ended without a plan and without a proof."""
    limit, achieved = model.problem.memory_limit, lowest(model, seen)
    assert limit is not None
    if stopped is Stopped.TIME:
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


def lowest(model: Model, seen: Sequence[Sequence[int]]) -> int | None:
    """The lowest peak of the plans that were seen."""
    return min((model.simulate(model.schedule(one)).peak_bytes for one in seen if is_plan(model, one)), default=None)


def is_plan(model: Model, assignment: Sequence[int]) -> bool:
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
