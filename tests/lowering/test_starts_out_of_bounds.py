"""Single updates (`x.at[i].set(y)`) and reads (`x[i]`) beside the slices that cut blocks, compiled as users compile it.

XLA's simplifier makes one slice of two and forgets that the start of one of them was out of bounds. It drops an update
by reading what this would replace: devices without the element wrote one of their neighbour's. A read beyond the end
comes from the end, and came from elsewhere on all devices but one.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

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


@pytest.mark.parametrize("form", ["explicit", "constraints", "shardings"])
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


def read(x, i):
    """Rows, columns and windows that begin beyond the end, by slices and by lookups of one index."""
    window = lax.GatherDimensionNumbers(offset_dims=(0, 1), collapsed_slice_dims=(), start_index_map=(0, 1))
    return {
        "row": x[i],
        "column": x[:, i],
        "window": lax.dynamic_slice(x, (i, i), (8, 8)),
        "of a part": lax.dynamic_slice(lax.dynamic_slice(x, (0, 0), (16, 16)), (i, 0), (8, 16)),
        "list of one": x[i[None]],
        "clipped": jnp.take(x, i, axis=1, mode="clip"),
        "looked up": lax.gather(x, jnp.stack([i, i]), window, (8, 8), mode="clip"),
    }


@pytest.mark.parametrize("form", ["explicit", "constraints", "shardings"])
@pytest.mark.parametrize("cut", ["[{}, {}]", '[{"a"}, {}]', '[{}, {"a"}]'])
def test_reads_beyond_the_end_come_from_the_end_on_every_device(form, cut):
    shapes = jax.eval_shape(read, X, jnp.int32(40))
    pins = [Pin("x", cut)]
    for name, shape in shapes.items():
        dims = ["{}"] * shape.ndim
        dims[next(d for d, n in enumerate(shape.shape) if n % 8 == 0)] = '{"a"}'
        pins.append(Pin(f"out/{name}", f"[{', '.join(dims)}]"))
    plan = autoshard.plan(read, X, jnp.int32(0), mesh={"a": 8}, hardware="tpu_v5e", constraints=pins)
    found, expected = plan.lower(form).jit()(X, jnp.int32(40)), read(X, jnp.int32(40))
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array, err_msg=name)


def test_starts_of_a_type_too_narrow_for_the_array():
    """508 is no number of eight bits; planning such a slice ended in an OverflowError of NumPy."""
    x, start = jnp.arange(512 * 8.0).reshape(512, 8), jnp.int8(100)

    def f(x, start):
        return lax.dynamic_slice(x, (start, jnp.int8(0)), (4, 8))

    plan = autoshard.plan(f, x, start, mesh={"a": 8}, hardware="tpu_v5e", constraints=[Pin("x", '[{"a"}, {}]')])
    np.testing.assert_array_equal(plan.jit()(x, start), f(x, start))
