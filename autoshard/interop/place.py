"""Values of the host as global arrays: every process of a run copies its own shards, and none sends data to another."""

from typing import Any

import jax
import numpy as np


def place(value: Any, sharding: jax.sharding.Sharding) -> jax.Array:
    """A host array as a global one.

    value: the whole array on the host (each process may hold another copy of it), or a Python number.
    """
    host = np.asarray(value)
    return jax.make_array_from_callback(host.shape, sharding, lambda index: host[index])


def place_tree(values: Any, shardings: Any) -> Any:
    """`place` for every leaf of a pytree; global arrays that have the wanted sharding already stay as they are."""

    def one(value: Any, sharding: jax.sharding.Sharding) -> jax.Array:
        if isinstance(value, jax.Array) and value.sharding.is_equivalent_to(sharding, value.ndim):
            return value
        if isinstance(value, jax.Array) and not value.is_fully_addressable:
            return jax.device_put(value, sharding)
        if isinstance(value, jax.Array) and jax.numpy.issubdtype(value.dtype, jax.dtypes.prng_key):
            bits = place(jax.random.key_data(value), sharding)  # random keys: NumPy has no type for them
            return jax.random.wrap_key_data(bits, impl=jax.random.key_impl(value))
        return place(value, sharding)

    return jax.tree.map(one, values, shardings)


def put_where_wanted(values: Any, shardings: Any) -> Any:
    """A pytree with its arrays of the host, and those that are on a device by chance, in the wanted shardings.

    Arrays that were put where they are stay there, and tracers are as they were. A jitted function gets the arrays of
    the first step of a loop like those of the second, and is compiled for both at once.
    """

    def one(value: Any, sharding: jax.sharding.Sharding) -> Any:
        if isinstance(value, jax.core.Tracer) or (isinstance(value, jax.Array) and value.committed):
            return value
        return jax.device_put(value, sharding)

    return jax.tree.map(one, values, shardings)
