"""What all nodes keep live, as flat arrays: one look at thousands of usage records at a time."""

from dataclasses import dataclass

import numpy as np

from autoshard.solver.work import Held, Work, joined


@dataclass(frozen=True, slots=True)
class Records:
    """One row per usage record: its node, its slots [start, stop), its least and largest amount (int64)."""

    held: list[Held]
    node: np.ndarray
    start: np.ndarray
    stop: np.ndarray
    low: np.ndarray
    high: np.ndarray

    def live(self, amounts: np.ndarray, slots: int) -> np.ndarray:
        """Per time slot the sum of `amounts` (one per record) of what is live in it."""
        return live_amounts(self.start, self.stop, amounts, slots)


def live_amounts(start: np.ndarray, stop: np.ndarray, amounts: np.ndarray, slots: int) -> np.ndarray:
    """Per time slot the sum of the amounts that are live in it, exact in int64."""
    delta = np.zeros(slots + 1, dtype=np.int64)
    np.add.at(delta, start, amounts)
    np.subtract.at(delta, stop, amounts)
    return np.cumsum(delta)[:-1]


def records(work: Work) -> Records:
    """All usage records of a network, in order of their nodes."""
    held = [h for own in work.held for h in own]
    counts = np.array([len(own) for own in work.held], dtype=np.int64)
    amounts, at = joined([h.amounts for h in held])
    low, high = (np.minimum.reduceat(amounts, at), np.maximum.reduceat(amounts, at)) if held else (amounts, amounts)
    return Records(
        held, np.repeat(np.arange(len(counts)), counts), np.array([h.start for h in held], dtype=np.int64),
        np.array([h.stop for h in held], dtype=np.int64), low, high,
    )  # fmt: skip


def range_max(values: np.ndarray, start: np.ndarray, stop: np.ndarray) -> np.ndarray:
    """max(values[start:stop]) for each pair (none empty), by maxima over stretches of every power of two."""
    level = np.frexp((stop - start).astype(np.float64))[1] - 1
    out = np.zeros(len(start), dtype=values.dtype)
    highest = values
    for k in range(int(level.max(initial=-1)) + 1):
        mine = level == k
        out[mine] = np.maximum(highest[start[mine]], highest[stop[mine] - (1 << k)])
        highest = np.maximum(highest[: -(1 << k)], highest[1 << k :])
    return out
