"""Programs to lower (control flow, recomputation, train steps), and a check of one under a random schedule."""

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from naive_schedule import naive_schedule
from running import Original, run_and_compare

from autoshard.program.schedule import Schedule
from autoshard.sharding.layout import AtomMesh

RNG = np.random.default_rng(3)


def f32(*shape: int) -> jax.Array:
    return jnp.asarray(RNG.normal(size=shape) / 3, jnp.float32)


def loops_and_branch(x: jax.Array, w: jax.Array, n: jax.Array) -> tuple[jax.Array, jax.Array]:
    """A scan with a body that has something to say, a while and a cond; the last carry, and what the scan stacked."""

    def body(c: jax.Array, row: jax.Array) -> tuple[jax.Array, jax.Array]:
        h = jnp.tanh(c @ w)
        return h + row, (h * h).sum(-1)

    c, ys = lax.scan(body, x, jnp.stack([x, 2 * x, x + 1]))
    c = lax.while_loop(lambda s: s[1] < n, lambda s: (s[0] * 0.5, s[1] + 1), (c, jnp.int32(0)))[0]
    return lax.cond(ys.sum() > 0, lambda a: a @ w.T, lambda a: a - 1, c), ys


def attention_block(layer: dict[str, Any], x: jax.Array) -> jax.Array:
    q, k, v = jnp.einsum("bsd,dtnh->tbsnh", x, layer["qkv"])
    scores = jnp.einsum("bsnh,btnh->bnst", q, k)
    weights = jax.nn.softmax(jnp.where(jnp.tril(jnp.ones(scores.shape[-2:], bool)), scores, -1e9), axis=-1)
    return x + jnp.einsum("bnst,btnh,nhd->bsd", weights, v, layer["wo"])


@cache
def scan_remat_adamw() -> Original:
    """A scanned, rematerialised attention model with a train step of AdamW."""
    state = {"layers": {"qkv": f32(3, 8, 3, 4, 2), "wo": f32(3, 4, 2, 8)}, "embed": f32(16, 8)}
    tx = optax.adamw(1e-2)
    tokens = jnp.asarray(RNG.integers(0, 16, (4, 6)), jnp.int32)

    def loss(params: Any, tokens: jax.Array) -> jax.Array:
        x = params["embed"][tokens]
        block = jax.checkpoint(attention_block)
        x, _ = lax.scan(lambda x, layer: (block(layer, x), None), x, params["layers"])
        logits = x @ params["embed"].T
        return -jnp.take_along_axis(jax.nn.log_softmax(logits), tokens[..., None], axis=-1).mean()

    def step(params: Any, opt: Any, tokens: jax.Array) -> Any:
        value, grads = jax.value_and_grad(loss)(params, tokens)
        updates, opt = tx.update(grads, opt, params)
        return value, optax.apply_updates(params, updates), opt

    return Original(step, state, tx.init(state), tokens)


@cache
def mlp() -> Original:
    def step(params: Any, x: jax.Array, y: jax.Array) -> Any:
        def loss(params: Any) -> jax.Array:
            h = jnp.tanh(x @ params[0] + params[1])
            return ((h @ params[2] - y) ** 2).mean()

        value, grads = jax.value_and_grad(loss)(params)
        return value, jax.tree.map(lambda p, g: p - 0.1 * g, params, grads)

    return Original(step, [f32(12, 24), f32(24), f32(24, 8)], f32(16, 12), f32(16, 8))


@cache
def control_flow() -> Original:
    """while with constants, cond on a computed predicate, nested scans with reverse, ys and literal carries."""

    def f(x: jax.Array, w: jax.Array, n: jax.Array) -> Any:
        def newton(carry: Any) -> Any:
            y, k = carry
            return y - 0.1 * jnp.tanh(y @ w), k + 1

        y, count = lax.while_loop(lambda c: (c[1] < n) & (jnp.abs(c[0]).max() > 0.01), newton, (x, jnp.int32(0)))
        z = lax.cond(y.sum() > 0, lambda a, b: a @ b, lambda a, b: a * 2 - b.sum(), y, w)
        s = lax.switch(n, [lambda a: a, lambda a: a.sum(1, keepdims=True) + 0 * a, lambda a: a + 1], z)

        def inner(c: Any, t: jax.Array) -> Any:
            return c + t, c.max()

        def outer(c: Any, row: jax.Array) -> Any:
            total, peaks = lax.scan(inner, row * 0, jnp.stack([row, row * c[1]]))
            return (c[0] + total, c[1] + 1.0), peaks

        (total, steps), peaks = lax.scan(outer, (jnp.zeros(8), 0.0), s, reverse=True)
        fori = lax.fori_loop(0, 3, lambda i, a: a + lax.dynamic_slice(w, (i, 0), (1, 8))[0], total)
        return y, count, z, total, steps, peaks, fori

    return Original(f, f32(12, 8), f32(8, 8), jnp.int32(2))


PROGRAMS = {f.__name__: f for f in (mlp, scan_remat_adamw, control_flow)}


def check(original: Original, mesh: AtomMesh, seed: int, *, uneven: bool) -> None:
    report = run_and_compare(original, naive_schedule(original.traced.program, mesh, seed, uneven=uneven, place=0.5))
    assert report.ok, report


def replicated_schedule(program: Any, mesh: AtomMesh) -> Schedule:
    return naive_schedule(program, mesh, 0, place=0.0, shares=0.0)
