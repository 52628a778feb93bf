"""A part that is written along a cut dimension: every device writes over its own block what falls into it."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import autoshard
from autoshard.constraints import Pin

MESH = {"x": 4, "y": 2}


def written(rows: int, part: int, cut: str) -> autoshard.Plan:
    """The plan of a part of an array of 6 columns that is replaced, with the array cut as stated."""

    def write(array: Any, part: Any, at: Any, column: Any) -> Any:
        return lax.dynamic_update_slice(array, part, (at, column))

    specs = jax.ShapeDtypeStruct((rows, 6), jnp.float32), jax.ShapeDtypeStruct((part, 3), jnp.float32)
    at = jax.ShapeDtypeStruct((), jnp.int32)
    pins = [Pin("array", cut), Pin("out", cut)]
    return autoshard.plan(write, *specs, at, at, mesh=MESH, hardware="tpu_v5e", constraints=pins, donate_argnums=0)


@pytest.mark.parametrize("cut", ['[{"x"}, {}]', '[{"x"}, {"y"}]', '[{"y", "x"}, {}]'])
@pytest.mark.parametrize("part", [1, 2, 3, 5, 16])
def test_wherever_a_part_lies_the_array_is_that_of_one_device(part: int, cut: str) -> None:
    """Of 16 rows blocks have 4 or 2: parts are shorter and longer, cross borders and are moved in from outside."""
    run = written(16, part, cut).jit()
    new = np.arange(part * 3, dtype=np.float32).reshape(part, 3) + 100
    for at, column in ((-20, 0), (0, 1), (1, 2), (3, 3), (4, 1), (7, 0), (11, 2), (15, 9)):
        array = np.arange(96, dtype=np.float32).reshape(16, 6)
        expected = lax.dynamic_update_slice(jnp.asarray(array), new, (at, column))
        found = run(array, new, np.int32(at), np.int32(column))
        np.testing.assert_array_equal(found, expected, f"{at}, {column}")


def test_blocks_with_padding_are_written_alike() -> None:
    """13 rows over 4 devices: blocks have four, the last one of them a single one."""

    def write(x: Any, part: Any, at: Any) -> Any:
        return jnp.exp(lax.dynamic_update_slice(jnp.sort(x, axis=1), part, (at, 0)))

    specs = jax.ShapeDtypeStruct((13, 8), jnp.float32), jax.ShapeDtypeStruct((3, 8), jnp.float32)
    at = jax.ShapeDtypeStruct((), jnp.int32)
    pins = [Pin("sort", '[{"x"}, {}]'), Pin("dynamic_update_slice", '[{"x"}, {}]')]
    plan = autoshard.plan(write, *specs, at, mesh=MESH, hardware="tpu_v5e", constraints=pins)
    run, x = plan.jit(), np.random.default_rng(0).normal(size=(13, 8)).astype(np.float32)
    part = np.ones((3, 8), np.float32)
    for place in range(-3, 13):
        expected = jnp.exp(lax.dynamic_update_slice(jnp.sort(x, axis=1), part, (place, 0)))
        np.testing.assert_allclose(run(x, part, np.int32(place)), expected, 1e-6, err_msg=str(place))


@pytest.mark.parametrize(("part", "copied"), [(1, False), (16, False), (17, True)])
def test_a_block_is_copied_only_where_the_part_is_longer(part: int, copied: bool) -> None:
    text = written(64, part, '[{"x"}, {}]').lower().stablehlo()
    assert (f"tensor<{16 + 2 * part}x6xf32>" in text) == copied
