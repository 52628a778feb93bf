"""Ctrl-C of the command line: it must arrive, and not in the middle of an import.

An exception out of half of an import leaves broken modules behind, may be taken for another error by the module that
imports, and crashes some compiled ones. Python drops exceptions that are raised in finalizers and in callbacks of weak
references and of the garbage collector; JAX has such callbacks, and long tracing and pricing spend so much of their
time in them that two of three interrupts would be lost.

A search that is interrupted ends with the best that it has by then. Loops over searches must end with it: `noticed`
tells that Ctrl-C came, whatever the search made of it.
"""

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

AGAIN_S = 0.02
"""An interrupt that cannot be taken is sent again after so long."""
LONGEST_S = 5.0
"""An import that takes longer, of a user's file say, is interrupted all the same."""
IMPORTING = "<frozen importlib"

_on_the_way: list[threading.Timer] = []
_put_off_since: list[float] = []

beside: set[object] = set()
"""Work that is being interrupted from beside, by a clock or a cap on memory; until it has ended no interrupt is the
user's."""


class Noticed:
    """by_user: whether Ctrl-C came."""

    def __init__(self) -> None:
        self.by_user = False

    def check(self) -> None:
        """Raise `KeyboardInterrupt` where Ctrl-C came, whoever may have caught it."""
        if self.by_user:
            raise KeyboardInterrupt


@contextmanager
def noticed() -> Iterator[Noticed]:
    """Within the ``with`` block, notice interrupts by the user; outside of the main thread there are none."""
    found, before = Noticed(), signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield found
        return

    def handler(number: int, frame: FrameType | None) -> None:
        try:
            before(number, frame)
        except KeyboardInterrupt:
            found.by_user = found.by_user or not beside
            raise

    signal.signal(signal.SIGINT, handler)
    try:
        yield found
    finally:
        signal.signal(signal.SIGINT, before)


def heed() -> None:
    """Ctrl-C raises `KeyboardInterrupt` once nothing is being imported; a process that ignores it goes on to."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _arrived)


def end() -> None:
    """The work is done: from now on Ctrl-C ends the process without a word."""
    if signal.getsignal(signal.SIGINT) is _arrived:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def again() -> None:
    """Interrupt this process a little later."""
    timer = threading.Timer(AGAIN_S, os.kill, (os.getpid(), signal.SIGINT))
    timer.daemon = True
    _on_the_way[:] = [other for other in _on_the_way if other.is_alive()]
    _on_the_way.append(timer)
    timer.start()


def forget() -> None:
    """Interrupts that would come again do not; one that comes meanwhile is raised here."""
    for timer in _on_the_way:
        timer.cancel()
    for timer in _on_the_way:
        timer.join()
    _on_the_way.clear()
    _put_off_since.clear()


def _arrived(number: int, frame: FrameType | None) -> None:
    now = time.monotonic()
    if _imports(frame):
        if not _put_off_since:
            _put_off_since.append(now)
        if now - _put_off_since[0] < LONGEST_S:
            again()
            return
    _put_off_since.clear()
    raise KeyboardInterrupt


def _imports(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.startswith(IMPORTING):
            return True
        frame = frame.f_back
    return False
