"""Building blocks as functions on arrays: norms, rotary positions, attention, cross-entropy, remat."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

NORM_EPSILON = 1e-5
MASKED = -1e30  # finite: a softmax over masked scores stays free of NaN

ACTIVATION: dict[str, Callable[[jax.Array], jax.Array]] = {
    "silu": jax.nn.silu,
    "gelu": jax.nn.gelu,
    "relu": jax.nn.relu,
    "tanh": jnp.tanh,
}


def remat(function: Callable[..., Any], policy: str | tuple[str, ...], *, in_scan: bool) -> Callable[..., Any]:
    """Recompute `function` in the backward pass: all of it ("full"), all but matmuls ("dots"), or all but some tags.

    Inside a scan the loop itself keeps the two computations apart, so there is no barrier then (`in_scan`).
    """
    if policy == "none":
        return function
    if policy == "full":
        keep = None
    elif policy == "dots":
        keep = jax.checkpoint_policies.dots_with_no_batch_dims_saveable
    else:
        keep = jax.checkpoint_policies.save_only_these_names(*policy)
    return jax.checkpoint(function, policy=keep, prevent_cse=not in_scan)


def rms_norm(x: jax.Array, scale: jax.Array) -> jax.Array:
    """Divide by the root mean square of the last dimension (arXiv 1910.07467), in float32; the result has x's dtype."""
    wide = x.astype(jnp.float32)
    wide = wide * jax.lax.rsqrt(jnp.mean(jnp.square(wide), axis=-1, keepdims=True) + NORM_EPSILON)
    return (wide * scale.astype(jnp.float32)).astype(x.dtype)


def layer_norm(x: jax.Array, scale: jax.Array, bias: jax.Array) -> jax.Array:
    """Mean 0 and variance 1 over the last dimension (arXiv 1607.06450), in float32; the result has x's dtype."""
    wide = x.astype(jnp.float32)
    wide = wide - jnp.mean(wide, axis=-1, keepdims=True)
    wide = wide * jax.lax.rsqrt(jnp.mean(jnp.square(wide), axis=-1, keepdims=True) + NORM_EPSILON)
    return (wide * scale.astype(jnp.float32) + bias.astype(jnp.float32)).astype(x.dtype)


def rope(x: jax.Array, base: float, positions: Any = None) -> jax.Array:
    """Rotate pairs (i, i + H/2) of the last dimension by position (arXiv 2104.09864). `x` is (batch, seq, heads, H).

    positions: (seq,) where they are not 0, 1, ...
    """
    seq, head_dim = x.shape[1], x.shape[-1]
    frequency = base ** (-jnp.arange(head_dim // 2, dtype=jnp.float32) / (head_dim // 2))
    place = jnp.arange(seq, dtype=jnp.float32) if positions is None else jnp.asarray(positions, jnp.float32)
    angle = place[:, None] * frequency  # (seq, H/2)
    cos, sin = jnp.cos(angle)[None, :, None, :], jnp.sin(angle)[None, :, None, :]
    first, second = jnp.split(x.astype(jnp.float32), 2, axis=-1)
    turned = jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)
    return turned.astype(x.dtype)


def _attend(query: jax.Array, key: jax.Array, value: jax.Array, start: Any, window: Any) -> jax.Array:
    """Attention of queries at positions `start ...` to all keys; head groups share a key-value head.

    `query` is (b, s, k, g, h), `key` and `value` (b, t, k, h). Scores and softmax are float32.
    """
    scores = jnp.einsum("bskgh,btkh->bkgst", query, key, preferred_element_type=jnp.float32)
    scores = scores * query.shape[-1] ** -0.5
    rows = start + jnp.arange(query.shape[1])[:, None]
    columns = jnp.arange(key.shape[1])[None, :]
    visible = columns <= rows
    if window is not None:
        visible = visible & (rows - columns < window)
    weights = jax.nn.softmax(jnp.where(visible, scores, MASKED), axis=-1)
    return jnp.einsum("bkgst,btkh->bskgh", weights.astype(value.dtype), value)


def attention(
    query: jax.Array, key: jax.Array, value: jax.Array, *, window: Any = None, block: int | None = None
) -> jax.Array:
    """Causal grouped-query attention (arXiv 2305.13245): (b, s, heads, h) and (b, s, kv_heads, h) to (b, s, heads, h).

    `window` limits how far back a position sees (a number or a scalar array). `block` computes that many query
    positions at a time and recomputes them in the backward pass.
    """
    batch, seq, heads, head_dim = query.shape
    groups = heads // key.shape[2]
    grouped = query.reshape(batch, seq, key.shape[2], groups, head_dim)
    if block is None or block == seq:
        return _attend(grouped, key, value, 0, window).reshape(query.shape)

    @jax.checkpoint
    def one(start: jax.Array, queries: jax.Array) -> jax.Array:
        return _attend(queries, key, value, start, window)

    def body(start: jax.Array, queries: jax.Array) -> tuple[jax.Array, jax.Array]:
        return start + block, one(start, queries)

    blocks = jnp.moveaxis(grouped.reshape(batch, seq // block, block, *grouped.shape[2:]), 1, 0)
    _, out = jax.lax.scan(body, jnp.zeros((), jnp.int32), blocks)
    return jnp.moveaxis(out, 0, 1).reshape(query.shape)


def cross_entropy(logits: jax.Array, labels: jax.Array) -> jax.Array:
    """Mean negative log-likelihood; logits (..., classes) float32, labels (...) int32."""
    picked = jnp.take_along_axis(logits, labels[..., None], axis=-1)[..., 0]
    return jnp.mean(jax.nn.logsumexp(logits, axis=-1) - picked)
