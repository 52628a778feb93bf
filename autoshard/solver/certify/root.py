"""The whole of a network in a proof: its messages before anything is split, and taking out of it what was ruled out."""

import math
from collections.abc import Callable

import numpy as np

from autoshard.solver.dual import passes as duals
from autoshard.solver.dual.fixing import Part
from autoshard.solver.dual.flat import Flat
from autoshard.solver.work import FORBIDDEN, Work

SETTLING = 6
"""Double passes that let messages settle before they are written down."""
ROOT_PASSES, ROOT_PASSES_OF_LARGE = 3_000, 400
SMALL_ENTRIES = 1_000_000
"""Most double passes on a network that nothing is known of, and in networks of more table entries than these: their
passes are dear, and they are split little."""
LOOKED_AT, LEAST_GAIN, LEAST_GAIN_OF_LARGE = 10, 1e-3, 0.01
"""Every so many double passes it is looked at how much the bound has risen; where that is less than this share of what
is missing, more of them would be in vain."""
UNPRICED = 8
"""Double passes before the first prices: until then the messages of a fresh network say little about who holds what."""
KNOWN_RATE = 0.05
"""The rate of steps from prices that are known to be good: twenty times smaller than from none."""
CLOSING = 2
"""Double passes after the best prices are put back, so that the messages written down are for them."""


def settle_root(
    part: Part, prices: np.ndarray | None, threshold: Callable[[], int], check: Callable[[], None]
) -> tuple[np.ndarray | None, int]:
    """Run passes until the bound hardly rises, at most to the threshold, from prices that are known if there are any.

    Returns the prices that the messages are for, and the table entries visited.
    """
    dual, flat, visited = part.dual, part.flat, 0
    state: duals.Prices | None = None
    fresh, small = dual.passes == 0, len(flat.tables) <= SMALL_ENTRIES
    most, gain = (ROOT_PASSES, LEAST_GAIN) if small else (ROOT_PASSES_OF_LARGE, LEAST_GAIN_OF_LARGE)
    if prices is not None:
        duals.set_prices(dual, prices)
        state = duals.known_prices(prices, KNOWN_RATE) if fresh else None
    dual.bound = -math.inf
    before = -math.inf
    for k in range(most if fresh else SETTLING):
        check()
        duals.run_pass(dual, True)
        chosen = duals.run_pass(dual, False)
        visited += 2 * flat.visited
        if dual.bound >= threshold():
            if state is not None:
                state.close_with(dual.last)
            break
        if fresh and flat.limit is not None and flat.slots:
            live = duals.usage(flat, chosen)
            if state is None and k > UNPRICED and int(live.max()) > flat.limit:
                state = duals.first_prices(dual, live)
            if state is not None:
                if state.settled:
                    break
                duals.adjust_prices(dual, state, live)
        if fresh and k % LOOKED_AT == LOOKED_AT - 1:
            missing = threshold() - dual.bound
            searching = state is not None and state.searching
            if not searching and k > 2 * LOOKED_AT and dual.bound - before < gain * missing:
                break
            before = max(before, dual.bound)
    if state is not None:
        prices = state.best
        duals.set_prices(dual, prices)
        for _ in range(CLOSING):
            duals.run_pass(dual, True)
            duals.run_pass(dual, False)
    return prices, visited


def take_out(work: Work, flat: Flat, alive: np.ndarray, dead: np.ndarray | None) -> bool:
    """Take what a proof rules out out of the network that is laid out as `flat`: states that are not in `alive`, and
    the pairs in `dead`. False where nothing is left of it.
    """
    log = work.log
    work.log = None  # the record says it
    try:
        nodes = flat.nodes.tolist()
        old = [len(work.domains[i]) for i in nodes]
        for k, node in enumerate(nodes):
            kept = alive[flat.offsets[k] : flat.offsets[k + 1]]
            if not kept.all():
                work.keep(node, kept)
        if dead is not None and dead.any():
            some = np.flatnonzero(np.logical_or.reduceat(dead, flat.table_at[:-1])) if len(flat.first) else []
            for e in some:
                a, b = int(flat.first[e]), int(flat.second[e])
                i, j = nodes[a], nodes[b]
                gone = dead[flat.table_at[e] : flat.table_at[e + 1]].reshape(old[a], old[b])
                gone = gone[alive[flat.offsets[a] : flat.offsets[a + 1]]][
                    :, alive[flat.offsets[b] : flat.offsets[b + 1]]
                ]
                if gone.any():
                    table = work.tables[i][j]
                    if gone.all():
                        return False
                    work.set_edge(i, j, np.where(gone, FORBIDDEN, table))
    finally:
        work.log = log
    return True
