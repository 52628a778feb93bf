"""Which loops may run in parts, and that they compute the same in parts."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from drawn_loops import CARRIES, CHAINS, Drawn, loops
from hypothesis import given, settings
from jax.extend import core as jax_core
from running import FAST

from autoshard.frontends.jax.parts import Parts


def parts_of(f: Any, *args: Any, asked: int = 4) -> tuple[tuple[int, int], ...]:
    """(length, parts) of the loops that can run in parts."""
    found = Parts((asked,))
    found.rewritten(jax.make_jaxpr(f)(*args))
    return tuple((loop.length, loop.parts) for loop, _ in found.found)


def both(f: Any, args: Any, asked: int) -> list[tuple[Any, Any]]:
    """The results of a function with its loops in parts, beside its own."""

    def run(*args: Any) -> Any:
        new = Parts((asked,)).rewritten(jax.make_jaxpr(f)(*args))
        return jax_core.jaxpr_as_fun(new)(*jax.tree.leaves(args)), jax.tree.leaves(f(*args))

    ours, theirs = jax.jit(run).lower(*args).compile(compiler_options=FAST)(*args)
    assert [(x.shape, x.dtype) for x in ours] == [(x.shape, x.dtype) for x in theirs]
    return list(zip(ours, theirs, strict=True))


XS = np.arange(24, dtype=np.float32).reshape(8, 3) / 7


@pytest.mark.parametrize("name", sorted(CARRIES))
def test_a_carry_that_nobody_waits_for_leaves_iterations_independent(name: str) -> None:
    loop = Drawn((name,), 8, False, True)
    assert (8, 4) in parts_of(loop.f, *loop.arguments())


@pytest.mark.parametrize("name", sorted(CHAINS))
def test_a_carry_that_is_read_keeps_iterations_in_order(name: str) -> None:
    loop = Drawn((name,), 8, False, False)
    assert (8, 4) not in parts_of(loop.f, *loop.arguments())


@given(loops())
@settings(max_examples=8)
def test_loops_in_parts_compute_what_they_compute_as_they_stand(loop: Drawn) -> None:
    args = loop.arguments()
    found = parts_of(loop.f, *args)
    assert loop.independent == any(n == loop.length for n, _ in found) or loop.length == 3  # that of an inner loop
    for ours, theirs in both(loop.f, args, 4 if loop.length > 3 else 6):
        np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=2e-5)


def test_parts_divide_the_length_of_the_loop() -> None:
    assert parts_of(lambda x: jax.lax.map(jnp.sin, x), XS, asked=12) == ((8, 4),)
    assert parts_of(lambda x: jax.lax.map(jnp.sin, x), XS[:7], asked=12) == ((7, 1),)


def test_the_last_values_of_counters_and_untouched_carries_are_those_of_the_loop() -> None:
    def f(x: Any) -> Any:
        return jax.lax.scan(lambda c, x: ((c[0] + 3, c[1]), x * c[0] + c[1]), (jnp.int8(100), 2.0), x, reverse=True)

    for a, b in both(f, (XS,), 4):
        np.testing.assert_array_equal(a, b)  # int8 wraps around the same way


@pytest.mark.parametrize(("dtype", "step"), [("uint32", -1), ("int8", 20), ("uint8", -20), ("int32", 3)])
def test_counters_wrap_around_as_in_the_loop(dtype: str, step: int) -> None:
    def loop(xs: Any) -> Any:
        def body(carry: Any, x: Any) -> Any:
            at, total = carry
            after = at + np.array(step, dtype) if step > 0 else at - np.array(-step, dtype)
            return (after, total + x * at.astype(jnp.float32)), at

        return jax.lax.scan(body, (np.array(100, dtype), jnp.zeros(3)), xs)

    for ours, theirs in both(loop, (XS,), 4):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5)


def test_a_key_of_each_iteration_is_that_of_the_loop() -> None:
    def loop(xs: Any) -> Any:
        def body(carry: Any, x: Any) -> Any:
            at, total = carry
            noise = jax.random.uniform(jax.random.fold_in(jax.random.key(0), at), x.shape)
            return (at + 1, total + x * noise), noise

        return jax.lax.scan(body, (0, jnp.zeros(3)), xs)

    assert parts_of(loop, XS) == ((8, 4),)
    for ours, theirs in both(loop, (XS,), 4):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5)


def test_gradients_of_closed_over_values_are_totals() -> None:
    def loss(w: Any, x: Any) -> Any:
        return jnp.square(jax.lax.map(jax.checkpoint(lambda row: jnp.tanh(row @ w)), x)).sum()

    w = np.ones((3, 3), np.float32) / 3
    grad = jax.grad(loss, argnums=(0, 1))
    assert parts_of(grad, w, XS) == ((8, 4), (8, 4))  # forward and backward
    for a, b in both(grad, (w, XS), 4):
        np.testing.assert_allclose(a, b, rtol=1e-5)


def test_a_total_that_is_returned_by_every_iteration_is_read() -> None:
    assert parts_of(lambda x: jax.lax.scan(lambda c, row: (c + row, c), jnp.zeros(3), x), XS) == ()


def test_a_carry_that_becomes_another_one_is_read() -> None:
    def f(x: Any) -> Any:
        return jax.lax.scan(lambda c, row: ((c[1], c[0]), row), (jnp.zeros(3), jnp.ones(3)), x)

    assert parts_of(f, XS) == ()


def test_a_floating_point_counter_that_is_read_is_no_counter() -> None:
    """Its roundings depend on the order of its steps."""
    assert parts_of(lambda x: jax.lax.scan(lambda c, row: (c + 0.1, row * c), 0.0, x), XS) == ()


def test_a_loop_of_loops_is_in_parts_inside_and_outside() -> None:
    def f(x: Any) -> Any:
        return jax.lax.map(lambda row: jax.lax.map(lambda e: jnp.sin(e) * row.sum(), row), x)

    x = np.arange(32, dtype=np.float32).reshape(4, 8)
    assert parts_of(f, x, asked=2) == ((4, 2), (8, 2))
    np.testing.assert_allclose(*both(f, (x,), 2)[0], rtol=1e-6)


def test_loops_inside_of_loops_that_keep_their_order_are_in_parts() -> None:
    def f(x: Any) -> Any:
        def layer(c: Any, w: Any) -> Any:
            return jax.lax.map(lambda row: jnp.sin(row) * w, c), None

        return jax.lax.scan(layer, x, jnp.arange(3.0))[0]

    assert parts_of(f, XS) == ((8, 4),)
    np.testing.assert_allclose(*both(f, (XS,), 4)[0], rtol=1e-6)


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(lambda r: jax.lax.while_loop(lambda c: c.sum() < 9, lambda c: c + 1, r), id="while"),
        pytest.param(lambda r: jax.lax.cond(r.sum() > 1, jnp.sin, jnp.cos, r), id="branch by iteration"),
        pytest.param(lambda r: jax.random.bits(jax.random.key(r.sum().astype(int), impl="rbg"), (3,)), id="rbg"),
    ],
)
def test_bodies_that_are_not_the_same_side_by_side_are_left(body: Any) -> None:
    """Side by side a branch computes both sides, a while loop its longest run, and rbg draws other bits."""
    assert parts_of(lambda x: jax.lax.map(body, x), XS) == ()


def test_random_bits_of_threefry_are_those_of_the_loop() -> None:
    def f(keys: Any) -> Any:
        return jax.lax.map(lambda k: jax.random.normal(k, (3,)), keys)

    keys = jax.random.split(jax.random.key(0), 8)
    assert parts_of(f, keys) == ((8, 4),)
    np.testing.assert_array_equal(*both(f, (keys,), 4)[0])


def test_effects_keep_iterations_in_order() -> None:
    def body(row: Any) -> Any:
        jax.debug.print("{}", row.sum())
        return row

    assert parts_of(lambda x: jax.lax.map(body, x), XS) == ()
