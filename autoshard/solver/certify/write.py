"""Writing records: messages and prices as they stand, rounded to whole numbers that lose little of what they prove."""

import math

import numpy as np

from autoshard.solver.certify.weigh import LARGEST, MOST_ADDED, Record, Whole
from autoshard.solver.compiled import compiled
from autoshard.solver.dual.passes import Dual

FINEST = 20
"""Messages are multiples of 2**-20 of a unit of cost at the finest."""
PRICE_BITS = 24
"""Bits that the largest price is written with."""
COARSER = 4
"""Bits that messages lose at a time where they are too large."""
ROUNDED_AWAY = 1 / 64
"""Rounding may take this share of what is missing to the threshold."""


def record_of(
    whole: Whole, dual: Dual, prices: np.ndarray | None, threshold: int, *, pairs: bool = False, costs: bool = True
) -> Record | None:
    """What the messages of a backward pass say to the end of every edge that is written down; None where it won't fit.

    dual: on the states of `whole` that are left. Messages are rounded as finely as their bound (`dual.last`) needs.
    """
    if whole.total > LARGEST:
        return None
    margin = 1.0
    if math.isfinite(dual.last):  # on either side of the threshold: what may be lost without harm
        margin = min(abs(threshold - dual.last), max(1.0, abs(dual.last)))  # much below it as well
    unit = max(2.0**-FINEST, margin * ROUNDED_AWAY / max(1, len(whole.flat.first)))
    exponent = math.floor(math.log2(unit))
    bits, step = max(0, -exponent), max(0, exponent)
    total = whole.total + float(np.abs(dual.priced).max(initial=0.0))
    while bits and total * 2.0**bits > LARGEST:
        bits -= 1
    flat = dual.flat
    near = np.where(whole.at_second, flat.second, flat.first)
    scaled = np.empty(int(flat.sizes[near].sum()))
    while True:
        largest = _write(
            flat.offsets, flat.first, flat.second, dual.second_at, dual.first_at, dual.priced, dual.to_second,
            dual.to_first, whole.at_second, 2.0 ** (bits - step), scaled,
        )  # fmt: skip
        added = (2.0 * whole.largest * 2.0**bits + largest * 2.0**step) * whole.degree
        if added <= MOST_ADDED and largest * 2.0**step <= LARGEST:
            break
        if not bits:
            return None
        bits = max(0, bits - COARSER)
    price_bits, listed = 0, []
    if prices is not None and prices.any():
        price_bits = max(0, PRICE_BITS - math.frexp(float(prices.max()))[1])
        whole_prices = np.floor(prices * 2.0**price_bits)
        listed = [(int(t), int(whole_prices[t])) for t in np.flatnonzero(whole_prices).tolist()]
    return Record(threshold, bits, step, price_bits, tuple(listed), scaled.astype(np.int64), pairs, costs)


@compiled
def _write(
    offsets, first, second, second_at, first_at, priced, to_second, to_first, at_second, factor, scaled,
):  # fmt: skip
    """Edge after edge the messages that are written down, above their least, times the factor; returns the largest.

    A message to the second node of an edge is less the share of it that the backward pass sent on to the first.
    """
    n = len(offsets) - 1
    share = priced.copy()
    lower = np.zeros(n)
    upper = np.zeros(n)
    for e in range(len(first)):
        upper[first[e]] += 1.0
        lower[second[e]] += 1.0
        i = offsets[first[e]]
        j = offsets[second[e]]
        for a in range(first_at[e + 1] - first_at[e]):
            share[i + a] += to_first[first_at[e] + a]
        for b in range(second_at[e + 1] - second_at[e]):
            share[j + b] += to_second[second_at[e] + b]
    for i in range(n):
        weight = 1.0 / max(1.0, max(lower[i], upper[i]))
        for a in range(offsets[i], offsets[i + 1]):
            share[a] *= weight
    largest = 0.0
    at = 0
    for e in range(len(first)):
        length = second_at[e + 1] - second_at[e] if at_second[e] else first_at[e + 1] - first_at[e]
        j = offsets[second[e]]
        low = np.inf
        for a in range(length):
            value = to_second[second_at[e] + a] - share[j + a] if at_second[e] else to_first[first_at[e] + a]
            if not -np.inf < value < np.inf:
                value = 0.0
            scaled[at + a] = value
            low = min(low, value)
        for a in range(length):
            scaled[at + a] = np.floor((scaled[at + a] - low) * factor)
            largest = max(largest, scaled[at + a])
        at += length
    return largest
