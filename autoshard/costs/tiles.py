"""Which reduce-scatters a compiler keeps: those whose parts are whole tiles of the memory that they lie in.

A TPU holds an array in tiles of 8 x 128 elements of its last two dimensions (a vector in tiles of 1024), and may store
another dimension last where it is as long as a tile. A reduce-scatter hands every device whole tiles; where no order
of the dimensions allows that, the compiler makes an all-reduce of twice the bytes and cuts its result. It holds on
machines whose profile says so (`scatters_tiles` of `CompiledWork`, docs/costmodels.md).
"""

from typing import Final

import numpy as np

LANES: Final = 128
"""Elements of a tile along the last dimension."""
ROWS: Final = 8
"""Elements of a tile along the dimension before it."""
LAST_BYTES: Final = 512
"""A part along the last dimension is a multiple of so many bytes: lanes of four bytes, which small elements share."""


def scatters_tiles(shapes: np.ndarray, dims: np.ndarray, element_bytes: float) -> np.ndarray:
    """[scatter] whether the parts of reduce-scatters along `dims` are whole tiles.

    shapes: [scatter, dimension] of one device's part, after the scatter.

    >>> scatters_tiles(np.array([[4096, 256], [4096, 128], [4096, 64], [64, 64]]), np.array([1, 1, 1, 1]), 2)
    array([ True, False,  True, False])
    """
    count, rank = shapes.shape
    parts = shapes[np.arange(count), dims]
    if rank == 1:
        return parts % (ROWS * LANES) == 0
    others = np.where(np.arange(rank)[None, :] == dims[:, None], 0, shapes).max(axis=1)
    last = np.where(parts % LANES == 0, parts * element_bytes % LAST_BYTES == 0, others >= LANES)
    return np.where(dims == rank - 1, last, np.where(dims == rank - 2, parts % ROWS == 0, True))
