"""Errors for the user: what was asked, what was found, what to try.

Every error that a user's input can cause derives from `AutoshardError`; the command line prints its
message without a traceback and exits with its `exit_code`.
"""


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
    """The hard statements (pins, memory limit) cannot hold together."""

    exit_code = 3


class OutOfTimeError(AutoshardError):
    """The time limit ended before any plan was found."""

    exit_code = 4
