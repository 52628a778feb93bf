"""What a command needs of the process it runs in: Ctrl-C that arrives, streams that can be written to."""

import gc
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_AGAIN_S = 0.02


@contextmanager
def interrupts_arrive() -> Iterator[None]:
    """Inside, SIGINT raises `KeyboardInterrupt` where it is not dropped: a little later, if need be.

    Python drops what finalizers and callbacks of the garbage collector raise. JAX has such a callback, and long tracing
    and pricing spend so much of their time in it that two of three interrupts would be lost.
    """
    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, _interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _interrupt(number: int, frame: FrameType | None) -> None:
    dropping = {getattr(callback, "__code__", None) for callback in gc.callbacks}
    while frame is not None:
        if frame.f_code in dropping or frame.f_code.co_name == "__del__":
            again = threading.Timer(_AGAIN_S, os.kill, (os.getpid(), number))
            again.daemon = True
            again.start()
            return
        frame = frame.f_back
    raise KeyboardInterrupt


def open_streams() -> None:
    """Standard streams that were closed (``>&-``) drop what is written to them; text they cannot encode is escaped."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115  (for the life of the process)
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def drop_output() -> None:
    """Whatever is still to be written to standard output goes nowhere, so that Python does not complain at its end."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError, AttributeError):  # it was no file
        pass
