"""What the processes of one program say to each other."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any


def told_apart(own: Callable[[], bytes], devices: Iterable[Any]) -> tuple[int, Sequence[int]]:
    """The number of this process, and the processes that hand over other bytes; all call it at once.

    own: gives as many bytes in every process, and is called where they are compared. No process is heard where one of
    them has none of the devices: it may not call.
    """
    import jax

    count, this = jax.process_count(), jax.process_index()
    if count == 1 or len({device.process_index for device in devices}) < count:
        return this, ()
    import numpy as np
    from jax.experimental import multihost_utils

    mine = own()
    told = np.asarray(multihost_utils.process_allgather(np.frombuffer(mine, np.uint8)))
    return this, [number for number, theirs in enumerate(told) if theirs.tobytes() != mine]
