"""More cores: threads that search around the incumbent while the main one bounds, proves and searches too.

Helpers share the reduced network and the prices, and exchange incumbents through the race. They make a run faster and
better, but what they find when depends on the clock: only a run with one worker is reproducible.
"""

import threading
from types import TracebackType

from autoshard.solver.incumbent import CloseEnough, OutOfTime
from autoshard.solver.portfolio import Portfolio
from autoshard.solver.searcher import Searcher

WAITING_S = 0.02
"""Between two looks at whether there is an incumbent to search around."""


class Helpers:
    """`count` searching threads, from entering the context to leaving it, however it is left."""

    def __init__(self, state: Portfolio, count: int, seed: int) -> None:
        self.state = state
        self.over = threading.Event()
        self.threads = [
            threading.Thread(target=self._search, args=(seed + 7919 * (k + 1),), daemon=True) for k in range(count)
        ]

    def __enter__(self) -> "Helpers":
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.over.set()
        for thread in self.threads:
            thread.join()

    def _check(self) -> None:
        if self.over.is_set():
            raise OutOfTime
        self.state.race.check()

    def _search(self, seed: int) -> None:
        state = self.state
        searcher = Searcher(state.race, state.work, state.flat, seed, state.price, self._check)
        try:
            while not (state.ready and searcher.restart()):
                self._check()
                if self.over.wait(WAITING_S):
                    return
            searcher.improve(10)
            while True:
                before = state.race.cost
                searcher.wander(8)
                if state.race.cost != before and searcher.restart():
                    searcher.improve(5)
        except (OutOfTime, CloseEnough):
            return
