"""Finds layers that are written out one after the other: consecutive stretches of a list that are alike."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

SHORTEST = 8
"""The fewest ops of a stretch that is folded."""
MOST_PERIODS = 48
"""How many lengths of a layer are tried; those that most pairs of equal ops suggest come first."""


@dataclass(frozen=True, slots=True)
class Repeat:
    """`count` equal stretches of `period` items each, one after the other, from index `start` on."""

    start: int
    period: int
    count: int

    @property
    def stop(self) -> int:
        """The index behind the last item."""
        return self.start + self.period * self.count


def repeats(items: Sequence[Hashable]) -> list[Repeat]:
    """Stretches that repeat, disjoint and in order; of those that overlap, the one that covers most items wins.

    >>> repeats(list("xx" + "abcdefgh" * 3 + "y"))
    [Repeat(start=2, period=8, count=3)]
    """
    known: dict[Hashable, int] = {}
    codes = np.array([known.setdefault(item, len(known)) for item in items], np.int64)
    if len(codes) < 2 * SHORTEST:
        return []
    candidates: list[Repeat] = []
    for period in _periods(codes):
        alike = np.concatenate(([0], (codes[:-period] == codes[period:]).astype(np.int8), [0]))
        steps = np.diff(alike)
        for begin, end in zip(np.flatnonzero(steps == 1), np.flatnonzero(steps == -1), strict=True):
            if end - begin >= period:
                candidates.append(Repeat(int(begin), period, int(end - begin) // period + 1))
    taken = np.zeros(len(codes), bool)
    kept: list[Repeat] = []
    # of two that cover the same items, the one with shorter layers says more
    for candidate in sorted(candidates, key=lambda r: (-(r.stop - r.start), r.period, r.start)):
        if not taken[candidate.start : candidate.stop].any():
            taken[candidate.start : candidate.stop] = True
            kept.append(candidate)
    return sorted(kept, key=lambda r: r.start)


def _periods(codes: np.ndarray) -> list[int]:
    """The commonest distances between one item and the next equal one."""
    order = np.argsort(codes, kind="stable")
    gaps = np.diff(order)[codes[order][1:] == codes[order][:-1]]
    gaps = gaps[(gaps >= SHORTEST) & (gaps <= len(codes) // 2)]
    lengths, votes = np.unique(gaps, return_counts=True)
    best = np.lexsort((lengths, -votes))[:MOST_PERIODS]
    return [int(n) for n in lengths[best]]
