"""Pauses of Python's garbage collector, which would search millions of small objects that all stay alive."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """Context manager: the garbage collector is off inside, and afterwards as it was before."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


@contextmanager
def set_aside() -> Iterator[None]:
    """Context manager: what there is already is not searched inside; afterwards it is again.

    Nothing is done where something is set aside already: to bring one's own back would bring all back.
    """
    if gc.get_freeze_count():
        yield
        return
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
