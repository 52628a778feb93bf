"""Programs of one chip that the speed of compiled work is fitted on.

Each compiles in seconds on a GPU (where matmuls are tuned meanwhile) and in half a minute to two minutes for a TPU.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from autoshard.models import build

Built = tuple[Callable[..., Any], tuple[Any, ...], tuple[int, ...]]
"""A function, its abstract arguments, and the numbers of those that it may overwrite."""


def of(*shape: int, dtype: Any = jnp.bfloat16) -> jax.ShapeDtypeStruct:
    """An abstract array."""
    return jax.ShapeDtypeStruct(shape, dtype)


def attention(batch: int, seq: int, heads: int, width: int) -> Built:
    """Causal attention and its gradients: scores in float32, everything else in bfloat16."""

    def loss(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
        scores = jnp.einsum("bshd,bthd->bhst", q, k, preferred_element_type=jnp.float32) * width**-0.5
        scores = jnp.where(jnp.tril(jnp.ones((seq, seq), bool)), scores, -1e30)
        shares = jax.nn.softmax(scores, axis=-1).astype(v.dtype)
        return jnp.sum(jnp.einsum("bhst,bthd->bshd", shares, v).astype(jnp.float32) ** 2)

    return jax.value_and_grad(loss, (0, 1, 2)), (of(batch, seq, heads, width),) * 3, ()


def adam(w: Any, g: Any, m: Any, v: Any) -> Any:
    """One parameter's update."""
    m, v = 0.9 * m + 0.1 * g, 0.95 * v + 0.05 * g * g
    return w - 1e-3 * m / (jnp.sqrt(v) + 1e-8), m, v


def block(tokens: int, width: int, hidden: int, vocab: int, dtype: Any = jnp.bfloat16, updates: bool = True) -> Built:
    """A gated MLP with norm and residual, logits, their loss and gradients, a layer without attention; with Adam.

    updates: whether parameters are updated; on one chip that is fused with the matmuls that make the gradients, which
    does not happen where a gradient is summed over devices before.
    """

    def loss(w: Any, x: jax.Array) -> jax.Array:
        size = jnp.mean(jnp.square(x.astype(jnp.float32)), -1, keepdims=True)
        n = x * lax.rsqrt(size + 1e-6).astype(x.dtype)
        gate, up = n @ w["g"].astype(x.dtype), n @ w["u"].astype(x.dtype)
        y = x + (jax.nn.silu(gate) * up) @ w["d"].astype(x.dtype)
        logits = (y @ w["h"].astype(x.dtype)).astype(jnp.float32)
        return jnp.mean(jax.nn.logsumexp(logits, -1) - logits[..., 0])

    def step(state: Any, x: jax.Array) -> Any:
        if not updates:
            return jax.value_and_grad(loss, (0, 1))(state["w"], x)
        value, grads = jax.value_and_grad(loss)(state["w"], x)
        return value, jax.tree.map(adam, state["w"], grads, state["m"], state["v"])

    shapes = {"g": (width, hidden), "u": (width, hidden), "d": (hidden, width), "h": (width, vocab)}
    weights = {name: of(*shape, dtype=jnp.float32) for name, shape in shapes.items()}
    state = {"w": weights, "m": weights, "v": weights} if updates else {"w": weights}
    return step, (state, of(tokens, width, dtype=dtype)), (0,) if updates else ()


def mlp_gradients(tokens: int, width: int, hidden: int, dtype: Any, precision: str | None = None) -> Built:
    """A matmul to a hidden layer, relu and a matmul back: the gradients of all of it, handed out and not applied."""

    def loss(ws: Any, x: jax.Array) -> jax.Array:
        up, down = (w.astype(x.dtype) for w in ws)
        hidden = jax.nn.relu(jnp.matmul(x, up, precision=precision))
        return jnp.mean(jnp.square(jnp.matmul(hidden, down, precision=precision).astype(jnp.float32)))

    weights = of(width, hidden, dtype=jnp.float32), of(hidden, width, dtype=jnp.float32)
    return jax.value_and_grad(loss), (weights, of(tokens, width, dtype=dtype)), ()


