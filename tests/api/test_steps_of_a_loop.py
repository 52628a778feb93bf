"""A step that is called with what it returned is compiled once, wherever the arrays of its first call came from."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import autoshard
from autoshard import Pin

PARTS: dict[str, Any] = {"mesh": {"x": 2, "y": 4}, "hardware": "cpu_sim", "donate_argnums": 0}
PIN = Pin("w", '[{"x"}, {"y":(1)2}]')
"""It cuts an axis into parts: the mesh of the plan has axes that no mesh of the caller has."""


def step(w: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array]:
    loss, grad = jax.value_and_grad(lambda w: jnp.square(x @ w).mean())(w)
    return w - 0.1 * grad, loss


def own(*sizes: int) -> Mesh:
    names = ("a", "b", "c")[: len(sizes)]
    return Mesh(np.array(jax.devices()[:8]).reshape(sizes), names, axis_types=(AxisType.Auto,) * len(sizes))


def weights() -> jax.Array:
    return jax.device_put(np.eye(16, dtype=np.float32), NamedSharding(own(2, 2, 2), P("a", "b")))


@functools.cache
def planned() -> tuple[Any, Any]:
    x = np.ones((32, 16), np.float32)
    by_plan = autoshard.plan(step, weights(), x, constraints=[PIN], **PARTS).jit()
    at_first_call = autoshard.jit(step, constraints=[PIN], keep=False, **PARTS)
    return by_plan, at_first_call


@pytest.mark.parametrize("which", [0, 1], ids=["plan", "jit"])
def test_arrays_on_a_mesh_of_the_callers_own_are_compiled_for_as_those_returned(
    which: int, caplog: pytest.LogCaptureFixture
) -> None:
    run, w, x = planned()[which], weights(), np.ones((32, 16), np.float32)
    with jax.log_compiles():
        for _ in range(3):
            w, _ = run(w, x)
    assert sum("Compiling jit(step)" in line for line in caplog.messages) == 1


@pytest.mark.parametrize("which", [0, 1], ids=["plan", "jit"])
def test_such_an_array_is_donated_and_not_copied(which: int) -> None:
    w = weights()
    planned()[which](w, np.ones((32, 16), np.float32))
    assert w.is_deleted()
