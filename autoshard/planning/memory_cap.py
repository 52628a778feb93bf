"""A cap on the memory of planning itself: the search is then ended as by Ctrl-C, with the best plan so far."""

import _thread
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_EVERY_S = 0.2


class Cap:
    """reached: whether the search was ended for it."""

    reached = False


@contextmanager
def memory_cap(most_bytes: int | None) -> Iterator[Cap]:
    """While this is open, interrupt the main thread once this process and its children hold more than `most_bytes`.

    Nothing happens where no cap is given, outside of the main thread, or where the system has no ``/proc``.
    """
    cap = Cap()
    if most_bytes is None or threading.current_thread() is not threading.main_thread() or held_bytes() == 0:
        yield cap
        return
    closed = threading.Event()

    def watch() -> None:
        while not closed.wait(_EVERY_S):
            if held_bytes() > most_bytes:
                cap.reached = True
                _thread.interrupt_main()
                return

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield cap
    finally:
        closed.set()
        watcher.join()


def held_bytes() -> int:
    """Resident bytes of this process and its children; 0 where that cannot be known."""
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
