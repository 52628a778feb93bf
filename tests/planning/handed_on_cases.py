"""Programs in which it matters where an array lies: donated ones, carries of loops, and what loops turn around."""

from typing import Any

import jax
import jax.numpy as jnp


def rotated(before: Any, now: Any, w: Any) -> Any:
    """A loop that hands its second carry on as the first."""
    return jax.lax.scan(lambda c, _: ((c[1], 2.0 * c[1] - c[0] + c[1] @ w), None), (before, now), None, 4)[0]


def turned(memory: Any, cache: Any, queries: Any) -> Any:
    """A loop that reads one cache and carries another, with the heads behind the positions."""

    def body(carry: Any, _: None) -> Any:
        cache, queries = carry
        mixed = jnp.einsum("bgrt,btgk->bgrk", jnp.einsum("bgrk,btgk->bgrt", queries, memory), cache)
        return (jax.lax.dynamic_update_slice(cache, mixed[:, None, :, 0], (0, 0, 0, 0)), mixed), None

    return jax.lax.scan(body, (cache, queries), None, 4)[0]


def swapped(w: Any, m: Any, x: Any) -> Any:
    """Each would be written over the other, where neither may lie."""
    return 2.0 * m, w + 1.0, x.sum()


def used_up(w: Any, m: Any, x: Any) -> Any:
    """No output has the size of the donated arrays, so they stay."""
    return jnp.tanh(x @ w) @ (w + m).T
