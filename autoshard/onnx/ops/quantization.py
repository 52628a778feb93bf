"""Quantised numbers: to them, from them, and products of matrices on them."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from autoshard.onnx.ops.registry import Node, op
from autoshard.onnx.ops.types import jax_type, to_type


def _spread(v: Any, x: Any, axis: int, block: int) -> Any:
    """A scale or zero point so that it broadcasts: one for all, one for each slice, or one for each block."""
    if v.ndim == 0 or v.size == 1:
        return v.reshape(())
    if not block:
        return v.reshape([v.size if k == axis % x.ndim else 1 for k in range(x.ndim)])
    out = jnp.repeat(v, block, axis=axis)
    return jnp.take(out, np.arange(x.shape[axis]), axis=axis)


def _limits(dtype: Any) -> tuple[float, float]:
    info = jnp.iinfo(dtype)
    return float(info.min), float(info.max)


@op("QuantizeLinear", since=10)
def quantize(node: Node, x: Any, scale: Any, zero: Any = None) -> Any:
    """QuantizeLinear: divided by the scale, rounded to even, moved by the zero point, kept within the type."""
    from onnx import TensorProto, helper

    axis, block = node["axis"] if node["axis"] is not None else 1, node["block_size"] or 0
    number = node["output_dtype"] or TensorProto.UINT8
    if zero is not None:
        number = helper.np_dtype_to_tensor_dtype(np.dtype(zero.dtype))
    compute = jax_type(node["precision"]) if node["precision"] else jnp.promote_types(x.dtype, scale.dtype)
    y = x.astype(compute) / _spread(scale, x, axis, block).astype(compute)
    target = jax_type(number)
    if jnp.issubdtype(target, jnp.integer):
        whole = jnp.round(y.astype(jnp.float32))
        if zero is not None:
            whole = whole + _spread(zero, x, axis, block).astype(jnp.float32)
        return jnp.clip(whole, *_limits(target)).astype(jnp.int32).astype(target)
    if zero is not None and TensorProto.DataType.Name(number).startswith("FLOAT4"):
        y = y + _spread(zero, x, axis, block).astype(compute)
    return to_type(y, number, saturate=node["saturate"] != 0)


@op("DequantizeLinear", since=10)
def dequantize(node: Node, x: Any, scale: Any, zero: Any = None) -> Any:
    """DequantizeLinear: the zero point is subtracted, the rest is multiplied by the scale."""
    axis, block = node["axis"] if node["axis"] is not None else 1, node["block_size"] or 0
    value = x.astype(jnp.float32)
    if zero is not None and jnp.issubdtype(x.dtype, jnp.integer):
        value = value - _spread(zero, x, axis, block).astype(jnp.float32)
    target = jax_type(node["output_dtype"]) if node["output_dtype"] else scale.dtype
    return (value * _spread(scale, x, axis, block).astype(jnp.float32)).astype(target)


@op("QLinearMatMul", since=10)
def qlinear_matmul(
    node: Node, a: Any, a_scale: Any, a_zero: Any, b: Any, b_scale: Any, b_zero: Any, y_scale: Any, y_zero: Any
) -> Any:  # fmt: skip
    """QLinearMatMul: a product of whole numbers that is scaled and quantized again."""

    def shifted(x: Any, zero: Any) -> Any:
        return x.astype(jnp.int32) - zero.astype(jnp.int32)

    product = jnp.matmul(shifted(a, _rows(a_zero)), shifted(b, b_zero))
    scale = _rows(a_scale).astype(jnp.float32) * b_scale.astype(jnp.float32) / y_scale.astype(jnp.float32)
    out = jnp.round(product.astype(jnp.float32) * scale) + y_zero.astype(jnp.float32)
    return jnp.clip(out, *_limits(y_zero.dtype)).astype(jnp.int32).astype(y_zero.dtype)


def _rows(v: Any) -> Any:
    """One number for each row."""
    return v[:, None] if v.ndim == 1 and v.size > 1 else v
