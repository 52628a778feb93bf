"""More cores: threads that search around the incumbent while the main one bounds, proves and searches too.

Helpers share the reduced network and the prices, and exchange incumbents through the race. They make a run faster and
its result better, but what they find depends on the clock: only a run with one worker is reproducible.
"""

import threading
from types import TracebackType

import numpy as np

from autoshard.solver.incumbent import CloseEnough, OutOfTime
from autoshard.solver.local.searcher import FAR, Searcher
from autoshard.solver.portfolio import Portfolio

WAITING_S = 0.02
"""Seconds between two looks at whether there is an incumbent to search around."""

SEED_STEP = 7919
"""The difference of the seeds of two helpers: a prime, so that runs with neighbouring seeds share none."""
FIRST_SWEEPS, SWEEPS_AT_ONCE, NEWER_SWEEPS = 4, 10, 5
"""Sweeps around the incumbent: before there are prices, once there are, and when there is a newer one."""
SHAKES = 2
"""Shakes between two looks at what is new."""


class Helpers:
    """Context manager: `count` threads search inside it; all have ended when it is left, in whatever way."""

    def __init__(self, state: Portfolio, count: int, seed: int) -> None:
        self.state = state
        self.over = threading.Event()
        self.decoded: np.ndarray | None = None
        self.lock = threading.Lock()
        self.threads = [
            threading.Thread(target=self._search, args=(seed + SEED_STEP * (k + 1),), daemon=True) for k in range(count)
        ]

    def __enter__(self) -> "Helpers":
        self.state.hand_over = self._post
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.over.set()
        self.state.hand_over = None
        for thread in self.threads:
            thread.join()

    def _check(self) -> None:
        if self.over.is_set():
            raise OutOfTime
        self.state.race.check()

    def _post(self, decoded: np.ndarray) -> None:
        """Leave what message passing has decoded to the next helper that is free; an older one is forgotten."""
        with self.lock:
            self.decoded = decoded

    def _take(self) -> np.ndarray | None:
        with self.lock:
            decoded, self.decoded = self.decoded, None
        return decoded

    def _search(self, seed: int) -> None:
        state = self.state
        searcher = Searcher(state.race, state.completion, seed, state.price, self._check)

        def decode() -> bool:
            decoded = self._take()
            if decoded is not None:
                searcher.decode(decoded)
            return decoded is not None

        def nothing_newer() -> bool:
            """Whether to stay with what is known: far from the bound, the next decoding is likely to be better."""
            return self.decoded is None or state.race.gap() <= FAR

        try:
            searcher.begin()
            while not state.ready or not searcher.restart():
                self._check()
                decoded = decode()
                if searcher.restart():  # until there are prices to decode by, what is known is improved
                    searcher.improve(FIRST_SWEEPS, nothing_newer)
                elif not decoded and self.over.wait(WAITING_S):
                    return
            searcher.improve(SWEEPS_AT_ONCE, nothing_newer)
            while True:
                before = state.race.cost
                decoded = decode()
                if state.race.cost != before or (decoded and state.race.gap() > FAR):
                    if searcher.restart():
                        searcher.improve(NEWER_SWEEPS, nothing_newer)
                elif not decoded:
                    searcher.wander(SHAKES)
        except (OutOfTime, CloseEnough):
            return
