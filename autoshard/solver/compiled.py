"""Compilation of the hot loops by numba, kept on disk between runs.

Numba looks only at the file of a function to see whether its compiled code is still good, not at the files of what that
function calls or takes. So compiled code lies in a folder named by the contents of everything that is compiled: after
any change, or an upgrade, all is compiled again. Seconds of compilation count against no deadline.
"""

import hashlib
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import numba
import numpy as np
from numba.core import event

from autoshard.deadline import clock

FAST = {"nnan", "nsz"}
"""Flags of fast arithmetic: no infinities are subtracted, no NaN arises; so minima are vectorised. Sums are added up in
the order that is written: another one would depend on what a function is compiled into, and on the machine, so that
code that was just compiled and code from disk would come to other last bits, and to other proofs."""

_TOP = Path(__file__).parent.parent
_ROOMS = ("solver", "formulation")
"""The rooms that have compiled functions."""
_IMPORTED = re.compile(rb"^from autoshard\.([\w.]+) import", re.MULTILINE)
_KEPT = 8
"""How many folders are kept, those used last: other versions and other installations have their own."""


def compiled(function: Callable) -> Any:
    """Decorator: `numba.njit` with the project's options, cached on disk where a folder can be written."""
    with _cache_folder() as folder:
        if folder is not None:
            return numba.njit(cache=True, fastmath=FAST, nogil=True)(function)
    return numba.njit(fastmath=FAST, nogil=True)(function)


class _Compilation(event.Listener):
    """Lets seconds of compilation not count. Functions that one compiled function calls are compiled within it, and one
    thread compiles at a time."""

    def __init__(self) -> None:
        self.depth, self.began = 0, 0.0

    def on_start(self, event: event.Event) -> None:
        self.depth += 1
        if self.depth == 1:
            self.began = time.monotonic()
            clock.stand()

    def on_end(self, event: event.Event) -> None:
        self.depth -= 1
        if self.depth == 0:
            clock.leave_out(time.monotonic() - self.began)


event.register("numba:compile", _Compilation())


@contextmanager
def _cache_folder() -> Iterator[Path | None]:
    """Functions decorated within are cached in our folder, which is the result; None if none can be written."""
    folder, before = _folder(), numba.config.CACHE_DIR  # type: ignore[attr-defined]
    if folder is not None:
        numba.config.CACHE_DIR = str(folder)  # type: ignore[attr-defined]
    try:
        yield folder
    finally:
        numba.config.CACHE_DIR = before  # type: ignore[attr-defined]


@lru_cache(maxsize=1)
def _folder() -> Path | None:
    root = os.environ.get("NUMBA_CACHE_DIR") or os.environ.get("XDG_CACHE_HOME")
    try:
        folder = (Path(root) if root else Path.home() / ".cache") / "autoshard" / "compiled" / _contents()
        folder.mkdir(parents=True, exist_ok=True)
        os.utime(folder)
        others = [path for path in folder.parent.iterdir() if path != folder]
        for old in sorted(others, key=lambda path: path.stat().st_mtime)[: 1 - _KEPT]:
            shutil.rmtree(old, ignore_errors=True)
    except (OSError, RuntimeError):  # no home, or nothing may be written there
        return None
    return folder if os.access(folder, os.W_OK) else None


def _contents() -> str:
    """A name for the contents of every file with compiled functions, and of those it takes constants and types from."""
    texts = {path: path.read_bytes() for room in _ROOMS for path in (_TOP / room).rglob("*.py")}
    hot = [path for path, text in texts.items() if b"\n@compiled\n" in text]
    named = {name.decode() for path in hot for name in _IMPORTED.findall(texts[path])}
    taken = {_TOP.joinpath(*name.split(".")).with_suffix(".py") for name in named}
    digest = hashlib.sha256()
    for path in sorted(taken.intersection(texts).union(hot)):
        digest.update(texts[path])
    return digest.hexdigest()[:16]


@compiled
def copy_to(into: np.ndarray, numbers: np.ndarray) -> None:
    """Copy numbers into the begin of an array.

    For an array that is assigned to a slice numba compiles the words of an error about shapes too, which takes a tenth
    of the time of the first plan. (In annealing, where copies are most of the work, slices are quicker.)
    """
    for a in range(len(numbers)):
        into[a] = numbers[a]
