"""Resizing and sampling: values between the points of a grid."""

from collections.abc import Callable, Sequence
from itertools import product
from math import floor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from autoshard.onnx.ops.registry import Node, op

Array = np.ndarray


# -- Resize: along every axis a known matrix -----------------------------------------------------------------------


def _origins(mode: str, n: int, out: int, scale: float, roi: tuple[float, float]) -> Array:
    """Where every output point lies on the axis of the input."""
    y = np.arange(out, dtype=np.float64)
    wide = scale * n
    if mode == "align_corners":
        return np.zeros(out) if wide == 1 else y * (n - 1) / (wide - 1)
    if mode == "asymmetric":
        return y / scale
    if mode == "tf_crop_and_resize":
        start, end = roi
        if wide == 1:
            return np.full(out, (end - start) * (n - 1) / 2 + start * (n - 1))
        return y * (end - start) * (n - 1) / (wide - 1) + start * (n - 1)
    if mode == "pytorch_half_pixel" and wide == 1:
        return np.full(out, -0.5)
    if mode == "tf_half_pixel_for_nn":
        return (y + 0.5) / scale
    if mode == "half_pixel_symmetric":
        return n / 2 * (1 - out / wide) + (y + 0.5) / scale - 0.5
    return (y + 0.5) / scale - 0.5


def _tent(t: Array, a: float) -> Array:
    return np.clip(1 - np.abs(t), 0, None)


def _cubic(t: Array, a: float) -> Array:
    t = np.abs(t)
    near = ((a + 2) * t - (a + 3)) * t * t + 1
    far = ((a * t - 5 * a) * t + 8 * a) * t - 4 * a
    return np.where(t <= 1, near, np.where(t < 2, far, 0.0))


_NEAREST: dict[str, Callable[[Array], Array]] = {
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}


def _weights(node: Node, origins: Array, n: int, scale: float) -> Array:
    """The matrix from the input's points to the output's, edges repeated."""
    kernel, reach = (_tent, 1) if node["mode"] == "linear" else (_cubic, 2)
    squeeze = min(scale, 1.0) if node["antialias"] else 1.0
    matrix = np.zeros((len(origins), n))
    a = node["cubic_coeff_a"] if node["cubic_coeff_a"] is not None else -0.75
    for row, x in enumerate(origins):
        low = floor(x)
        if x == low:
            low -= 1  # the point on the left is preferred; its weight is the same
        first = int(np.floor(-reach / squeeze) + 1)
        points = low + np.arange(first, 2 - first)
        each = kernel((points - x) * squeeze, a)
        each = each / each.sum() if node["antialias"] else each
        if node["exclude_outside"]:
            each = np.where((points < 0) | (points >= n), 0, each)
            each = each / each.sum()
        np.add.at(matrix[row], np.clip(points, 0, n - 1), each)
    return matrix


def _resize_axis(node: Node, x: Any, axis: int, out: int, scale: float, roi: tuple[float, float]) -> Any:
    n = x.shape[axis]
    mode = node["coordinate_transformation_mode"] or "asymmetric"
    origins = _origins(mode, n, out, scale, roi)
    if (node["mode"] or "nearest") == "nearest":
        rounded = _NEAREST[node["nearest_mode"] or "floor"](origins)
        result = jnp.take(x, np.clip(rounded, 0, n - 1).astype(np.int32), axis=axis)
    else:
        compute = jnp.promote_types(x.dtype, jnp.float32)
        matrix = jnp.asarray(_weights(node, origins, n, scale), compute)
        result = jnp.moveaxis(jnp.tensordot(x.astype(compute), matrix, ((axis,), (1,))), -1, axis)
        if jnp.issubdtype(x.dtype, jnp.integer):
            limits = jnp.iinfo(x.dtype)
            result = jnp.clip(jnp.round(result), limits.min, limits.max)
        result = result.astype(x.dtype)
    outside = (origins < 0) | (origins > n - 1)
    if mode == "tf_crop_and_resize" and outside.any():
        mask = outside.reshape([-1 if k == axis else 1 for k in range(x.ndim)])
        result = jnp.where(mask, jnp.asarray(node["extrapolation_value"] or 0, x.dtype), result)
    return result


