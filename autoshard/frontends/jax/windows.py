"""What convolutions, windows and Fourier transforms do at each place: facts of a call that its work comes from."""

from collections.abc import Mapping, Sequence
from math import gcd, prod
from typing import Any

import numpy as np

_WINDOWS = ("reduce_window", "select_and_")


def window_attrs(kind: str, params: Mapping[str, Any], shapes: Sequence[Sequence[int]]) -> dict[str, Any]:
    """Empty for most ops.

    ``window`` of reductions over windows: the sizes of one; of Fourier transforms: the lengths. ``taps`` of
    convolutions whose input is dilated: pairs of a result and a tap that meet an element of the input or its padding,
    not a zero between elements; and all pairs.

    shapes: of the operands and the result.
    """
    if kind.startswith(_WINDOWS) and "window_dimensions" in params:
        return {"window": tuple(int(n) for n in params["window_dimensions"])}
    if kind == "fft":
        return {"window": tuple(int(n) for n in params["fft_lengths"])}
    if kind != "conv_general_dilated" or all(near == 1 for near in params["lhs_dilation"]):
        return {}
    numbers, (_, kernel, result) = params["dimension_numbers"], shapes
    counts = [
        (kernel[numbers.rhs_spec[s + 2]], result[numbers.out_spec[s + 2]]) for s in range(len(params["lhs_dilation"]))
    ]
    windows = zip(
        params["window_strides"], params["padding"], params["lhs_dilation"], params["rhs_dilation"], strict=True
    )
    met = (
        taps_met(results, taps, int(stride), int(near), int(far), int(padding[0]))
        for (taps, results), (stride, padding, near, far) in zip(counts, windows, strict=True)
    )
    return {"taps": (prod(met), prod(taps * results for taps, results in counts))}


def taps_met(results: int, taps: int, stride: int, near: int, far: int, low: int) -> int:
    """How many pairs of a result and a tap along one dimension fall on a multiple of `near` of the dilated input.

    Result *o* and tap *t* meet place ``o * stride + t * far - low``; elements lie `near` apart, zeros between them.

    >>> taps_met(4, 3, 1, 2, 1, 1), taps_met(4, 3, 2, 2, 1, 1), taps_met(4, 3, 1, 1, 1, 1)
    (6, 4, 12)
    """
    step = gcd(stride, near)
    every = near // step  # results that meet an element with the same tap are so many apart
    starts = low - np.arange(taps, dtype=np.int64) * far
    starts = starts[starts % step == 0] // step
    first = starts * pow(stride // step, -1, every) % every  # of the results
    return int(np.maximum(0, -(-(results - first) // every)).sum())