def few_rows(rows: int, width: int, hidden: int, layers: int) -> Built:
    """Gated MLPs of few rows, as in decoding: what their matmuls take is reading the weights."""

    def step(ws: Any, x: jax.Array) -> jax.Array:
        for w in ws:
            x = x + (jax.nn.silu(x @ w["g"]) * (x @ w["u"])) @ w["d"]
        return x

    weights = {"g": of(width, hidden), "u": of(width, hidden), "d": of(hidden, width)}
    return step, ([weights] * layers, of(rows, width)), ()


def few_rows_scanned(rows: int, width: int, hidden: int, layers: int) -> Built:
    """The same as a scan over stacked weights, of which each trip reads its slice."""

    def step(ws: Any, x: jax.Array) -> jax.Array:
        return lax.scan(
            lambda x, w: (x + (jax.nn.silu(x @ w["g"]) * (x @ w["u"])) @ w["d"], None), x, ws
        )[0]  # fmt: skip

    weights = {"g": of(layers, width, hidden), "u": of(layers, width, hidden), "d": of(layers, hidden, width)}
    return step, (weights, of(rows, width)), ()


def few_queries(batch: int, context: int, heads: int, queries: int, width: int, layers: int) -> Built:
    """A token's attention to caches, which are read and written in place, a few queries for each of their heads."""

    def step(caches: Any, q: jax.Array, new: jax.Array, at: jax.Array) -> Any:
        kept = []
        for cache in caches:
            keys, values = (lax.dynamic_update_slice(cache[name], new, (0, at, 0, 0)) for name in ("k", "v"))
            scores = jnp.einsum("bkgd,bskd->bkgs", q, keys, preferred_element_type=jnp.float32) * width**-0.5
            shares = jax.nn.softmax(jnp.where(jnp.arange(context) <= at, scores, -1e30), axis=-1).astype(q.dtype)
            q = jnp.einsum("bkgs,bskd->bkgd", shares, values)
            kept.append({"k": keys, "v": values})
        return kept, q

    cache = of(batch, context, heads, width)
    specs = ([{"k": cache, "v": cache}] * layers, of(batch, heads, queries, width), of(batch, 1, heads, width))
    return step, (*specs, of(dtype=jnp.int32)), (0,)


def update() -> Built:
    """Adam alone, on gradients that are there."""
    arrays = {name: of(4096, 8192, dtype=jnp.float32) for name in "ab"}
    return lambda w, g, m, v: jax.tree.map(adam, w, g, m, v), (arrays,) * 4, (0, 2, 3)


def convolutions(
    kernels: Sequence[tuple[int, ...]] = ((3, 3, 128, 128), (3, 3, 128, 256), (1, 1, 256, 512)),
    strides: Sequence[int] = (1, 2, 1),
    dtype: Any = jnp.float32,
) -> Built:
    """Convolutions with relu and their gradients. kernels: of each its window and its channels."""

    def loss(ws: Any, x: jax.Array) -> jax.Array:
        for w, stride in zip(ws, strides, strict=True):
            names = ("NHWC", "HWIO", "NHWC")
            x = jax.nn.relu(lax.conv_general_dilated(x, w, (stride, stride), "SAME", dimension_numbers=names))
        return jnp.sum(x.astype(jnp.float32) ** 2)

    arrays = tuple(of(*k, dtype=dtype) for k in kernels)
    return jax.value_and_grad(loss, (0, 1)), (arrays, of(64, 56, 56, kernels[0][2], dtype=dtype)), ()


def model(name: str, **options: Any) -> Built:
    """A train step of the model library."""
    made = build(name, **options)
    return made.step, made.specs, made.donate_argnums


