"""Where the search by cost starts from: what propagation and greedy find, so that the answer is never worse.

They are searched without the memory limit, which takes a fraction of a second; those that exceed it are no starts.
"""

import time
from collections.abc import Iterator, Sequence

import numpy as np

from autoshard.planning import Model
from autoshard.planning.model import Progress
from autoshard.search.by_propagation import left_by_propagation
from autoshard.search.greedy import left_by_greedy
from autoshard.search.restricted import EFFORT, CannotBe, unlimited
from autoshard.strategies.choice import LADDER, StrategyName


def each_start(
    model: Model, *, time_limit_s: float | None = None, progress: Progress | None = None
) -> Iterator[tuple[int, ...]]:
    """Assignments of the model's network by the ladder of propagation (where anything is stated) and by greedy.

    time_limit_s: guard on the wall clock for all of them; what is not begun within it is left out.
    """
    say = progress or (lambda text: None)
    deadline = None if time_limit_s is None else time.monotonic() + time_limit_s
    names = [*(LADDER if model.problem.pins else ()), "greedy"]
    seen: list[Sequence[np.ndarray]] = []
    for name in names:
        if deadline is not None and time.monotonic() >= deadline:
            break
        say(f"starting from {name}")
        strategy = StrategyName(name)
        allowed = left_by_greedy(model) if name == "greedy" else left_by_propagation(model, name, strategy.rule)
        if any(all(map(np.array_equal, allowed, other)) for other in seen):  # most rungs agree in most programs
            continue
        seen.append(allowed)
        try:
            start = unlimited(model, allowed, deadline=deadline, effort=EFFORT).assignment
        except CannotBe:
            continue
        yield start
