"""Ops that pool regions of images to one size: `RoiAlign` and `MaxRoiPool`."""

from __future__ import annotations

from itertools import product
from typing import Any

import jax
import jax.numpy as jnp

from autoshard.onnx.ops.registry import Node, op


@op("RoiAlign", since=10)
def roi_align(node: Node, x: Any, rois: Any, batch: Any) -> Any:
    """RoiAlign: each region pooled to one size, from interpolated samples."""
    ratio = node["sampling_ratio"]
    if ratio <= 0:
        raise node.unsupported("sampling_ratio 0 takes as many samples as a region needs; state a positive number")
    half = (node["coordinate_transformation_mode"] or "output_half_pixel") == "half_pixel"
    height, width = x.shape[2:]

    def one(roi: Any, image: Any) -> Any:
        x1, y1, x2, y2 = (roi[k] * node["spatial_scale"] - (0.5 if half else 0.0) for k in range(4))
        rows = _roi_points(y1, y2, node["output_height"], ratio, half)
        columns = _roi_points(x1, x2, node["output_width"], ratio, half)
        return _roi_values(node, x[image], rows, columns, (height, width))

    return jax.vmap(one)(rois, batch)


def _roi_points(start: Any, end: Any, bins: int, ratio: int, half: bool) -> Any:
    size = end - start if half else jnp.maximum(end - start, 1.0)
    return start + (jnp.arange(bins * ratio) // ratio) * (size / bins) + (
        (jnp.arange(bins * ratio) % ratio) + 0.5
    ) * (size / bins / ratio)  # fmt: skip


def _roi_values(node: Node, image: Any, rows: Any, columns: Any, size: tuple[int, int]) -> Any:
    def parts(v: Any, n: int) -> Any:
        out = (v < -1.0) | (v > n)
        v = jnp.clip(v, 0, n - 1)
        low = jnp.minimum(jnp.floor(v).astype(jnp.int32), n - 1)
        t = v - low
        zero = jnp.zeros((), v.dtype)
        return (low, jnp.where(out, zero, 1 - t)), (jnp.minimum(low + 1, n - 1), jnp.where(out, zero, t))

    values = [
        wr[:, None] * wc[None, :] * image[:, r][:, :, c]
        for (r, wr), (c, wc) in product(parts(rows, size[0]), parts(columns, size[1]))
    ]
    ratio = node["sampling_ratio"]

    def split(v: Any) -> Any:
        return v.reshape(v.shape[0], v.shape[1] // ratio, ratio, -1, ratio)

    if node["mode"] == "max":
        best = values[0]
        for v in values[1:]:
            best = jnp.maximum(best, v)
        return jnp.max(split(best), axis=(2, 4))
    return jnp.mean(split(sum(values)), axis=(2, 4))


@op("MaxRoiPool")
def max_roi_pool(node: Node, x: Any, rois: Any) -> Any:
    """MaxRoiPool: the largest pixel of every bin of a region; 0 where a bin has no pixel.

    A row of `rois` is the index of an image and the corners x1, y1, x2, y2, which belong to the region.
    """
    bins = node["pooled_shape"]
    corners = _half_away(rois[:, 1:] * node["spatial_scale"])
    columns = _in_bins(corners[:, 0], corners[:, 2], bins[1], x.shape[3])
    rows = _in_bins(corners[:, 1], corners[:, 3], bins[0], x.shape[2])

    def one(image: Any, row: Any, column: Any) -> Any:
        lowest = jnp.asarray(-jnp.inf, x.dtype)
        across = jnp.max(jnp.where(column[None, None], x[image][:, :, None, :], lowest), axis=3)  # C, H, bins
        pooled = jnp.max(jnp.where(row[None, :, :, None], across[:, None], lowest), axis=2)
        empty = ~(jnp.any(row, axis=1)[:, None] & jnp.any(column, axis=1))
        return jnp.where(empty, jnp.zeros((), x.dtype), pooled)

    return jax.vmap(one)(rois[:, 0].astype(jnp.int32), rows, columns)


def _half_away(v: Any) -> Any:
    """Whole numbers, halves rounded away from zero."""
    return (jnp.sign(v) * jnp.floor(jnp.abs(v) + 0.5)).astype(jnp.int32)


def _in_bins(start: Any, end: Any, bins: int, size: int) -> Any:
    """For every region which pixels of an axis each of its bins covers: truth values [regions, bins, size]."""
    width = jnp.maximum(end - start + 1, 1)[:, None]
    edges = jnp.arange(bins + 1)
    first = jnp.clip(edges[:-1] * width // bins + start[:, None], 0, size)
    last = jnp.clip(-(-edges[1:] * width // bins) + start[:, None], 0, size)  # rounded up
    at = jnp.arange(size)
    return (first[..., None] <= at) & (at < last[..., None])