def _resize(node: Node, x: Any, axes: Sequence[int], outs: Sequence[int], scales: Sequence[float], roi: Any) -> Any:
    for k, axis in enumerate(axes):
        region = (0.0, 1.0) if roi is None or not len(roi) else (float(roi[k]), float(roi[k + len(axes)]))
        same = outs[k] == x.shape[axis] and scales[k] == 1
        if not same or node["coordinate_transformation_mode"] == "tf_crop_and_resize":
            x = _resize_axis(node, x, axis, outs[k], scales[k], region)
    return x


@op("Upsample", since=7)
def upsample_by_attribute(node: Node, x: Any) -> Any:
    """Upsample before opset 9: the scales are an attribute."""
    return _by_scales(node, x, node["scales"])


@op("Upsample", "Resize", since=9, static=(1,))
def upsample(node: Node, x: Any, scales: Any) -> Any:
    """Upsample, and Resize of opset 10: the scales are an input."""
    return _by_scales(node, x, scales)


def _by_scales(node: Node, x: Any, scales: Any) -> Any:
    by = [float(s) for s in np.asarray(scales)]
    return _resize(node, x, range(x.ndim), [floor(n * s) for n, s in zip(x.shape, by, strict=True)], by, None)


@op("Resize", since=11, static=(1, 2, 3))
def resize(node: Node, x: Any, roi: Any = None, scales: Any = None, sizes: Any = None) -> Any:
    """Resize since opset 11, to sizes or by scales."""
    axes = [a % x.ndim for a in node["axes"]] if node["axes"] is not None else list(range(x.ndim))
    if sizes is not None and sizes.size:
        wanted = [int(n) for n in sizes]
        by = [w / x.shape[a] for w, a in zip(wanted, axes, strict=True)]
        policy = node["keep_aspect_ratio_policy"] or "stretch"
        if policy != "stretch":
            factor = min(by) if policy == "not_larger" else max(by)
            by = [factor] * len(axes)
            wanted = [floor(factor * x.shape[a] + 0.5) for a in axes]
    else:
        by = [float(s) for s in scales]
        wanted = [floor(x.shape[a] * s) for a, s in zip(axes, by, strict=True)]
    return _resize(node, x, axes, wanted, by, roi)


# -- sampling at points that are computed -------------------------------------------------------------------------


def _reflected(x: Any, low: Any, high: Any) -> Any:
    """Mirrored at the borders until it lies between them."""
    span = high - low
    away = jnp.where(x < low, low - x, x - high)
    times = jnp.trunc(away / span)
    rest = away - times * span
    even = times % 2 == 0
    below = jnp.where(even, low + rest, high - rest)
    above = jnp.where(even, high - rest, low + rest)
    return jnp.where(x < low, below, jnp.where(x > high, above, x))


def _cubic_weights(t: Any) -> list[Any]:
    a = -0.75

    def far(u: Any) -> Any:
        return ((a * u - 5 * a) * u + 8 * a) * u - 4 * a

    def near(u: Any) -> Any:
        return ((a + 2) * u - (a + 3)) * u * u + 1

    return [far(t + 1), near(t), near(1 - t), far(2 - t)]


def _pixels(x: Any, at: Sequence[Any], padding: str, borders: Sequence[tuple[float, float]]) -> Any:
    """``x[:, at]`` of one image with channels; points outside by the padding."""
    inside = None
    where = []
    for i, n, (low, high) in zip(at, x.shape[1:], borders, strict=True):
        if padding == "zeros":
            ok = (i >= 0) & (i < n)
            inside = ok if inside is None else inside & ok
        elif padding == "reflection":
            i = _reflected(i, low, high)
        where.append(jnp.clip(i.astype(jnp.int32), 0, n - 1))
    pixels = x[(slice(None), *where)]
    return pixels if inside is None else jnp.where(inside, pixels, jnp.zeros((), x.dtype))


def _sample(x: Any, at: Sequence[Any], mode: str, padding: str, borders: Sequence[tuple[float, float]]) -> Any:
    """One image with channels at points (one array of coordinates for each axis)."""
    points = []
    for v, n, (low, high) in zip(at, x.shape[1:], borders, strict=True):
        if mode == "nearest":
            v = jnp.round(v)
        if padding == "border":
            v = jnp.where((v < low) | (v > high), jnp.clip(v, 0, n - 1), v)
        elif padding == "reflection":
            v = _reflected(v, low, high)
        points.append(v)
    if mode == "nearest":
        return _pixels(x, points, padding, borders)
    choices = []
    for v in points:
        base = jnp.floor(v)
        t = v - base
        weights, first = ([1 - t, t], 0) if mode == "linear" else (_cubic_weights(t), -1)
        choices.append([(base + first + k, w) for k, w in enumerate(weights)])
    total = jnp.zeros((), x.dtype)
    for corner in product(*choices):
        weight = jnp.ones((), x.dtype)
        for _, w in corner:
            weight = weight * w
        total = total + weight * _pixels(x, [i for i, _ in corner], padding, borders)
    return total.astype(x.dtype)


