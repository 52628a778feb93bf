"""Convolutions and pooling."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from autoshard.onnx.ops.registry import Node, op

Pads = list[tuple[int, int]]


def _spatial(node: Node, rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Strides and dilations."""
    return tuple(node["strides"] or [1] * rank), tuple(node["dilations"] or [1] * rank)


def pads_of(node: Node, size: tuple[int, ...], kernel: tuple[int, ...]) -> Pads:
    """The padding before and after every spatial axis, ``auto_pad`` worked out."""
    rank = len(size)
    strides, dilations = _spatial(node, rank)
    auto = node["auto_pad"] or "NOTSET"
    if auto in ("NOTSET", "VALID"):
        flat = node["pads"] if auto == "NOTSET" and node["pads"] else [0] * (2 * rank)
        return [(flat[k], flat[k + rank]) for k in range(rank)]
    pads = []
    for n, k, s, d in zip(size, kernel, strides, dilations, strict=True):
        total = max(0, (-(-n // s) - 1) * s + (k - 1) * d + 1 - n)
        less, more = total // 2, total - total // 2
        pads.append((less, more) if auto == "SAME_UPPER" else (more, less))
    return pads


def _numbers(rank: int) -> Any:
    order = tuple(range(rank + 2))
    return lax.ConvDimensionNumbers(order, order, order)


def convolve(node: Node, x: Any, w: Any, b: Any = None, *, out_type: Any = None) -> Any:
    """A convolution with the strides, dilations, pads and groups of the node. out_type: of sums of products."""
    rank = x.ndim - 2
    strides, dilations = _spatial(node, rank)
    _fits_kernel(node, w)
    pads = pads_of(node, x.shape[2:], w.shape[2:])
    out = lax.conv_general_dilated(
        x, w, strides, pads, rhs_dilation=dilations, dimension_numbers=_numbers(rank),
        feature_group_count=node["group"] or 1, preferred_element_type=out_type,
    )  # fmt: skip
    return out if b is None else out + b.reshape((1, -1, *[1] * rank))


def _fits_kernel(node: Node, w: Any) -> None:
    stated = node["kernel_shape"]
    if stated and tuple(stated) != w.shape[2:]:
        raise node.malformed(f"kernel_shape is {list(stated)}, and its weights are {list(w.shape)}")


@op("Conv")
def conv(node: Node, x: Any, w: Any, b: Any = None) -> Any:
    """Conv."""
    return convolve(node, x, w, b)


@op("ConvInteger")
def conv_integer(node: Node, x: Any, w: Any, x_zero: Any = None, w_zero: Any = None) -> Any:
    """ConvInteger: zero points are subtracted, products are added in int32."""
    return _shifted_conv(node, x, w, x_zero, w_zero)


def _shifted_conv(node: Node, x: Any, w: Any, x_zero: Any, w_zero: Any) -> Any:
    left, right = x.astype(jnp.int32), w.astype(jnp.int32)
    if x_zero is not None:
        left = left - x_zero.astype(jnp.int32)
    if w_zero is not None:
        shift = w_zero.astype(jnp.int32)
        right = right - (shift.reshape((-1, *[1] * (w.ndim - 1))) if shift.size > 1 else shift.reshape(()))
    return convolve(node, left, right, out_type=jnp.int32)


@op("QLinearConv")
def qlinear_conv(
    node: Node, x: Any, x_scale: Any, x_zero: Any, w: Any, w_scale: Any, w_zero: Any, y_scale: Any, y_zero: Any,
    b: Any = None,
) -> Any:  # fmt: skip
    """QLinearConv: a ConvInteger whose result is scaled and quantized again."""
    rank = x.ndim - 2
    out = _shifted_conv(node, x, w, x_zero, w_zero)
    if b is not None:
        out = out + b.reshape((1, -1, *[1] * rank))
    scale = x_scale * w_scale / y_scale
    scale = scale.reshape((1, -1, *[1] * rank)) if scale.size > 1 else scale.reshape(())
    limits = jnp.iinfo(y_zero.dtype)
    shifted = jnp.round(out.astype(jnp.float32) * scale) + y_zero.astype(jnp.float32)
    return jnp.clip(shifted, limits.min, limits.max).astype(jnp.int32).astype(y_zero.dtype)


@op("ConvTranspose")
def conv_transpose(node: Node, x: Any, w: Any, b: Any = None) -> Any:
    """The gradient of a convolution: the input is dilated by the strides, the kernel turned round."""
    rank = x.ndim - 2
    strides, dilations = _spatial(node, rank)
    group = node["group"] or 1
    extra = node["output_padding"] or [0] * rank
    _fits_kernel(node, w)
    size, kernel = x.shape[2:], w.shape[2:]
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    pads = _transposed_pads(node, size, reach, strides, extra)
    padding = [(r - 1 - a, r - 1 - z + e) for r, (a, z), e in zip(reach, pads, extra, strict=True)]
    channels, out = w.shape[0], w.shape[1]
    w = jnp.flip(w, tuple(range(2, w.ndim)))
    w = (
        w.reshape(group, channels // group, out, *kernel)
        .swapaxes(1, 2)
        .reshape(group * out, channels // group, *kernel)
    )
    result = lax.conv_general_dilated(
        x, w, (1,) * rank, padding, lhs_dilation=strides, rhs_dilation=dilations, dimension_numbers=_numbers(rank),
        feature_group_count=group,
    )  # fmt: skip
    return result if b is None else result + b.reshape((1, -1, *[1] * rank))


def _transposed_pads(node: Node, size: Any, reach: list[int], strides: Any, extra: Any) -> Pads:
    rank = len(size)
    auto, wanted = node["auto_pad"] or "NOTSET", node["output_shape"]
    if wanted is None and auto in ("NOTSET", "VALID"):
        flat = node["pads"] if auto == "NOTSET" and node["pads"] else [0] * (2 * rank)
        return [(flat[k], flat[k + rank]) for k in range(rank)]
    if wanted is None:
        wanted = [n * s for n, s in zip(size, strides, strict=True)]
    pads = []
    for n, r, s, e, out in zip(size, reach, strides, extra, list(wanted)[-rank:], strict=True):
        total = s * (n - 1) + e + r - out
        less, more = total // 2, total - total // 2
        pads.append((less, more) if auto == "SAME_UPPER" else (more, less))
    return pads


# -- pooling --------------------------------------------------------------------------------------------------


def _ceil_pads(node: Node, size: tuple[int, ...], kernel: tuple[int, ...]) -> tuple[Pads, Pads]:
    """The padding as stated, and what must follow it so that the last, partial windows count (``ceil_mode``)."""
    strides, dilations = _spatial(node, len(size))
    pads = pads_of(node, size, kernel)
    more = []
    for n, k, s, d, (a, b) in zip(size, kernel, strides, dilations, pads, strict=True):
        reach = (k - 1) * d + 1
        free = n + a + b - reach
        if not node["ceil_mode"] or (node["auto_pad"] or "NOTSET") not in ("NOTSET", "VALID"):
            more.append((0, 0))
            continue
        windows = -(-free // s) + 1
        if (windows - 1) * s >= n + a:  # a window that would begin in the padding behind is left out
            windows -= 1
        more.append((0, max(0, (windows - 1) * s + reach - (n + a + b))))
    return pads, more


def _window(node: Node, x: Any, start: Any, function: Any, pads: Pads, kernel: tuple[int, ...]) -> Any:
    strides, dilations = _spatial(node, len(kernel))
    return lax.reduce_window(
        x, jnp.asarray(start, x.dtype), function, (1, 1, *kernel), (1, 1, *strides), [(0, 0), (0, 0), *pads],
        window_dilation=(1, 1, *dilations),
    )  # fmt: skip


def _joined(first: Pads, second: Pads) -> Pads:
    return [(a + c, b + d) for (a, b), (c, d) in zip(first, second, strict=True)]


@op("MaxPool")
def max_pool(node: Node, x: Any) -> Any:
    """MaxPool; a second output tells where each maximum was found."""
    kernel = tuple(node["kernel_shape"])
    pads, more = _ceil_pads(node, x.shape[2:], kernel)
    lowest = -jnp.inf if jnp.issubdtype(x.dtype, jnp.floating) else jnp.iinfo(x.dtype).min
    out = _window(node, x, lowest, lax.max, _joined(pads, more), kernel)
    if len(node.outputs) < 2 or not node.outputs[1]:
        return out
    return out, _places(node, x, lowest, _joined(pads, more), kernel)


def _places(node: Node, x: Any, lowest: Any, pads: Pads, kernel: tuple[int, ...]) -> Any:
    """Where in the whole, flattened tensor every maximum was found."""
    strides, dilations = _spatial(node, len(kernel))
    size = x.shape[2:]
    padded = lax.pad(x, jnp.asarray(lowest, x.dtype), [(0, 0, 0)] * 2 + [(a, b, 0) for a, b in pads])
    rank = len(kernel)
    axes = [np.arange(n + a + b) - a for n, (a, b) in zip(size, pads, strict=True)]
    grid = np.meshgrid(*axes, indexing="ij")
    order = grid[::-1] if node["storage_order"] else grid
    sizes = size[::-1] if node["storage_order"] else size
    place = np.zeros_like(grid[0])
    for g, n in zip(order, sizes, strict=True):
        place = place * n + g
    values, places = [], []
    for offset in np.ndindex(*kernel):
        cut = []
        for k in range(rank):
            windows = (padded.shape[2 + k] - (kernel[k] - 1) * dilations[k] - 1) // strides[k] + 1
            begin = offset[k] * dilations[k]
            cut.append(slice(begin, begin + (windows - 1) * strides[k] + 1, strides[k]))
        values.append(padded[(slice(None), slice(None), *cut)])
        places.append(np.broadcast_to(place[tuple(cut)], values[-1].shape))
    best = jnp.argmax(jnp.stack(values), axis=0)
    within = jnp.take_along_axis(jnp.asarray(np.stack(places).astype(np.int32)), best[None], axis=0)[0]
    images = np.arange(x.shape[0] * x.shape[1]).reshape(x.shape[:2]) * int(np.prod(size))
    return within + jnp.asarray(images.astype(np.int32)).reshape((*x.shape[:2], *[1] * rank))


@op("AveragePool")
def average_pool(node: Node, x: Any) -> Any:
    """AveragePool, with or without the padding in the count."""
    kernel = tuple(node["kernel_shape"])
    pads, more = _ceil_pads(node, x.shape[2:], kernel)
    total = _window(node, x, 0, lax.add, _joined(pads, more), kernel)
    strides, dilations = _spatial(node, len(kernel))
    counts = np.ones(())
    for k, (n, (a, b), (_, m)) in enumerate(zip(x.shape[2:], pads, more, strict=True)):
        counted = np.zeros(n + a + b + m)
        counted[(0 if node["count_include_pad"] else a) : (n + a + b if node["count_include_pad"] else a + n)] = 1
        reach = (kernel[k] - 1) * dilations[k] + 1
        windows = (len(counted) - reach) // strides[k] + 1
        each = [counted[w * strides[k] : w * strides[k] + reach : dilations[k]].sum() for w in range(windows)]
        counts = counts[..., None] * np.asarray(each)
    if counts.min() == counts.max():
        return total / jnp.asarray(counts.flat[0], x.dtype)
    return total / jnp.asarray(counts, x.dtype)


@op("LpPool")
def lp_pool(node: Node, x: Any) -> Any:
    """LpPool: the p-norm of each window."""
    kernel, p = tuple(node["kernel_shape"]), node["p"]
    pads, more = _ceil_pads(node, x.shape[2:], kernel)
    total = _window(node, jnp.abs(x) ** p, 0, lax.add, _joined(pads, more), kernel)
    return total ** (1.0 / p)


@op("GlobalAveragePool")
def global_average_pool(node: Node, x: Any) -> Any:
    """GlobalAveragePool: the mean over all spatial axes."""
    return jnp.mean(x, axis=tuple(range(2, x.ndim)), keepdims=True)


@op("GlobalMaxPool")
def global_max_pool(node: Node, x: Any) -> Any:
    """GlobalMaxPool: the maximum over all spatial axes."""
    return jnp.max(x, axis=tuple(range(2, x.ndim)), keepdims=True)


@op("GlobalLpPool")
def global_lp_pool(node: Node, x: Any) -> Any:
    """GlobalLpPool: the p-norm over all spatial axes."""
    p = node["p"]
    return jnp.sum(jnp.abs(x) ** p, axis=tuple(range(2, x.ndim)), keepdims=True) ** (1.0 / p)


@op("MaxUnpool", static=(2,))
def max_unpool(node: Node, x: Any, places: Any, shape: Any = None) -> Any:
    """Every maximum back where it was found; the places count in the tensor of the stated strides and pads."""
    kernel = tuple(node["kernel_shape"])
    strides, _ = _spatial(node, len(kernel))
    pads = pads_of(node, x.shape[2:], kernel)
    natural = tuple((n - 1) * s + k - a - b for n, s, k, (a, b) in zip(x.shape[2:], strides, kernel, pads, strict=True))
    inferred = (*x.shape[:2], *natural)
    flat = jnp.zeros((int(np.prod(inferred)),), x.dtype).at[places.reshape(-1)].set(x.reshape(-1))
    out = flat.reshape(inferred)
    if shape is None:
        return out
    wanted = [int(n) for n in shape]
    return lax.pad(out, jnp.zeros((), x.dtype), [(0, w - n, 0) for w, n in zip(wanted, out.shape, strict=True)])


@op("Col2Im", static=(1, 2))
def col2im(node: Node, x: Any, image: Any, block: Any) -> Any:
    """Adds the columns of blocks back into an image."""
    size, kernel = tuple(int(n) for n in image), tuple(int(n) for n in block)
    rank = len(size)
    strides, dilations = _spatial(node, rank)
    flat = node["pads"] or [0] * (2 * rank)
    pads = [(flat[k], flat[k + rank]) for k in range(rank)]
    windows = [
        (n + a + b - (k - 1) * d - 1) // s + 1
        for n, k, s, d, (a, b) in zip(size, kernel, strides, dilations, pads, strict=True)
    ]
    parts = x.reshape(x.shape[0], -1, *kernel, *windows)
    out = jnp.zeros((*parts.shape[:2], *(n + a + b for n, (a, b) in zip(size, pads, strict=True))), x.dtype)
    for offset in np.ndindex(*kernel):
        cut = tuple(
            slice(o * d, o * d + (w - 1) * s + 1, s)
            for o, d, w, s in zip(offset, dilations, windows, strides, strict=True)
        )
        out = out.at[(slice(None), slice(None), *cut)].add(parts[(slice(None), slice(None), *offset)])
    return out[(slice(None), slice(None), *(slice(a, a + n) for n, (a, _) in zip(size, pads, strict=True)))]
