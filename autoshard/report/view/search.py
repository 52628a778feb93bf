"""How the gap closed while a plan was made: from the reports of its searches, as run.json keeps them."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

MOST_POINTS = 400
"""Points of one search that are kept."""


class SearchPoint(NamedTuple):
    """Seconds since the first search began; the best plan then, and what was proved (both seconds of a step).

    search: what was looked for then. Without the memory limit the best plan may be one that does not fit.
    """

    seconds: float
    cost_s: float
    bound_s: float | None
    search: str


def search_points(run: Mapping[str, Any]) -> list[SearchPoint]:
    """Of all searches of a run (`PlanRecord.run`), one after the other; where nothing changed no point is kept."""
    found: list[SearchPoint] = []
    began = 0.0
    for one in run.get("rounds", ()):
        points: list[SearchPoint] = []
        for seconds, cost, bound in one.get("trace", ()):
            point = SearchPoint(round(began + seconds, 4), cost, bound, str(one["what"]))
            if not points or points[-1][1:] != point[1:]:
                points.append(point)
        step = -(-len(points) // MOST_POINTS)
        found += [*points[:-1:step], points[-1]] if points else []
        began += float(one.get("seconds", 0.0))
    return found


def search_read(rows: Any) -> list[SearchPoint]:
    """The points of a file; `ValueError` or `TypeError` where they are none."""
    read: Sequence[Any] = rows
    return [
        SearchPoint(float(seconds), float(cost), None if bound is None else float(bound), str(search))
        for seconds, cost, bound, search in read
    ]
