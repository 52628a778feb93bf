"""Wall clock: when work has to end, and how much of the remaining time each part of the work may take.

The clock is a guard only. Effort is counted in deterministic work, so a search that ends before its deadline finds the
same result every time.
"""

import math
import time
from dataclasses import dataclass, field

LEAST_S = 0.1
"""Least remaining time in seconds: work that begins after the deadline still gets this much."""


@dataclass(frozen=True, slots=True)
class Deadline:
    """When work has to end.

    ends, began: seconds of `time.monotonic`. `ends` is infinite where there is no limit.

    >>> Deadline().left() is None, Deadline.after(None).passed, 9.0 < Deadline.after(20).left(0.5) <= 10.0
    (True, False, True)
    """

    ends: float = math.inf
    began: float = field(default_factory=time.monotonic)

    @staticmethod
    def after(seconds: float | None) -> "Deadline":
        """The deadline so many seconds from now; None for no limit."""
        now = time.monotonic()
        return Deadline(math.inf if seconds is None else now + seconds, now)

    def left(self, share: float = 1.0, *, least: float = LEAST_S) -> float | None:
        """Seconds: a share of the remaining time, but `least` at least; None where there is no limit."""
        return None if math.isinf(self.ends) else max(least, (self.ends - time.monotonic()) * share)

    def part(self, share: float, *, least: float = LEAST_S) -> "Deadline":
        """The deadline of work that begins now and may take a share of the remaining time."""
        return Deadline.after(self.left(share, least=least))

    def spent(self) -> float:
        """Seconds since the deadline was set."""
        return time.monotonic() - self.began

    @property
    def passed(self) -> bool:
        """Whether the deadline is over."""
        return time.monotonic() >= self.ends
