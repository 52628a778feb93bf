"""Values of the host as global arrays: every process of a run copies its own shards, and none sends data to another."""

from collections import Counter
from collections.abc import Collection
from numbers import Number
from typing import Any

import jax
import numpy as np
from jax.core import Tracer
from jax.sharding import NamedSharding


def place(value: Any, sharding: jax.sharding.Sharding) -> jax.Array:
    """A host array as a global one.

    value: the whole array on the host (each process may hold another copy of it), or a Python number. What is written
    into it later does not change the global array: on CPUs JAX would go on reading a NumPy array where it stands.
    """
    host = np.asarray(value)
    if sharding.addressable_devices:
        return jax.make_array_from_callback(host.shape, sharding, lambda index: np.array(host[index]))
    # no device of this process: it holds nothing of the array, and says what the others hold
    return jax.make_array_from_callback(host.shape, sharding, lambda _: host, jax.dtypes.canonicalize_dtype(host.dtype))


def place_tree(values: Any, shardings: Any) -> Any:
    """`place` for every leaf of a pytree; global arrays that have the wanted sharding already stay as they are."""
    return jax.tree.map(_placed, values, shardings)


def _placed(value: Any, sharding: jax.sharding.Sharding) -> jax.Array:
    if isinstance(value, jax.Array) and value.sharding.is_equivalent_to(sharding, value.ndim):
        return value
    if isinstance(value, jax.Array) and jax.numpy.issubdtype(value.dtype, jax.dtypes.prng_key):
        bits = _placed(jax.random.key_data(value), sharding)  # random keys: NumPy has no type for them
        return jax.random.wrap_key_data(bits, impl=jax.random.key_impl(value))
    if isinstance(value, jax.Array) and not value.is_fully_addressable:
        return jax.device_put(value, sharding)
    return place(value, sharding)


def put_where_wanted(values: Any, shardings: Any) -> Any:
    """A pytree with its numbers and arrays of the host, and arrays on a device by chance, in the wanted shardings.

    Arrays that were put where they are stay there, under the names of the wanted mesh where they lie as wanted; tracers
    are as they were, and Python numbers where other processes have devices too. A number is weakly typed there as well.
    A jitted function then gets the same from the first step of a loop as from the second, and is compiled for both at
    once.
    """

    def one(value: Any, sharding: jax.sharding.Sharding) -> Any:
        if isinstance(value, Tracer):
            return value
        if isinstance(value, jax.Array) and value.committed:
            return renamed(value, sharding)
        if not hasattr(value, "dtype") and not (isinstance(value, Number) and sharding.is_fully_addressable):
            return value
        return jax.device_put(value, sharding) if sharding.is_fully_addressable else _placed(value, sharding)

    return jax.tree.map(one, values, shardings)


def renamed(value: jax.Array, sharding: jax.sharding.Sharding) -> jax.Array:
    """An array that lies as a sharding says, on that sharding's mesh; any other one as it is. Nothing moves.

    The axes of a mesh are part of what a jitted function is compiled for, and an array of the user's own mesh has other
    ones than what the function returns where the plan cuts an axis into parts.
    """
    there = value.sharding
    if not isinstance(there, NamedSharding) or not isinstance(sharding, NamedSharding) or there.mesh == sharding.mesh:
        return value
    if not value.is_fully_addressable or not there.mesh.are_all_axes_auto:
        return value
    if not there.is_equivalent_to(sharding, value.ndim):
        return value
    return jax.device_put(value, sharding)


def with_own_buffers(values: Any, given: Any, donated: Collection[int]) -> Any:
    """A pytree in which no donated array is another argument too: one that was given more than once is copied.

    given: the values before they were put somewhere, which they may share memory with. donated: numbers of leaves. A
    state often begins so, with averaged weights that are the weights; JAX refuses to donate an array twice, or to
    donate and read it, and on several devices of a CPU ends the process.
    """
    arrays = jax.tree.leaves(given)
    places = Counter(map(id, arrays))
    if not donated or len(places) == len(arrays):
        return values
    leaves, tree = jax.tree.flatten(values)
    for k, x in enumerate(arrays):
        if k in donated and places[id(x)] > 1 and isinstance(x, jax.Array) and not isinstance(x, Tracer):
            leaves[k] = _copied(leaves[k])
            places[id(x)] -= 1  # its last place keeps the array
    return jax.tree.unflatten(tree, leaves)


def _copied(x: jax.Array) -> jax.Array:
    if not x.is_fully_addressable:
        return jax.numpy.copy(x)
    return jax.device_put(x, x.sharding, may_alias=False)  # also of host memory, and compiles nothing
