"""Collectives as they are measured: latency that grows with the group, and the share of the links that a size reaches.

Bounds and plan prices take a constant latency for each pass and the links' full rate. Beside them stands what
implementations are known to add:

- *Rings.* A gather or a scatter over n devices is n - 1 steps; the n' - 1 of them that leave a domain (n' domains)
  take the `step_latency` of the outer level, the others that of the inner one. An all-reduce is twice that, or a tree:
  up and down through the devices of a domain and log2 of the domains, whichever is shorter. Small messages have steps
  of `small_step_latency` at half of the rate, where that is quicker (NCCL, src/graph/tuning.cc).
- *Sizes.* `reached` of a level gives measured shares of its rate by V, latency included; between two points the share
  is linear in log V, outside of them it stays as it is. The longer of the two times counts.
"""

from collections.abc import Sequence
from itertools import pairwise
from math import log, log2, prod

from autoshard.costmodels.collectives import CollectiveKind, LevelCost
from autoshard.costmodels.profile import Profile, Reached

_RINGS = (CollectiveKind.ALL_GATHER, CollectiveKind.REDUCE_SCATTER, CollectiveKind.ALL_REDUCE)


def reached_share(points: Sequence[Reached], bytes_: float) -> float:
    """The share of a level's rate that a collective over so many bytes reaches; 1 where nothing was measured.

    >>> points = [Reached(bytes=1e6, share=0.2, source="a"), Reached(bytes=1e8, share=0.8, source="a")]
    >>> [round(reached_share(points, size), 3) for size in (1e5, 1e6, 1e7, 1e9)]
    [0.2, 0.2, 0.5, 0.8]
    """
    if not points:
        return 1.0
    if bytes_ <= points[0].bytes:
        return points[0].share
    for low, high in pairwise(points):
        if bytes_ <= high.bytes:
            way = log(bytes_ / low.bytes) / log(high.bytes / low.bytes)
            return low.share + way * (high.share - low.share)
    return points[-1].share


def growing_latency_s(kind: CollectiveKind, costs: Sequence[LevelCost], profile: Profile, small: bool = False) -> float:
    """Seconds that the steps of a ring (of a tree, where it is shorter) add; 0 on levels that do not say."""
    if kind not in _RINGS:
        return 0.0
    rounds: list[tuple[int, int, float]] = []  # units of a level in the group, those of the levels outside, seconds
    for index, cost in enumerate(costs):
        level = profile.level(cost.level)
        steps = getattr(level, "small_step_latency" if small else "step_latency", None)
        rounds.append((cost.group, prod(c.group for c in costs[index + 1 :]), 0.0 if steps is None else steps.value))
    ring = sum((units - 1) * outside * step for units, outside, step in rounds)
    if kind is not CollectiveKind.ALL_REDUCE:
        return ring
    tree = sum(
        ((units - 1) if i == 0 and len(rounds) > 1 else log2(units)) * s for i, (units, _, s) in enumerate(rounds)
    )
    return 2 * min(ring, tree)


def likely_seconds(kind: CollectiveKind, bytes_: float, costs: Sequence[LevelCost], profile: Profile) -> float:
    """Seconds of a collective: latency that grows and the links' full rate, or the share of the rate that was seen."""
    if not costs:
        return 0.0
    moving = [cost.seconds_per_byte * bytes_ for cost in costs]
    passes = sum(cost.latency_s for cost in costs)
    seen = max(s / reached_share(profile.level(c.level).reached, bytes_) for s, c in zip(moving, costs, strict=True))
    large = max(passes + growing_latency_s(kind, costs, profile) + max(moving), seen)
    if all(getattr(profile.level(cost.level), "small_step_latency", None) is None for cost in costs):
        return large
    return min(large, passes + growing_latency_s(kind, costs, profile, small=True) + 2 * max(moving))
