"""Assignments from decodings at many prices, for networks within whose limit nothing good is known.

At the best prices decodings of neighbouring passes differ little, and what repair makes of them lies close together: a
network whose limit asks for another way of sharding as a whole has assignments far from all of these. At prices that
are far too high, or high at some moments only, messages decode to such ways, and repair has little left to do.
"""

import dataclasses
import math

import numpy as np

from autoshard.solver.dual import passes as duals
from autoshard.solver.local.lookahead import decode_consistently
from autoshard.solver.portfolio import Portfolio

FAR_OFF = 0.25
"""The gap from which on assignments are looked for this way."""
SCALES = (-1.0, 4.0)
"""Prices are the best ones times a power of 2 between these."""
UNEVEN = 0.5
"""The part of the decodings whose prices differ from slot to slot besides."""
SPREAD = 1.5
"""How far, in log, such prices lie from the common scale, in stretches of slots."""
STRETCHES = 6
"""Stretches of slots that have a price of their own."""
PASSES = 8
"""Double passes in which messages settle at other prices."""
SWEEPS = 10
"""Sweeps of tree moves that polish what is better than all before, or nearly."""
WORTH_POLISHING = 1.1
"""An assignment is polished when it costs at most so many times what is known."""


class Scatter:
    """Decodings at many prices, one after the other; seed: of these prices."""

    def __init__(self, state: Portfolio, seed: int) -> None:
        self.state, self.random = state, np.random.default_rng([seed, len(state.flat.unary)])
        self.prices: np.ndarray | None = None
        """Good prices, by slot of the whole reduced network."""

    @property
    def wanted(self) -> bool:
        """Whether nothing good is known, and there are prices to begin from."""
        return self.prices is not None and self.state.race.gap() > FAR_OFF

    def decode(self) -> bool:
        """Offer what messages decode to at other prices, repaired and polished. Whether it was better."""
        state, part = self.state, self.state.part
        state.race.check()
        prices = self._prices()
        old = part.dual
        dual = dataclasses.replace(
            old, to_first=old.to_first.copy(), to_second=old.to_second.copy(), total=old.total.copy(), bound=-math.inf
        )
        duals.set_prices(dual, prices)
        chosen = np.zeros(part.flat.n, dtype=np.int64)
        for _ in range(PASSES):
            duals.run_pass(dual, True)
            chosen = duals.run_pass(dual, False)
        state.budget -= 2 * PASSES * part.flat.visited
        if not math.isfinite(duals.flat_cost(part.flat, chosen)):
            state.budget -= len(part.flat.tables)
            found = decode_consistently(dual)
            chosen = chosen if found is None else found
        known = state.race.cost
        state.searcher.put(state.positions(chosen), prices, WORTH_POLISHING, SWEEPS)
        return state.race.cost != known

    def _prices(self) -> np.ndarray:
        """The best prices, scaled, some of them unevenly."""
        random, best = self.random, self.prices
        assert best is not None
        scale = math.log(2.0) * random.uniform(*SCALES)
        if random.random() >= UNEVEN:
            return best * math.exp(scale)
        at = np.sort(random.integers(0, len(best) + 1, STRETCHES - 1))
        lengths = np.diff(np.concatenate([[0], at, [len(best)]]))
        return best * np.exp(scale + np.repeat(random.uniform(-SPREAD, SPREAD, STRETCHES), lengths))
