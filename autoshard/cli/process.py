"""The process that a command runs in: Ctrl-C must arrive, and streams must accept text."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout

from autoshard import interrupts


@contextmanager
def interrupts_arrive() -> Iterator[None]:
    """Within the ``with`` block, a `KeyboardInterrupt` that Python drops is sent again a little later, until one
    arrives.
    """
    try:
        with interrupts.arriving():
            yield
    finally:
        interrupts.forget()


def open_streams() -> None:
    """Standard streams that were closed (``>&-``) drop what is written to them; text they cannot encode is escaped."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115  (for the life of the process)
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


@contextmanager
def code_aside(as_json: bool) -> Iterator[None]:
    """Within the ``with`` block, what the user's code prints goes to standard error where the answer is JSON."""
    if not as_json:
        yield
        return
    with redirect_stdout(sys.stderr):
        yield


def drop_output() -> None:
    """Send the rest of standard output nowhere, so that Python does not complain when it ends."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError, AttributeError):  # standard output is no file
        pass
