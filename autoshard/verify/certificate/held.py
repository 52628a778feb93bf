"""What nodes hold over time: stretches that do not overlap, and time slots that need not be looked at."""

from bisect import bisect_right
from collections.abc import Iterable, Sequence

import numpy as np

from autoshard.verify.certificate.stream import CertificateFault

MOST_HELD = 2**61
"""Networks that hold more than this, the largest amounts of all nodes added up, cannot be checked in 64 bits."""
Held = tuple[int, int, np.ndarray]
"""First slot, last slot + 1, amount per state."""


def check_forgettable(held: Iterable[Sequence[Held]], times: np.ndarray, kept: np.ndarray, limit: int) -> None:
    """`CertificateFault` unless in every slot that goes the limit holds whatever is chosen, or the next or the last
    slot that stays holds at least as much, node by node.

    held: what each node holds. times: when each slot begins. kept: the slots that stay, in order.
    """
    n = len(times)
    most = np.zeros(n + 1, dtype=np.int64)
    later, earlier = np.zeros(n + 1, dtype=np.int64), np.zeros(n + 1, dtype=np.int64)
    before = np.concatenate([[-1], kept]).astype(np.int64)  # before[k]: the slot that stays before kept[k]
    after = np.concatenate([kept, [n]]).astype(np.int64)
    for of_node in held:
        own = stretches(of_node)
        starts = [a for a, _, _ in own]
        for a, b, amounts in own:
            high = int(amounts.max())
            most[a] += high
            most[b] -= high
            # the part of the stretch behind its last slot that stays, and that before its first one
            k = int(np.searchsorted(kept, b))
            start = max(a, int(before[k]) + 1)
            if start < b and not _as_much(own, starts, int(after[k]), amounts):
                later[start] += 1
                later[b] -= 1
            k = int(np.searchsorted(kept, a))
            stop = min(b, int(after[k]))
            if a < stop and not _as_much(own, starts, int(before[k]), amounts):
                earlier[a] += 1
                earlier[stop] -= 1
    place = np.searchsorted(kept, np.arange(n))
    fine = np.cumsum(most)[:-1] <= limit
    fine |= (np.cumsum(later)[:-1] == 0) & (place < len(kept))
    fine |= (np.cumsum(earlier)[:-1] == 0) & (place > 0)
    fine[kept] = True
    if not fine.all():
        time = int(times[~fine][0])
        raise CertificateFault(f"the time slot at {time} is forgotten, but may bind: it is within none that stays")


def _as_much(own: Sequence[Held], starts: list[int], slot: int, amounts: np.ndarray) -> bool:
    """Whether a node holds at least these amounts at a slot, for each state. own: its stretches, starts: theirs."""
    k = bisect_right(starts, slot) - 1
    if k >= 0 and slot < own[k][1]:
        return bool((amounts <= own[k][2]).all())
    return bool((amounts <= 0).all())


def stretches(held: Sequence[Held]) -> list[Held]:
    """What a node holds, as stretches of time that do not overlap; each lasts as long as nothing changes."""
    if len(held) == 1:
        return [h for h in held if h[0] < h[1] and h[2].any()]
    if not held:
        return []
    ends = np.unique(np.array([t for a, b, _ in held for t in (a, b)], dtype=np.int64))
    change = np.zeros((len(ends), len(held[0][2])), dtype=np.int64)
    for a, b, amounts in held:
        change[np.searchsorted(ends, a)] += amounts
        change[np.searchsorted(ends, b)] -= amounts
    live = np.cumsum(change, axis=0)
    changed = np.flatnonzero(change.any(axis=1))
    out = []
    for k, begin in enumerate(changed[:-1].tolist()):
        if live[begin].any():
            out.append((int(ends[begin]), int(ends[changed[k + 1]]), live[begin]))
    return out