_GRID_MODES = {"bilinear": "linear", "bicubic": "cubic"}


@op("GridSample", since=16)
def grid_sample(node: Node, x: Any, grid: Any) -> Any:
    """GridSample: elements at the points of a grid, interpolated."""
    sizes, aligned = x.shape[2:], bool(node["align_corners"])
    borders = [(0.0, n - 1.0) if aligned else (-0.5, n - 0.5) for n in sizes]
    at = []
    for k, n in enumerate(sizes):
        v = grid[..., len(sizes) - 1 - k].astype(jnp.promote_types(grid.dtype, jnp.float32))
        at.append((v + 1) / 2 * (n - 1) if aligned else ((v + 1) * n - 1) / 2)
    mode = str(_GRID_MODES.get(node["mode"], node["mode"]))
    return jax.vmap(lambda image, *points: _sample(image, points, mode, node["padding_mode"], borders))(x, *at)


@op("DeformConv", since=19)
def deform_conv(node: Node, x: Any, w: Any, offset: Any, b: Any = None, mask: Any = None) -> Any:
    """Samples at shifted points, then a product of matrices. Two spatial axes."""
    if x.ndim != 4:
        raise node.unsupported(f"only two spatial axes are supported, found an input of shape {x.shape}")
    (kh, kw), (oh, ow) = w.shape[2:], offset.shape[2:]
    strides, dilations = node["strides"] or [1, 1], node["dilations"] or [1, 1]
    pads, group, parts = node["pads"] or [0] * 4, node["group"], node["offset_group"]
    shifts = offset.reshape(x.shape[0], parts, kh, kw, 2, oh, ow)
    kept = jnp.ones((x.shape[0], parts, kh, kw, oh, ow), x.dtype) if mask is None else mask.reshape(
        x.shape[0], parts, kh, kw, oh, ow
    )  # fmt: skip
    top = np.arange(kh)[:, None, None, None] * dilations[0] + np.arange(oh)[:, None] * strides[0] - pads[0]
    left = np.arange(kw)[:, None, None] * dilations[1] + np.arange(ow) * strides[1] - pads[1]
    borders = [(0.0, n - 1.0) for n in x.shape[2:]]

    def one(image: Any, shift: Any, keep: Any) -> Any:
        at = (shift[:, :, 0] + top, shift[:, :, 1] + left)
        return _sample(image, at, "linear", "zeros", borders) * keep

    images = x.reshape(x.shape[0], parts, x.shape[1] // parts, *x.shape[2:])
    sampled = jax.vmap(jax.vmap(one))(images, shifts, kept)
    columns = sampled.reshape(x.shape[0], group, x.shape[1] // group, kh, kw, oh, ow)
    kernel = w.reshape(group, w.shape[0] // group, *w.shape[1:])
    out = jnp.einsum("ngcijhw,gocij->ngohw", columns, kernel).reshape(x.shape[0], w.shape[0], oh, ow)
    return out if b is None else out + b.reshape(1, -1, 1, 1)


# -- AffineGrid ----------------------------------------------------------------------------------------------------


@op("AffineGrid", static=(1,))
def affine_grid(node: Node, theta: Any, size: Any) -> Any:
    """AffineGrid: where every point of an image lies after an affine map; an axis runs from -1 to 1."""
    batch, _, *space = (int(n) for n in size)
    if theta.shape != (batch, len(space), len(space) + 1):
        raise node.malformed(f"theta is {list(theta.shape)}; for images of size {list(map(int, size))} it is "
                             f"{[batch, len(space), len(space) + 1]}")  # fmt: skip
    axes = [
        np.linspace(-1, 1, n) if node["align_corners"] else (2 * np.arange(n) + 1) / n - 1 for n in space
    ]  # fmt: skip
    points = np.stack([*reversed(np.meshgrid(*axes, indexing="ij")), np.ones(space)], axis=-1)
    return jnp.einsum("...k,nik->n...i", jnp.asarray(points, theta.dtype), theta)
