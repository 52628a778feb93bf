"""Ops of random programs: elementwise, contractions, reductions, order."""

from math import prod, sqrt

import jax
import jax.numpy as jnp
from drawing import LARGEST, Drawing, Known, NothingToDo, op
from jax import lax

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
