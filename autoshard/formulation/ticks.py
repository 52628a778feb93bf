"""Seconds as whole numbers of ticks, which the solver adds up; what takes nearly forever is impossible."""

import numpy as np

from autoshard.solver.network import IMPOSSIBLE


class Ticks:
    """Prices of one network in ticks. too_long: whether a price that is finite was so long that it counts as none."""

    def __init__(self, tick_s: float) -> None:
        self.tick_s = tick_s
        self.too_long = False

    def __call__(self, seconds: np.ndarray) -> np.ndarray:
        """Seconds as whole numbers; what takes forever, or nearly so, is impossible."""
        finite = np.isfinite(seconds)
        scaled = np.rint(np.where(finite, seconds, 0.0) / self.tick_s)
        short = scaled < IMPOSSIBLE / 10
        self.too_long |= not short.all()
        return np.where(finite & short, scaled, IMPOSSIBLE).astype(np.int64)

    def floats(self, seconds: np.ndarray) -> np.ndarray:
        """The same as `Factored` tables have it: in the array that is given, infinite where it is impossible."""
        seconds /= self.tick_s
        np.rint(seconds, out=seconds)
        long = seconds >= IMPOSSIBLE / 10
        self.too_long |= bool(np.isfinite(seconds[long]).any())
        seconds[long] = np.inf
        return seconds
