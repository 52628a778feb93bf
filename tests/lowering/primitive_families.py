"""Small functions, one for each primitive and mode that the lowering treats on its own, grouped by family."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

Case = Callable[..., Any]
RNG = np.random.default_rng(7)


def f32(*shape: int) -> jax.Array:
    return jnp.asarray(RNG.normal(size=shape), jnp.float32)


def i32(high: int, *shape: int, low: int = 0) -> jax.Array:
    return jnp.asarray(RNG.integers(low, high, shape), jnp.int32)


def structure() -> tuple[dict[str, Case], tuple[Any, ...]]:
    x, small, s = f32(8, 12), f32(4, 6), jnp.int32(3)
    cases: dict[str, Case] = {
        "broadcast": lambda x, small, s: lax.broadcast_in_dim(x, (5, 8, 2, 12), (1, 3)),
        "broadcast of size 1": lambda x, small, s: x[:, :1] * x,
        "merge dimensions": lambda x, small, s: x.reshape(96) + 1,
        "split a dimension": lambda x, small, s: jnp.tanh(x.reshape(2, 4, 3, 4)),
        "regroup dimensions": lambda x, small, s: x.reshape(4, 24) * 2,
        "iota": lambda x, small, s: (
            lax.broadcasted_iota(jnp.int32, (8, 12), 1) + lax.broadcasted_iota(jnp.int32, (8, 12), 0)
        ),
        "float iota": lambda x, small, s: lax.iota(jnp.float32, 24) * 2,
        "squeeze": lambda x, small, s: lax.squeeze(lax.expand_dims(x, (1,)) * 2, (1,)),
        "transpose": lambda x, small, s: x.T + 1,
        "concatenate": lambda x, small, s: jnp.concatenate([x, x * 2], axis=0),
        "split": lambda x, small, s: jnp.split(x, 3, axis=1),
        "split into one": lambda x, small, s: lax.split(x, [12], axis=1),
        "pad": lambda x, small, s: lax.pad(x, 1.5, ((0, 0, 0), (1, 2, 1))),
        "negative pad": lambda x, small, s: lax.pad(x, 0.0, ((-1, 0, 0), (0, 0, 0))),
        "slice": lambda x, small, s: lax.slice(x, (1, 0), (7, 12), (2, 1)),
        "dynamic_slice": lambda x, small, s: lax.dynamic_slice(x, (s, s + 100), (4, 12)),
        "dynamic_update_slice": lambda x, small, s: lax.dynamic_update_slice(x, small, (s, s + 1)),
        "dynamic_update_slice past the end": lambda x, small, s: lax.dynamic_update_slice(x, small, (s * 9, s * 9)),
        "dynamic_update_slice of rows": lambda x, small, s: lax.dynamic_update_slice(x, x[:2] * 3, (-s + 5, s)),
        "rev": lambda x, small, s: lax.rev(x, (1,)),
        "select with scalar": lambda x, small, s: lax.select(s > 1, x, x * 2),
        "select": lambda x, small, s: jnp.where(x > 0, x, -1.0),
        "clamp": lambda x, small, s: lax.clamp(-0.5, x, 0.5),
        "tile": lambda x, small, s: jnp.tile(x, (2, 3)),
        "stack": lambda x, small, s: jnp.stack([x, x + 1], axis=1),
        "bitcast": lambda x, small, s: lax.bitcast_convert_type(x, jnp.int16),
        "complex": lambda x, small, s: jnp.abs(lax.complex(x, x * 2)),
        "convert": lambda x, small, s: (x * 10).astype(jnp.int8).astype(jnp.float32),
    }
    return cases, (x, small, s)


def reductions() -> tuple[dict[str, Case], tuple[Any, ...]]:
    x, n = f32(6, 8, 12), i32(100, 8, 12, low=-100)
    cases: dict[str, Case] = {
        "sum": lambda x, n: x.sum(axis=(0, 2)),
        "mean to a scalar": lambda x, n: x.mean(),
        "integer sum": lambda x, n: n.sum(axis=0),
        "max": lambda x, n: x.max(axis=1) + 0,
        "max of negatives": lambda x, n: (x - 100).max(),
        "integer max of negatives": lambda x, n: (n - 500).max(axis=1),
        "min": lambda x, n: (x + 100).min(axis=(1, 2)),
        "prod": lambda x, n: (1 + x / 10).prod(axis=2),
        "all and any": lambda x, n: ((x > -9).all(axis=1), (x > 2).any(axis=0)),
        "argmax": lambda x, n: (x.argmax(axis=1), n.argmin(axis=0)),
        "cumsum": lambda x, n: jnp.cumsum(x, axis=1),
        "cummax": lambda x, n: lax.cummax(x, axis=2, reverse=True),
        "logsumexp": lambda x, n: jax.nn.logsumexp(x, axis=2),
        "softmax": lambda x, n: jax.nn.softmax(x, axis=1),
        "sort": lambda x, n: jnp.sort(x, axis=0),
        "sort by key": lambda x, n: lax.sort((n, x[0]), dimension=1, num_keys=1),
        "top_k": lambda x, n: lax.top_k(x, 3),
        "variance": lambda x, n: x.var(axis=2),
        "norm gradient": lambda x, n: jax.grad(lambda y: (y / jnp.sqrt((y**2).mean(-1, keepdims=True) + 1)).sum())(x),
        "max gradient": lambda x, n: jax.grad(lambda y: y.max(axis=1).sum())(x),
    }
    return cases, (x, n)


def contractions() -> tuple[dict[str, Case], tuple[Any, ...]]:
    a, b, c = f32(8, 6, 12), f32(8, 12, 10), f32(12, 16)
    rows, experts, sizes = f32(16, 12), f32(4, 12, 6), jnp.asarray([3, 0, 8, 4], jnp.int32)
    ragged = lambda r, e, s: lax.ragged_dot(r, e, s)  # noqa: E731
    cases: dict[str, Case] = {
        "matmul": lambda a, b, c, r, e, s: a @ c,
        "batched": lambda a, b, c, r, e, s: jnp.einsum("bij,bjk->bik", a, b),
        "two contracted": lambda a, b, c, r, e, s: jnp.einsum("bij,bjk->ik", a, b),
        "outer": lambda a, b, c, r, e, s: jnp.einsum("i,j->ij", c[0], c[1]),
        "matmul gradient": lambda a, b, c, r, e, s: jax.grad(lambda w: ((a @ w) ** 2).sum())(c),
        "bf16": lambda a, b, c, r, e, s: lax.dot(
            r.astype(jnp.bfloat16), c.astype(jnp.bfloat16), preferred_element_type=jnp.float32
        ),
        "attention": lambda a, b, c, r, e, s: jax.nn.softmax(jnp.einsum("bik,bjk->bij", a, a), -1) @ a,
        "ragged_dot": lambda a, b, c, r, e, s: ragged(r, e, s),
        "ragged_dot gradients": lambda a, b, c, r, e, s: jax.grad(
            lambda r, e: (jnp.sin(ragged(r, e, s))).sum(), argnums=(0, 1)
        )(r, e),
    }
    return cases, (a, b, c, rows, experts, sizes)


def convolutions() -> tuple[dict[str, Case], tuple[Any, ...]]:
    image, kernel, grouped, one = f32(8, 8, 8, 4), f32(3, 3, 4, 8), f32(3, 3, 2, 8), f32(1, 1, 4, 6)
    numbers = ("NHWC", "HWIO", "NHWC")

    def conv(x: Any, k: Any, stride: int = 1, groups: int = 1, **more: Any) -> Any:
        return lax.conv_general_dilated(
            x, k, (stride, stride), "SAME", dimension_numbers=numbers, feature_group_count=groups, **more
        )

    def pool(x: Any) -> Any:
        return lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")

    cases: dict[str, Case] = {
        "conv": lambda x, k, g, o: conv(x, k),
        "strided conv": lambda x, k, g, o: conv(x, k, 2),
        "dilated conv": lambda x, k, g, o: conv(x, k, rhs_dilation=(2, 2)),
        "grouped conv": lambda x, k, g, o: conv(x, g, groups=2),
        "depthwise conv": lambda x, k, g, o: conv(x, g[:, :, :1], groups=4),
        "1x1 conv": lambda x, k, g, o: conv(x, o),
        "conv gradients": lambda x, k, g, o: jax.grad(lambda x, k: jnp.sin(conv(x, k, 2)).sum(), argnums=(0, 1))(x, k),
        "1x1 conv gradients": lambda x, k, g, o: jax.grad(lambda x, k: jnp.sin(conv(x, k)).sum(), argnums=(0, 1))(x, o),
        "max pool": lambda x, k, g, o: pool(x),
        "max pool gradient": lambda x, k, g, o: jax.grad(lambda x: jnp.sin(pool(x)).sum())(x),
        "sum pool": lambda x, k, g, o: lax.reduce_window(x, 0.0, lax.add, (1, 3, 3, 1), (1, 1, 1, 1), "SAME"),
    }
    return cases, (image, kernel, grouped, one)


def lookups() -> tuple[dict[str, Case], tuple[Any, ...]]:
    table, ids, wild = f32(24, 8), i32(24, 4, 6), i32(40, 4, 6, low=-40)
    batch, column = f32(4, 6, 10), i32(10, 4, 6)
    g = lax.GatherDimensionNumbers
    cases: dict[str, Case] = {
        "embedding": lambda t, i, w, b, c: t[i],
        "promised in bounds": lambda t, i, w, b, c: t.at[i].get(mode="promise_in_bounds"),
        "clipped": lambda t, i, w, b, c: t.at[w].get(mode="clip"),
        "filled with NaN": lambda t, i, w, b, c: t.at[w].get(mode="fill"),
        "filled with a number": lambda t, i, w, b, c: t.at[w].get(mode="fill", fill_value=7.0),
        "filled integers": lambda t, i, w, b, c: (t * 9).astype(jnp.int32).at[w].get(mode="fill"),
        "columns": lambda t, i, w, b, c: t[:, c % 8],
        "along an axis": lambda t, i, w, b, c: jnp.take_along_axis(b, c[..., None], axis=2),
        "two looked-up dimensions": lambda t, i, w, b, c: t[i, c % 8],
        "two looked-up dimensions out of bounds": lambda t, i, w, b, c: t.at[i, w % 12].get(mode="fill", fill_value=0),
        "small index type": lambda t, i, w, b, c: t[i.astype(jnp.uint8)],
        "windows": lambda t, i, w, b, c: lax.gather(
            t, i[..., None], g(offset_dims=(2, 3), collapsed_slice_dims=(), start_index_map=(0,)), (2, 8), mode="clip"
        ),
        "batched over rows": lambda t, i, w, b, c: jax.vmap(lambda x, k: x[k])(b, c % 6),
        "embedding gradient": lambda t, i, w, b, c: jax.grad(lambda t: jnp.sin(t[i]).sum())(t),
        "gradient along an axis": lambda t, i, w, b, c: jax.grad(
            lambda b: jnp.sin(jnp.take_along_axis(b, c[..., None], axis=2)).sum()
        )(b),
        "cross entropy": lambda t, i, w, b, c: jax.grad(
            lambda b: -jnp.take_along_axis(jax.nn.log_softmax(b), c[..., None], axis=2).mean()
        )(b),
    }
    return cases, (table, ids, wild, batch, column)


def updates() -> tuple[dict[str, Case], tuple[Any, ...]]:
    x, ids, wild, rows = f32(24, 8), i32(24, 10), i32(60, 10, low=-60), f32(10, 8)
    batch, column = f32(4, 6, 10), i32(10, 4, 6)
    cases: dict[str, Case] = {
        "add": lambda x, i, w, r, b, c: x.at[i].add(r),
        "add, out of bounds dropped": lambda x, i, w, r, b, c: x.at[w].add(r, mode="drop"),
        "add, clipped": lambda x, i, w, r, b, c: x.at[w].add(r, mode="clip"),
        "add, promise broken": lambda x, i, w, r, b, c: x.at[w].add(r, mode="promise_in_bounds"),
        "gradient of min, clipped": lambda x, i, w, r, b, c: jax.grad(
            lambda x: jnp.sin(x.at[w].min(r, mode="clip")).sum()
        )(x),
        "add scalars": lambda x, i, w, r, b, c: x.at[i, i % 8].add(1.0),
        "integer add": lambda x, i, w, r, b, c: (x * 9).astype(jnp.int32).at[i].add(2),
        "subtract": lambda x, i, w, r, b, c: x.at[i].subtract(r),
        "set unique": lambda x, i, w, r, b, c: x.at[jnp.arange(10) * 2].set(r, unique_indices=True),
        "set, out of bounds dropped": lambda x, i, w, r, b, c: x.at[jnp.arange(10) * 4 - 4].set(r, mode="drop"),
        "set, clipped": lambda x, i, w, r, b, c: x.at[w].set(1.0, mode="clip"),
        "multiply": lambda x, i, w, r, b, c: x.at[i].multiply(1 + r / 9),
        "max": lambda x, i, w, r, b, c: x.at[i].max(r),
        "min, dropped": lambda x, i, w, r, b, c: x.at[w].min(r, mode="drop"),
        "columns": lambda x, i, w, r, b, c: x.at[:, i[:4] % 8].add(2.0),
        "batched": lambda x, i, w, r, b, c: jax.vmap(lambda y, k: y.at[k].add(1.0))(b[..., 0], c % 6),
        "window": lambda x, i, w, r, b, c: lax.scatter_add(
            x,
            i[:3, None],
            r[:6].reshape(3, 2, 8),
            lax.ScatterDimensionNumbers(
                update_window_dims=(1, 2), inserted_window_dims=(), scatter_dims_to_operand_dims=(0,)
            ),
            mode="drop",
        ),
        "one-hot by scatter": lambda x, i, w, r, b, c: jnp.zeros((10, 24)).at[jnp.arange(10), i].set(1.0),
    }
    return cases, (x, ids, wild, rows, batch, column)


def others() -> tuple[dict[str, Case], tuple[Any, ...]]:
    x, key = f32(4, 6, 6), jax.random.key(3)
    keys = jax.random.split(key, 8)
    spd = x @ x.swapaxes(1, 2) + 3 * jnp.eye(6)
    cases: dict[str, Case] = {
        "normal": lambda x, spd, k, ks: jax.random.normal(k, (8, 6)),
        "bits of many keys": lambda x, spd, k, ks: jax.vmap(lambda k: jax.random.bits(k, (4,)))(ks),
        "split and fold in": lambda x, spd, k, ks: jax.random.key_data(jax.random.fold_in(jax.random.split(k)[1], 5)),
        "keys out": lambda x, spd, k, ks: jax.random.key_data(jax.vmap(lambda k: jax.random.fold_in(k, 1))(ks)),
        "dropout": lambda x, spd, k, ks: jnp.where(jax.random.bernoulli(k, 0.5, x.shape), x, 0),
        "cholesky": lambda x, spd, k, ks: jnp.linalg.cholesky(spd),
        "triangular_solve": lambda x, spd, k, ks: jax.scipy.linalg.solve_triangular(spd, x),
        "qr": lambda x, spd, k, ks: jnp.abs(jnp.linalg.qr(spd)[1]),
        "erf and friends": lambda x, spd, k, ks: lax.erf(x) + lax.lgamma(spd) + jnp.expm1(x) + jax.nn.gelu(x),
    }
    return cases, (x, spd, key, keys)


FAMILIES: dict[str, Callable[[], tuple[dict[str, Case], tuple[Any, ...]]]] = {
    f.__name__: f for f in (structure, reductions, contractions, convolutions, lookups, updates, others)
}


def together(cases: dict[str, Case]) -> Callable[..., dict[str, Any]]:
    """One function that returns the results of all cases by name, so that they share a compilation."""

    def run(*args: Any) -> dict[str, Any]:
        return {name: case(*args) for name, case in cases.items()}

    return run
