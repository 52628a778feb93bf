"""A `shard_map` inside of another one, replaced by slices and gathers on devices that hold its operands whole."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax

Names = Sequence[tuple[str, ...]]
"""A partition spec as plain data: mesh axes of each dimension."""


def manual_axes(params: Mapping[str, Any]) -> set[str]:
    """The axes over which the body of a `shard_map` equation is local."""
    axes = params.get("newly_manual_axes", params.get("manual_axes", params["mesh"].axis_names))
    return {str(name) for name in axes}


def cut_block(names: Names, shape: Sequence[int]) -> Callable[[jax.Array], jax.Array]:
    """A function that cuts a device's part, of this shape, out of an array that the device holds whole."""

    def cut(x: jax.Array) -> jax.Array:
        for dim, axes in enumerate(names):
            if axes:
                x = jax.lax.dynamic_slice_in_dim(x, jax.lax.axis_index(axes) * shape[dim], shape[dim], dim)
        return x

    return cut


def gather_blocks(names: Names) -> Callable[[jax.Array], jax.Array]:
    """A function that gathers the whole array from the parts of all devices."""

    def gather(x: jax.Array) -> jax.Array:
        for dim, axes in enumerate(names):
            if axes:
                x = jax.lax.all_gather(x, axes, axis=dim, tiled=True)
        return x

    return gather
