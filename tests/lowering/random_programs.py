"""Random JAX programs: a function that draws its ops while it is traced, so that a seed is a program.

Values keep a moderate size, so that float32 sums in another order stay within the tolerance. What decides by
comparing (sort, argmax, top_k, indices, predicates) takes *exact* values only: inputs, and what moves, negates, adds
or picks from exact values, because those are the same bits in every plan.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import prod, sqrt
from random import Random
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

SIZES = (2, 3, 4, 5, 6, 7, 8, 8, 12, 12, 13, 16, 24)
LARGEST = 6000
"""Elements of the largest value of a program."""


@dataclass(frozen=True)
class Known:
    """A value of the program being drawn; exact: the same bits whatever the plan."""

    x: Any
    exact: bool

    @property
    def is_float(self) -> bool:
        return bool(jnp.issubdtype(self.x.dtype, jnp.floating))

    @property
    def rank(self) -> int:
        return int(self.x.ndim)


class Drawing:
    """One program being drawn: its random numbers, and the values there are."""

    def __init__(self, seed: int, values: list[Known], key: Any, differentiated: bool) -> None:
        self.random = Random(seed)
        self.known = values
        self.key = key
        self.differentiated = differentiated

    # -- picking -----------------------------------------------------------------------------------------------

    def pick(self, test: Callable[[Known], bool] = lambda k: True) -> Known:
        """A value that passes the test, later ones more often; any float input where there is none."""
        found = [k for k in self.known if test(k)]
        if not found:
            raise NothingToDo
        return found[min(int(len(found) * self.random.random() ** 0.6), len(found) - 1)]

    def float(self, least: int = 1) -> Known:
        return self.pick(lambda k: k.is_float and k.rank >= least)

    def exact_float(self, least: int = 1) -> Known:
        return self.pick(lambda k: k.is_float and k.exact and k.rank >= least)

    def alike(self, other: Known) -> Known:
        """A float of the same shape, made by broadcasting or transposing where there is no other."""
        found = [k for k in self.known if k.is_float and k.x.shape == other.x.shape]
        return self.random.choice(found)

    def axis(self, k: Known, least: int = 2) -> int:
        axes = [d for d, n in enumerate(k.x.shape) if n >= least]
        if not axes:
            raise NothingToDo
        return self.random.choice(axes)

    def size(self) -> int:
        return self.random.choice(SIZES)

    def fresh(self, *shape: int) -> Any:
        """A constant array of the program, another one every time."""
        rng = np.random.default_rng(self.random.getrandbits(32))
        return jnp.asarray(rng.normal(size=shape), jnp.float32)

    def made(self, *shape: int) -> Any:
        """A float array of this shape: an input's elements moved about, or a constant."""
        if self.random.random() < 0.5:
            x = self.exact_float().x
            flat = jnp.tile(x.reshape(-1), -(-prod(shape) // x.size))[: prod(shape)]
            return flat.reshape(shape).astype(jnp.float32)
        return self.fresh(*shape)


class NothingToDo(Exception):
    """There is no value that this op could take."""


Maker = Callable[[Drawing], Known | list[Known]]
OPS: dict[str, tuple[int, Maker]] = {}
"""Name -> how often it is drawn, and what it does."""


def op(weight: int = 1) -> Callable[[Maker], Maker]:
    def register(f: Maker) -> Maker:
        OPS[f.__name__] = (weight, f)
        return f

    return register


# -- elementwise, linear and not ---------------------------------------------------------------------------------


@op(4)
def unary(d: Drawing) -> Known:
    a = d.float()
    f = d.random.choice([jnp.tanh, jnp.sin, jax.nn.sigmoid, jax.nn.gelu, jax.nn.softplus, jax.nn.silu, lax.erf])
    return Known(f(a.x), False)


@op(3)
def linear_unary(d: Drawing) -> Known:
    a = d.float()
    return d.random.choice(
        [
            lambda: Known(-a.x, a.exact),
            lambda: Known(a.x * 0.5, a.exact),
            lambda: Known(a.x.T, a.exact),
            lambda: Known(a.x / 3, False),
            lambda: Known(jnp.expand_dims(a.x, 0) + 0.0, a.exact),
            lambda: Known(a.x * 2, a.exact),
        ]
    )()


@op(6)
def binary(d: Drawing) -> Known:
    a = d.float()
    b = d.alike(a)
    what = d.random.choice(["add", "sub", "mul", "max", "min", "div", "where", "add", "add"])
    if what == "add":
        return Known(a.x + b.x, a.exact and b.exact)
    if what == "sub":
        return Known(a.x - 0.5 * b.x, False)
    if what == "mul":
        return Known(jnp.tanh(a.x) * b.x, False)
    if what == "div":
        return Known(a.x / (2 + jnp.abs(b.x)), False)
    if what == "where" and a.exact:
        return Known(jnp.where(a.x > 0.1, b.x, -1.0 if d.random.random() < 0.5 else a.x), b.exact)
    return Known((jnp.maximum if what == "max" else jnp.minimum)(a.x, b.x), a.exact and b.exact)


@op(3)
def broadcast_with(d: Drawing) -> Known:
    """A reduced or small value beside a large one."""
    a = d.float()
    axis = d.axis(a, 1)
    other = lax.index_in_dim(a.x, 0, axis, keepdims=True) if d.random.random() < 0.4 else a.x.mean(axis, keepdims=True)
    return Known(a.x + other if d.random.random() < 0.5 else a.x * jnp.tanh(other), False)


@op(2)
def new_dimension(d: Drawing) -> Known:
    a = d.float(0)
    n = d.random.choice((2, 3, 4, 8))
    if a.x.size * n > LARGEST or a.rank > 3:
        raise NothingToDo
    at = d.random.randint(0, a.rank)
    shape = (*a.x.shape[:at], n, *a.x.shape[at:])
    return Known(lax.broadcast_in_dim(a.x, shape, [k for k in range(a.rank + 1) if k != at]), a.exact)


@op(2)
def iota_plus(d: Drawing) -> Known:
    a = d.float()
    axis = d.axis(a, 1)
    return Known(a.x + lax.broadcasted_iota(jnp.float32, a.x.shape, axis).astype(a.x.dtype) / 16, False)


# -- contractions --------------------------------------------------------------------------------------------------


@op(9)
def matmul(d: Drawing) -> Known:
    """Any split of an operand's dimensions into batch, contracted and free ones."""
    a = d.float()
    letters = "abcd"[: a.rank]
    roles = [d.random.choice("bkkf") for _ in letters]
    if "k" not in roles:
        roles[d.random.randrange(a.rank)] = "k"
    sizes = dict(zip(letters, a.x.shape, strict=True))
    mine = [c for c, r in zip(letters, roles, strict=True) if r != "f"]
    free = "z"[: d.random.randint(0, 1)]
    sizes["z"] = d.size()
    b = [*mine, *free]
    out = [c for c, r in zip(letters, roles, strict=True) if r != "k"] + list(free)
    if prod(sizes[c] for c in out) > LARGEST or prod(sizes[c] for c in b) > LARGEST or len(out) > 4:
        raise NothingToDo
    d.random.shuffle(b)
    d.random.shuffle(out)
    depth = prod(sizes[c] for c, r in zip(letters, roles, strict=True) if r == "k")
    found = [k for k in d.known if k.is_float and k.x.shape == tuple(sizes[c] for c in b) and k.x.dtype == a.x.dtype]
    other = d.random.choice(found).x if found else d.made(*(sizes[c] for c in b)).astype(a.x.dtype)
    spec = f"{letters},{''.join(b)}->{''.join(out)}"
    return Known(jnp.einsum(spec, a.x, other) / sqrt(depth), False)


@op(4)
def sum_of_products(d: Drawing) -> Known:
    """Partial sums that meet in linear ops: they may stay partial up to the end."""
    a = d.float(2)
    k = a.x.shape[-1]
    n = d.size()
    if a.x.size // k * n > LARGEST:
        raise NothingToDo
    first, second = d.made(k, n).astype(a.x.dtype), d.made(k, n).astype(a.x.dtype)
    y = (a.x @ first + jnp.tanh(a.x) @ second) / sqrt(2 * k)
    chain = d.random.choice(
        [
            lambda y: -y + 0.0 * y,
            lambda y: jnp.swapaxes(y, -1, -2) * 0.5,
            lambda y: y.sum(axis=0) / sqrt(y.shape[0]),
            lambda y: y.reshape(-1),
            lambda y: jnp.concatenate([y, y * 2], axis=-1),
            lambda y: y * d.fresh(n).astype(y.dtype),
            lambda y: lax.pad(y, jnp.zeros((), y.dtype), [(1, 2, 0)] + [(0, 0, 0)] * (y.ndim - 1)),
        ]
    )
    return Known(chain(y), False)


@op(2)
def attention(d: Drawing) -> Known:
    a = d.float(2)
    if a.rank > 3:
        raise NothingToDo
    x = a.x
    scores = jnp.einsum("...ik,...jk->...ij", x, x) / sqrt(x.shape[-1])
    if d.random.random() < 0.5:
        mask = jnp.tril(jnp.ones(scores.shape[-2:], bool))
        scores = jnp.where(mask, scores, -1e9)
    return Known(jax.nn.softmax(scores, axis=-1) @ x, False)


# -- reductions and normalisations -----------------------------------------------------------------------------------


@op(6)
def reduction(d: Drawing) -> Known:
    a = d.float()
    axes = tuple(sorted(d.random.sample(range(a.rank), d.random.randint(1, a.rank))))
    n = prod(a.x.shape[k] for k in axes)
    keep = d.random.random() < 0.3
    what = d.random.choice(["sum", "mean", "max", "min", "prod", "logsumexp", "var", "sum"])
    if what == "sum":
        return Known(a.x.sum(axes, keepdims=keep) / sqrt(n), False)
    if what == "prod":
        return Known((1 + jnp.tanh(a.x) / (2 * n)).prod(axes, keepdims=keep), False)
    if what == "logsumexp":
        return Known(jax.nn.logsumexp(a.x, axes, keepdims=keep), False)
    y = getattr(a.x, what)(axes, keepdims=keep)
    return Known(y, a.exact and what in ("max", "min"))


@op(4)
def normalised(d: Drawing) -> Known:
    a = d.float()
    axis, x = d.axis(a), a.x
    what = d.random.choice(["softmax", "log_softmax", "layer", "rms", "softmax"])
    if what == "softmax":
        return Known(jax.nn.softmax(x, axis), False)
    if what == "log_softmax":
        return Known(jax.nn.log_softmax(x, axis), False)
    if what == "layer":
        centred = x - x.mean(axis, keepdims=True)
        return Known(centred * lax.rsqrt((centred**2).mean(axis, keepdims=True) + 1), False)
    return Known(x * lax.rsqrt((x**2).mean(axis, keepdims=True) + 1), False)


@op(2)
def exact_reduction(d: Drawing) -> Known:
    """Integers and truths: equal bits are demanded."""
    a = d.exact_float()
    axis = d.axis(a)
    what = d.random.choice(["argmax", "argmin", "all", "any", "count"])
    if what == "count":
        return Known((a.x > 0.2).astype(jnp.int32).sum(axis), True)
    if what in ("all", "any"):
        return Known(getattr(a.x > -0.5, what)(axis).astype(jnp.int32), True)
    return Known(getattr(a.x, what)(axis), True)


@op(3)
def cumulative(d: Drawing) -> Known:
    a = d.float()
    axis, reverse = d.axis(a, 1), d.random.random() < 0.3
    what = d.random.choice(["sum", "max", "min", "prod", "logsumexp"])
    x = a.x
    if what == "sum":
        return Known(lax.cumsum(x, axis, reverse=reverse) / sqrt(x.shape[axis]), False)
    if what == "prod":
        return Known(lax.cumprod(1 + jnp.tanh(x) / (2 * x.shape[axis]), axis, reverse=reverse), False)
    if what == "logsumexp":
        return Known(lax.cumlogsumexp(x, axis, reverse=reverse), False)
    return Known((lax.cummax if what == "max" else lax.cummin)(x, axis, reverse=reverse), a.exact)


# -- order ---------------------------------------------------------------------------------------------------------


@op(3)
def order(d: Drawing) -> Known | list[Known]:
    a = d.exact_float()
    axis = d.axis(a)
    what = d.random.choice(["sort", "argsort", "top_k", "sort pairs"])
    if what == "sort":
        return Known(jnp.sort(a.x, axis), True)
    if what == "argsort":
        return Known(jnp.argsort(a.x, axis).astype(jnp.int32), True)
    if what == "top_k":
        values, indices = lax.top_k(a.x, min(2, a.x.shape[-1]))
        return [Known(values, True), Known(indices, True)]
    keys, values = lax.sort((a.x, a.x * 2), dimension=axis, num_keys=1)
    return [Known(keys, True), Known(values, True)]


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


# -- whole programs ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RandomProgram:
    """A function, its arguments, and the names of its ops in order."""

    f: Callable[..., Any]
    args: tuple[Any, ...]
    seed: int

    def __str__(self) -> str:
        return f"program {self.seed}"


def random_program(seed: int, *, ops: int = 4) -> RandomProgram:
    """The program of a seed: two to four float inputs, an integer one, a key; sometimes its gradients, or bfloat16."""
    random = Random(seed)
    rng = np.random.default_rng(seed)
    floats = []
    for _ in range(random.randint(2, 3)):
        shape = tuple(random.choice(SIZES) for _ in range(random.choice([1, 2, 2, 2, 3])))
        floats.append(jnp.asarray(rng.normal(size=shape), jnp.float32))
    if random.random() < 0.7:  # something to add to, and to multiply with
        floats.append(jnp.asarray(rng.normal(size=floats[0].shape), jnp.float32))
    integers = jnp.asarray(rng.integers(0, 12, tuple(random.choice(SIZES) for _ in range(random.choice([1, 2])))))
    differentiated, narrow = random.random() < 0.3, random.random() < 0.12
    count = random.randint(1, 2 if differentiated else ops)

    def body(floats: Any, integers: Any, key: Any) -> dict[str, Any]:
        typed = [x.astype(jnp.bfloat16) if narrow else x for x in floats]
        known = [*(Known(x, True) for x in typed), Known(integers.astype(jnp.int32), True)]
        drawing = Drawing(seed, known, key, differentiated)
        names = [n for n, (weight, _) in OPS.items() for _ in range(weight)]
        given = len(known)
        done: list[str] = []
        made: list[str] = []
        while len(done) < count:
            name = drawing.random.choice(names)
            try:
                new = OPS[name][1](drawing)
            except NothingToDo:
                continue
            new = new if isinstance(new, list) else [new]
            if any(k.x.size > 4 * LARGEST or k.rank > 5 for k in new):
                continue
            done.append(name)
            made += [name] * len(new)
            drawing.known += new
        return {f"{k}_{name}": v.x for k, (name, v) in enumerate(zip(made, drawing.known[given:], strict=True))}

    if not differentiated:
        return RandomProgram(body, (floats, integers, jax.random.key(seed)), seed)

    def loss(floats: Any, integers: Any, key: Any) -> Any:
        found = body(floats, integers, key)
        smooth = [
            jnp.sin(x).astype(jnp.float32).mean() for x in found.values() if jnp.issubdtype(x.dtype, jnp.floating)
        ]
        return sum(smooth, jnp.float32(0)), found

    def gradients(floats: Any, integers: Any, key: Any) -> Any:
        (value, found), grads = jax.value_and_grad(loss, has_aux=True)(floats, integers, key)
        last = dict(list(found.items())[-2:])
        return {"loss": value, "grads": grads, **last}

    return RandomProgram(gradients, (floats, integers, jax.random.key(seed)), seed)
