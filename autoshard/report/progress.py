"""What is going on during long work, on standard error: one line that changes on a terminal, else one line a stage."""

import sys
import time
from types import TracebackType
from typing import Any, Self


class Progress:
    """Called with a text or with the solver's progress; use as a context manager.

    State: the rich status line (on a terminal) or the last text printed (elsewhere).
    """

    def __init__(self, *, quiet: bool = False) -> None:
        self._started = time.monotonic()
        self._quiet = quiet
        self._last = ""
        self._status: Any = None
        if not quiet and sys.stderr.isatty():
            from rich.console import Console

            self._status = Console(stderr=True, highlight=False).status("")

    def __enter__(self) -> Self:
        if self._status is not None:
            self._status.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._status is not None:
            self._status.stop()

    def __call__(self, event: Any) -> None:
        if self._quiet:
            return
        stage, text = describe(event)
        if self._status is not None:
            from rich.text import Text

            line = f"{time.monotonic() - self._started:6.1f} s  {text}"  # in one line, whatever the terminal's width
            self._status.update(Text(line, no_wrap=True, overflow="ellipsis"))
        elif stage != self._last:
            print(f"{time.monotonic() - self._started:6.1f} s  {text}", file=sys.stderr, flush=True)
        self._last = stage


def describe(event: Any) -> tuple[str, str]:
    """The stage and the line of a progress event: a text, or ``stage``, ``cost`` and ``lower_bound``.

    >>> describe("tracing")
    ('tracing', 'tracing')
    """
    if isinstance(event, str):
        return event.partition(":")[0], event
    stage, cost, bound = event.stage, event.cost, event.lower_bound
    if cost is None:
        return stage, f"{stage}: no plan yet"
    if bound is None:
        return stage, f"{stage}: a plan, no bound yet"
    return stage, f"{stage}: gap {max(0, cost - bound) / max(1, abs(cost)):.2%}"
