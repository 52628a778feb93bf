"""Mesh axes of size 1 in a user's `shard_map`: they cut nothing, so programs do not have them.

Their names go from the specs, and collectives over them alone become what they are for one device: moves of
dimensions. So a plan's mesh need not have them.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from autoshard.frontends.jax.nested import Names

_ALONE: dict[str, Callable[[Any, Mapping[str, Any]], Any]] = {
    **dict.fromkeys(
        ("psum", "psum2", "psum_invariant", "pmax", "pmin", "pvary", "pbroadcast", "pcast"), lambda x, params: x
    ),
    **dict.fromkeys(("all_gather", "all_gather_invariant"), lambda x, params: _gathered(x, params)),
    "reduce_scatter": lambda x, params: x if params["tiled"] else jnp.squeeze(x, params["scatter_dimension"]),
    "all_to_all": lambda x, params: _exchanged(x, params),
    "ppermute": lambda x, params: x if tuple(params["perm"]) else jnp.zeros_like(x),
}


def unit_axes(sizes: Mapping[str, int]) -> set[str]:
    """The axes of size 1."""
    return {name for name, size in sizes.items() if size == 1}


def without(names: Names, units: Iterable[str]) -> Names:
    """A partition spec without some axes."""
    gone = set(units)
    return tuple(tuple(name for name in dim if name not in gone) for dim in names)


def axes_left(params: Mapping[str, Any], units: Iterable[str]) -> tuple[str, tuple[Any, ...]] | None:
    """The parameter of a collective that names axes, and those of its axes that are larger than 1.

    None where the op names no axes, or no axis of size 1.
    """
    gone = set(units)
    for key in ("axes", "axis_name"):
        if key in params:
            named = params[key] if isinstance(params[key], tuple | list) else (params[key],)
            left = tuple(name for name in named if name not in gone)
            return None if len(left) == len(named) else (key, left)
    return None


def on_one_device(kind: str, params: Mapping[str, Any]) -> Callable[[Any], Any] | None:
    """What a collective does to each of its operands on a group of one device; None for other ops."""
    function = _ALONE.get(kind)
    return None if function is None else lambda x: function(x, params)


def _gathered(x: jax.Array, params: Mapping[str, Any]) -> jax.Array:
    return x if params["tiled"] else jnp.expand_dims(x, params["all_gather_dimension"])


def _exchanged(x: jax.Array, params: Mapping[str, Any]) -> jax.Array:
    if params.get("tiled"):
        return x
    return jnp.expand_dims(jnp.squeeze(x, params["split_axis"]), params["concat_axis"])
