"""How the gap closed while a plan was made: from the reports of its searches, as run.json keeps them."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

MOST_POINTS = 400
"""How many points of one search are kept, about."""


class SearchPoint(NamedTuple):
    """A moment of the search: seconds since it began, cost of the best plan and bound then (both seconds of a step).

    search: what was searched for then. Where that is a plan without the memory limit, the best plan may not fit.
    """

    seconds: float
    cost_s: float
    bound_s: float | None
    search: str


def search_points(run: Mapping[str, Any]) -> list[SearchPoint]:
    """The points of all searches of a run (`PlanRecord.run`), in order, without those that change nothing."""
    kept: list[SearchPoint] = []
    began = 0.0
    for round_ in run.get("rounds", ()):
        points: list[SearchPoint] = []
        for seconds, cost, bound in round_.get("trace", ()):
            point = SearchPoint(round(began + seconds, 4), cost, bound, str(round_["what"]))
            if not points or points[-1][1:] != point[1:]:
                points.append(point)
        step = -(-len(points) // MOST_POINTS)
        kept += [*points[:-1:step], points[-1]] if points else []
        began += float(round_.get("seconds", 0.0))
    return kept


def search_read(rows: Any) -> list[SearchPoint]:
    """The points that a file holds as rows; `ValueError` or `TypeError` where they are no points."""
    read: Sequence[Any] = rows
    return [
        SearchPoint(float(seconds), float(cost), None if bound is None else float(bound), str(search))
        for seconds, cost, bound, search in read
    ]
