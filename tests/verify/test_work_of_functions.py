"""The checker counts the work of functions of one element as they are priced, also of those that newer JAX has."""

import jax
import jax.numpy as jnp
import pytest

import autoshard
from autoshard.verify import check_plan

X = jax.ShapeDtypeStruct((64, 64), jnp.float32)
FUNCTIONS = [jnp.log2, jnp.exp2, jnp.log1p, jnp.cbrt, jnp.tan, jnp.arctan, jnp.sinc, jax.scipy.special.gammaln]
FUNCTIONS += [jnp.sinh, jnp.arcsin, jnp.arccosh, jax.scipy.special.i0e, lambda x: jax.scipy.special.gammainc(x, x)]


@pytest.mark.parametrize("function", FUNCTIONS)  # log2 is an op of its own from JAX 0.12 on
def test_a_plan_of_a_function_is_right(function):
    plan = autoshard.plan(lambda x: function(x), X, mesh={"data": 2}, hardware="tpu_v5e")
    assert check_plan(plan.to_dict()).ok
