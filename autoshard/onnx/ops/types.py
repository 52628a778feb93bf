"""Element types: ONNX's numbers for them, as NumPy and JAX have them, and the ops that change them."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from autoshard.errors import InputError
from autoshard.onnx.ops.registry import Node, op

_FLOAT8 = ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz")


def numpy_type(number: int) -> np.dtype:
    """The NumPy type of a number of ``TensorProto.DataType``; `InputError` where it is none."""
    from onnx import helper

    try:
        return np.dtype(helper.tensor_dtype_to_np_dtype(number))
    except KeyError:
        raise InputError(f"{number} is the number of no element type that the installed onnx knows") from None


def jax_type(number: int) -> Any:
    """The type that JAX computes in: 64-bit types become 32-bit ones unless ``jax_enable_x64`` is set."""
    return jax.dtypes.canonicalize_dtype(numpy_type(number))


def type_message(x: Any) -> Any:
    """The type of a value as ONNX writes it; empty for None."""
    import onnx
    from onnx import helper

    if x is None:
        return onnx.TypeProto()
    return helper.make_tensor_type_proto(helper.np_dtype_to_tensor_dtype(np.dtype(x.dtype)), x.shape)


def to_type(x: Any, number: int, *, saturate: bool = True, rounding: str = "up") -> Any:
    """A value in another element type, as Cast does it."""
    import ml_dtypes
    from onnx import TensorProto

    name = TensorProto.DataType.Name(number)
    target = jax_type(number)
    if target == x.dtype and name != "BOOL":
        return x
    if name == "BOOL":
        return x != jnp.zeros((), x.dtype)
    if name.startswith("FLOAT8E8M0"):
        return _to_e8m0(x, rounding, saturate)
    if name.startswith("FLOAT8"):
        return _to_float8(x, target, saturate)
    if name == "FLOAT4E2M1":
        limit = float(ml_dtypes.finfo(target).max)
        wide = x.astype(jnp.float32)
        return jnp.clip(wide, -limit, limit).astype(target)
    if jnp.issubdtype(target, jnp.integer):
        if jnp.issubdtype(x.dtype, jnp.floating):
            wide = x.astype(jnp.promote_types(x.dtype, jnp.float32))
            return lax.convert_element_type(jnp.trunc(wide), jnp.int32).astype(target) if _small(target) else (
                lax.convert_element_type(wide, target)
            )  # fmt: skip
        return x.astype(target)
    return x.astype(target)


def _small(target: Any) -> bool:
    return jnp.iinfo(target).bits < 32


def _to_float8(x: Any, target: Any, saturate: bool) -> Any:
    import ml_dtypes

    wide = x.astype(jnp.float32)
    limit = float(ml_dtypes.finfo(target).max)
    name = np.dtype(target).name
    if saturate:
        clipped = jnp.clip(wide, -limit, limit)
        return jnp.where(jnp.isnan(wide), wide, clipped).astype(target)
    if name.endswith("fnuz"):
        return jnp.where(jnp.isinf(wide), jnp.nan, wide).astype(target)
    return wide.astype(target)


def _to_e8m0(x: Any, rounding: str, saturate: bool) -> Any:
    """Powers of two: the exponent alone, rounded as asked."""
    target = jnp.dtype("float8_e8m0fnu")
    bits = lax.bitcast_convert_type(x.astype(jnp.float32), jnp.uint32)
    exponent = ((bits >> 23) & 0xFF).astype(jnp.int32)
    rest = bits & 0x7FFFFF
    if rounding == "up":
        more = rest > 0
    elif rounding == "nearest":
        more = (rest > 0x400000) | ((rest == 0x400000) & (exponent > 0))
    else:
        more = jnp.zeros(rest.shape, jnp.bool_)
    special = exponent == 255
    raised = exponent + more.astype(jnp.int32)
    over = raised > 254
    raised = jnp.where(over, 254 if saturate else 255, raised)
    code = jnp.where(special, 255, raised).astype(jnp.uint8)
    return lax.bitcast_convert_type(code, target)


@op("Cast")
def cast(node: Node, x: Any) -> Any:
    """Cast to the element type ``to``."""
    from onnx import TensorProto

    if node["to"] == TensorProto.STRING:
        raise node.unsupported("it makes strings, which cannot be computed with")
    return to_type(
        x, node["to"], saturate=node["saturate"] != 0, rounding=node["round_mode"] or "up"
    )  # fmt: skip


@op("CastLike")
def cast_like(node: Node, x: Any, like: Any) -> Any:
    """CastLike: cast to the element type of another tensor."""
    from onnx import helper

    number = helper.np_dtype_to_tensor_dtype(np.dtype(like.dtype))
    return to_type(x, number, saturate=node["saturate"] != 0, rounding=node["round_mode"] or "up")


@op("BitCast")
def bit_cast(node: Node, x: Any) -> Any:
    """BitCast: the same bits as another element type."""
    target = numpy_type(node["to"])
    known = node.known(0)
    if jax.dtypes.canonicalize_dtype(target) != target or (known is not None and known.dtype.itemsize == 8):
        raise node.unsupported(f"bits of {target} need 64-bit types; set jax_enable_x64")
    if target == np.bool_:
        return x.astype(jnp.bool_)
    if x.dtype == jnp.bool_:
        x = x.astype(jnp.uint8)
    return lax.bitcast_convert_type(x, target)
