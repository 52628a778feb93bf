"""Ctrl-C: it must arrive, and not where it would be taken for something else; and the end of a process by it.

An exception out of half of an import leaves broken modules behind, may be taken for another error by the module that
imports, and crashes some compiled ones. What compiled code of numba unpickles on its way must not fail: it would come
out as a `SystemError`. Python drops exceptions that are raised in finalizers and in callbacks of weak references and of
the garbage collector; JAX has such callbacks, and long tracing and pricing spend so much of their time in them that two
of three interrupts would be lost.

A search that is interrupted ends with the best that it has by then. Loops over searches must end with it: `noticed`
tells that Ctrl-C came, whatever the search made of it.
"""

import atexit
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, NoReturn

AGAIN_S = 0.02
"""An interrupt that cannot be taken is sent again after so long."""
LONGEST_S = 5.0
"""An import that takes longer, of a user's file say, is interrupted all the same."""
IMPORTING = "<frozen importlib"
UNPICKLING = os.path.join("numba", "core", "serialize.py")
NAMED_TUPLE = "namedtuple_"
"""What the module of a named tuple's constructor is called, before the name of the tuple."""

_on_the_way: list[threading.Timer] = []
_put_off_since: list[float] = []
_at_the_end: list[Callable[[], None]] = []

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


def heed() -> None:
    """Ctrl-C raises `KeyboardInterrupt` once that does no harm; a process that ignores it goes on to."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, arrived)


@contextmanager
def arriving() -> Iterator[None]:
    """Within the ``with`` block, a `KeyboardInterrupt` that Python drops is sent again a little later."""
    before = sys.unraisablehook

    def dropped(what: Any) -> None:
        if issubclass(what.exc_type, KeyboardInterrupt):
            again()
        else:
            before(what)

    sys.unraisablehook = dropped
    try:
        yield
    finally:
        sys.unraisablehook = before


@contextmanager
def heeded() -> Iterator[None]:
    """`heed` and `arriving` for a ``with`` block in the main thread, where Ctrl-C has the handler of Python itself."""
    in_main = threading.current_thread() is threading.main_thread()
    if not in_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    with arriving():
        heed()
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def noticed() -> Iterator[Noticed]:
    """Within the ``with`` block, notice interrupts by the user; outside of the main thread there are none."""
    found = Noticed()
    with heeded():
        before = signal.getsignal(signal.SIGINT)
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


def end() -> None:
    """The work is done: from now on Ctrl-C ends the process without a word."""
    if signal.getsignal(signal.SIGINT) is arrived:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def at_end(work: Callable[[], None]) -> None:
    """Do this when the process ends, also where `leave` ends it."""
    atexit.register(work)
    _at_the_end.append(work)


def leave(code: int) -> NoReturn:
    """End the process as it is: threads of compilers that go on would crash in what Python takes down."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    children = sys.modules.get("multiprocessing.process")
    ends = [] if children is None else [child.kill for child in children.active_children() if child.daemon]
    for work in (*reversed(_at_the_end), *ends, *(s.flush for s in (sys.stdout, sys.stderr) if s is not None)):
        with suppress(Exception):
            work()
    os._exit(code)


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


def arrived(number: int, frame: FrameType | None) -> None:
    """The handler: raises `KeyboardInterrupt`, here or, where that does harm, a little later."""
    if _within(frame, _compiled_code_calls):
        again()
        return
    now = time.monotonic()
    if _within(frame, _imports):
        if not _put_off_since:
            _put_off_since.append(now)
        if now - _put_off_since[0] < LONGEST_S:
            again()
            return
    _put_off_since.clear()
    raise KeyboardInterrupt


def _within(frame: FrameType | None, kind: Callable[[FrameType], bool]) -> bool:
    """Whether a frame, or one that it was called from, is of this kind."""
    while frame is not None:
        if kind(frame):
            return True
        frame = frame.f_back
    return False


def _imports(frame: FrameType) -> bool:
    return frame.f_code.co_filename.startswith(IMPORTING)


def _compiled_code_calls(frame: FrameType) -> bool:
    """Whether this may be called by compiled code, which goes on with what it got where that has failed."""
    named = frame.f_globals.get("__name__")
    return frame.f_code.co_filename.endswith(UNPICKLING) or (isinstance(named, str) and named.startswith(NAMED_TUPLE))
