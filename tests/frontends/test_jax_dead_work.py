"""Programs in which much work feeds no output say so."""

import jax
import jax.numpy as jnp
import pytest

import autoshard
from autoshard.frontends.jax.function import trace

X, W = jax.ShapeDtypeStruct((64, 128), jnp.float32), jax.ShapeDtypeStruct((128, 128), jnp.float32)


def notes(f, *specs):
    return [w for w in trace(f, *specs).program.warnings if "feed no output" in w]


def loss(w, x):
    return jnp.square(jnp.tanh(x @ w) @ w).mean()


class Box:
    """State outside of the function, as that of modules which are changed in place."""

    def __init__(self):
        self.value = None


def test_a_step_that_forgets_its_gradients_says_so_and_where_the_work_is():
    def step(w, x):
        value, grad = jax.value_and_grad(loss)(w, x)
        Box().value = w - 0.1 * grad
        return value

    (note,) = notes(step, W, X)
    # two products forward; backward two for each of the two, less the one for the input
    assert note.startswith("60% of the matmul FLOP feed no output, the most at test_jax_dead_work.py:")
    assert "is the state returned?" in note


def test_the_plan_has_the_note():
    def f(w, x):
        jnp.tanh(x @ w)
        return x.sum()

    plan = autoshard.plan(f, W, X, mesh={"data": 8}, hardware="tpu_v5e")
    assert any(note.startswith("100% of the matmul FLOP feed no output") for note in plan.notes)


def test_a_step_that_returns_its_state_says_nothing():
    assert notes(lambda w, x: w - 0.1 * jax.grad(loss)(w, x), W, X) == []


def test_what_derivatives_leave_behind_is_not_told():
    layer = jax.checkpoint(lambda w, x: jnp.tanh(x @ w) @ w)
    assert notes(jax.grad(lambda w, x: layer(w, layer(w, x)).sum()), W, X) == []
    assert notes(lambda w, x: jax.grad(lambda w: (x @ w).sum())(w), W, X) == []


def test_loops_count_as_often_as_they_run():
    def f(w, x):
        unused = jax.lax.scan(lambda c, _: (c @ w, None), x, None, length=9)[0]
        return x @ w + 0 * len(unused)

    (note,) = notes(f, W, X)
    assert note.startswith("90% of")


def test_programs_without_products_say_nothing():
    def f(x):
        jnp.sin(x)
        return x * 2

    assert notes(f, X) == []


@pytest.mark.parametrize("kept", [True, False])
def test_convolutions_count(kept):
    def f(x, k):
        y = jax.lax.conv(x, k, (1, 1), "SAME")
        return y if kept else x

    found = notes(f, jax.ShapeDtypeStruct((2, 3, 8, 8), jnp.float32), jax.ShapeDtypeStruct((4, 3, 3, 3), jnp.float32))
    assert bool(found) is not kept


def test_matmuls_of_empty_arrays_are_no_work_that_could_be_forgotten():
    empty = jax.ShapeDtypeStruct((0, 128), jnp.float32)

    def f(x, w):
        jnp.tanh(x @ w)
        return x

    assert notes(f, empty, W) == []
