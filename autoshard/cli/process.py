"""The process that a command runs in: Ctrl-C must arrive, and streams must accept text."""

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from typing import Any

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


class _Told(io.FileIO):
    """What the user is told: where there is no room for it, a log on a full disk say, the work goes on without."""

    def write(self, data: Any, /) -> int:
        """Write bytes, or drop them; `BrokenPipeError` where the reader is gone."""
        try:
            return super().write(data) or 0
        except BrokenPipeError:
            raise
        except OSError:
            return memoryview(data).nbytes


def open_streams() -> None:
    """Standard streams that were closed (``>&-``) drop what is written to them; text they cannot encode is escaped.

    What cannot be written to standard error ends no command.
    """
    buffer = getattr(sys.stderr, "buffer", None)
    if type(getattr(buffer, "raw", buffer)) is io.FileIO:  # no terminal of a notebook, nor what a test catches
        told = io.BufferedWriter(_Told(sys.stderr.fileno(), "w", closefd=False))
        sys.stderr = io.TextIOWrapper(told, encoding=sys.stderr.encoding, line_buffering=True)
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
