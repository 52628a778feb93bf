"""Programs that XLA's partitioner computes wrongly: every form has the numbers of one device (S2.14)."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import autoshard
from autoshard import Pin

FORMS = ["explicit", "constraints", "shardings"]
MESH = {"a": 4, "b": 2}


def f32(*shape):
    return jnp.asarray(np.random.default_rng(sum(shape)).normal(size=shape), jnp.float32)


def check(f, args, pins, form, mesh=MESH):
    plan = autoshard.plan(f, *args, mesh=mesh, hardware="tpu_v5e", constraints=[Pin(*pin) for pin in pins])
    found, expected = plan.lower(form).jit()(*args), f(*args)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("form", FORMS)
def test_pads_that_add_on_one_side_and_take_off_on_the_other(form):
    def f(x):
        return lax.pad(x, jnp.float32(9), ((-1, 1, 0), (0, 0, 0))), lax.pad(x, jnp.float32(9), ((1, -1, 0), (0, 0, 0)))

    check(f, [f32(16, 8)], [("x", "[{}, {}]"), ("out/*", '[{"a"}, {"b"}]')], form)


@pytest.mark.parametrize("form", FORMS)
def test_pads_between_elements(form):
    def f(x):
        return lax.pad(x, jnp.float32(7), ((0, 1, 1), (0, 0, 0)))

    check(f, [f32(16, 8)], [("x", "[{}, {}]"), ("out", '[{"a"}, {"b"}]')], form)


@pytest.mark.parametrize("form", FORMS)
def test_groups_of_a_convolution_that_the_devices_do_not_divide(form):
    def f(x, w):
        return lax.conv_general_dilated(x, w, (1, 1), "VALID", feature_group_count=2)

    pins = [("x", "[{}, {}, {}, {}]"), ("w", '[{"a"}, {}, {}, {}]'), ("out", '[{}, {"a"}, {}, {}]')]
    check(f, [f32(1, 2, 7, 8), f32(6, 1, 2, 1)], pins, form, mesh={"a": 6})


@pytest.mark.parametrize("form", FORMS)
def test_a_running_sum_and_a_running_maximum_of_one_array(form):
    def f(x):
        return jnp.cumsum(x, 0), lax.cummax(x, 0)

    check(f, [f32(16, 24)], [("x", "[{}, {}]"), ("out/*", '[{"b"}, {"a"}]')], form)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("x", "w", "out"),
    [
        ('[{}, {}, {"a"}]', '[{"b"}, {}, {}]', '[{}, {"b"}, {"a"}]'),
        ('[{}, {}, {"b"}]', '[{"b", "a"}, {}, {}]', '[{}, {"a"}, {}]'),
    ],
)
def test_convolutions_cut_by_position_on_several_axes(form, x, w, out):
    def f(x, w):
        return lax.conv_general_dilated(x, w, (1,), ((1, 1),), rhs_dilation=(2,))

    check(f, [f32(4, 8, 16), f32(8, 8, 2)], [("x", x), ("w", w), ("out", out)], form)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("cut", ['[{"a"}, {"b"}]', '[{"b", "a"}, {}]'])
def test_reductions_that_begin_with_a_number_of_their_own(form, cut):
    def f(x):
        largest = lax.reduce(x, jnp.float32(3), lax.max, (0,))
        return lax.reduce(x, jnp.float32(3), lax.add, (0,)), lax.reduce(x, x[0, 0], lax.mul, (0,)), largest

    check(f, [f32(8, 12)], [("x", cut)], form)


@pytest.mark.parametrize("form", FORMS)
def test_reductions_by_a_function_of_the_programs_own(form):
    def f(x):
        return lax.reduce(x, jnp.float32(0), lambda p, q: jnp.sqrt(p * p + q * q), (0,))

    check(f, [f32(8, 12)], [("x", '[{"a"}, {"b"}]')], form)


@pytest.mark.parametrize("form", FORMS)
def test_windows_that_begin_with_a_number_of_their_own(form):
    def f(x):
        return lax.reduce_window(x, jnp.float32(3), lax.add, (3, 1), (1, 1), "SAME")

    check(f, [f32(8, 12)], [("x", '[{"a"}, {"b"}]'), ("out", '[{"a"}, {"b"}]')], form)


@pytest.mark.parametrize("form", FORMS)
def test_reductions_of_bits(form):
    def f(x):
        bits = x.astype(jnp.int32)
        odd = lax.reduce_xor(bits, axes=(0,)), lax.reduce_xor(x > 0, axes=(0,))
        return *odd, lax.reduce_and(bits, axes=(0,)), lax.reduce_or(bits, axes=(0,))

    check(f, [9 * f32(8, 12)], [("x", '[{"a"}, {"b"}]')], form)


@pytest.mark.parametrize("form", FORMS)
def test_tangents_of_pools(form):
    def pool(x):
        return lax.reduce_window(x, -jnp.inf, lax.max, (3, 1, 2), (3, 1, 2), "VALID")

    def f(x):
        return jax.jvp(pool, (x,), (jnp.cos(x) * 3,))[1]

    check(f, [f32(12, 8, 16)], [("x", '[{"a"}, {}, {}]'), ("out", '[{}, {"b"}, {"a"}]')], form)
