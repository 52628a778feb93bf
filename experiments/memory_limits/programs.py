"""Twenty small programs and three meshes."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
from jax import ShapeDtypeStruct


def f32(*shape: int) -> ShapeDtypeStruct:
    return ShapeDtypeStruct(shape, jnp.float32)


def chain(x, *weights):
    for w in weights:
        x = x @ w
    return x


def chain_specs(count: int) -> list[ShapeDtypeStruct]:
    sizes = [512, 2048, 512, 1024, 256][: count + 1]
    return [f32(1024, sizes[0]), *(f32(a, b) for a, b in pairwise(sizes))]


def mlp(x, w1, w2):
    return jax.nn.gelu(x @ w1) @ w2


def glu(x, w1, w2, w3):
    return (jax.nn.silu(x @ w1) * (x @ w2)) @ w3


def two_branches(x, w1, w2, w3):
    h = jnp.tanh(x @ w1)
    return h @ w2 + h @ w3


def three_uses(x, w1, w2, w3):
    h = x @ w1
    return h @ w2, h @ w3, h.sum(axis=0)


def normed(x, gain):
    return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6) * gain


def normed_mlp(x, gain, w1, w2):
    return x + jax.nn.gelu(normed(x, gain) @ w1) @ w2


def loss(weights, x, y):
    h = jax.nn.relu(x @ weights["w1"])
    return ((h @ weights["w2"] - y) ** 2).mean()


def sgd(weights, x, y):
    value, grads = jax.value_and_grad(loss)(weights, x, y)
    return jax.tree.map(lambda w, g: w - 0.1 * g, weights, grads), value


def adam(weights, m, v, x, y):
    value, grads = jax.value_and_grad(loss)(weights, x, y)
    m = jax.tree.map(lambda a, g: 0.9 * a + 0.1 * g, m, grads)
    v = jax.tree.map(lambda a, g: 0.99 * a + 0.01 * g * g, v, grads)
    weights = jax.tree.map(lambda w, a, b: w - 0.1 * a / (jnp.sqrt(b) + 1e-8), weights, m, v)
    return weights, m, v, value


def scan_forward(x, weights):
    return jax.lax.scan(lambda c, w: (jnp.tanh(c @ w), None), x, weights)[0]


def scan_train(weights, x):
    value, grad = jax.value_and_grad(lambda w: (scan_forward(x, w) ** 2).mean())(weights)
    return weights - 0.1 * grad, value


def attention(x, wq, wk, wv, wo):
    batch, tokens, width = x.shape
    q, k, v = ((x @ w).reshape(batch, tokens, 8, -1) for w in (wq, wk, wv))
    p = jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k) / 8.0, axis=-1)
    return jnp.einsum("bhqk,bkhd->bqhd", p, v).reshape(batch, tokens, width) @ wo


def attention_train(weights, x):
    value, grads = jax.value_and_grad(lambda w: (attention(x, *w) ** 2).mean())(weights)
    return [w - 0.1 * g for w, g in zip(weights, grads, strict=True)], value


def block(x, g1, g2, wq, wk, wv, wo, w1, w2):
    x = x + attention(normed(x, g1), wq, wk, wv, wo)
    return x + jax.nn.gelu(normed(x, g2) @ w1) @ w2


def cross_entropy(w, x, y):
    z = x @ w
    return (jax.nn.logsumexp(z, axis=-1) - (z * y).sum(-1)).mean()


def residual(x, w1, w2):
    return x + (x + jnp.tanh(x @ w1)) @ w2


_WEIGHTS = {"w1": f32(512, 2048), "w2": f32(2048, 512)}
_SQUARE = f32(512, 512)
_TOKENS = f32(8, 128, 512)

Case = tuple[Callable[..., Any], list[Any], dict[str, Any]]

PROGRAMS: dict[str, Case] = {
    "chain of 2": (chain, chain_specs(2), {}),
    "chain of 3": (chain, chain_specs(3), {}),
    "chain of 4": (chain, chain_specs(4), {}),
    "gram": (lambda x: (x.T @ x) @ x.T, [f32(2048, 1024)], {}),
    "mlp": (mlp, [f32(1024, 512), f32(512, 2048), f32(2048, 512)], {}),
    "glu": (glu, [f32(1024, 512), f32(512, 2048), f32(512, 2048), f32(2048, 512)], {}),
    "two branches": (two_branches, [f32(1024, 512), f32(512, 2048), f32(2048, 512), f32(2048, 512)], {}),
    "three uses": (three_uses, [f32(1024, 512), f32(512, 2048), f32(2048, 512), f32(2048, 256)], {}),
    "residual": (residual, [f32(2048, 1024), f32(1024, 1024), f32(1024, 1024)], {}),
    "normed mlp": (normed_mlp, [f32(1024, 512), f32(512), f32(512, 2048), f32(2048, 512)], {}),
    "sgd": (sgd, [_WEIGHTS, f32(1024, 512), f32(1024, 512)], {"donate_argnums": (0,)}),
    "sgd undonated": (sgd, [_WEIGHTS, f32(1024, 512), f32(1024, 512)], {}),
    "adam": (adam, [_WEIGHTS, _WEIGHTS, _WEIGHTS, f32(1024, 512), f32(1024, 512)], {"donate_argnums": (0, 1, 2)}),
    "scan forward": (scan_forward, [f32(1024, 512), f32(4, 512, 512)], {}),
    "scan train": (scan_train, [f32(4, 512, 512), f32(1024, 512)], {"donate_argnums": (0,)}),
    "attention": (attention, [_TOKENS, *[_SQUARE] * 4], {}),
    "attention train": (attention_train, [[_SQUARE] * 4, _TOKENS], {"donate_argnums": (0,)}),
    "block": (block, [_TOKENS, f32(512), f32(512), *[_SQUARE] * 4, f32(512, 2048), f32(2048, 512)], {}),
    "cross entropy": (cross_entropy, [f32(512, 4096), f32(1024, 512), f32(1024, 4096)], {}),
    "cross entropy train": (jax.grad(cross_entropy), [f32(512, 4096), f32(1024, 512), f32(1024, 4096)], {}),
}

MESHES: dict[str, tuple[dict[str, int], str]] = {
    "2x4 tpu_v5e": ({"x": 2, "y": 4}, "tpu_v5e"),
    "2x2 h100": ({"a": 2, "b": 2}, "h100"),
    "4 tpu_v5e": ({"x": 4}, "tpu_v5e"),
}

SHARES = (0.9, 0.75, 0.5, 0.3)
"""Limits, as parts of the peak of the plan without a limit."""
