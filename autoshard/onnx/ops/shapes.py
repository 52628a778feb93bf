"""Ops that rearrange: reshape, transpose, slice, concatenate, pad."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from autoshard.onnx.ops.registry import Node, op
from autoshard.onnx.ops.types import jax_type


def ints(values: Any) -> list[int]:
    """The elements of an array of whole numbers, flattened."""
    return [int(v) for v in np.asarray(values).reshape(-1)]


def axes_of(axes: Any, rank: int) -> tuple[int, ...]:
    """Axes counted from the front; negative ones count from the end."""
    return tuple(a % rank for a in ints(axes))


@op("Reshape", since=5, static=(1,))
def reshape(node: Node, x: Any, shape: Any) -> Any:
    """0 keeps a size (unless ``allowzero``), -1 takes what is left."""
    wanted = [
        x.shape[k] if n == 0 and not node["allowzero"] else n for k, n in enumerate(ints(shape))
    ]  # fmt: skip
    if -1 in wanted:
        rest = int(np.prod([n for n in wanted if n != -1]))
        wanted[wanted.index(-1)] = x.size // rest if rest else 0
    return jnp.reshape(x, wanted)


@op("Flatten")
def flatten(node: Node, x: Any) -> Any:
    """Flatten: the axes before ``axis`` become rows, the others columns."""
    axis = node["axis"] + x.ndim if node["axis"] < 0 else node["axis"]
    rows = int(np.prod(x.shape[:axis]))
    return jnp.reshape(x, (rows, int(np.prod(x.shape[axis:]))))


@op("Transpose")
def transpose(node: Node, x: Any) -> Any:
    """Transpose; without ``perm`` the axes are turned round."""
    return jnp.transpose(x, node["perm"])


@op("Squeeze")
def squeeze_by_attribute(node: Node, x: Any) -> Any:
    """Squeeze before opset 13: ``axes`` is an attribute."""
    return _squeeze(x, node["axes"])


@op("Squeeze", since=13, static=(1,))
def squeeze(node: Node, x: Any, axes: Any = None) -> Any:
    """Squeeze since opset 13: the axes are an input; without them all axes of size 1 go."""
    return _squeeze(x, axes)


def _squeeze(x: Any, axes: Any) -> Any:
    gone = [k for k, n in enumerate(x.shape) if n == 1] if axes is None else axes_of(axes, x.ndim)
    return lax.squeeze(jnp.asarray(x), tuple(gone))


@op("Unsqueeze")
def unsqueeze_by_attribute(node: Node, x: Any) -> Any:
    """Unsqueeze before opset 13: ``axes`` is an attribute."""
    return jnp.expand_dims(x, axes_of(node["axes"], x.ndim + len(node["axes"])))


@op("Unsqueeze", since=13, static=(1,))
def unsqueeze(node: Node, x: Any, axes: Any) -> Any:
    """Unsqueeze since opset 13: the axes are an input."""
    return jnp.expand_dims(x, axes_of(axes, x.ndim + len(ints(axes))))


@op("Concat")
def concat(node: Node, *xs: Any) -> Any:
    """Concat along ``axis``."""
    return jnp.concatenate(xs, node["axis"])


@op("Split")
def split_by_attribute(node: Node, x: Any) -> Any:
    """Split before opset 13: the sizes are an attribute."""
    return _split(node, x, node["split"])


@op("Split", since=13, static=(1,))
def split(node: Node, x: Any, sizes: Any = None) -> Any:
    """Split since opset 13: the sizes are an input."""
    return _split(node, x, sizes)


def _split(node: Node, x: Any, sizes: Any) -> Any:
    axis = node["axis"] % x.ndim
    if sizes is None:
        count = node["num_outputs"] or len(node.outputs)
        if count != len(node.outputs):
            raise node.malformed(f"num_outputs is {count}, and it has {len(node.outputs)} outputs")
        each = -(-x.shape[axis] // count)
        sizes = [max(0, min(each, x.shape[axis] - each * k)) for k in range(count)]
    ends = np.cumsum(ints(sizes))
    return tuple(
        lax.slice_in_dim(x, int(end) - n, int(end), axis=axis) for n, end in zip(ints(sizes), ends, strict=True)
    )


@op("Slice")
def slice_by_attributes(node: Node, x: Any) -> Any:
    """Slice before opset 10: starts, ends and axes are attributes."""
    return _slice(x, node["starts"], node["ends"], node["axes"], None)


@op("Slice", since=10, static=(1, 2, 3, 4))
def slice_(node: Node, x: Any, starts: Any, ends: Any, axes: Any = None, steps: Any = None) -> Any:
    """Slice since opset 10: starts, ends, axes and steps are inputs."""
    return _slice(x, starts, ends, axes, steps)


def _slice(x: Any, starts: Any, ends: Any, axes: Any, steps: Any) -> Any:
    starts, ends = ints(starts), ints(ends)
    along = range(len(starts)) if axes is None else axes_of(axes, x.ndim)
    by = [1] * len(starts) if steps is None else ints(steps)
    cut = [slice(None)] * x.ndim
    for axis, start, end, step in zip(along, starts, ends, by, strict=True):
        size = x.shape[axis]
        if step < 0 and end < -size:
            end = None  # to the very first element
        cut[axis] = slice(start, end, step)
    return x[tuple(cut)]


@op("Expand", static=(1,))
def expand(node: Node, x: Any, shape: Any) -> Any:
    """Expand: broadcast to a shape, in which 1 keeps the tensor's own size."""
    return jnp.broadcast_to(x, jnp.broadcast_shapes(x.shape, tuple(ints(shape))))


