"""Ops of random programs: moves, lookups, windows, random numbers, control flow."""

from functools import partial
from math import prod, sqrt
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from drawing import LARGEST, Drawing, Known, NothingToDo, op
from jax import lax

# -- moving --------------------------------------------------------------------------------------------------------


@op(5)
def moved(d: Drawing) -> Known:
    a = d.pick(lambda k: k.rank >= 1)
    axis, x = d.axis(a), a.x
    n = x.shape[axis]
    whole = [slice(None)] * a.rank
    what = d.random.choice(["slice", "stride", "pad", "concat", "rev", "roll", "split", "tile", "stack"])
    if what in ("concat", "tile", "stack", "pad") and x.size * 2 > LARGEST:
        raise NothingToDo
    if what == "slice":
        begin = d.random.randrange(n)
        end = d.random.randint(begin + 1, n)
        return Known(x[(*whole[:axis], slice(begin, end))], a.exact)
    if what == "stride":
        return Known(x[(*whole[:axis], slice(None, None, 2))], a.exact)
    if what == "pad":
        config = [(0, 0, 0)] * a.rank
        config[axis] = d.random.choice([(1, 2, 0), (0, 1, 1), (-1, 1, 0), (0, 3, 0)])
        return Known(lax.pad(x, jnp.asarray(d.random.choice([0, 1]), x.dtype), config), a.exact)
    if what == "concat":
        return Known(jnp.concatenate([x, -x], axis), a.exact)
    if what == "rev":
        return Known(lax.rev(x, (axis,)), a.exact)
    if what == "roll":
        return Known(jnp.roll(x, 1, axis), a.exact)
    if what == "split":
        parts = jnp.array_split(x, 2, axis)
        return Known(parts[d.random.randrange(2)], a.exact)
    if what == "tile":
        return Known(jnp.tile(x, [2 if k == axis else 1 for k in range(a.rank)]), a.exact)
    return Known(jnp.stack([x, x], axis), a.exact)


