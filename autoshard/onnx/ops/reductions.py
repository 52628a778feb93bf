"""Ops that combine the elements of axes, and those that normalise or order along one."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from autoshard.onnx.ops.registry import Node, op


def _lowest(x: Any) -> Any:
    if x.dtype == jnp.bool_:
        return False
    return -jnp.inf if jnp.issubdtype(x.dtype, jnp.floating) else jnp.iinfo(x.dtype).min


def _highest(x: Any) -> Any:
    if x.dtype == jnp.bool_:
        return True
    return jnp.inf if jnp.issubdtype(x.dtype, jnp.floating) else jnp.iinfo(x.dtype).max


def _log_sum_exp(x: Any, axes: Any, keep: bool) -> Any:
    top = jnp.max(x, axis=axes, keepdims=True, initial=_lowest(x))
    top = lax.stop_gradient(jnp.where(jnp.isfinite(top), top, jnp.zeros((), x.dtype)))
    out = jnp.log(jnp.sum(jnp.exp(x - top), axis=axes, keepdims=True)) + top
    return out if keep else jnp.squeeze(out, axes)


_REDUCTIONS: dict[str, Callable[..., Any]] = {
    "ReduceSum": lambda x, a, k: jnp.sum(x, axis=a, keepdims=k, dtype=x.dtype),
    "ReduceMean": lambda x, a, k: _mean(x, a, k),
    "ReduceProd": lambda x, a, k: jnp.prod(x, axis=a, keepdims=k, dtype=x.dtype),
    "ReduceMax": lambda x, a, k: jnp.max(x, axis=a, keepdims=k, initial=_lowest(x) if x.size == 0 else None),
    "ReduceMin": lambda x, a, k: jnp.min(x, axis=a, keepdims=k, initial=_highest(x) if x.size == 0 else None),
    "ReduceSumSquare": lambda x, a, k: jnp.sum(x * x, axis=a, keepdims=k, dtype=x.dtype),
    "ReduceL1": lambda x, a, k: jnp.sum(jnp.abs(x), axis=a, keepdims=k, dtype=x.dtype),
    "ReduceL2": lambda x, a, k: _root(jnp.sum(x * x, axis=a, keepdims=k, dtype=x.dtype)),
    "ReduceLogSum": lambda x, a, k: jnp.log(jnp.sum(x, axis=a, keepdims=k, dtype=x.dtype)),
    "ReduceLogSumExp": _log_sum_exp,
}


def _mean(x: Any, axes: Any, keep: bool) -> Any:
    if jnp.issubdtype(x.dtype, jnp.integer):
        count = int(np.prod([x.shape[a] for a in axes]))
        return lax.div(jnp.sum(x, axis=axes, keepdims=keep, dtype=x.dtype), jnp.asarray(count, x.dtype))
    return jnp.mean(x, axis=axes, keepdims=keep)


def _root(x: Any) -> Any:
    return jnp.sqrt(x) if jnp.issubdtype(x.dtype, jnp.floating) else jnp.sqrt(x.astype(jnp.float32)).astype(x.dtype)


def _reduce(node: Node, x: Any, axes: Any) -> Any:
    if (axes is None or len(axes) == 0) and node["noop_with_empty_axes"]:
        return _REDUCTIONS[node.op](x, (), True)
    wanted = range(x.ndim) if axes is None or len(axes) == 0 else (int(a) % x.ndim for a in axes)
    keep = node["keepdims"] != 0
    return _REDUCTIONS[node.op](x, tuple(wanted), keep)


def _by_attribute(node: Node, x: Any) -> Any:
    return _reduce(node, x, node["axes"])


def _by_input(node: Node, x: Any, axes: Any = None) -> Any:
    return _reduce(node, x, axes)


for _name in _REDUCTIONS:
    op(_name)(_by_attribute)
    op(_name, since=13 if _name == "ReduceSum" else 18, static=(1,))(_by_input)


@op("ArgMax", "ArgMin")
def arg_extreme(node: Node, x: Any) -> Any:
    """ArgMax and ArgMin along ``axis``; of equal elements the first, or the last where asked."""
    axis = node["axis"] % x.ndim
    find = jnp.argmax if node.op == "ArgMax" else jnp.argmin
    if node["select_last_index"]:
        place = x.shape[axis] - 1 - find(jnp.flip(x, axis), axis=axis)
    else:
        place = find(x, axis=axis)
    return jnp.expand_dims(place, axis) if node["keepdims"] != 0 else place


@op("CumSum", static=(1,))
def cum_sum(node: Node, x: Any, axis: Any) -> Any:
    """CumSum along an axis, ``exclusive`` and in ``reverse`` where asked."""
    return _cumulative(node, x, axis, lax.cumsum, 0)


@op("CumProd", static=(1,))
def cum_prod(node: Node, x: Any, axis: Any) -> Any:
    """CumProd along an axis, ``exclusive`` and in ``reverse`` where asked."""
    return _cumulative(node, x, axis, lax.cumprod, 1)


def _cumulative(node: Node, x: Any, axis: Any, function: Callable[..., Any], start: int) -> Any:
    along, back = int(np.asarray(axis).reshape(())) % x.ndim, bool(node["reverse"])
    out = function(x, axis=along, reverse=back)
    if not node["exclusive"] or not x.shape[along]:
        return out
    first = jnp.full_like(lax.slice_in_dim(x, 0, 1, axis=along), start)
    if back:
        return jnp.concatenate([lax.slice_in_dim(out, 1, x.shape[along], axis=along), first], along)
    return jnp.concatenate([first, lax.slice_in_dim(out, 0, x.shape[along] - 1, axis=along)], along)


@op("TopK")
def top_k_by_attribute(node: Node, x: Any) -> Any:
    """TopK before opset 10: ``k`` is an attribute."""
    return _top_k(x, node["k"], node["axis"], True)


@op("TopK", since=10, static=(1,))
def top_k(node: Node, x: Any, k: Any) -> Any:
    """TopK since opset 10: `k` is an input."""
    return _top_k(x, int(np.asarray(k).reshape(())), node["axis"], node["largest"] != 0)


def _top_k(x: Any, k: int, axis: int, largest: bool) -> tuple[Any, Any]:
    last = jnp.moveaxis(x, axis, -1)
    if largest:
        values, indices = lax.top_k(last, k)
    else:  # -x and ~x turn the order round
        turn = jnp.negative if jnp.issubdtype(x.dtype, jnp.floating) else jnp.bitwise_not
        values, indices = lax.top_k(turn(last), k)
        values = turn(values)
    return jnp.moveaxis(values, -1, axis), jnp.moveaxis(indices, -1, axis)


# -- Softmax and its kin ----------------------------------------------------------------------------------------


def _softmax(x: Any, axis: Any) -> Any:
    wide = x.astype(jnp.promote_types(x.dtype, jnp.float32))
    e = jnp.exp(wide - jnp.max(wide, axis=axis, keepdims=True))
    return (e / jnp.sum(e, axis=axis, keepdims=True)).astype(x.dtype)


def _log_softmax(x: Any, axis: Any) -> Any:
    wide = x.astype(jnp.promote_types(x.dtype, jnp.float32))
    shifted = wide - jnp.max(wide, axis=axis, keepdims=True)
    return (shifted - jnp.log(jnp.sum(jnp.exp(shifted), axis=axis, keepdims=True))).astype(x.dtype)


def _hardmax(x: Any, axis: Any) -> Any:
    flat = axis if isinstance(axis, int) else axis[0]
    if not isinstance(axis, int) and len(axis) > 1:
        lead = x.shape[: axis[0]]
        return _hardmax(x.reshape((*lead, -1)), len(lead)).reshape(x.shape)
    return jax.nn.one_hot(jnp.argmax(x, axis=flat), x.shape[flat], axis=flat, dtype=x.dtype)


_NORMALISING = {"Softmax": _softmax, "LogSoftmax": _log_softmax, "Hardmax": _hardmax}


def _over_the_rest(node: Node, x: Any) -> Any:
    """Before opset 13: over all axes from the given one on."""
    return _NORMALISING[node.op](x, tuple(range(node["axis"] % max(x.ndim, 1), x.ndim)))


def _over_one(node: Node, x: Any) -> Any:
    return _NORMALISING[node.op](x, node["axis"] % max(x.ndim, 1))


for _name in _NORMALISING:
    op(_name)(_over_the_rest)
    op(_name, since=13)(_over_one)


@op("LpNormalization")
def lp_normalization(node: Node, x: Any) -> Any:
    """LpNormalization: elements over the p-norm along ``axis``."""
    axis = node["axis"]
    if node["p"] == 1:
        norm = jnp.sum(jnp.abs(x), axis=axis, keepdims=True)
    else:
        norm = jnp.sqrt(jnp.sum(x * x, axis=axis, keepdims=True))
    return jnp.where(norm == 0, jnp.zeros((), x.dtype), x / jnp.where(norm == 0, jnp.ones((), x.dtype), norm))
