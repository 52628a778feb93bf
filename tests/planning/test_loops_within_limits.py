"""Loops within memory limits, where what they hold depends on many decisions at once."""

from typing import Any

import jax
import jax.numpy as jnp
from plan_cases import f32

from autoshard.api import verbs as api


def train(weights: Any, x: Any) -> Any:
    """A step over a scan of layers."""

    def loss(w: Any) -> Any:
        return jnp.square(jax.lax.scan(lambda c, layer: (jnp.tanh(c @ layer), None), x, w)[0]).mean()

    value, grad = jax.value_and_grad(loss)(weights)
    return weights - 0.1 * grad, value


def test_a_loop_is_planned_within_a_limit_though_what_its_carries_hold_is_cut_into_nodes() -> None:
    """A copy for all uses of a carry, and the way to it, are then asked for apart."""
    asked: Any = {"mesh": {"x": 2, "y": 4}, "hardware": "tpu_v5e", "donate_argnums": (0,)}
    specs = f32(4, 512, 512), f32(1024, 512)
    free = api.plan(train, *specs, **asked)
    within = api.plan(train, *specs, memory_limit=int(0.9 * free.memory.peak_bytes), **asked)
    assert within.status == "optimal"
    assert within.memory.peak_bytes <= 0.9 * free.memory.peak_bytes
