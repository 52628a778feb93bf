"""Ops that work element by element, with broadcasting."""

from collections.abc import Callable
from functools import reduce
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from autoshard.onnx.ops.registry import Node, op


def _unary(name: str, function: Callable[[Any], Any]) -> None:
    op(name)(lambda node, x: function(x))


def _binary(name: str, function: Callable[[Any, Any], Any]) -> None:
    op(name)(lambda node, x, y: function(x, y))


for _name, _function in {
    "Abs": jnp.abs, "Neg": jnp.negative, "Ceil": jnp.ceil, "Floor": jnp.floor, "Round": jnp.round, "Sign": jnp.sign,
    "Sqrt": jnp.sqrt, "Exp": jnp.exp, "Log": jnp.log, "Erf": lax.erf, "IsNaN": jnp.isnan, "Not": jnp.logical_not,
    "BitwiseNot": jnp.bitwise_not, "Sin": jnp.sin, "Cos": jnp.cos, "Tan": jnp.tan, "Asin": jnp.arcsin,
    "Acos": jnp.arccos, "Atan": jnp.arctan, "Sinh": jnp.sinh, "Cosh": jnp.cosh, "Tanh": jnp.tanh,
    "Asinh": jnp.arcsinh, "Acosh": jnp.arccosh, "Atanh": jnp.arctanh, "Sigmoid": jax.nn.sigmoid,
    "Relu": lambda x: jnp.maximum(x, jnp.zeros((), x.dtype)), "Identity": lambda x: x,
    "Softsign": lambda x: x / (1 + jnp.abs(x)), "Softplus": lambda x: jnp.logaddexp(x, jnp.zeros((), x.dtype)),
    "Reciprocal": lambda x: jnp.ones((), x.dtype) / x,
}.items():  # fmt: skip
    _unary(_name, _function)

for _name, _function in {
    "Sub": jnp.subtract, "Mul": jnp.multiply, "Equal": jnp.equal, "Greater": jnp.greater, "Less": jnp.less,
    "GreaterOrEqual": jnp.greater_equal, "LessOrEqual": jnp.less_equal, "And": jnp.logical_and,
    "Or": jnp.logical_or, "Xor": jnp.logical_xor, "BitwiseAnd": jnp.bitwise_and, "BitwiseOr": jnp.bitwise_or,
    "BitwiseXor": jnp.bitwise_xor,
    "Add": jnp.add,
    "PRelu": lambda x, slope: jnp.where(x < 0, x * slope, x),
}.items():  # fmt: skip
    _binary(_name, _function)


@op("Div")
def div(node: Node, x: Any, y: Any) -> Any:
    """Whole numbers are divided towards zero."""
    if jnp.issubdtype(x.dtype, jnp.integer):
        return lax.div(*jnp.broadcast_arrays(x, y))
    return jnp.divide(x, y)


@op("Mod")
def mod(node: Node, x: Any, y: Any) -> Any:
    """``fmod``: the sign of the dividend, else that of the divisor."""
    return lax.rem(*jnp.broadcast_arrays(x, y)) if node["fmod"] else jnp.mod(x, y)


@op("Pow")
def power(node: Node, x: Any, y: Any) -> Any:
    """The result has the type of the base. Small whole exponents that are known become products."""
    known = node.known(1)
    if known is not None and known.size == 1 and float(known.reshape(-1)[0]) in (1.0, 2.0, 3.0, 0.5):
        exponent = float(known.reshape(-1)[0])
        if jnp.issubdtype(x.dtype, jnp.floating) or exponent != 0.5:
            shape = jnp.broadcast_shapes(x.shape, known.shape)
            base = x if shape == x.shape else jnp.broadcast_to(x, shape)
            return jnp.sqrt(base) if exponent == 0.5 else lax.integer_pow(base, int(exponent))
    if jnp.issubdtype(x.dtype, jnp.integer) and jnp.issubdtype(y.dtype, jnp.integer):
        return jnp.power(x, y.astype(x.dtype))
    wide = jnp.promote_types(x.dtype, y.dtype)
    return jnp.power(x.astype(wide), y.astype(wide)).astype(x.dtype)


@op("BitShift")
def bit_shift(node: Node, x: Any, y: Any) -> Any:
    """BitShift to the left or right, by ``direction``."""
    return jnp.left_shift(x, y) if node["direction"] == "LEFT" else jnp.right_shift(x, y)


@op("Max")
def maximum(node: Node, *xs: Any) -> Any:
    """Max of any number of tensors."""
    return reduce(jnp.maximum, xs)


@op("Min")
def minimum(node: Node, *xs: Any) -> Any:
    """Min of any number of tensors."""
    return reduce(jnp.minimum, xs)


@op("Sum")
def sum_of(node: Node, *xs: Any) -> Any:
    """Sum of any number of tensors."""
    return reduce(jnp.add, xs)


@op("Mean")
def mean_of(node: Node, *xs: Any) -> Any:
    """Mean of any number of tensors, element by element."""
    return reduce(jnp.add, xs) / jnp.asarray(len(xs), xs[0].dtype)


