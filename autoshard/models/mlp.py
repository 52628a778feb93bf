"""Fully connected network: the smallest program with tensor parallelism in it."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from autoshard.models.data import vector_batches
from autoshard.models.layers import ACTIVATION, cross_entropy, remat
from autoshard.models.model import ModelProgram, assemble
from autoshard.models.options import MlpOptions
from autoshard.models.parameters import Parameter, weight


def table(options: MlpOptions) -> dict[str, Any]:
    """The parameters: `layers/<i>/w` (in, out) and `b` (out). Hidden dimensions are named `mlp` and `embed` in turn."""
    sizes = [options.inputs, *[options.hidden] * (options.layers - 1), options.outputs]
    names = ["inputs", *["mlp" if i % 2 == 0 else "embed" for i in range(options.layers - 1)], "outputs"]
    layers = []
    for i in range(options.layers):
        layer = {"w": weight((sizes[i], sizes[i + 1]), (names[i], names[i + 1]), fan_in=sizes[i])}
        if options.bias:
            layer["b"] = Parameter(shape=(sizes[i + 1],), axes=(names[i + 1],))
        layers.append(layer)
    return {"layers": layers}


def forward(params: Any, x: jax.Array, options: MlpOptions) -> jax.Array:
    """Inputs (batch, inputs) to outputs (batch, outputs), float32."""
    activate = ACTIVATION[options.activation]

    def hidden_layer(layer: Any, x: jax.Array) -> jax.Array:
        return checkpoint_name(activate(_affine(layer, x)), "hidden")

    hidden_layer = remat(hidden_layer, options.remat, in_scan=False)
    x = x.astype(options.compute_dtype)
    for layer in params["layers"][:-1]:
        x = hidden_layer(layer, x)
    return checkpoint_name(_affine(params["layers"][-1], x).astype(jnp.float32), "logits")


def _affine(layer: Any, x: jax.Array) -> jax.Array:
    y = x @ layer["w"].astype(x.dtype)
    return y + layer["b"].astype(x.dtype) if "b" in layer else y


def program(options: MlpOptions) -> ModelProgram:
    """The model that `build("mlp", ...)` returns."""

    def loss(params: Any, extra: Any, batch: Any) -> tuple[jax.Array, Any]:
        y = forward(params, batch["x"], options)
        if options.task == "classification":
            return cross_entropy(y, batch["y"]), extra
        return jnp.mean(jnp.square(y - batch["y"])), extra

    classify = options.task == "classification"
    params = table(options)
    matmul_elements = sum(layer["w"].size for layer in params["layers"])
    return assemble(
        options,
        params,
        loss,
        batch_specs={
            "x": jax.ShapeDtypeStruct((options.batch, options.inputs), jnp.float32),
            "y": jax.ShapeDtypeStruct((options.batch,), jnp.int32)
            if classify
            else jax.ShapeDtypeStruct((options.batch, options.outputs), jnp.float32),
        },
        batch_axes={"x": ("batch", "inputs"), "y": ("batch",) if classify else ("batch", "outputs")},
        batches=lambda seed=0: vector_batches(seed, options.batch, options.inputs, options.outputs, options.task),
        forward_matmul_flop=2 * options.batch * matmul_elements,
    )
