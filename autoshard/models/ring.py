"""Attention in which keys and values go round the parts of a sequence (ring attention, arXiv 2310.01889).

The sequence is in parts, and part i of the queries meets part i + r of the keys and values in round r. Every array has
the parts as a dimension. Where a plan cuts it, keys and values are handed on between neighbours by permutes, and no
device ever holds more of them than two parts. What goes round has tags, so that it can be pinned: ``ring_key``,
``ring_value``, and in the backward pass ``ring_to_key`` and ``ring_to_value`` as well, all of the shape
(parts, b, s / parts, kv_heads, h).
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from autoshard.models.layers import MASKED


def ring_attention(query: jax.Array, key: jax.Array, value: jax.Array, parts: int, window: Any = None) -> jax.Array:
    """Causal grouped-query attention: (b, s, heads, h) and (b, s, kv_heads, h) to (b, s, heads, h).

    `parts` divides s. `window` limits how far back a position sees (a number or a scalar array). The backward pass goes
    round again and keeps only the results and their log-sum-exps.
    """
    batch, seq, heads, head_dim = query.shape
    kv_heads = key.shape[2]

    def in_parts(x: jax.Array) -> jax.Array:
        return jnp.moveaxis(x.reshape(batch, parts, seq // parts, *x.shape[2:]), 1, 0)

    grouped = query.reshape(batch, seq, kv_heads, heads // kv_heads, head_dim)
    reach = jnp.asarray(seq if window is None else window, jnp.int32)
    out: Any = _ring(in_parts(grouped), in_parts(key), in_parts(value), reach)
    return jnp.moveaxis(out, 0, 1).reshape(query.shape)


def parts_met(parts: int, round_: Any) -> tuple[jax.Array, jax.Array]:
    """The numbers of all parts, and of those whose keys they meet in a round."""
    part = jnp.arange(parts, dtype=jnp.int32)
    return part, jax.lax.rem(part + round_, jnp.int32(parts))


def scores_of(query: jax.Array, key: jax.Array, rows_at: jax.Array, columns_at: jax.Array, reach: Any) -> jax.Array:
    """Scores of blocks of queries (p, b, s, k, g, h) with blocks of keys: (p, b, k, g, s, t), float32.

    rows_at, columns_at: (p,) which of the equal blocks of the sequence they are.
    """
    length = query.shape[2]
    scores = jnp.einsum("pbskgh,pbtkh->pbkgst", query, key, preferred_element_type=jnp.float32)
    within = jnp.arange(length, dtype=jnp.int32)
    rows = (rows_at * length)[:, None, None] + within[None, :, None]
    columns = (columns_at * length)[:, None, None] + within[None, None, :]
    visible = (columns <= rows) & (rows - columns < reach)  # (p, s, t)
    return jnp.where(visible[:, None, None, None], scores * query.shape[-1] ** -0.5, MASKED)


def taken_in(scores: Any, value: Any, peak: Any, total: Any, out: Any) -> tuple[jax.Array, jax.Array, jax.Array]:
    """A running softmax (peaks, totals, weighted values) after another block of scores and values."""
    higher = jnp.maximum(peak, scores.max(-1))
    weights, scale = jnp.exp(scores - higher[..., None]), jnp.exp(peak - higher)
    total = total * scale + weights.sum(-1)
    weights = weights.astype(value.dtype)
    seen = jnp.einsum("pbkgst,pbtkh->pbkgsh", weights, value, preferred_element_type=jnp.float32)
    return higher, total, out * scale[..., None] + seen


def block_gradients(
    weights: Any, shared: Any, query: Any, key: Any, value: Any, given: Any
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """What one block adds to the gradients of queries, keys and values, float32.

    weights: of the softmax, float32. given: the gradient of the results. shared: sums of `given` times the results.
    """
    to_weights = jnp.einsum("pbskgh,pbtkh->pbkgst", given, value, preferred_element_type=jnp.float32)
    to_scores = (weights * (to_weights - shared[..., None]) * query.shape[-1] ** -0.5).astype(query.dtype)
    weights = weights.astype(query.dtype)
    return (
        jnp.einsum("pbkgst,pbtkh->pbskgh", to_scores, key, preferred_element_type=jnp.float32),
        jnp.einsum("pbkgst,pbskgh->pbtkh", to_scores, query, preferred_element_type=jnp.float32),
        jnp.einsum("pbkgst,pbskgh->pbtkh", weights, given, preferred_element_type=jnp.float32),
    )


def handed_on(x: jax.Array, tag: str) -> jax.Array:
    """Every part gets what the next one had."""
    return checkpoint_name(jnp.roll(x, -1, axis=0), f"ring_{tag}")


def _rounds(parts: int) -> jax.Array:
    return jnp.arange(parts, dtype=jnp.int32)


def _forward(query: Any, key: Any, value: Any, reach: Any) -> tuple[jax.Array, jax.Array]:
    """The results, and log-sum-exps of the scores (p, b, k, g, s)."""
    parts, batch, length, kv_heads, groups, _ = query.shape

    def body(carry: Any, round_: jax.Array) -> tuple[Any, None]:
        key, value, *state = carry
        scores = scores_of(query, key, *parts_met(parts, round_), reach)
        return (handed_on(key, "key"), handed_on(value, "value"), *taken_in(scores, value, *state)), None

    shape = (parts, batch, kv_heads, groups, length)
    none = (jnp.full(shape, MASKED, jnp.float32), jnp.zeros(shape, jnp.float32))
    start = (key, value, *none, jnp.zeros((*shape, query.shape[-1]), jnp.float32))
    (_, _, peak, total, out), _ = jax.lax.scan(body, start, _rounds(parts))
    out = jnp.einsum("pbkgsh->pbskgh", out / total[..., None]).astype(query.dtype)
    return out, peak + jnp.log(total)


@jax.custom_vjp
def _ring(query: Any, key: Any, value: Any, reach: Any) -> jax.Array:
    return _forward(query, key, value, reach)[0]


def _ring_forward(query: Any, key: Any, value: Any, reach: Any) -> tuple[jax.Array, Any]:
    out, sums = _forward(query, key, value, reach)
    return out, (query, key, value, reach, out, sums)


def _ring_backward(kept: Any, given: jax.Array) -> tuple[Any, ...]:
    """Gradients of keys and values go round with them, and are back at their part after the last round."""
    query, key, value, reach, out, sums = kept
    parts = query.shape[0]
    wide = given.astype(jnp.float32)
    shared = jnp.einsum("pbskgh,pbskgh->pbkgs", wide, out.astype(jnp.float32))

    def body(carry: Any, round_: jax.Array) -> tuple[Any, None]:
        key, value, *gradients = carry
        weights = jnp.exp(scores_of(query, key, *parts_met(parts, round_), reach) - sums[..., None])
        more = block_gradients(weights, shared, query, key, value, given)
        to_query, to_key, to_value = (g + m for g, m in zip(gradients, more, strict=True))
        around = (handed_on(key, "key"), handed_on(value, "value"))
        return (*around, to_query, handed_on(to_key, "to_key"), handed_on(to_value, "to_value")), None

    zeros = [jnp.zeros(x.shape, jnp.float32) for x in (query, key, value)]
    (_, _, *gradients), _ = jax.lax.scan(body, (key, value, *zeros), _rounds(parts))
    to = [g.astype(x.dtype) for g, x in zip(gradients, (query, key, value), strict=True)]
    return (*to, None)


_ring.defvjp(_ring_forward, _ring_backward)