@op("Where")
def where(node: Node, condition: Any, x: Any, y: Any) -> Any:
    """Where: `x` where the condition holds, `y` elsewhere."""
    return jnp.where(condition, x, y)


@op("IsInf")
def is_inf(node: Node, x: Any) -> Any:
    """IsInf, of the signs that ``detect_positive`` and ``detect_negative`` name."""
    infinite = jnp.isinf(x)
    if not node["detect_positive"]:
        infinite &= x < 0
    if not node["detect_negative"]:
        infinite &= x > 0
    return infinite


@op("Clip")
def clip_by_attributes(node: Node, x: Any) -> Any:
    """Clip before opset 11: the limits are attributes."""
    return _clipped(x, node["min"], node["max"])


@op("Clip", since=11)
def clip(node: Node, x: Any, low: Any = None, high: Any = None) -> Any:
    """Clip since opset 11: the limits are inputs, and either may be missing."""
    return _clipped(x, low, high)


def _clipped(x: Any, low: Any, high: Any) -> Any:
    if low is not None:
        x = jnp.maximum(x, jnp.asarray(low, x.dtype).reshape(()))
    if high is not None:
        x = jnp.minimum(x, jnp.asarray(high, x.dtype).reshape(()))
    return x


@op("LeakyRelu")
def leaky_relu(node: Node, x: Any) -> Any:
    """LeakyRelu: negative elements are multiplied by ``alpha``."""
    return jnp.where(x < 0, x * node["alpha"], x)


@op("Elu")
def elu(node: Node, x: Any) -> Any:
    """Elu: ``alpha (exp(x) - 1)`` for negative elements."""
    return jnp.where(x < 0, node["alpha"] * (jnp.exp(x) - 1), x)


@op("Selu")
def selu(node: Node, x: Any) -> Any:
    """Selu: a scaled Elu, with ``alpha`` and ``gamma``."""
    return node["gamma"] * jnp.where(x <= 0, node["alpha"] * (jnp.exp(x) - 1), x)


@op("Celu")
def celu(node: Node, x: Any) -> Any:
    """Celu: ``alpha (exp(x / alpha) - 1)`` for negative elements."""
    alpha = node["alpha"]
    return jnp.maximum(x, 0) + jnp.minimum(alpha * (jnp.exp(x / alpha) - 1), 0)


@op("HardSigmoid")
def hard_sigmoid(node: Node, x: Any) -> Any:
    """HardSigmoid: ``alpha x + beta``, kept between 0 and 1."""
    return jnp.clip(node["alpha"] * x + node["beta"], 0, 1)


@op("HardSwish")
def hard_swish(node: Node, x: Any) -> Any:
    """HardSwish: ``x clip(x / 6 + 1 / 2, 0, 1)``."""
    return x * jnp.clip(x / 6 + 0.5, 0, 1)


@op("ThresholdedRelu")
def thresholded_relu(node: Node, x: Any) -> Any:
    """ThresholdedRelu: elements above ``alpha``, zeros elsewhere."""
    return jnp.where(x > node["alpha"], x, jnp.zeros((), x.dtype))


@op("Shrink")
def shrink(node: Node, x: Any) -> Any:
    """Shrink: elements beyond ``lambd`` move towards zero by ``bias``, the others become zero."""
    bound, bias = node["lambd"], node["bias"]
    zero = jnp.zeros((), x.dtype)
    return jnp.where(x < -bound, x + bias, jnp.where(x > bound, x - bias, zero)).astype(x.dtype)


@op("Gelu")
def gelu(node: Node, x: Any) -> Any:
    """Gelu, exact or by ``approximate`` with tanh."""
    if node["approximate"] == "tanh":
        inner = 0.7978845608028654 * (x + 0.044715 * x * x * x)  # sqrt(2 / pi)
        return 0.5 * x * (1 + jnp.tanh(inner))
    return 0.5 * x * (1 + lax.erf(x * 0.7071067811865476))  # sqrt(1 / 2)


@op("Mish")
def mish(node: Node, x: Any) -> Any:
    """Mish: ``x tanh(softplus(x))``."""
    return x * jnp.tanh(jnp.logaddexp(x, jnp.zeros((), x.dtype)))


@op("Swish")
def swish(node: Node, x: Any) -> Any:
    """Swish: ``x sigmoid(alpha x)``."""
    return x * jax.nn.sigmoid(x * node["alpha"])


@op("Dropout", since=7)
def dropout_by_attribute(node: Node, x: Any) -> Any:
    """Inference only, as in these opsets; before opset 10 the mask has the type of the data."""
    return (x, jnp.ones(x.shape, jnp.bool_ if node.version >= 10 else x.dtype)) if len(node.outputs) > 1 else x


@op("Dropout", since=12, static=(1, 2))
def dropout(node: Node, x: Any, ratio: Any = None, training: Any = None) -> Any:
    """Dropout since opset 12; training mode is not supported where it would drop anything."""
    share = 0.5 if ratio is None else float(ratio)
    if training is not None and bool(training) and share > 0:
        raise node.unsupported("dropout in training mode draws random numbers; set training_mode to false")
    return (x, jnp.ones(x.shape, jnp.bool_)) if len(node.outputs) > 1 else x
