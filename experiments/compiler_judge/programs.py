"""Programs of the cases: train steps of the model library, and three kinds that it has not."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from autoshard.models import build


@dataclass(frozen=True)
class Program:
    """A function, its abstract arguments with their names, and the logical names of their dimensions."""

    step: Any
    specs: tuple[Any, ...]
    argnames: tuple[str, ...]
    logical_axes: Mapping[str, Sequence[str | None]]
    donate_argnums: tuple[int, ...] = ()


def of(*shape: int, dtype: Any = jnp.bfloat16) -> jax.ShapeDtypeStruct:
    """An abstract array."""
    return jax.ShapeDtypeStruct(shape, dtype)


def decode(batch: int, context: int, width: int, hidden: int, heads: int, kv_heads: int, layers: int) -> Program:
    """A token for each sequence: layers of attention over a cache and a gated MLP, all in bfloat16."""
    size, group = width // heads, heads // kv_heads

    def attention(w: Any, x: jax.Array, keys: jax.Array, values: jax.Array, at: jax.Array) -> Any:
        q = (x @ w["q"]).reshape(batch, kv_heads, group, size)
        k, v = ((x @ w[name]).reshape(batch, 1, kv_heads, size) for name in ("k", "v"))
        keys = lax.dynamic_update_slice(keys, k, (0, at, 0, 0))
        values = lax.dynamic_update_slice(values, v, (0, at, 0, 0))
        scores = jnp.einsum("bkgd,bskd->bkgs", q, keys, preferred_element_type=jnp.float32) * size**-0.5
        shares = jax.nn.softmax(jnp.where(jnp.arange(context) <= at, scores, -1e30), axis=-1).astype(x.dtype)
        mixed = jnp.einsum("bkgs,bskd->bkgd", shares, values).reshape(batch, width)
        return x + mixed @ w["o"], keys, values

    def step(weights: Any, cache: Any, x: jax.Array, at: jax.Array) -> Any:
        new = []
        for w, kept in zip(weights, cache, strict=True):
            x, keys, values = attention(w, x, kept["keys"], kept["values"], at)
            x = x + (jax.nn.silu(x @ w["gate"]) * (x @ w["up"])) @ w["down"]
            new.append({"keys": keys, "values": values})
        return new, x

    shapes = {
        "q": (width, width), "k": (width, kv_heads * size), "v": (width, kv_heads * size), "o": (width, width),
        "gate": (width, hidden), "up": (width, hidden), "down": (hidden, width),
    }  # fmt: skip
    names = {
        "q": ("embed", "heads"), "k": ("embed", "kv_heads"), "v": ("embed", "kv_heads"), "o": ("heads", "embed"),
        "gate": ("embed", "mlp"), "up": ("embed", "mlp"), "down": ("mlp", "embed"),
    }  # fmt: skip
    weights = [{name: of(*shape) for name, shape in shapes.items()}] * layers
    cache = [{name: of(batch, context, kv_heads, size) for name in ("keys", "values")}] * layers
    axes: dict[str, Sequence[str | None]] = {f"weights/*/{name}": logical for name, logical in names.items()}
    axes |= {"cache/*/*": ("batch", None, "kv_heads", None), "x": ("batch", "embed"), "at": ()}
    specs = (weights, cache, of(batch, width), of(dtype=jnp.int32))
    return Program(step, specs, ("weights", "cache", "x", "at"), axes, (1,))


def attention(batch: int, seq: int, width: int, heads: int) -> Program:
    """Causal attention over a long sequence with its projections, and the gradients of all of it; no update."""
    size = width // heads

    def loss(w: Any, x: jax.Array) -> jax.Array:
        q, k, v = (jnp.einsum("bse,ehd->bshd", x, w[name].astype(x.dtype)) for name in "qkv")
        scores = jnp.einsum("bshd,bthd->bhst", q, k, preferred_element_type=jnp.float32) * size**-0.5
        scores = jnp.where(jnp.tril(jnp.ones((seq, seq), bool)), scores, -1e30)
        mixed = jnp.einsum("bhst,bthd->bshd", jax.nn.softmax(scores, axis=-1).astype(x.dtype), v)
        y = jnp.einsum("bshd,hde->bse", mixed, w["o"].astype(x.dtype))
        return jnp.mean(jnp.square(y.astype(jnp.float32)))

    weights = {name: of(width, heads, size, dtype=jnp.float32) for name in "qkv"}
    weights["o"] = of(heads, size, width, dtype=jnp.float32)
    axes: dict[str, Sequence[str | None]] = {f"w/{name}": ("embed", "heads", "head_dim") for name in "qkv"}
    axes |= {"w/o": ("heads", "head_dim", "embed"), "x": ("batch", "seq", "embed")}
    return Program(jax.value_and_grad(loss, (0, 1)), (weights, of(batch, seq, width)), ("w", "x"), axes)


def convolutions(batch: int, image: int, widths: Sequence[int]) -> Program:
    """3x3 convolutions with relu, a mean over the image and a matrix; gradients and momentum, in float32."""

    def loss(ws: Any, x: jax.Array) -> jax.Array:
        for w in ws["convolutions"]:
            x = jax.nn.relu(lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")))
        return jnp.mean(jnp.square(jnp.mean(x, (1, 2)) @ ws["head"]))

    def step(state: Any, x: jax.Array) -> Any:
        value, grads = jax.value_and_grad(loss)(state["w"], x)
        moved = jax.tree.map(lambda m, g: 0.9 * m + g, state["m"], grads)
        return {"w": jax.tree.map(lambda w, m: w - 1e-3 * m, state["w"], moved), "m": moved}, value

    kernels = [of(3, 3, i, o, dtype=jnp.float32) for i, o in pairwise(widths)]
    weights = {"convolutions": kernels, "head": of(widths[-1], 1024, dtype=jnp.float32)}
    axes: dict[str, Sequence[str | None]] = {
        "state/*/convolutions/*": ("kernel_height", "kernel_width", "conv_in", "conv_out"),
        "state/*/head": ("embed", "classes"), "x": ("batch", None, None, "channels"),
    }  # fmt: skip
    x = of(batch, image, image, widths[0], dtype=jnp.float32)
    return Program(step, ({"w": weights, "m": weights}, x), ("state", "x"), axes, (0,))


OWN = {"decode": decode, "attention": attention, "convolutions": convolutions}


def program(name: str, options: Mapping[str, Any]) -> Program:
    """The program of a case: one of `OWN`, or a train step of the model library."""
    if name in OWN:
        return OWN[name](**options)
    made = build(name, **options)
    return Program(made.step, made.specs, made.argnames, made.logical_axes, made.donate_argnums)
