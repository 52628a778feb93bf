"""How a search is made: what is the same for all searches of one run."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from autoshard.deadline import LEAST_S, Deadline

ACCEPTED_GAP = 1e-3
"""Gap at which the search within a memory limit ends, in networks too large for exact search."""

Progress = Callable[[str], None]
"""Is told in a line what is being done."""


@dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """How hard to search, from where, and until when.

    effort: scales deterministic amounts of work. accepted_gap: (cost - bound) / cost at which the search within a
    memory limit may end, in large networks. deadline: a guard on the wall clock.
    """

    effort: float = 1.0
    seed: int = 0
    accepted_gap: float = ACCEPTED_GAP
    deadline: Deadline = field(default_factory=Deadline)
    progress: Progress | None = None

    def say(self, text: str) -> None:
        """Tell what is being done."""
        if self.progress is not None:
            self.progress(text)

    def but(self, **changed: Any) -> "SearchOptions":
        """The same but for what is given; what is None stays."""
        return replace(self, **{name: value for name, value in changed.items() if value is not None})

    def effort_of_one(self, part: float) -> float:
        """A part of the effort for one of many searches; below 1 it is not cut further than to that part of 1."""
        return min(self.effort, part * max(1.0, self.effort))

    def within(self, seconds: float | None) -> "SearchOptions":
        """The same with so many seconds from now; None for no limit."""
        return replace(self, deadline=Deadline.after(seconds))

    def part(self, share: float, *, least: float = LEAST_S) -> "SearchOptions":
        """The same with a share of the time that is left."""
        return replace(self, deadline=self.deadline.part(share, least=least))
