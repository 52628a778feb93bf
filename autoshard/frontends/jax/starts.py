"""Where slices start, brought within bounds as JAX does it, before XLA sees it.

`dynamic_slice` and `gather` clamp a start that is out of bounds. XLA forgets that where a slice of their result
follows, such as the one that cuts a block: its simplifier makes one slice of both, and adds the starts as they are (XLA
of JAX 0.10). A start that is within bounds needs no clamping.
"""

from collections.abc import Sequence
from math import prod
from typing import Any

import jax
import numpy as np
from jax import lax

Mode = lax.GatherScatterMode


def clamped(index: Any, top: int) -> Any:
    """An index, or an array of them, within 0 .. top, in its own type, which may be too narrow for `top`."""
    highest = min(top, int(jax.numpy.iinfo(index.dtype).max))
    return lax.clamp(np.zeros((), index.dtype), index, np.asarray(highest, index.dtype))


def within_bounds(kind: str, params: dict[str, Any], operands: Sequence[Any]) -> Sequence[Any]:
    """The operands of a primitive; of a `dynamic_slice`, and of a `gather` that takes one slice, with starts within
    bounds.
    """
    if kind == "dynamic_slice":
        x, *starts = operands
        tops = [n - m for n, m in zip(x.shape, params["slice_sizes"], strict=True)]
        return [x, *(clamped(start, top) for start, top in zip(starts, tops, strict=True))]
    if kind != "gather" or Mode.from_any(params["mode"]) == Mode.FILL_OR_DROP:
        return operands
    x, indices = operands
    if prod(indices.shape[:-1]) != 1:
        return operands
    columns = []
    for k, d in enumerate(params["dimension_numbers"].start_index_map):
        column = lax.index_in_dim(indices, k, axis=indices.ndim - 1, keepdims=True)
        columns.append(clamped(column, x.shape[d] - params["slice_sizes"][d]))
    return [x, lax.concatenate(columns, indices.ndim - 1)] if columns else operands
