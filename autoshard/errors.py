"""Errors for the user: what was asked, what was found, what to try.

Every error that a user's input can cause derives from `AutoshardError`; the command line prints its
message without a traceback and exits with its `exit_code`.
"""

from collections.abc import Mapping, Sequence
from typing import Any


class AutoshardError(Exception):
    """Base of everything autoshard raises about the user's input or program."""

    exit_code = 2


class InputError(AutoshardError, ValueError):
    """Something given to autoshard (text, file, argument) is malformed or impossible."""


class ShardingError(InputError):
    """A mesh or a sharding breaks one of its invariants."""


class RuleError(InputError):
    """A sharding rule is malformed or does not fit its op."""


class UnsupportedError(AutoshardError):
    """A feature is outside of what autoshard can do today; the message says which and what to try."""


class InfeasibleError(AutoshardError):
    """The hard statements (pins, groups, limits) cannot hold together.

    conflict: the statements that contradict each other, in the user's words with their places; none of them can be left
    out (empty where no such set was worked out). facts: figures about the contradiction, for programs.
    """

    exit_code = 3

    def __init__(self, message: str, *, conflict: Sequence[str] = (), facts: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.conflict = tuple(conflict)
        self.facts = dict(facts or {})


class OutOfTimeError(AutoshardError):
    """The time limit ended before any plan was found."""

    exit_code = 4
