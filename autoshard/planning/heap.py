"""Freed tables given back to the system: the allocator keeps what arrays of some MiB lay in, and the next solve asks
for other sizes.
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
    """Return free memory of this process to the system, where that can be asked for."""
    trim = _trim()
    if trim is not None:
        trim(0)