@op(4)
def reshaped(d: Drawing) -> Known:
    """Dimensions merged, taken apart, or regrouped."""
    a = d.pick(lambda k: k.rank >= 1)
    shape = list(a.x.shape)
    if d.random.random() < 0.5 and len(shape) > 1:
        at = d.random.randrange(len(shape) - 1)
        shape[at : at + 2] = [shape[at] * shape[at + 1]]
    else:
        at = d.axis(a)
        divisors = [k for k in range(2, shape[at]) if shape[at] % k == 0]
        if not divisors or len(shape) > 3:
            raise NothingToDo
        first = d.random.choice(divisors)
        shape[at : at + 1] = [first, shape[at] // first]
    if d.random.random() < 0.2:
        shape = [shape[0], prod(shape[1:])]
    return Known(a.x.reshape(shape), a.exact)


@op(3)
def dynamic(d: Drawing) -> Known:
    a = d.float()
    axis = d.axis(a)
    n = a.x.shape[axis]
    start = d.pick(lambda k: k.exact and k.x.dtype == jnp.int32).x
    start = start.reshape(-1)[0] % (n + 3) - 1
    length = d.random.randint(1, n)
    if d.random.random() < 0.5:
        return Known(lax.dynamic_slice_in_dim(a.x, start, length, axis), a.exact)
    part = lax.slice_in_dim(a.x, 0, length, axis=axis) * 2
    return Known(lax.dynamic_update_slice_in_dim(a.x, part, start, axis), a.exact)


# -- lookups -------------------------------------------------------------------------------------------------------


@op(5)
def lookup(d: Drawing) -> Known:
    table = d.float()
    axis = d.axis(table)
    index = d.pick(lambda k: k.exact and k.x.dtype == jnp.int32 and k.rank <= 2).x
    n = table.x.shape[axis]
    if table.x.size // n * max(index.size, 1) > LARGEST or table.rank + index.ndim > 5:
        raise NothingToDo
    mode = d.random.choice(["promise", "clip", "fill"])
    index = index % n if mode == "promise" else index - 2
    if mode == "fill":
        found = jnp.take(table.x, index, axis, mode="fill", fill_value=0.25)
        return Known(found, table.exact)
    return Known(jnp.take(table.x, index, axis, mode="clip"), table.exact)


@op(2)
def along_axis(d: Drawing) -> Known:
    """Cross entropy's lookup: one element of each row."""
    a = d.float(2)
    n = a.x.shape[-1]
    ids = jnp.asarray(np.random.default_rng(d.random.getrandbits(32)).integers(0, n, a.x.shape[:-1]), jnp.int32)
    return Known(jnp.take_along_axis(jax.nn.log_softmax(a.x), ids[..., None], axis=-1)[..., 0], False)


@op(4)
def scattered(d: Drawing) -> Known:
    a = d.float()
    index = d.pick(lambda k: k.exact and k.x.dtype == jnp.int32 and k.rank <= 2).x.reshape(-1) - 1
    what = d.random.choice(["add", "add", "max", "min", "multiply"])
    if what == "multiply" and d.differentiated:  # JAX has no gradient for it
        raise NothingToDo
    shape = (index.size, *a.x.shape[1:])
    if prod(shape) > LARGEST:
        raise NothingToDo
    updates = d.made(*shape).astype(a.x.dtype)
    at = a.x.at[index]
    mode = d.random.choice(["drop", "clip"])
    if what == "add":
        return Known(at.add(updates / 4, mode=mode), False)
    if what == "multiply":
        return Known(at.multiply(1 + jnp.tanh(updates) / 8, mode=mode), False)
    return Known((at.max if what == "max" else at.min)(updates, mode=mode), False)


@op(2)
def histogram(d: Drawing) -> Known:
    index = d.pick(lambda k: k.exact and k.x.dtype == jnp.int32 and k.rank >= 1).x
    n = d.size()
    return Known(jnp.zeros((n,), jnp.int32).at[index.reshape(-1) % n].add(1), True)


# -- windows -------------------------------------------------------------------------------------------------------


@op(4)
def convolution(d: Drawing) -> Known:
    """One or two spatial dimensions; strides, dilations, groups, any padding."""
    a = d.float(2)
    spatial = d.random.choice([1, 1, 2])
    x = a.x
    while x.ndim > spatial + 2:
        x = x.reshape(-1, *x.shape[2:])
    while x.ndim < spatial + 2:
        x = x[None]
    if x.size > LARGEST:
        raise NothingToDo
    channels, out = x.shape[1], d.random.choice((2, 4, 6, 8))
    groups = d.random.choice([1, 1, 1, channels, 2])
    if channels % groups or out % groups:
        groups = 1
    window = [d.random.choice([1, 2, 3, 3]) for _ in range(spatial)]
    dilation = [d.random.choice([1, 1, 2]) for _ in window]
    strides = [d.random.choice([1, 1, 2]) for _ in window]
    padding: Any = d.random.choice(["SAME", "VALID"])
    if any((w - 1) * q + 1 > n for w, q, n in zip(window, dilation, x.shape[2:], strict=True)):
        padding = "SAME"
    kernel = d.fresh(out, channels // groups, *window).astype(x.dtype)
    names = "HW"[:spatial]
    y = lax.conv_general_dilated(
        x, kernel, strides, padding, rhs_dilation=dilation, feature_group_count=groups,
        dimension_numbers=(f"NC{names}", f"OI{names}", f"NC{names}"),
    )  # fmt: skip
    return Known(y / sqrt(prod(window) * channels // groups), False)


@op(2)
def pooled(d: Drawing) -> Known:
    a = d.float(2)
    window = [1] * a.rank
    axis = d.axis(a)
    window[axis] = min(d.random.choice([2, 3]), a.x.shape[axis])
    strides = [w if d.random.random() < 0.5 else 1 for w in window]
    padding = d.random.choice(["SAME", "VALID"])
    if d.random.random() < 0.5:
        return Known(lax.reduce_window(a.x, -jnp.inf, lax.max, window, strides, padding), a.exact)
    return Known(lax.reduce_window(a.x, 0.0, lax.add, window, strides, padding) / 2, False)


# -- random numbers ------------------------------------------------------------------------------------------------


@op(2)
def noise(d: Drawing) -> Known:
    key = jax.random.fold_in(d.key, d.random.getrandbits(16))
    a = d.float()
    if d.random.random() < 0.5:
        return Known(a.x + jax.random.normal(key, a.x.shape, a.x.dtype), False)
    return Known(jnp.where(jax.random.bernoulli(key, 0.8, a.x.shape), a.x, 0.0), a.exact)


# -- control flow --------------------------------------------------------------------------------------------------


@op(4)
def scanned(d: Drawing) -> Known | list[Known]:
    a = d.float(2)
    x = a.x
    length, rest = x.shape[0], x.shape[1:]
    n = rest[-1]
    w = d.made(n, n).astype(x.dtype)
    what = d.random.choice(["rows", "layers", "sum", "reverse"])
    if what == "layers":
        layers = d.made(3, n, n).astype(x.dtype) / sqrt(n)
        block = jax.checkpoint(lambda c, m: jnp.tanh(c @ m)) if d.random.random() < 0.5 else lambda c, m: c + c @ m / 4
        out, _ = lax.scan(lambda c, m: (block(c, m), None), x, layers)
        return Known(out, False)
    if what == "sum":
        out, _ = lax.scan(lambda c, row: (c + row @ w / n, None), jnp.zeros((*rest[:-1], n), x.dtype), x)
        return Known(out, False)

    def step(c: Any, row: Any) -> Any:
        new = jnp.tanh(c + row @ w / sqrt(n))
        return new, new.max(axis=-1)

    c, peaks = lax.scan(step, jnp.zeros(rest, x.dtype), x, reverse=what == "reverse")
    del length
    return [Known(c, False), Known(peaks, False)]


@op(2)
def looped(d: Drawing) -> Known:
    a = d.float()
    trips = d.random.randint(1, 3)
    if d.random.random() < 0.5 and not d.differentiated:
        limit = d.pick(lambda k: k.exact and k.x.dtype == jnp.int32).x.reshape(-1)[0] % 4

        def body(c: Any) -> Any:
            return jnp.tanh(c[0] + c[0].mean(axis=0, keepdims=True)), c[1] + 1

        return Known(lax.while_loop(lambda c: c[1] < limit, body, (a.x, jnp.int32(0)))[0], False)
    return Known(lax.fori_loop(0, trips, lambda i, c: jnp.sin(c) + c.max() / 4 + i, a.x), False)


@op(3)
def branched(d: Drawing) -> Known:
    a = d.float()
    test = d.pick(lambda k: k.exact and k.x.dtype == jnp.int32).x.reshape(-1)[0]
    n = a.x.shape[-1]
    w = d.made(n, n).astype(a.x.dtype)
    if d.random.random() < 0.5:
        branches = [lambda x: x, lambda x: x @ w / n, lambda x: x - x.sum(axis=0, keepdims=True) / x.shape[0]]
        return Known(lax.switch(test % 3, branches, a.x), False)
    return Known(lax.cond(test > 3, lambda x: jnp.tanh(x) @ w / n, lambda x: x * 0.5, a.x), False)


@op(2)
def wrapped(d: Drawing) -> Known:
    a = d.float()
    n = a.x.shape[-1]
    w = d.made(n, 4).astype(a.x.dtype)

    @jax.custom_vjp
    def straight(x: Any) -> Any:
        return jnp.round(x * 4) / 4 if a.exact else jnp.tanh(x)

    straight.defvjp(lambda x: (straight(x), None), lambda _, g: (g * 0.5,))
    f = d.random.choice([jax.jit, jax.checkpoint, partial(jax.vmap, in_axes=0) if a.rank > 1 else jax.jit])
    if d.random.random() < 0.3:
        return Known(straight(a.x), False)
    return Known(f(lambda x: jax.nn.relu(x @ w / sqrt(n)) + jax.nn.relu6(x[..., :1]))(a.x), False)
