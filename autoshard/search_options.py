"""How hard to search, from where, and until when: options that all searches of one run share."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from autoshard.deadline import LEAST_S, Deadline

ACCEPTED_GAP = 1e-3
"""Gap at which the search within a memory limit ends, in networks too large for exact search."""
RECORDED = ("effort", "seed", "accepted_gap")
"""Fields of `SearchOptions` that configs state and plans record."""

Progress = Callable[[str], None]
"""Called with one line of text about the work that begins."""


@dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """How hard to search, from where, and until when.

    effort: scales deterministic amounts of work. accepted_gap: (cost - bound) / cost at which the search within a
    memory limit may end, in large networks. deadline: a guard on the wall clock. progress: hears what is being done.
    endless: where the effort is spent within a memory limit and nothing is proved, the search goes on to the deadline.
    """

    effort: float = 1.0
    seed: int = 0
    accepted_gap: float = ACCEPTED_GAP
    deadline: Deadline = field(default_factory=Deadline)
    progress: Progress | None = None
    endless: bool = False

    def say(self, text: str) -> None:
        """Report what is being done, where anybody listens."""
        if self.progress is not None:
            self.progress(text)

    def but(self, **changed: Any) -> "SearchOptions":
        """The same options with these changes; a change to None is left out."""
        return replace(self, **{name: value for name, value in changed.items() if value is not None})

    def like(self, stated: Any) -> "SearchOptions":
        """The same options with those that a config or a plan states, as attributes; None is left out."""
        return self.but(**{name: getattr(stated, name) for name in RECORDED})

    def recorded(self) -> dict[str, Any]:
        """What plans record of the options, by name."""
        return {name: getattr(self, name) for name in RECORDED}

    def rougher(self, gap: float, part: float) -> "SearchOptions":
        """The same options with `part` of the effort, for a search that may end at a gap, if no larger one is accepted
        anyway.
        """
        return replace(self, accepted_gap=max(self.accepted_gap, gap), effort=part * self.effort, endless=False)

    def effort_of_one(self, part: float) -> float:
        """The effort of one of many searches: `part` of the effort (of 1 where the effort is less), and at most the
        effort.
        """
        return min(self.effort, part * max(1.0, self.effort))

    def within(self, seconds: float | None) -> "SearchOptions":
        """The same options with a deadline so many seconds from now; None for no limit."""
        return replace(self, deadline=Deadline.after(seconds))

    def part(self, share: float, *, least: float = LEAST_S) -> "SearchOptions":
        """The same options with a share of the remaining time."""
        return replace(self, deadline=self.deadline.part(share, least=least))
