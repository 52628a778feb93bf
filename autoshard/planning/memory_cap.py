"""A cap on the memory of planning itself: when it is reached, the search ends as by Ctrl-C, with the best plan so
far.
"""

import _thread
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from autoshard.errors import OutOfTimeError

_EVERY_S = 0.2


class Cap:
    """A cap in bytes; reached: whether it has ended the search."""

    def __init__(self, most_bytes: int | None) -> None:
        self.most_bytes, self.reached = most_bytes, False

    @property
    def note(self) -> str:
        """The note of a plan whose search the cap ended."""
        return f"planning held more than {self.most_bytes} bytes: its search was ended there"


@contextmanager
def memory_cap(most_bytes: int | None) -> Iterator[Cap]:
    """Within the ``with`` block, interrupt the main thread once this process and its children hold more than
    `most_bytes`.

    Where the interrupted search has no plan yet, `OutOfTimeError` says why. Nothing happens without a cap, outside of
    the main thread, or where the system has no ``/proc``.
    """
    cap = Cap(most_bytes)
    if most_bytes is None or threading.current_thread() is not threading.main_thread() or held_bytes() == 0:
        yield cap
        return
    opened, closed = threading.Event(), threading.Event()

    def watch() -> None:
        opened.wait()  # an earlier interrupt would hit the code that starts this thread
        while not closed.wait(_EVERY_S):
            if held_bytes() > most_bytes:
                cap.reached = True
                _thread.interrupt_main()
                return

    def reached(number: int, frame: Any) -> None:  # of a process that ignores Ctrl-C (`nohup`, `&` in a script)
        if cap.reached:
            raise KeyboardInterrupt

    ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    if ignored:
        signal.signal(signal.SIGINT, reached)
    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        opened.set()
        yield cap
    except KeyboardInterrupt:
        if not cap.reached:
            raise
        raise OutOfTimeError(f"there is no plan: {cap.note} before it had found one; raise the cap") from None
    finally:
        _end(watcher, closed, cap)
        if ignored:
            signal.signal(signal.SIGINT, signal.SIG_IGN)


def _end(watcher: threading.Thread, closed: threading.Event, cap: Cap) -> None:
    """End the watcher; an interrupt of its own that is still on the way is caught here."""
    try:
        closed.set()
        watcher.join()
        time.sleep(0)
    except KeyboardInterrupt:
        if not cap.reached:
            raise


def held_bytes() -> int:
    """Resident bytes of this process and its children; 0 where the system does not tell."""
    total = 0
    page = os.sysconf("SC_PAGE_SIZE")
    waiting = [os.getpid()]
    while waiting:
        process = waiting.pop()
        try:
            total += int(Path(f"/proc/{process}/statm").read_text().split()[1]) * page
            for task in Path(f"/proc/{process}/task").iterdir():
                waiting += [int(child) for child in (task / "children").read_text().split()]
        except (OSError, ValueError, IndexError):
            continue
    return total
