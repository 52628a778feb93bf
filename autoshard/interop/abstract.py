"""Abstract JAX arrays from plain data: a shape and the name of a dtype."""

from typing import Any

import jax
import jax.numpy as jnp


def shape_dtype(shape: tuple[int, ...], dtype: str) -> Any:
    """A `jax.ShapeDtypeStruct`; nothing is allocated.

    64-bit types become 32-bit ones unless ``jax_enable_x64`` is set, as for every JAX array.
    """
    return jax.ShapeDtypeStruct(shape, jax.dtypes.canonicalize_dtype(jnp.dtype(dtype)))
