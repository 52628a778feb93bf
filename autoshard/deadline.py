"""Wall clock: when work has to end, and how much of the remaining time each part of the work may take.

Effort is counted in deterministic work, so a search that ends before its deadline finds the same result every time.
Compilation of our own code, once on a machine, does not count: the clock stands still.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from autoshard.errors import OutOfTimeError

LEAST_S = 0.1
"""Least remaining time in seconds: work that begins after the deadline still gets this much."""


@dataclass
class Clock:
    """Seconds of `time.monotonic` without those that do not count; calling it tells the time.

    told: called when it begins to stand still, as compilation of our own code does not count.
    """

    not_counted_s: float = 0.0
    told: Callable[[], None] | None = None

    def __call__(self) -> float:
        return time.monotonic() - self.not_counted_s

    def stand(self) -> None:
        """Tell that seconds which do not count begin."""
        if self.told is not None:
            self.told()

    def leave_out(self, seconds: float) -> None:
        """Let seconds that have passed not count."""
        self.not_counted_s += seconds


clock = Clock()
"""The clock of every deadline in this process."""


@dataclass(frozen=True, slots=True)
class Deadline:
    """When work has to end.

    ends, began: seconds of `clock`. `ends` is infinite where there is no limit.

    >>> Deadline().left() is None, Deadline.after(None).passed, 9.0 < Deadline.after(20).left(0.5) <= 10.0
    (True, False, True)
    """

    ends: float = math.inf
    began: float = field(default_factory=clock)

    @staticmethod
    def after(seconds: float | None) -> "Deadline":
        """The deadline so many seconds from now; None for no limit."""
        now = clock()
        return Deadline(math.inf if seconds is None else now + seconds, now)

    def left(self, share: float = 1.0, *, least: float = LEAST_S) -> float | None:
        """Seconds: a share of the remaining time, but `least` at least; None where there is no limit."""
        return None if math.isinf(self.ends) else max(least, (self.ends - clock()) * share)

    def part(self, share: float, *, least: float = LEAST_S) -> "Deadline":
        """The deadline of work that begins now and may take a share of the remaining time."""
        return Deadline.after(self.left(share, least=least))

    def spent(self) -> float:
        """Seconds since the deadline was set."""
        return clock() - self.began

    @property
    def passed(self) -> bool:
        """Whether the deadline is over."""
        return clock() >= self.ends

    def check(self, doing: str, advice: str) -> None:
        """Raise `OutOfTimeError` where the deadline is over. doing: what then stops; advice: what to try.

        >>> Deadline.after(60).check("tracing", "")
        >>> Deadline.after(0).check("tracing", "raise it")
        Traceback (most recent call last):
        autoshard.errors.OutOfTimeError: the time limit was reached while tracing; raise it
        """
        if self.passed:
            raise OutOfTimeError(f"the time limit was reached while {doing}; {advice}")


Check = Callable[[str, int, int], None]
"""Called with what is being done, how much of it is done and of how much; may raise to stop."""


def no_check(doing: str, done: int, of: int) -> None:
    """A `Check` that lets everything be done to its end."""
