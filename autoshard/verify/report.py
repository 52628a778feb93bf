"""What a verification found: three checks, each done or not, with its lines."""

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
    """One check. lines: what is wrong if it failed, why not if it was not done, what was compared if all is well."""

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
    """The checks of one plan. ok: none of them failed (one that was not done proves nothing, and says so)."""

    plan: str
    checks: tuple[Check, ...]

    @property
    def ok(self) -> bool:
        return all(check.status is not Status.FAILED for check in self.checks)

    @property
    def complete(self) -> bool:
        """Were all checks done, and is all well?"""
        return all(check.status is Status.OK for check in self.checks)

    def to_dict(self) -> dict[str, Any]:
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
            else f"no fault found, {undone} checks not done"
            if undone
            else "all green"
        )
        return "\n".join([f"verification of {self.plan}: {verdict}", *map(str, self.checks)])


def ok(name: str, lines: Sequence[str] = ()) -> Check:
    return Check(name, Status.OK, tuple(lines))


def failed(name: str, lines: Sequence[str]) -> Check:
    return Check(name, Status.FAILED, tuple(lines))


def not_done(name: str, reason: str, *more: str) -> Check:
    return Check(name, Status.NOT_DONE, (reason, *more))
