"""What an assignment keeps live, kept up to date as nodes switch; compiled.

The live amounts stand in an array per slot with maxima per block of `BLOCK` slots, so that the room left over a long
interval is found without visiting all of it.
"""

from typing import NamedTuple

import numpy as np

from autoshard.solver.compiled import compiled

BLOCK = 64
"""Slots of one block: about as many as there are blocks in networks of some thousand slots."""


class Memory(NamedTuple):
    """What nodes hold: records record_at[i]:record_at[i + 1] are about node i.

    Record r keeps, in the slots [start[r], stop[r]), as much live as `amounts` says from at[r] on, one amount per
    state. No slot may rise above the limit.
    """

    record_at: np.ndarray
    start: np.ndarray
    stop: np.ndarray
    at: np.ndarray
    amounts: np.ndarray
    limit: int


class Assigned(NamedTuple):
    """An assignment: per node the state, per slot what is live, and the most of that in each block of slots."""

    chosen: np.ndarray
    live: np.ndarray
    blocks: np.ndarray


@compiled
def add_live(live: np.ndarray, blocks: np.ndarray, start: int, stop: int, amount: int):
    """Add to the slots [start, stop) and renew the block maxima."""
    if amount == 0 or start >= stop:
        return
    for t in range(start, stop):
        live[t] += amount
    first = start // BLOCK
    last = (stop - 1) // BLOCK
    for b in range(first, last + 1):
        if b * BLOCK >= start and (b + 1) * BLOCK <= stop:
            blocks[b] += amount
        else:
            high = live[b * BLOCK]
            for t in range(b * BLOCK + 1, min(len(live), (b + 1) * BLOCK)):
                high = max(high, live[t])
            blocks[b] = high


@compiled
def most_live(live: np.ndarray, blocks: np.ndarray, start: int, stop: int):
    """The largest live amount over [start, stop)."""
    high = live[start]
    t = start
    while t < stop:
        if t % BLOCK == 0 and t + BLOCK <= stop:
            high = max(high, blocks[t // BLOCK])
            t += BLOCK
        else:
            high = max(high, live[t])
            t += 1
    return high


@compiled
def try_switch(i: int, a: int, memory: Memory, assigned: Assigned):
    """Switch node i to state a unless some slot would rise above the limit; returns whether it did."""
    record_at, start, stop, at, amounts, limit = memory
    chosen, live, blocks = assigned
    x = chosen[i]
    fits = True
    done = record_at[i]
    for r in range(record_at[i], record_at[i + 1]):
        change = amounts[at[r] + a] - amounts[at[r] + x]
        if change > 0 and most_live(live, blocks, start[r], stop[r]) + change > limit:
            fits = False
            break
        add_live(live, blocks, start[r], stop[r], change)
        done = r + 1
    if fits:
        chosen[i] = a
        return True
    for r in range(record_at[i], done):
        add_live(live, blocks, start[r], stop[r], amounts[at[r] + x] - amounts[at[r] + a])
    return False
