"""Progress of long work on standard error: on a terminal one line that changes, elsewhere one line for each stage."""

import sys
import time
from types import TracebackType
from typing import Any, Self

from autoshard.deadline import clock

COMPILING = "compiling code of autoshard, once on this machine: about half a minute, which counts against no limit"


class Progress:
    """A context manager that is called with events: a text, or the solver's progress (see `describe`).

    It holds the rich status line (on a terminal) and the stage of the last event. Where our own code has to be
    compiled, once on a machine, it says so, as the stage that meets it takes much longer than it will.
    """

    def __init__(self, *, quiet: bool = False) -> None:
        self._started = time.monotonic()
        self._quiet = quiet
        self._last = ""
        self._compiles = False
        self._status: Any = None
        if not quiet and sys.stderr.isatty():
            from rich.console import Console

            self._status = Console(stderr=True, highlight=False).status("")

    def __enter__(self) -> Self:
        if self._status is not None:
            self._status.start()
        clock.told = self._compiling
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        clock.told = None
        if self._status is not None:
            self._status.stop()

    def __call__(self, event: Any) -> None:
        if self._quiet:
            return
        stage, text = describe(event)
        if self._status is not None or stage != self._last:
            self._show(text)
        self._last = stage

    def _compiling(self) -> None:
        """Say once that code of autoshard is compiled."""
        if not self._compiles and not self._quiet:
            self._compiles = True
            self._show(COMPILING)

    def _show(self, text: str) -> None:
        line = f"{time.monotonic() - self._started:6.1f} s  {text}"
        if self._status is None:
            print(line, file=sys.stderr, flush=True)
            return
        from rich.text import Text

        self._status.update(Text(line, no_wrap=True, overflow="ellipsis"))  # one line, cut at the terminal's edge


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
