"""Normalisations with a direct mapping: batches, instances, layers, local responses."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from autoshard.onnx.ops.registry import Node, op


def _per_channel(v: Any, rank: int) -> Any:
    return v.reshape((1, -1, *[1] * (rank - 2))) if rank > 1 else v


@op("BatchNormalization", since=7)
def batch_normalization(node: Node, x: Any, scale: Any, bias: Any, mean: Any, var: Any) -> Any:
    """BatchNormalization, with statistics given or, in training mode, of this batch."""
    if node["spatial"] == 0:
        raise node.unsupported("statistics of every single position (spatial=0, opsets before 9) are not supported")
    if node["training_mode"]:
        return _training(node, x, scale, bias, mean, var)
    if sum(1 for name in node.outputs if name) > 1:
        raise node.unsupported("more than one result means training, which opsets before 14 do not define")
    return _normalised(node, x, scale, bias, mean, var)


def _normalised(node: Node, x: Any, scale: Any, bias: Any, mean: Any, var: Any) -> Any:
    """One product and one sum, with the factors worked out on the small tensors."""
    factor = scale.astype(var.dtype) / jnp.sqrt(var + jnp.asarray(node["epsilon"], var.dtype))
    shift = bias.astype(var.dtype) - mean * factor
    return (x * _per_channel(factor, x.ndim) + _per_channel(shift, x.ndim)).astype(x.dtype)


def _training(node: Node, x: Any, scale: Any, bias: Any, mean: Any, var: Any) -> Any:
    axes = tuple(k for k in range(x.ndim) if k != 1)
    now = jnp.mean(x, axis=axes)
    spread = jnp.mean((x - _per_channel(now, x.ndim)) ** 2, axis=axes)
    keep = node["momentum"]
    y = _normalised(node, x, scale, bias, now, spread)
    return (y, mean * keep + now * (1 - keep), var * keep + spread * (1 - keep))[: len(node.outputs)]


@op("InstanceNormalization")
def instance_normalization(node: Node, x: Any, scale: Any, bias: Any) -> Any:
    """InstanceNormalization: over the spatial axes of each sample and channel."""
    axes = tuple(range(2, x.ndim))
    mean = jnp.mean(x, axis=axes, keepdims=True)
    var = jnp.mean((x - mean) ** 2, axis=axes, keepdims=True)
    y = (x - mean) / jnp.sqrt(var + node["epsilon"])
    return y * _per_channel(scale, x.ndim) + _per_channel(bias, x.ndim)


@op("LayerNormalization")
def layer_normalization(node: Node, x: Any, scale: Any, bias: Any = None) -> Any:
    """LayerNormalization over ``axis`` and the axes behind it; mean and inverse deviation are outputs, too."""
    axes = tuple(range(node["axis"] % x.ndim, x.ndim))
    wide = x.astype(jnp.promote_types(x.dtype, jnp.float32))
    mean = jnp.mean(wide, axis=axes, keepdims=True)
    centred = wide - mean
    inverse = lax.rsqrt(jnp.mean(centred * centred, axis=axes, keepdims=True) + node["epsilon"])
    y = (centred * inverse).astype(x.dtype) * scale
    if bias is not None:
        y = y + bias
    return (y, mean, inverse)[: max(1, len(node.outputs))]


@op("RMSNormalization")
def rms_normalization(node: Node, x: Any, scale: Any) -> Any:
    """RMSNormalization over ``axis`` and the axes behind it."""
    axes = tuple(range(node["axis"] % x.ndim, x.ndim))
    wide = x.astype(jnp.promote_types(x.dtype, jnp.float32))
    inverse = lax.rsqrt(jnp.mean(wide * wide, axis=axes, keepdims=True) + node["epsilon"])
    return (wide * inverse).astype(x.dtype) * scale


@op("LRN")
def lrn(node: Node, x: Any) -> Any:
    """LRN: local response normalization, over neighbouring channels."""
    size = node["size"]
    before = (size - 1) // 2
    window = (1, size, *[1] * (x.ndim - 2))
    pads = [(0, 0), (before, size - 1 - before), *[(0, 0)] * (x.ndim - 2)]
    total = lax.reduce_window(x * x, jnp.zeros((), x.dtype), lax.add, window, (1,) * x.ndim, pads)
    return x / (node["bias"] + (node["alpha"] / size) * total) ** node["beta"]


@op("MeanVarianceNormalization")
def mean_variance_normalization(node: Node, x: Any) -> Any:
    """MeanVarianceNormalization over ``axes``, without scale and bias."""
    axes = tuple(int(a) % x.ndim for a in np.asarray(node["axes"] or [0, 2, 3]))
    mean = jnp.mean(x, axis=axes, keepdims=True)
    centred = x - mean
    deviation = jnp.sqrt(jnp.mean(x * x, axis=axes, keepdims=True) - mean * mean)
    return centred / (deviation + 1e-9)
