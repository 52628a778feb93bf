"""Ring attention in which all parts have the same share of causal work, as in training Llama 3 (arXiv 2407.21783).

The sequence is in twice as many chunks as parts: part i has chunk i, its early half, and chunk 2 parts - 1 - i, its
late half. In every round but the first two of the four blocks of scores of a part are visible, whichever keys it
meets: its late queries with the early keys, and its early queries with the early keys or its late ones with the late
keys. These are 2 parts + 1 of the 4 parts blocks that `autoshard.models.ring` computes, the others being masked. What
goes round has the tags of the ring, and the shape (parts, 2, b, s / (2 parts), kv_heads, h).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from autoshard.models.layers import MASKED
from autoshard.models.ring import block_gradients, handed_on, parts_met, scores_of, taken_in

EARLY, LATE, EITHER = 0, 1, 2
"""Halves of a part. ``EITHER`` is the early one where a part meets keys from before it, else the late one."""
Block = tuple[int, int]
"""A half of the queries and a half of the keys that they meet."""
FIRST: tuple[Block, ...] = ((EARLY, EARLY), (LATE, EARLY), (LATE, LATE))
OTHERS: tuple[Block, ...] = ((LATE, EARLY), (EITHER, EITHER))


def zigzag_order(seq: int, parts: int) -> np.ndarray:
    """The positions, in the order in which `zigzag_attention` takes them: (seq,) int32; 2 `parts` divides seq.

    >>> zigzag_order(8, 2).tolist()
    [0, 1, 6, 7, 2, 3, 4, 5]
    """
    chunks = np.arange(seq, dtype=np.int32).reshape(2 * parts, -1)
    return np.stack([chunks[:parts], chunks[: parts - 1 : -1]], 1).reshape(-1)


def zigzag_attention(query: jax.Array, key: jax.Array, value: jax.Array, parts: int, window: Any = None) -> jax.Array:
    """Causal grouped-query attention: (b, s, heads, h) and (b, s, kv_heads, h) to (b, s, heads, h).

    Positions are in `zigzag_order`, in the arguments and in the result. `window` as in
    `autoshard.models.ring.ring_attention`.
    """
    batch, seq, heads, head_dim = query.shape
    kv_heads = key.shape[2]

    def in_parts(x: jax.Array) -> jax.Array:
        return jnp.moveaxis(x.reshape(batch, parts, 2, seq // (2 * parts), *x.shape[2:]), 0, 2)

    grouped = query.reshape(batch, seq, kv_heads, heads // kv_heads, head_dim)
    reach = jnp.asarray(seq if window is None else window, jnp.int32)
    out: Any = _zigzag(in_parts(grouped), in_parts(key), in_parts(value), reach)
    return jnp.moveaxis(out, 2, 0).reshape(query.shape)


class _Round:
    """A round: the chunks of all parts and of the keys that they meet, and halves of arrays (p, 2, ...)."""

    def __init__(self, parts: int, number: Any) -> None:
        part, met = parts_met(parts, number)
        self.own, self.met = (jnp.stack([x, 2 * parts - 1 - x], 1) for x in (part, met))
        self.is_early = met < part

    def _chosen(self, early: jax.Array, late: jax.Array) -> jax.Array:
        return jnp.where(self.is_early.reshape(-1, *[1] * (early.ndim - 1)), early, late)

    def get(self, x: jax.Array, half: int) -> jax.Array:
        return self._chosen(x[:, EARLY], x[:, LATE]) if half == EITHER else x[:, half]

    def put(self, x: jax.Array, half: int, new: jax.Array) -> jax.Array:
        early, late = x[:, EARLY], x[:, LATE]
        if half == EITHER:
            return jnp.stack([self._chosen(new, early), self._chosen(late, new)], 1)
        return jnp.stack([new, late] if half == EARLY else [early, new], 1)

    def scores(self, query: jax.Array, key: jax.Array, block: Block, reach: jax.Array) -> jax.Array:
        """Scores of a half of queries (p, 2, b, s, k, g, h) with a half of the keys: (p, b, k, g, s, t), float32."""
        rows, columns = self.get(self.own, block[0]), self.get(self.met, block[1])
        return scores_of(self.get(query, block[0]), self.get(key, block[1]), rows, columns, reach)


def _forward(query: Any, key: Any, value: Any, reach: Any) -> tuple[jax.Array, jax.Array]:
    """The results, and log-sum-exps of the scores (p, 2, b, k, g, s)."""
    parts, _, batch, length, kv_heads, groups, head_dim = query.shape

    def computed(carry: Any, number: Any, blocks: Iterable[Block]) -> Any:
        key, value, *state = carry
        now = _Round(parts, number)
        for block in blocks:
            half, of_keys = block
            scores = now.scores(query, key, block, reach)
            new = taken_in(scores, now.get(value, of_keys), *(now.get(x, half) for x in state))
            state = [now.put(x, half, n) for x, n in zip(state, new, strict=True)]
        return key, value, *state

    def body(carry: Any, number: jax.Array) -> tuple[Any, None]:
        key, value, *state = carry
        return computed((handed_on(key, "key"), handed_on(value, "value"), *state), number, OTHERS), None

    shape = (parts, 2, batch, kv_heads, groups, length)
    none = (jnp.full(shape, MASKED, jnp.float32), jnp.zeros(shape, jnp.float32))
    start = computed((key, value, *none, jnp.zeros((*shape, head_dim), jnp.float32)), 0, FIRST)
    (_, _, peaks, totals, outs), _ = jax.lax.scan(body, start, jnp.arange(1, parts, dtype=jnp.int32))
    out = jnp.einsum("pcbkgsh->pcbskgh", outs / totals[..., None]).astype(query.dtype)
    return out, peaks + jnp.log(totals)


@jax.custom_vjp
def _zigzag(query: Any, key: Any, value: Any, reach: Any) -> jax.Array:
    return _forward(query, key, value, reach)[0]


def _zigzag_forward(query: Any, key: Any, value: Any, reach: Any) -> tuple[jax.Array, Any]:
    out, sums = _forward(query, key, value, reach)
    return out, (query, key, value, reach, out, sums)


def _zigzag_backward(kept: Any, given: jax.Array) -> tuple[Any, ...]:
    """Gradients of keys and values go round with them, and once more to their part after the last round."""
    query, key, value, reach, out, sums = kept
    parts = query.shape[0]
    shared = jnp.einsum("pcbskgh,pcbskgh->pcbkgs", given.astype(jnp.float32), out.astype(jnp.float32))

    def computed(carry: Any, number: Any, blocks: Iterable[Block]) -> Any:
        key, value, *gradients = carry
        now = _Round(parts, number)
        for block in blocks:
            half, of_keys = block
            weights = jnp.exp(now.scores(query, key, block, reach) - now.get(sums, half)[..., None])
            met = (now.get(x, h) for x, h in ((query, half), (key, of_keys), (value, of_keys), (given, half)))
            new = block_gradients(weights, now.get(shared, half), *met)
            halves = (half, of_keys, of_keys)
            gradients = [now.put(g, h, now.get(g, h) + more) for g, h, more in zip(gradients, halves, new, strict=True)]
        return key, value, *gradients

    def gradients_on(to_key: jax.Array, to_value: jax.Array) -> tuple[jax.Array, jax.Array]:
        return handed_on(to_key, "to_key"), handed_on(to_value, "to_value")

    def body(carry: Any, number: jax.Array) -> tuple[Any, None]:
        key, value, to_query, *to = carry
        on = (handed_on(key, "key"), handed_on(value, "value"), to_query, *gradients_on(*to))
        return computed(on, number, OTHERS), None

    zeros = [jnp.zeros(x.shape, jnp.float32) for x in (query, key, value)]
    start = computed((key, value, *zeros), 0, FIRST)
    (_, _, to_query, *to), _ = jax.lax.scan(body, start, jnp.arange(1, parts, dtype=jnp.int32))
    back = (to_query, *gradients_on(*to))
    return (*(g.astype(x.dtype) for g, x in zip(back, (query, key, value), strict=True)), None)


_zigzag.defvjp(_zigzag_forward, _zigzag_backward)
