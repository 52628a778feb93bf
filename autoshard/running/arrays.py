"""Generated arrays, of which every process makes its own shards, and checksums that need no communication."""

from collections.abc import Iterable, Sequence
from math import prod
from typing import Any

import jax
import numpy as np

from autoshard.errors import InputError

LARGEST_FLOAT = 0.1
"""Generated floats lie in ``[0, LARGEST_FLOAT)``: not negative, because optimizer states may hold squares."""
INTEGERS = 8
"""Generated integers lie in ``0 .. INTEGERS - 1``, so that they may index small tables."""


def generated(types: Sequence[Any], shardings: Sequence[jax.sharding.Sharding], seed: int) -> list[Any]:
    """One array of random numbers for each abstract value, the same on any number of processes.

    Each element is a function of the seed, the number of its array and its position, so that a process computes its
    own elements and nothing else. Random keys are those of `jax.random.split` of the seed.
    """
    out: list[Any] = []
    for number, (t, sharding) in enumerate(zip(types, shardings, strict=True)):
        if jax.numpy.issubdtype(t.dtype, jax.dtypes.prng_key):
            out.append(_keys(t, sharding, seed + number))
            continue
        if t.dtype == jax.dtypes.float0:
            raise InputError(f"input {number} has type float0, which holds nothing and cannot be generated")

        def block(index: Any, t: Any = t, number: int = number) -> np.ndarray:
            return values_at(t.shape, t.dtype, index, seed=seed, number=number)

        out.append(jax.make_array_from_callback(tuple(t.shape), sharding, block))
    return out


def _keys(t: Any, sharding: jax.sharding.Sharding, seed: int) -> Any:
    def keys() -> Any:
        return jax.random.split(jax.random.key(seed, impl=t.dtype), max(1, prod(t.shape)))[: prod(t.shape)].reshape(
            t.shape
        )

    return jax.jit(keys, out_shardings=sharding)()


def values_at(shape: Sequence[int], dtype: Any, index: Sequence[slice], *, seed: int, number: int = 0) -> np.ndarray:
    """The elements of a generated array at `index` (a slice for each dimension).

    >>> whole = values_at((4, 6), np.float32, (slice(None), slice(None)), seed=1)
    >>> bool((values_at((4, 6), np.float32, (slice(2, 4), slice(1, 3)), seed=1) == whole[2:4, 1:3]).all())
    True
    """
    ranges = [range(n)[s] for n, s in zip(shape, index, strict=True)]
    position = np.zeros([len(r) for r in ranges], np.uint64)
    stride = 1
    for dim in reversed(range(len(shape))):
        along = np.arange(ranges[dim].start, ranges[dim].stop, ranges[dim].step, dtype=np.uint64) * np.uint64(stride)
        position += along.reshape([-1 if d == dim else 1 for d in range(len(shape))])
        stride *= shape[dim]
    start = _mixed(_mixed(np.uint64(seed) + np.uint64(1)) + np.uint64(number))
    bits = _mixed(position + start) >> np.uint64(40)  # 24 bits: exact in float32
    dtype = np.dtype(dtype)
    if jax.numpy.issubdtype(dtype, np.bool_):
        return (bits & np.uint64(1)).astype(dtype)
    if jax.numpy.issubdtype(dtype, np.integer):
        return (bits % np.uint64(INTEGERS)).astype(dtype)
    return (bits.astype(np.float64) * (LARGEST_FLOAT / 2**24)).astype(dtype)


def _mixed(x: Any) -> Any:
    """A hash of 64-bit integers: splitmix64 (Steele, Lea and Flood, OOPSLA 2014; public domain code by S. Vigna)."""
    with np.errstate(over="ignore"):
        x = x + np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return x ^ (x >> np.uint64(31))


# -- figures -------------------------------------------------------------------------------------------------


def held_bytes(arrays: Iterable[Any]) -> int:
    """Bytes that this process holds of the arrays: its shards, copies counted."""
    return sum(_data(shard.data).nbytes for x in arrays for shard in x.addressable_shards)


def own_sums(x: Any) -> list[tuple[int, float, float, float]]:
    """For every first copy of a shard that this process holds: device id, sum, sum of squares, largest magnitude.

    In float64. Copies (replica_id > 0) are left out, so over all processes every element counts once.
    """
    return [(s.device.id, *_sums(np.asarray(_data(s.data)))) for s in x.addressable_shards if s.replica_id == 0]


def _sums(host: np.ndarray) -> tuple[float, float, float]:
    if host.size == 0:
        return 0.0, 0.0, 0.0
    magnitudes = np.abs(host.astype(np.complex128 if np.iscomplexobj(host) else np.float64))
    values = np.real(host) if np.iscomplexobj(host) else host
    return float(values.astype(np.float64).sum()), float((magnitudes**2).sum()), float(magnitudes.max())


def _data(x: Any) -> Any:
    return jax.random.key_data(x) if jax.numpy.issubdtype(x.dtype, jax.dtypes.prng_key) else x
