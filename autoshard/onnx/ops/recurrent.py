"""Recurrent layers: RNN, GRU and LSTM as scans over the steps of a sequence."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from autoshard.onnx.ops.registry import Node, op

Function = Callable[[Any], Any]


def _functions(alpha: float | None = None, beta: float | None = None) -> dict[str, Function]:
    def or_(value: float | None, default: float) -> float:
        return default if value is None else value

    return {
        "sigmoid": jax.nn.sigmoid,
        "tanh": jnp.tanh,
        "relu": lambda x: jnp.maximum(x, 0),
        "affine": lambda x: or_(alpha, 1.0) * x + or_(beta, 0.0),
        "leakyrelu": lambda x: jnp.where(x < 0, or_(alpha, 0.01) * x, x),
        "thresholdedrelu": lambda x: jnp.where(x > or_(alpha, 1.0), x, 0),
        "scaledtanh": lambda x: or_(alpha, 1.0) * jnp.tanh(or_(beta, 1.0) * x),
        "hardsigmoid": lambda x: jnp.clip(or_(alpha, 0.2) * x + or_(beta, 0.5), 0, 1),
        "elu": lambda x: jnp.where(x < 0, or_(alpha, 1.0) * (jnp.exp(x) - 1), x),
        "softsign": lambda x: x / (1 + jnp.abs(x)),
        "softplus": lambda x: jnp.logaddexp(x, 0.0),
    }


_KNOWN = tuple(_functions())
_TAKE_PARAMETERS = frozenset(
    ("affine", "leakyrelu", "thresholdedrelu", "scaledtanh", "hardsigmoid", "elu")
)  # fmt: skip
_DEFAULTS = {"RNN": ["Tanh"], "GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"]}
_GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


def _activations(node: Node, directions: int) -> list[list[Function]]:
    """The functions of every direction; their parameters are used up in order by the functions that take some."""
    names = node["activations"] or _DEFAULTS[node.op] * directions
    odd = next((name for name in names if name.lower() not in _KNOWN), None)
    count = len(_DEFAULTS[node.op]) * directions
    if odd is not None or len(names) < count:
        raise node.malformed(f"activations are {', '.join(names)}; it needs {count} of {', '.join(_KNOWN)}")
    alphas, betas = iter(node["activation_alpha"] or ()), iter(node["activation_beta"] or ())
    functions = []
    for name in names:
        takes = name.lower() in _TAKE_PARAMETERS
        alpha, beta = (next(alphas, None), next(betas, None)) if takes else (None, None)
        functions.append(_functions(alpha, beta)[name.lower()])
    each = len(_DEFAULTS[node.op])
    return [functions[k * each : (k + 1) * each] for k in range(directions)]


def _clipped(node: Node, function: Function) -> Function:
    bound = node["clip"]
    return function if bound is None else lambda x: function(jnp.clip(x, -bound, bound))


def _rnn_step(node: Node, fs: list[Function], w: Any, r: Any, b: Any, p: Any) -> Any:
    f = _clipped(node, fs[0])

    def step(carry: Any, x: Any) -> Any:
        h = f(x @ w.T + carry[0] @ r.T + b[: w.shape[0]] + b[w.shape[0] :])
        return (h,), h

    return step


def _gru_step(node: Node, fs: list[Function], w: Any, r: Any, b: Any, p: Any) -> Any:
    f, g = (_clipped(node, function) for function in fs)
    n = r.shape[-1]
    of_input, of_state = b[: 3 * n], b[3 * n :]

    def step(carry: Any, x: Any) -> Any:
        (h,) = carry
        from_x = x @ w.T + of_input
        gates = from_x[:, : 2 * n] + h @ r[: 2 * n].T + of_state[: 2 * n]
        z, reset = f(gates[:, :n]), f(gates[:, n:])
        if node["linear_before_reset"]:
            new = g(from_x[:, 2 * n :] + reset * (h @ r[2 * n :].T + of_state[2 * n :]))
        else:
            new = g(from_x[:, 2 * n :] + (reset * h) @ r[2 * n :].T + of_state[2 * n :])
        out = (1 - z) * new + z * h
        return (out,), out

    return step


def _lstm_step(node: Node, fs: list[Function], w: Any, r: Any, b: Any, p: Any) -> Any:
    f, g = (_clipped(node, function) for function in fs[:2])
    h_of = fs[2]
    n = r.shape[-1]
    peep = [p[k * n : (k + 1) * n] for k in range(3)] if p is not None else [0.0, 0.0, 0.0]

    def step(carry: Any, x: Any) -> Any:
        h, c = carry
        gates = x @ w.T + h @ r.T + b[: 4 * n] + b[4 * n :]
        i, o, forget, new = (gates[:, k * n : (k + 1) * n] for k in range(4))
        i = f(i + peep[0] * c)
        forget = 1 - i if node["input_forget"] else f(forget + peep[2] * c)
        c_new = forget * c + i * g(new)
        out = f(o + peep[1] * c_new) * h_of(c_new)
        return (out, c_new), out

    return step


_STEPS = {"RNN": _rnn_step, "GRU": _gru_step, "LSTM": _lstm_step}


@op("RNN", "GRU", since=7)
def recurrent(
    node: Node, x: Any, w: Any, r: Any, b: Any = None, lengths: Any = None, h0: Any = None
) -> Any:  # fmt: skip
    """RNN and GRU: a scan over time, in one or both directions."""
    return _run(node, x, w, r, b, lengths, (h0,), None)


@op("LSTM", since=7)
def lstm(
    node: Node, x: Any, w: Any, r: Any, b: Any = None, lengths: Any = None, h0: Any = None, c0: Any = None,
    p: Any = None,
) -> Any:  # fmt: skip
    """LSTM: a scan over time, in one or both directions."""
    return _run(node, x, w, r, b, lengths, (h0, c0), p)


def _run(node: Node, x: Any, w: Any, r: Any, b: Any, lengths: Any, starts: tuple[Any, ...], p: Any) -> Any:
    directions, hidden = _sizes(node, x, w, r, b, starts, p)
    batch_first = bool(node["layout"])
    if batch_first:
        x = x.swapaxes(0, 1)
        starts = tuple(None if s is None else s.swapaxes(0, 1) for s in starts)
    steps, batch = x.shape[:2]
    if b is None:
        b = jnp.zeros((directions, 2 * _GATES[node.op] * hidden), x.dtype)
    starts = tuple(jnp.zeros((directions, batch, hidden), x.dtype) if s is None else s for s in starts)
    functions = _activations(node, directions)
    outs, finals = [], []
    for d in range(directions):
        back = node["direction"] == "reverse" or d == 1
        step = _STEPS[node.op](node, functions[d], w[d], r[d], b[d], None if p is None else p[d])
        xs: Any = (x, jnp.arange(steps))
        if lengths is not None:
            step = _within(step, lengths)
        else:
            step = _without_position(step)
        final, ys = lax.scan(step, tuple(s[d] for s in starts), xs, reverse=back)
        outs.append(ys)
        finals.append(final)
    y = jnp.stack(outs, axis=1)
    last = [jnp.stack([f[k] for f in finals]) for k in range(len(starts))]
    if batch_first:
        y, last = y.transpose(2, 0, 1, 3), [v.swapaxes(0, 1) for v in last]
    return (y, *last)


def _sizes(
    node: Node, x: Any, w: Any, r: Any, b: Any, starts: tuple[Any, ...], p: Any
) -> tuple[int, int]:  # fmt: skip
    """Directions and the size of the state; an error where an input has another shape than these make it."""
    directions = 2 if node["direction"] == "bidirectional" else 1
    hidden = node["hidden_size"] or r.shape[-1]
    batch = x.shape[0 if node["layout"] else 1]
    gates = _GATES[node.op] * hidden
    start = (batch, directions, hidden) if node["layout"] else (directions, batch, hidden)
    wanted = {
        "W": (w, (directions, gates, x.shape[2])), "R": (r, (directions, gates, hidden)),
        "B": (b, (directions, 2 * gates)), "P": (p, (directions, 3 * hidden)),
        **{name: (state, start) for name, state in zip(("initial_h", "initial_c"), starts)},
    }  # fmt: skip
    for name, (found, shape) in wanted.items():
        if found is not None and found.shape != shape:
            raise node.malformed(
                f"{name} is {list(found.shape)}; with direction {node['direction']}, a hidden size of {hidden} and X "
                f"of {list(x.shape)} it is {list(shape)}"
            )
    return directions, hidden


def _without_position(step: Any) -> Any:
    """A step that is called with its number beside its input, and does not need it."""
    return lambda carry, at: step(carry, at[0])


def _within(step: Any, lengths: Any) -> Any:
    """Past the end of a sequence the state stays and the output is zero (backwards: until its end is reached)."""

    def masked(carry: Any, at: Any) -> Any:
        x, number = at
        new, y = step(carry, x)
        live = (number < lengths)[:, None]
        return tuple(jnp.where(live, n, c) for n, c in zip(new, carry, strict=True)), jnp.where(live, y, 0)

    return masked
