"""Wall clock: when work has to end, and what one part of it may take of what is left.

The clock is a guard only. Effort is counted in deterministic work, so that what ends in time is the same every time.
"""

import math
import time
from dataclasses import dataclass, field

LEAST_S = 0.1
"""Seconds that are left at least: what is begun late still does its least."""


@dataclass(frozen=True, slots=True)
class Deadline:
    """When work has to end. ends, began: seconds of `time.monotonic`; without a limit it never ends.

    >>> Deadline().left() is None, Deadline.after(None).passed, 9.0 < Deadline.after(20).left(0.5) <= 10.0
    (True, False, True)
    """

    ends: float = math.inf
    began: float = field(default_factory=time.monotonic)

    @staticmethod
    def after(seconds: float | None) -> "Deadline":
        """So many seconds from now; None for no limit."""
        now = time.monotonic()
        return Deadline(math.inf if seconds is None else now + seconds, now)

    def left(self, share: float = 1.0, *, least: float = LEAST_S) -> float | None:
        """Seconds: a share of what is left, `least` at least; None where there is no limit."""
        return None if math.isinf(self.ends) else max(least, (self.ends - time.monotonic()) * share)

    def part(self, share: float, *, least: float = LEAST_S) -> "Deadline":
        """That of work that begins now and may take a share of what is left."""
        return Deadline.after(self.left(share, least=least))

    def spent(self) -> float:
        """Seconds since it was set."""
        return time.monotonic() - self.began

    @property
    def passed(self) -> bool:
        """Whether it is over."""
        return time.monotonic() >= self.ends
