"""The process that a command runs in: Ctrl-C must arrive, and streams must accept text."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_AGAIN_S = 0.02


@contextmanager
def interrupts_arrive() -> Iterator[None]:
    """Within the ``with`` block, a `KeyboardInterrupt` that Python drops is sent again a little later, until one
    arrives.

    Python drops exceptions that are raised in finalizers and in callbacks of weak references and of the garbage
    collector. JAX has such callbacks, and long tracing and pricing spend so much of their time in them that two of
    three interrupts would be lost.
    """
    before, waiting = sys.unraisablehook, []

    def dropped(what: Any) -> None:
        if not issubclass(what.exc_type, KeyboardInterrupt):
            before(what)
            return
        again = threading.Timer(_AGAIN_S, os.kill, (os.getpid(), signal.SIGINT))
        again.daemon = True
        again.start()
        waiting.append(again)

    sys.unraisablehook = dropped
    try:
        yield
    finally:
        sys.unraisablehook = before
        for again in waiting:
            again.cancel()


def open_streams() -> None:
    """Standard streams that were closed (``>&-``) drop what is written to them; text they cannot encode is escaped."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115  (for the life of the process)
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def drop_output() -> None:
    """Send the rest of standard output nowhere, so that Python does not complain when it ends."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError, AttributeError):  # standard output is no file
        pass
