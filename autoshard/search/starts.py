"""Starts of the search by cost: the assignments of propagation and greedy, so that the plan is never worse than theirs.

They are searched without the memory limit, which takes a fraction of a second; those that exceed it are no starts.
"""

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from autoshard.errors import OutOfTimeError
from autoshard.planning import Model
from autoshard.search.by_propagation import left_by_propagation
from autoshard.search.greedy import left_by_greedy
from autoshard.search.restricted import EFFORT, CannotBe, unlimited
from autoshard.search_options import SearchOptions
from autoshard.strategies.choice import LADDER, StrategyName


def each_start(model: Model, options: SearchOptions | None = None) -> Iterator[tuple[int, ...]]:
    """Assignments of the model's network by the ladder of propagation (where anything is stated) and by greedy, which
    too large networks are spared.

    The deadline is for all of them together; those that would begin after it are left out.
    """
    options = options or SearchOptions()
    names = [*(LADDER if model.problem.pins else ()), "greedy"]
    if model.repeats.network.is_factored:  # greedy looks at every entry of every table
        names.remove("greedy")
    seen: list[Sequence[np.ndarray]] = []
    for name in names:
        if options.deadline.passed:
            break
        options.say(f"starting from {name}")
        strategy = StrategyName(name)
        try:
            greedy = name == "greedy"
            stop = partial(options.deadline.check, "placing ops one by one", "raise it")
            allowed = left_by_greedy(model, stop) if greedy else left_by_propagation(model, name, strategy.rule)
        except OutOfTimeError:
            break
        if any(all(map(np.array_equal, allowed, other)) for other in seen):  # most rungs agree in most programs
            continue
        seen.append(allowed)
        try:
            start = unlimited(model, allowed, deadline=options.deadline, effort=EFFORT).assignment
        except CannotBe:
            continue
        yield start
