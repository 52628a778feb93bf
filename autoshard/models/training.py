"""The train step shared by all models: loss, gradients, AdamW in float32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from autoshard.models import parameters
from autoshard.models.options import TrainingOptions

LossFunction = Callable[[Any, Any, Any], tuple[jax.Array, Any]]
"""`(params, extra, batch) -> (loss, new extra)`; `extra` holds state that is not trained (batch statistics)."""


def optimizer(options: TrainingOptions, table: Any) -> optax.GradientTransformation:
    """AdamW as one flat chain, so that moments have the path `opt/<i>/mu/...` with or without clipping."""
    steps = [
        optax.scale_by_adam(b1=options.beta1, b2=options.beta2, eps=options.epsilon),
        optax.add_decayed_weights(options.weight_decay, mask=parameters.decay_mask(table)),
        optax.scale_by_learning_rate(options.learning_rate),
    ]
    if options.clip_norm is not None:
        steps.insert(0, optax.clip_by_global_norm(options.clip_norm))
    return optax.chain(*steps)


def _as_float32(tree: Any) -> Any:
    return jax.tree.map(lambda x: x.astype(jnp.float32), tree)


def state_specs(params: Any, extra: dict[str, Any], tx: optax.GradientTransformation) -> dict[str, Any]:
    """The abstract state, given the abstract parameters. Moments have the parameters' shapes, in float32."""
    opt = jax.eval_shape(lambda: tx.init(jax.tree.map(lambda p: jnp.zeros(p.shape, jnp.float32), params)))
    return {"params": params, "opt": opt, "step": jax.ShapeDtypeStruct((), jnp.int32), **extra}


def initial_state(
    params: Any, extra: dict[str, Any], specs: dict[str, Any], place: parameters.Place = parameters.on_default_device
) -> dict[str, Any]:
    """The state at step 0 with these parameters. All of the optimizer's state (moments and counts) starts as zeros."""
    zeros = jax.tree_util.tree_map_with_path(
        lambda path, leaf: place(parameters.path_string(path), np.zeros(leaf.shape, leaf.dtype)),
        {"opt": specs["opt"], "step": specs["step"]},
    )
    return {"params": params, **zeros, **extra}


def train_step(loss_function: LossFunction, tx: optax.GradientTransformation) -> Callable[[Any, Any], tuple[Any, Any]]:
    """The function `(state, batch) -> (state, metrics)`: one forward and backward pass and one update."""

    def step(state: dict[str, Any], batch: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        params, opt, count = state["params"], state["opt"], state["step"]
        extra = {name: value for name, value in state.items() if name not in ("params", "opt", "step")}
        differentiate = jax.value_and_grad(loss_function, has_aux=True)
        (loss, extra), grads = differentiate(params, extra, batch)
        wide = _as_float32(params)
        updates, opt = tx.update(_as_float32(grads), opt, wide)
        params = jax.tree.map(lambda p, w, u: (w + u).astype(p.dtype), params, wide, updates)
        return {"params": params, "opt": opt, "step": count + 1, **extra}, {"loss": loss}

    step.__name__ = step.__qualname__ = "train_step"
    return step
