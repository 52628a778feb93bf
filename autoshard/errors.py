"""Errors for the user: what was asked, what was found, what to try.

Every error that a user's input can cause derives from `AutoshardError`; the command line prints its
message without a traceback and exits with its `exit_code`.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any


class AutoshardError(Exception):
    """Base of everything autoshard raises about the user's input or program."""

    exit_code = 2


class InputError(AutoshardError, ValueError):
    """Something given to autoshard (text, file, argument) is malformed or impossible."""


class ShardingError(InputError):
    """A mesh or a sharding breaks one of its invariants."""


class RuleError(InputError):
    """A sharding rule is malformed or does not fit its op, or a kernel has none."""


class UnsupportedError(AutoshardError):
    """The request needs a feature that autoshard does not have; the message says which one and what to try."""


class InfeasibleError(AutoshardError):
    """It is proved that no plan exists: the hard statements (pins, groups, limits) cannot hold together.

    conflict: the statements that contradict each other, in the user's words with their places. None of them can be left
    out. Empty where no such set was worked out. facts: figures about the contradiction, for programs; ``proved`` is
    true. Where a search found no plan and nothing is proved, the error is `NotFoundError`.
    proof: the certificate and the network it is about (`planning.certified.Proved`), where a search proved it. refusal:
    the `RefusalRecord` with it, which can be saved and verified; None where the error is not of `autoshard.plan`.
    """

    exit_code = 3

    def __init__(self, message: str, *, conflict: Sequence[str] = (), facts: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.conflict = tuple(conflict)
        self.facts = {"proved": True, **(facts or {})}
        self.proof: Any = None
        self.refusal: Any = None


class OutOfTimeError(AutoshardError):
    """The search ended without a plan, and it is not proved that none exists.

    A time limit or a cap ended it; where it ended by itself, the error is `NotFoundError`. facts: figures for programs.
    ``proved`` is false. Where memory is short there are also ``limit_bytes``, ``achieved_bytes`` (the lowest peak of
    the plans that were seen; None where there were none), ``missed_bytes`` (by how much that peak exceeds the limit)
    and ``least_bytes`` (proved: no plan holds less at its peak).
    """

    exit_code = 4

    def __init__(self, message: str, *, facts: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.facts = {"proved": False, **(facts or {})}


class NotFoundError(OutOfTimeError):
    """The search did all it was to do and found no plan; a search with more effort may find one."""


def in_words(error: Exception) -> str:
    """What an error of Python that reading a damaged file raised says of the file.

    >>> in_words(KeyError("status")), in_words(TypeError("'int' object is not iterable"))
    ("there is no 'status'", 'a value has the wrong type')
    """
    if isinstance(error, KeyError):
        return f"there is no {str(error.args[0])[:80]!r}" if error.args else "a key is missing"
    if isinstance(error, IndexError):
        return "a number leads past the end of a list"
    if isinstance(error, TypeError | AttributeError):
        return "a value has the wrong type"
    if isinstance(error, RecursionError):
        return "it is nested too deeply to be read"
    if isinstance(error, ArithmeticError):
        return "a number is too large, or none"
    if isinstance(error, AutoshardError):
        return str(error)
    number = re.search(r"(?:invalid literal for|could not convert).*: (.*)", str(error), re.DOTALL)
    if number is not None:
        return f"{number[1][:80]} is not a number"
    if str(error).startswith(_OF_PYTHON):
        return "a value, or the length of a list, is not what it should be"
    return str(error) or type(error).__name__


_OF_PYTHON = ("not enough values", "too many values", "zip()", "cannot reshape", "setting an array", "max()", "min()")
"""How texts of Python and numpy begin that tell a user nothing."""


def listing(wanted: str, known: Iterable[str], *, most: int = 40) -> str:
    """The end of a message about an unknown name: the nearest known one, then the choices.

    >>> listing("dat", ["data", "model"])
    "did you mean 'data'? Choices: data, model"
    """
    from difflib import get_close_matches

    known = list(known)
    near = get_close_matches(wanted, known, n=1)
    guess = f"did you mean {near[0]!r}? " if near else ""
    rest = f" and {len(known) - most} more" if len(known) > most else ""
    return f"{guess}Choices: {', '.join(known[:most]) or 'none'}{rest}"
