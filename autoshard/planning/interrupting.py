"""Work that cannot look at a clock or at memory itself is interrupted from beside, as by Ctrl-C."""

import _thread
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from autoshard import interrupts
from autoshard.deadline import Deadline
from autoshard.errors import OutOfTimeError

EVERY_S = 0.2
"""How often somebody looks."""

TRACING = "tracing the function"
TRACE_LESS = "raise it, or write repeated layers as a scan"


class Interruption:
    """done: whether the work was interrupted from beside, and not by the user."""

    def __init__(self) -> None:
        self.done = False


@contextmanager
def interrupted_when(over: Callable[[], bool], every_s: float = EVERY_S) -> Iterator[Interruption]:
    """Within the ``with`` block, raise `KeyboardInterrupt` in the main thread once `over` is true.

    Nothing happens outside of the main thread. every_s: how often it is looked at.
    """
    interruption = Interruption()
    if threading.current_thread() is not threading.main_thread():
        yield interruption
        return
    opened, closed = threading.Event(), threading.Event()

    def watch() -> None:
        opened.wait()  # an earlier interrupt would hit the code that starts this thread
        while not closed.wait(every_s):
            if over():
                interruption.done = True
                interrupts.beside.add(interruption)
                _thread.interrupt_main()
                return

    def reached(number: int, frame: Any) -> None:  # of a process that ignores Ctrl-C (`nohup`, `&` in a script)
        if interruption.done:
            interrupts.arrived(number, frame)

    ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    if ignored:
        signal.signal(signal.SIGINT, reached)
    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        opened.set()
        yield interruption
    finally:
        _end(watcher, closed, interruption)
        if ignored:
            signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextmanager
def ended_at(deadline: Deadline, doing: str, advice: str) -> Iterator[None]:
    """`OutOfTimeError` for the ``with`` block where the deadline passes in it: at once in the main thread, elsewhere at
    its end. doing: what is done there; advice: what to try.
    """
    if deadline.left() is None:
        yield
        return
    with interrupted_when(lambda: deadline.passed) as interruption:
        try:
            yield
        except KeyboardInterrupt:
            if not interruption.done:
                raise
    if interruption.done:
        raise OutOfTimeError(f"the time limit was reached while {doing}; {advice}")
    deadline.check(doing, advice)


def _end(watcher: threading.Thread, closed: threading.Event, found: Interruption) -> None:
    """End the watcher; an interrupt of its own that is still on the way is caught here."""
    try:
        closed.set()
        watcher.join()
        if found.done:
            interrupts.forget()
        time.sleep(0)
    except KeyboardInterrupt:
        if not found.done:
            raise
    finally:
        interrupts.beside.discard(found)
