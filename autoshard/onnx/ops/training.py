"""Steps of optimizers, of the domain for training."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

from autoshard.onnx.ops.registry import TRAINING, Node, op


def _each(node: Node, state: int, tensors: tuple[Any, ...], step: Callable[..., tuple[Any, ...]]) -> tuple[Any, ...]:
    """A step for every tensor: they come as all values, all gradients, then all of every kind of state."""
    kinds = 2 + state
    count = len(tensors) // kinds
    results = [step(*(tensors[kind * count + k] for kind in range(kinds))) for k in range(count)]
    return tuple(r[kind] for kind in range(1 + state) for r in results)


@op("Adam", domain=TRAINING)
def adam(node: Node, rate: Any, t: Any, *tensors: Any) -> Any:
    """Adam of ai.onnx.preview.training: one step for every tensor."""
    alpha, beta = node["alpha"], node["beta"]
    turns = t.astype(jnp.float32)
    corrected = rate * jnp.sqrt(1 - beta**turns) / jnp.where(t > 0, 1 - alpha**turns, 1.0)
    rate = jnp.where(t > 0, corrected, rate)

    def step(x: Any, g: Any, v: Any, h: Any) -> tuple[Any, ...]:
        g = node["norm_coefficient"] * x + g
        v = alpha * v + (1 - alpha) * g
        h = beta * h + (1 - beta) * (g * g)
        x = x - rate * (v / (jnp.sqrt(h) + node["epsilon"]))
        return (1 - node["norm_coefficient_post"]) * x, v, h

    return _each(node, 2, tensors, step)


@op("Adagrad", domain=TRAINING)
def adagrad(node: Node, rate: Any, t: Any, *tensors: Any) -> Any:
    """Adagrad of ai.onnx.preview.training: one step for every tensor."""
    rate = rate / (1 + t * node["decay_factor"])

    def step(x: Any, g: Any, h: Any) -> tuple[Any, ...]:
        g = node["norm_coefficient"] * x + g
        h = h + g * g
        return x - rate * g / (jnp.sqrt(h) + node["epsilon"]), h

    return _each(node, 1, tensors, step)


@op("Momentum", domain=TRAINING)
def momentum(node: Node, rate: Any, t: Any, *tensors: Any) -> Any:
    """Momentum of ai.onnx.preview.training, standard or Nesterov: one step for every tensor."""
    alpha = node["alpha"]

    def step(x: Any, g: Any, v: Any) -> tuple[Any, ...]:
        g = node["norm_coefficient"] * x + g
        v = alpha * v + jnp.where(t > 0, node["beta"], 1.0) * g
        return x - rate * (g + alpha * v if node["mode"] == "nesterov" else v), v

    return _each(node, 1, tensors, step)
