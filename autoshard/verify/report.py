"""What a verification found: the checks, each done or not, with its lines."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

MOST_LINES = 40
"""Lines of one check that are printed; all of them are in `to_dict`."""


class Status(StrEnum):
    """What became of a check."""

    OK = "ok"
    FAILED = "failed"
    NOT_DONE = "not done"


@dataclass(frozen=True, slots=True)
class Check:
    """One check. lines: if it failed, what is wrong; if it was not done, why; if all is well, what was compared."""

    name: str
    status: Status
    lines: tuple[str, ...] = ()

    def __str__(self) -> str:
        shown = list(self.lines[:MOST_LINES])
        if len(self.lines) > MOST_LINES:
            shown.append(f"... and {len(self.lines) - MOST_LINES} more")
        return "\n".join([f"{self.status.value:>8}  {self.name}", *(f"          {line}" for line in shown)])


@dataclass(frozen=True, slots=True)
class Verification:
    """The checks of one plan, by name."""

    plan: str
    checks: tuple[Check, ...]

    @property
    def ok(self) -> bool:
        """Whether no check failed. A check that was not done proves nothing: see `complete`."""
        return all(check.status is not Status.FAILED for check in self.checks)

    @property
    def complete(self) -> bool:
        """Whether all checks were done and none failed."""
        return all(check.status is Status.OK for check in self.checks)

    def to_dict(self) -> dict[str, Any]:
        """The checks as plain data, for JSON."""
        return {
            "plan": self.plan,
            "ok": self.ok,
            "complete": self.complete,
            "checks": [{"name": c.name, "status": c.status.value, "lines": list(c.lines)} for c in self.checks],
        }

    def __str__(self) -> str:
        undone = sum(c.status is Status.NOT_DONE for c in self.checks)
        verdict = (
            "the plan is wrong"
            if not self.ok
            else f"no fault found, {undone} check{'' if undone == 1 else 's'} not done"
            if undone
            else "all green"
        )
        return "\n".join([f"verification of {self.plan}: {verdict}", *map(str, self.checks)])


def ok(name: str, lines: Sequence[str] = ()) -> Check:
    """A check that found nothing wrong; lines: what was compared."""
    return Check(name, Status.OK, tuple(lines))


def failed(name: str, lines: Sequence[str]) -> Check:
    """A check that found faults; lines: the faults."""
    return Check(name, Status.FAILED, tuple(lines))


def not_done(name: str, reason: str, *more: str) -> Check:
    """A check that could not be done, with the reason and further lines."""
    return Check(name, Status.NOT_DONE, (reason, *more))
