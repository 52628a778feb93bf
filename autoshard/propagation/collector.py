"""Python's garbage collector is switched off while large graphs are read and walked."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Without garbage collection within the ``with`` block; half the time of reading a large module would go to it."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