_MLP = {"inputs": 4096, "hidden": 16384, "outputs": 4096, "layers": 2, "batch": 4096}
_DENSE = {
    "layers": 2, "d_model": 2048, "d_ff": 8192, "heads": 16, "kv_heads": 8, "vocab": 32768, "scan": True, "remat": True,
    "compute_dtype": "bfloat16", "batch": 2, "seq": 2048,
}  # fmt: skip
_CONV = {"batch": 64, "width": 64, "image": 56, "stages": [1, 1, 1], "classes": 1000}
PROGRAMS: dict[str, Callable[[], Built]] = {
    "attn": lambda: attention(2, 2048, 16, 128),
    "attn_short": lambda: attention(16, 512, 8, 64),
    "attn_256": lambda: attention(64, 256, 8, 128),
    "attn_512": lambda: attention(16, 512, 8, 128),
    "attn_1k": lambda: attention(4, 1024, 16, 128),
    "attn_4k": lambda: attention(2, 4096, 4, 128),
    "attn_narrow": lambda: attention(2, 2048, 16, 64),
    "block": lambda: block(4096, 2048, 8192, 16384),
    "grads_bf16": lambda: block(4096, 2048, 8192, 16384, updates=False),
    "grads_f32": lambda: block(2048, 4096, 4096, 4096, jnp.float32, updates=False),
    "mlp_grads_f32": lambda: mlp_gradients(2048, 4096, 16384, jnp.float32),
    "mlp_grads_bf16": lambda: mlp_gradients(2048, 4096, 16384, jnp.bfloat16),
    "mlp_grads_high": lambda: mlp_gradients(2048, 4096, 16384, jnp.float32, "high"),
    "mlp_grads_highest": lambda: mlp_gradients(2048, 4096, 16384, jnp.float32, "highest"),
    "adam": update,
    "few_rows": lambda: few_rows(32, 6144, 8192, 3),
    "few_rows_scanned": lambda: few_rows_scanned(32, 6144, 8192, 3),
    "few_rows_scanned_2k": lambda: few_rows_scanned(16, 2048, 5632, 4),
    "few_queries": lambda: few_queries(48, 2048, 4, 6, 128, 3),
    "four_queries": lambda: few_queries(64, 4096, 2, 4, 128, 2),
    "convs": convolutions,
    "convs_plain": lambda: convolutions(((3, 3, 128, 128), (3, 3, 128, 256), (3, 3, 256, 256)), (1, 1, 1)),
    "convs_strided": lambda: convolutions(
        ((3, 3, 128, 256), (3, 3, 256, 256), (3, 3, 256, 512)), (2, 1, 2), jnp.bfloat16
    ),
    "mlp_f32": lambda: model("mlp", **_MLP),
    "mlp_f32_2k": lambda: model("mlp", **{**_MLP, "hidden": 2048, "batch": 8192}),
    "mlp_f32_1k": lambda: model("mlp", **{**_MLP, "hidden": 1024, "batch": 16384}),
    "mlp_f32_short": lambda: model("mlp", **{**_MLP, "hidden": 8192, "batch": 1024}),
    "mlp_bf16": lambda: model("mlp", **_MLP, compute_dtype="bfloat16"),
    "mlp_bf16_short": lambda: model("mlp", **{**_MLP, "hidden": 8192, "batch": 1024}, compute_dtype="bfloat16"),
    "dense": lambda: model("transformer", **_DENSE),
    "conv": lambda: model("resnet", **_CONV),
}


def matmuls(rows: int, inner: int, columns: int, dtype: Any = jnp.bfloat16, pairs: int = 8) -> Built:
    """(rows, inner) by (inner, columns), and back by (columns, inner), so many times one after the other.

    They are many in one call, of few arrays, so that what the host does for a call is hidden.
    """

    def step(x: jax.Array, there: jax.Array, back: jax.Array) -> jax.Array:
        for _ in range(pairs):
            x = (x @ there) @ back
        return x

    return step, (of(rows, inner, dtype=dtype), of(inner, columns, dtype=dtype), of(columns, inner, dtype=dtype)), ()


_SHAPES = (
    (1024, 1024, 1024), (2048, 1024, 4096), (4096, 768, 3072), (512, 4096, 4096), (2048, 4096, 4096),
    (8192, 1024, 4096), (2048, 8192, 2048), (4096, 4096, 4096), (2048, 8192, 8192), (8192, 4096, 14336),
)  # fmt: skip
MATMULS: dict[str, Callable[[], Built]] = {
    f"matmul_{'x'.join(map(str, shape))}_{name}": partial(matmuls, *shape, dtype)
    for name, dtype in (("bf16", jnp.bfloat16), ("f32", jnp.float32))
    for shape in (_SHAPES if name == "bf16" else _SHAPES[1::2])
}
"""Matmuls by themselves: on GPUs their speed depends on their size, and each of them takes time to start."""
