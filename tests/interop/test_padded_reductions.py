"""Reductions over a dimension of 7 on 8 devices: the padding holds the identity of each reduction (S0.58)."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autoshard

REDUCTIONS = {
    "sum": jnp.sum,
    "max": jnp.max,
    "mean": jnp.mean,
    "prod": jnp.prod,
    "any": lambda x: jnp.any(x > 0),
    "dot": lambda x: x @ x,
}


@pytest.mark.parametrize("name", REDUCTIONS)
def test_padding_does_not_count(name: str) -> None:  # S0.58
    f = REDUCTIONS[name]
    x = jnp.asarray(
        [-3.0, -1.5, -2.0, -4.0, -1.25, -5.0, -2.5]
    )  # a padding of 0 would win a maximum, and end a product
    plan = autoshard.plan(
        f, jax.ShapeDtypeStruct((7,), jnp.float32), mesh={"x": 8}, hardware="cpu_sim", argnames=("x",),
        constraints=[autoshard.Pin("x", '[{"x"}]')],
    )  # fmt: skip
    np.testing.assert_allclose(plan.jit()(x), f(x), rtol=1e-6)
