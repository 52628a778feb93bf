"""Time slots that cannot bind are forgotten: those within others, and those that stay within the limit anyway.

Nodes and strategies stay, so that nothing has to be undone.
"""

from collections.abc import Sequence

import numpy as np

from autoshard.solver.work import Held, Work


def undominated_slots(work: Work) -> int:
    """Keep only the time slots whose set of live usages is in no other's; how many go (0 with negative amounts)."""
    if work.limit is None or not work.slots:
        return 0
    begins = np.zeros(work.slots + 1, dtype=bool)
    ends = np.zeros(work.slots + 1, dtype=bool)
    for i in work.nodes():
        for h in work.held[i]:
            if h.amounts.min() < 0:
                return 0
            begins[h.start] = True
            ends[h.stop] = True
    kept, fresh = [], False
    for slot in range(work.slots):  # a maximal set: something began since the last one, and something ends now
        fresh |= bool(begins[slot])
        if fresh and ends[slot + 1]:
            kept.append(slot)
            fresh = False
    gone = work.slots - len(kept)
    only_slots(work, kept)
    return gone


def only_slots(work: Work, kept: Sequence[int]) -> None:
    """Forget all time slots but `kept` (increasing): a relaxation, unless the others cannot bind."""
    keep = np.array(kept, dtype=np.int64)
    for i in work.nodes():
        if work.held[i]:
            starts = np.searchsorted(keep, [h.start for h in work.held[i]])
            stops = np.searchsorted(keep, [h.stop for h in work.held[i]])
            work.held[i] = compressed(
                [
                    Held(int(a), int(b), h.amounts)
                    for a, b, h in zip(starts, stops, work.held[i], strict=True)
                    if a < b and h.amounts.any()
                ]
            )
    work.slots = len(keep)
    if not work.slots:
        work.limit = None


def loose_slots(work: Work) -> int:
    """Forget the slots that stay within the limit whatever is chosen; returns how many."""
    if work.limit is None or not work.slots:
        return 0
    delta = np.zeros(work.slots + 1, dtype=np.int64)
    for i in work.nodes():
        for h in work.held[i]:
            high = h.amounts.max()
            delta[h.start] += high
            delta[h.stop] -= high
    kept = np.flatnonzero(np.cumsum(delta)[:-1] > work.limit)
    gone = work.slots - len(kept)
    if gone:
        only_slots(work, kept.tolist())
    return gone


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
