"""Padding of arrays to whole tiles of memory.

TPUs keep arrays in tiles (8 x 128 elements), and the compiler chooses which two dimensions are tiled. Nearly always two
dimensions fit without padding. Results of convolutions are the exception: their minor dimension is the channels, or
else the batch (measured, experiments/memory: 64 channels take the room of 128). Inputs come in a layout that fits.
"""

from collections.abc import Mapping, Sequence
from math import ceil, prod

from autoshard.program.program import Program

Tile = tuple[int, int]
"""Rows and lanes of a tile, in elements."""


def image_dims(program: Program) -> Mapping[int, tuple[int, int]]:
    """Value -> its channel and batch dimension: results of convolutions, and all other results of such shapes."""
    by_shape: dict[tuple[int, ...], tuple[int, int]] = {}
    for op, _ in program.walk():
        if op.kind == "conv_general_dilated" and op.rule is not None:
            left, kernel = ({f for d in t for f in d} for t in op.rule.operands)
            result = op.rule.results[0]
            channels = [d for d, factors in enumerate(result) if set(factors) & kernel - left]
            batch = [d for d, factors in enumerate(result) if set(factors) & left - kernel]
            if channels and batch:
                by_shape.setdefault(program.type_of(op.results[0]).shape, (channels[0], batch[0]))
    if not by_shape:
        return {}
    results = (v for op, _ in program.walk() for v in op.results)
    return {v: by_shape[program.type_of(v).shape] for v in results if program.type_of(v).shape in by_shape}


def padded_elements(shape: Sequence[int], dims: tuple[int, int], tile: Tile) -> int:
    """Elements that a local block takes with one of `dims` along the lanes and the other along the rows.

    >>> padded_elements((32, 112, 112, 64), (3, 0), (8, 128)) == 32 * 112 * 112 * 128
    True
    """
    rows, lanes = tile
    rest = prod(n for d, n in enumerate(shape) if d not in dims)
    sizes = [shape[d] for d in dims]
    return rest * min(_up(a, lanes) * _up(b, min(rows, _power_of_two(b))) for a, b in (sizes, sizes[::-1]))


def _up(n: int, multiple: int) -> int:
    return ceil(n / multiple) * multiple


def _power_of_two(n: int) -> int:
    return 1 << max(0, n - 1).bit_length()
