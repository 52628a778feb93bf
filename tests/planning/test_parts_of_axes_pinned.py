"""Pins that name parts of axes before other axes: slices lead there, one part after the other."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autoshard
from autoshard import Pin

X = jnp.asarray(np.random.default_rng(5).normal(size=(24, 16)), jnp.float32)
ODD = [
    '[{"model":(1)2, "data"}, {}]',
    '[{"model":(2)2, "data"}, {}]',
    '[{"model":(2)2, "model":(1)2}, {}]',
    '[{"model":(1)2, "data", "model":(2)2}, {}]',
    '[{"model":(2)2}, {"model":(1)2}]',
]


def planned(**words):
    return autoshard.plan(lambda x: x * 2, X, mesh={"data": 2, "model": 4}, hardware="tpu_v5e", **words)


@pytest.mark.parametrize("odd", ODD)
def test_a_result_is_cut_so_without_a_collective_and_that_is_optimal(odd):
    """The whole product and slices of it take nanoseconds, a permute microseconds."""
    plan = planned(constraints=[Pin("out", odd)])
    assert plan["out"] == odd and plan.status == "optimal" and plan.objective_s < 1e-8
    assert len(plan.collectives) == 0
    np.testing.assert_array_equal(plan.jit()(X), X * 2)


def test_an_argument_that_lies_so_is_gathered_in_part():
    plan = planned(constraints=[Pin("x", '[{"model":(1)2, "data", "model":(2)2}, {}]')])
    assert plan.objective_s < 3e-6  # a permute of all of it takes longer
    np.testing.assert_array_equal(plan.jit()(X), X * 2)


def test_axes_in_the_reverse_order_on_a_mesh_of_five():
    axes = dict.fromkeys("abcde", 2)
    x = jax.ShapeDtypeStruct((64, 32), jnp.float32)
    reverse = '[{"e", "d", "c", "b", "a"}, {}]'
    plan = autoshard.plan(jnp.tanh, x, mesh=axes, hardware="tpu_v5e", constraints=[Pin("out", reverse)], effort=0.1)
    assert plan["out"] == reverse