@op("Tile", static=(1,))
def tile(node: Node, x: Any, repeats: Any) -> Any:
    """Tile: the tensor repeated along each axis."""
    return jnp.tile(x, ints(repeats))


@op("ConstantOfShape", static=(0,))
def constant_of_shape(node: Node, shape: Any) -> Any:
    """ConstantOfShape: one value everywhere, 0 where none is given."""
    value = np.zeros(1, np.float32) if node["value"] is None else np.asarray(node["value"]).reshape(-1)
    return jnp.full(tuple(ints(shape)), value[0])


@op("EyeLike")
def eye_like(node: Node, x: Any) -> Any:
    """EyeLike: ones on the ``k``-th diagonal, zeros elsewhere."""
    dtype = x.dtype if node["dtype"] is None else jax_type(node["dtype"])
    return jnp.eye(*x.shape, k=node["k"], dtype=dtype)


@op("Range", static=(0, 1, 2))
def range_(node: Node, start: Any, limit: Any, delta: Any) -> Any:
    """Range: numbers from `start` up to `limit`, not included, by `delta`."""
    count = max(0, int(np.ceil((float(limit) - float(start)) / float(delta))))
    return jnp.asarray(start.reshape(())) + jnp.arange(count, dtype=jnp.asarray(start).dtype) * jnp.asarray(
        delta.reshape(())
    )


@op("Trilu", static=(1,))
def trilu(node: Node, x: Any, k: Any = None) -> Any:
    """Trilu: the upper or lower triangle from the `k`-th diagonal on, zeros elsewhere."""
    shift = 0 if k is None else int(np.asarray(k).reshape(()))
    shift = max(-(2**30), min(2**30, shift))
    return (jnp.triu if node["upper"] != 0 else jnp.tril)(x, shift)


_MODES = {"constant": "constant", "reflect": "reflect", "edge": "edge", "wrap": "wrap"}


@op("Pad")
def pad_by_attributes(node: Node, x: Any) -> Any:
    """Pad before opset 11: pads and value are attributes."""
    return _pad(node, x, node["pads"], node["value"] or 0.0, None)


@op("Pad", since=11, static=(1, 3))
def pad(node: Node, x: Any, pads: Any, value: Any = None, axes: Any = None) -> Any:
    """Pad since opset 11: pads, value and axes are inputs."""
    return _pad(node, x, pads, 0 if value is None else value, axes)


def _pad(node: Node, x: Any, pads: Any, value: Any, axes: Any) -> Any:
    along = range(x.ndim) if axes is None else axes_of(axes, x.ndim)
    flat = ints(pads)
    widths = [(0, 0)] * x.ndim
    for k, axis in enumerate(along):
        widths[axis] = (flat[k], flat[k + len(flat) // 2])
    cut = tuple(
        slice(max(0, -a), n - max(0, -b)) for (a, b), n in zip(widths, x.shape, strict=True)
    )  # a negative pad takes away
    if any(n + a + b < 0 for (a, b), n in zip(widths, x.shape, strict=True)):
        raise node.malformed(f"its pads take away more than {list(x.shape)} has: {widths}")
    if any(min(w) < 0 for w in widths):
        x = x[cut]
    widths = [(max(0, a), max(0, b)) for a, b in widths]
    mode = _MODES[node["mode"]]
    if mode == "constant":
        return lax.pad(x, jnp.asarray(value, x.dtype).reshape(()), [(a, b, 0) for a, b in widths])
    return jnp.pad(x, widths, mode=mode)


@op("DepthToSpace")
def depth_to_space(node: Node, x: Any) -> Any:
    """DepthToSpace: blocks of channels become space, in the order of ``mode``."""
    n, c, *size = x.shape
    block, k = node["blocksize"], len(size)
    if node["mode"] == "CRD":
        parts = x.reshape(n, c // block**k, *[block] * k, *size)
        order = [0, 1, *(axis for d in range(k) for axis in (2 + k + d, 2 + d))]
    else:
        parts = x.reshape(n, *[block] * k, c // block**k, *size)
        order = [0, 1 + k, *(axis for d in range(k) for axis in (2 + k + d, 1 + d))]
    return parts.transpose(order).reshape(n, c // block**k, *(s * block for s in size))


@op("SpaceToDepth")
def space_to_depth(node: Node, x: Any) -> Any:
    """SpaceToDepth: blocks of space become channels."""
    n, c, *size = x.shape
    block, k = node["blocksize"], len(size)
    parts = x.reshape(n, c, *(part for s in size for part in (s // block, block)))
    blocks, rest = [3 + 2 * d for d in range(k)], [2 + 2 * d for d in range(k)]
    front = [1, *blocks] if node["mode"] == "CRD" else [*blocks, 1]
    return parts.transpose(0, *front, *rest).reshape(n, c * block**k, *(s // block for s in size))


@op("CenterCropPad", static=(1,))
def center_crop_pad(node: Node, x: Any, shape: Any) -> Any:
    """CenterCropPad: each of the axes is cropped, or padded with zeros, around its middle."""
    axes = range(x.ndim) if node["axes"] is None else axes_of(node["axes"], x.ndim)
    for axis, wanted in zip(axes, ints(shape), strict=True):
        size = x.shape[axis]
        if wanted < size:
            start = (size - wanted) // 2
            x = lax.slice_in_dim(x, start, start + wanted, axis=axis)
        elif wanted > size:
            before = (wanted - size) // 2
            widths = [(0, 0, 0)] * x.ndim
            widths[axis] = (before, wanted - size - before, 0)
            x = lax.pad(x, jnp.zeros((), x.dtype), widths)
    return x
