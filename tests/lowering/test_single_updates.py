"""A single update (`x.at[i].set(y)`) of a block that is cut out of a whole array, compiled as users compile it.

XLA drops an update whose index is out of bounds by reading what it would replace, and its simplifier makes one slice of
that and the slice that cut the block: devices that do not have the element wrote one of their neighbour's.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autoshard
from autoshard import Pin

X = jnp.asarray(np.random.default_rng(3).normal(size=(24, 16)), jnp.float32)


def updated(x, i):
    """Every kind of update, at an element, a row, a column and a part of a row; some are out of bounds."""
    return {
        "element": x.at[3, i].set(9.0),
        "row": x.at[i].set(x[0]),
        "column": x.at[:, i].add(2.0),
        "part": x.at[i, :2].mul(3.0),
        "last": x.at[-1].min(-1.0),
        "outside": x.at[i + 40].set(1.0),
        "clipped": x.at[i + 40, i].max(4.0, mode="clip"),
        "applied": x.at[5, 5].apply(jnp.exp),
    }


@pytest.mark.parametrize("form", ["explicit", "constraints"])
@pytest.mark.parametrize("cut", ['[{"a"}, {"b"}]', '[{"b", "a"}, {}]', '[{}, {"a", "b"}]'])
def test_devices_that_do_not_have_the_element_keep_what_they_have(form, cut):
    pins = [Pin("x", "[{}, {}]"), Pin("out/**", cut)]
    plan = autoshard.plan(updated, X, jnp.int32(6), mesh={"a": 2, "b": 4}, hardware="tpu_v5e", constraints=pins)
    found, expected = plan.lower(form).jit()(X, jnp.int32(6)), updated(X, jnp.int32(6))
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-6, err_msg=name)


def test_keys_are_updated_too():
    def f(keys):
        return keys.at[2].set(keys[0])

    keys = jax.random.split(jax.random.key(0), 8)
    pins = [Pin("keys", "[{}]"), Pin("out", '[{"a"}]')]
    plan = autoshard.plan(f, keys, mesh={"a": 4}, hardware="tpu_v5e", constraints=pins)
    assert (jax.random.key_data(plan.jit()(keys)) == jax.random.key_data(f(keys))).all()
