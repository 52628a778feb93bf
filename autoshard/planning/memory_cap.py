"""A cap on the memory of planning itself: when it is reached, the search ends as by Ctrl-C, with the best plan so
far.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from autoshard.errors import OutOfTimeError
from autoshard.planning.interrupting import Interruption, interrupted_when

_EVERY_S = 0.2


class Cap:
    """A cap in bytes."""

    def __init__(self, most_bytes: int | None) -> None:
        self.most_bytes, self.watched = most_bytes, Interruption()

    @property
    def reached(self) -> bool:
        """Whether the cap has ended the search."""
        return self.watched.done

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
    if most_bytes is None or held_bytes() == 0:
        yield cap
        return
    with interrupted_when(lambda: held_bytes() > most_bytes, _EVERY_S) as cap.watched:
        try:
            yield cap
        except KeyboardInterrupt:
            if not cap.reached:
                raise
            raise OutOfTimeError(f"there is no plan: {cap.note} before it had found one; raise the cap") from None


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
