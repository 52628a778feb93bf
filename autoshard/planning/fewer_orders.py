"""Where to begin within a memory limit on three axes alike: with the cheapest plan in which these keep one order.

All orders of three axes make networks several times as large, and searches within a limit that end without a proof may
end far from it (attention on 2x2x2 v5p within 90% of its memory at nearly twice the cost). What such axes are worth in
other orders is little, so the plan of the smaller network is a good one, and the larger network has the bound.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from autoshard.errors import AutoshardError
from autoshard.formulation.assign import assignment_of
from autoshard.planning.axis_orders import axis_orders
from autoshard.planning.decision import Decision
from autoshard.planning.model import Model, build_model
from autoshard.planning.no_plan import NoAnswerError
from autoshard.planning.parts import SOME_AXES
from autoshard.search_options import SearchOptions

_SHARE = 0.5
"""The part of what is left of a time limit that the smaller network may take."""


def starts(
    model: Model,
    options: SearchOptions,
    search: Callable[[Model, SearchOptions], Decision],
    seen: list[Sequence[int]],
) -> tuple[Sequence[int], ...]:
    """A plan of the smaller network as an assignment of the model; none where it is no smaller or nothing is found.

    search: finds a plan of a model, as `search_plan` does. seen: gets it too, also where Ctrl-C ends the search.
    """
    problem = replace(model.problem, alike_in_order=True)
    cutting = sum(size > 1 for size in problem.mesh.mesh.axis_sizes)
    if cutting < SOME_AXES or axis_orders(problem) == model.shared.orders:
        return ()
    options.say("looking for a plan in which axes alike keep their order")
    try:
        found = search(build_model(problem, fixed=model.fixed), options.part(_SHARE))
    except (NoAnswerError, AutoshardError):
        return ()
    start = assignment_of(model.collected, model.encoded, model.repeats, found.schedule)
    found_here = () if start is None else (start,)
    seen.extend(found_here)
    if found.interrupted:
        raise KeyboardInterrupt
    return found_here
