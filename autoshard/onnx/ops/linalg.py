"""Products of matrices, and what else linear algebra offers."""

from typing import Any

import jax.numpy as jnp
from jax import lax

from autoshard.onnx.ops.registry import Node, op


@op("MatMul")
def matmul(node: Node, x: Any, y: Any) -> Any:
    """MatMul, as of NumPy."""
    return jnp.matmul(x, y)


@op("Gemm", since=7)
def gemm(node: Node, a: Any, b: Any, c: Any = None) -> Any:
    """``alpha A B + beta C``; a transposed operand is contracted along its other axis, not moved."""
    left, right = (0 if node["transA"] else 1), (1 if node["transB"] else 0)
    out = lax.dot_general(a, b, (((left,), (right,)), ((), ())))
    if node["alpha"] != 1.0:
        out = (out * node["alpha"]).astype(a.dtype)
    if c is not None:
        out = out + (c if node["beta"] == 1.0 else (c * node["beta"]).astype(a.dtype))
    return out


@op("Einsum")
def einsum(node: Node, *xs: Any) -> Any:
    """Einsum."""
    equation = node["equation"]
    return jnp.einsum(equation.decode() if isinstance(equation, bytes) else equation, *xs)


@op("Det")
def det(node: Node, x: Any) -> Any:
    """Det: determinants of the last two axes."""
    return jnp.linalg.det(x)


@op("MatMulInteger")
def matmul_integer(node: Node, a: Any, b: Any, a_zero: Any = None, b_zero: Any = None) -> Any:
    """MatMulInteger: zero points are subtracted, products are added in int32."""
    left, right = a.astype(jnp.int32), b.astype(jnp.int32)
    if a_zero is not None:
        shift = a_zero.astype(jnp.int32)
        left = left - (shift[..., None] if shift.ndim == 1 and shift.size > 1 else shift)
    if b_zero is not None:
        right = right - b_zero.astype(jnp.int32)
    return jnp.matmul(left, right)
