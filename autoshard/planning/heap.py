"""Giving freed memory back to the system.

The C allocator keeps the memory of freed arrays of some MiB, and the next solve needs arrays of other sizes.
"""

import ctypes
from collections.abc import Callable
from functools import cache


@cache
def _trim() -> Callable[[int], int] | None:
    """``malloc_trim`` of the GNU C library; None elsewhere."""
    try:
        return ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError, TypeError):
        return None


def give_back() -> None:
    """Return free memory of this process to the system, where the C library can do that."""
    trim = _trim()
    if trim is not None:
        trim(0)
