"""Layers that are written out: stretches of a list that follow one another and are alike."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

SHORTEST = 8
"""Ops of a stretch that is worth a fold of its own."""
MOST_PERIODS = 48
"""Lengths of a layer that are tried, those that most ops speak for first."""


@dataclass(frozen=True, slots=True)
class Repeat:
    """`count` stretches of `period` items from `start` on, each like the others."""

    start: int
    period: int
    count: int

    @property
    def stop(self) -> int:
        return self.start + self.period * self.count


def repeats(items: Sequence[Hashable]) -> list[Repeat]:
    """Stretches that repeat, apart from one another and in order; where several overlap those that cover most win.

    >>> repeats(list("xx" + "abcdefgh" * 3 + "y"))
    [Repeat(start=2, period=8, count=3)]
    """
    known: dict[Hashable, int] = {}
    codes = np.array([known.setdefault(item, len(known)) for item in items], np.int64)
    if len(codes) < 2 * SHORTEST:
        return []
    found: list[Repeat] = []
    for period in _periods(codes):
        alike = np.concatenate(([0], (codes[:-period] == codes[period:]).astype(np.int8), [0]))
        steps = np.diff(alike)
        for begin, end in zip(np.flatnonzero(steps == 1), np.flatnonzero(steps == -1), strict=True):
            if end - begin >= period:
                found.append(Repeat(int(begin), period, int(end - begin) // period + 1))
    taken = np.zeros(len(codes), bool)
    kept: list[Repeat] = []
    # of two that cover the same the one of shorter layers says more
    for one in sorted(found, key=lambda r: (-(r.stop - r.start), r.period, r.start)):
        if not taken[one.start : one.stop].any():
            taken[one.start : one.stop] = True
            kept.append(one)
    return sorted(kept, key=lambda r: r.start)


def _periods(codes: np.ndarray) -> list[int]:
    """Distances between neighbours of one kind that occur most often."""
    order = np.argsort(codes, kind="stable")
    gaps = np.diff(order)[codes[order][1:] == codes[order][:-1]]
    gaps = gaps[(gaps >= SHORTEST) & (gaps <= len(codes) // 2)]
    lengths, votes = np.unique(gaps, return_counts=True)
    best = np.lexsort((lengths, -votes))[:MOST_PERIODS]
    return [int(n) for n in lengths[best]]
