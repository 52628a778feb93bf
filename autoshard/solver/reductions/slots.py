"""Removes time slots that cannot bind: those contained in others, and those that stay within the limit anyway.

Nodes and states stay, so that nothing has to be undone.
"""

from collections.abc import Sequence

import numpy as np

from autoshard.solver.reductions.records import live_amounts, records
from autoshard.solver.work import Held, Work


def undominated_slots(work: Work) -> int:
    """Keep only the time slots whose set of live usages is in no other's; how many go (0 with negative amounts)."""
    if work.limit is None or not work.slots:
        return 0
    usages = records(work)
    if (usages.low < 0).any():
        return 0
    return _forget(work, _maximal(usages.start, usages.stop, work.slots))


def loose_slots(work: Work) -> int:
    """Forget the slots that stay within the limit whatever is chosen; returns how many."""
    if work.limit is None or not work.slots:
        return 0
    usages = records(work)
    return _forget(work, np.flatnonzero(usages.live(usages.high, work.slots) > work.limit))


def fewer_slots(work: Work) -> int:
    """Both of these in turns, until neither removes one more; returns how many slots went."""
    if work.limit is None or not work.slots:
        return 0
    usages = records(work)
    ordered = not (usages.low < 0).any()
    kept, start, stop, high = np.arange(work.slots), usages.start, usages.stop, usages.high
    while len(kept):
        before = len(kept)
        for loose in (False, True):
            if loose:
                stays = np.flatnonzero(live_amounts(start, stop, high, len(kept)) > work.limit)
            elif ordered:
                stays = _maximal(start, stop, len(kept))
            else:
                continue
            kept = kept[stays]
            start, stop = np.searchsorted(stays, start), np.searchsorted(stays, stop)
            some = start < stop
            start, stop, high = start[some], stop[some], high[some]
        if len(kept) == before:
            break
    return _forget(work, kept)


def _maximal(start: np.ndarray, stop: np.ndarray, slots: int) -> np.ndarray:
    """The slots at whose end something ends, if something began since the last slot of that kind."""
    begins = np.zeros(slots + 1, dtype=np.int64)
    ends = np.zeros(slots + 1, dtype=bool)
    begins[start] = 1
    ends[stop] = True
    at = np.flatnonzero(ends[1:])
    return at[np.diff(np.cumsum(begins)[at], prepend=0) > 0]


def _forget(work: Work, kept: np.ndarray) -> int:
    gone = work.slots - len(kept)
    if gone:
        only_slots(work, kept.tolist())
    return gone


def only_slots(work: Work, kept: Sequence[int]) -> None:
    """Forget all time slots but `kept` (increasing): a relaxation, unless the others cannot bind."""
    keep = np.array(kept, dtype=np.int64)
    usages = records(work)
    starts, stops = np.searchsorted(keep, usages.start), np.searchsorted(keep, usages.stop)
    stays = np.flatnonzero((starts < stops) & ((usages.low != 0) | (usages.high != 0)))
    held: dict[int, list[Held]] = {}
    for r, node, start, stop in zip(
        stays.tolist(), usages.node[stays].tolist(), starts[stays].tolist(), stops[stays].tolist(), strict=True
    ):
        held.setdefault(node, []).append(Held(start, stop, usages.held[r].amounts))
    work.held = [()] * len(work.held)
    for node, own in held.items():
        work.held[node] = compressed(own)
    work.slots = len(keep)
    work.times = work.times[keep]
    work.note("times", work.times)
    if not work.slots:
        work.limit = None


def compressed(held: Sequence[Held]) -> tuple[Held, ...]:
    """Equal intervals added up; intervals that touch and hold the same amounts joined."""
    if len(held) < 2:
        return tuple(held)
    total: dict[tuple[int, int], np.ndarray] = {}
    for h in held:
        have = total.get((h.start, h.stop))
        total[h.start, h.stop] = h.amounts if have is None else have + h.amounts
    ending: dict[tuple[int, bytes], list[int]] = {}  # starts of what ends there with these amounts
    for (start, stop), amounts in sorted(total.items(), key=lambda item: item[0]):
        key = amounts.tobytes()
        before = ending.get((start, key))
        ending.setdefault((stop, key), []).append(before.pop() if before else start)
    joined = [
        Held(start, stop, np.frombuffer(key, dtype=np.int64))
        for (stop, key), starts in ending.items()
        for start in starts
    ]
    return tuple(sorted(joined, key=lambda h: (h.start, h.stop)))
