"""Ops that read and write at indices."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from autoshard.onnx.ops.registry import ML, Node, op


def _known(node: Node, size: int, of: Any = None) -> np.ndarray | None:
    """Input 1, the indices, where they are known; an error where one lies outside of an axis of `size`.

    of: which of the indices are meant; all unless given.
    """
    known = node.known(1)
    if known is None:
        return None
    seen = known if of is None else known[of]
    if seen.size and not (-size <= int(seen.min()) and int(seen.max()) < size):
        raise node.malformed(
            f"indices from {seen.min()} to {seen.max()} are outside of an axis of {size} (from {-size} to {size - 1})"
        )
    return known


def _wrapped(indices: Any, size: int) -> Any:
    """Negative indices count from the end."""
    if jnp.issubdtype(indices.dtype, jnp.unsignedinteger):
        return indices
    return jnp.where(indices < 0, indices + size, indices)


@op("Gather")
def gather(node: Node, x: Any, indices: Any) -> Any:
    """An index that is known is a slice, which shards better than a gather."""
    axis = node["axis"] % x.ndim
    known = _known(node, x.shape[axis])
    if known is not None and known.ndim == 0:
        at = int(known) % x.shape[axis]
        return jax.lax.index_in_dim(x, at, axis, keepdims=False)
    if known is None:
        return jnp.take(x, _wrapped(indices, x.shape[axis]), axis=axis, mode="clip")
    return jnp.take(x, np.where(known < 0, known + x.shape[axis], known).astype(np.int32), axis=axis, mode="clip")


@op("GatherElements")
def gather_elements(node: Node, x: Any, indices: Any) -> Any:
    """GatherElements: one index for each element of the result, along ``axis``."""
    axis = node["axis"] % x.ndim
    _known(node, x.shape[axis])
    return x[_along(_wrapped(indices, x.shape[axis]), axis)]


def _along(indices: Any, axis: int) -> tuple[Any, ...]:
    """For every element of `indices` the full index of the element meant."""
    grid = jnp.meshgrid(*(jnp.arange(n) for n in indices.shape), indexing="ij", sparse=True)
    return tuple(indices if k == axis else g for k, g in enumerate(grid))


@op("GatherND")
def gather_nd(node: Node, x: Any, indices: Any) -> Any:
    """GatherND: the last axis of the indices holds positions in the leading axes of the data."""
    batch = node["batch_dims"] or 0
    for k in range(indices.shape[-1]):
        _known(node, x.shape[batch + k], (..., k))

    def pick(data: Any, at: Any) -> Any:
        return data[tuple(_wrapped(at[..., k], data.shape[k]) for k in range(at.shape[-1]))]

    for _ in range(batch):
        pick = jax.vmap(pick)
    return pick(x, indices)


@op("ScatterElements", "Scatter")
def scatter_elements(node: Node, x: Any, indices: Any, updates: Any) -> Any:
    """ScatterElements: each update is written, or combined by ``reduction``, at an index along ``axis``."""
    axis = node["axis"] % x.ndim
    _known(node, x.shape[axis])
    return _write(x, _along(_wrapped(indices, x.shape[axis]), axis), updates, node["reduction"] or "none")


@op("ScatterND")
def scatter_nd(node: Node, x: Any, indices: Any, updates: Any) -> Any:
    """ScatterND: updates are written, or combined by ``reduction``, at positions in the leading axes."""
    for k in range(indices.shape[-1]):
        _known(node, x.shape[k], (..., k))
    at = tuple(_wrapped(indices[..., k], x.shape[k]) for k in range(indices.shape[-1]))
    return _write(x, at, updates, node["reduction"] or "none")


def _write(x: Any, at: tuple[Any, ...], updates: Any, reduction: str) -> Any:
    place = x.at[at]
    write = {"none": place.set, "add": place.add, "mul": place.multiply, "max": place.max, "min": place.min}
    return write[reduction](updates)


@op("TensorScatter")
def tensor_scatter(node: Node, past: Any, update: Any, write: Any = None) -> Any:
    """Writes `update` into a cache along one axis, for every batch entry from its own position on."""
    axis = node["axis"] % past.ndim
    start = jnp.zeros((past.shape[0],), jnp.int32) if write is None else write

    def one(cache: Any, new: Any, at: Any) -> Any:
        along = axis - 1
        positions = at + jnp.arange(new.shape[along])
        if node["mode"] == "circular":
            positions = positions % cache.shape[along]
        return cache.at[(*[slice(None)] * along, positions)].set(new)

    return jax.vmap(one)(past, update, start)


@op("OneHot", static=(1,))
def one_hot(node: Node, indices: Any, depth: Any, values: Any) -> Any:
    """OneHot: the on value at each index along a new axis, the off value elsewhere."""
    size = int(np.asarray(depth).reshape(()))
    axis = node["axis"] % (indices.ndim + 1)
    hit = jnp.expand_dims(_wrapped(indices.astype(jnp.int32), size), axis)
    classes = jnp.arange(size, dtype=jnp.int32).reshape([size if k == axis else 1 for k in range(indices.ndim + 1)])
    return jnp.where(hit == classes, values[1], values[0])


@op("ReverseSequence")
def reverse_sequence(node: Node, x: Any, lengths: Any) -> Any:
    """ReverseSequence: the first elements along the time axis are turned round, as many as `lengths` says."""
    time, batch = node["time_axis"], node["batch_axis"]
    steps = jnp.arange(x.shape[time]).reshape([-1 if k == time else 1 for k in range(x.ndim)])
    ends = lengths.reshape([-1 if k == batch else 1 for k in range(x.ndim)])
    source = jnp.where(steps < ends, ends - 1 - steps, steps)
    return jnp.take_along_axis(x, jnp.broadcast_to(source, x.shape), axis=time)


@op("Compress", static=(1,))
def compress(node: Node, x: Any, condition: Any) -> Any:
    """How many elements are kept must be known: the condition is static."""
    kept = np.nonzero(np.asarray(condition).reshape(-1))[0]
    if node["axis"] is None:
        return jnp.take(x.reshape(-1), kept, axis=0)
    return jnp.take(x, kept, axis=node["axis"])


@op("ArrayFeatureExtractor", domain=ML)
def array_feature_extractor(node: Node, x: Any, at: Any) -> Any:
    """ArrayFeatureExtractor of ai.onnx.ml: columns of the last axis."""
    out = jnp.take(x, at.reshape(-1), axis=-1)
    return out.reshape(1, -1) if x.ndim == 1 else out


@op("Binarizer", domain=ML)
def binarizer(node: Node, x: Any) -> Any:
    """Binarizer of ai.onnx.ml: 1 above ``threshold``, else 0."""
    return (x > node["threshold"]).astype(x.dtype)
