"""Shardings that ops of explicit mode state of their results (``out_sharding=``) are hard statements (S4.4)."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P
from plan_cases import f32

import autoshard
from autoshard.verify import check_plan

W, X, TABLE = f32(64, 128), f32(16, 64), f32(100, 64)
ROWS = jax.ShapeDtypeStruct((16,), jnp.int32)


def mesh() -> jax.sharding.Mesh:
    return jax.make_mesh((2, 4), ("x", "y"), axis_types=(AxisType.Explicit,) * 2)


def stated(f: Any, *specs: Any, **options: Any) -> list[str]:
    """The shardings that a function states in its code, in the order of the program; they hold in its plan."""
    with jax.set_mesh(mesh()):
        found = autoshard.plan(f, *specs, mesh=mesh(), hardware="tpu_v5e", **options)
    checked = check_plan(found.to_dict())
    assert checked.ok, checked.findings
    return [s["sharding"] for s in found.statements if s["kind"] == "pin"]


def of_matmul(w: Any, x: Any) -> Any:
    return jnp.matmul(x, w, out_sharding=P("x"))


@pytest.mark.parametrize(
    ("f", "specs", "text"),
    [
        (of_matmul, (W, X), '[{"x"}, {}]'),
        (lambda w, x: jnp.einsum("df,bd->fb", w, x, out_sharding=P("y", "x")), (W, X), '[{"y"}, {"x"}]'),
        (lambda x: jnp.reshape(x, (4, 4, 64), out_sharding=P("x", None, "y")), (X,), '[{"x"}, {}, {"y"}]'),
        (lambda x: x + jnp.zeros(x.shape, out_sharding=P("y")), (X,), '[{"y"}, {}]'),
        (lambda t, i: t.at[i].get(out_sharding=P("x", None)), (TABLE, ROWS), '[{"x"}, {}]'),
    ],
    ids=["matmul", "einsum", "reshape", "zeros", "rows"],
)
def test_a_result_has_the_sharding_that_its_op_states(f: Any, specs: tuple, text: str) -> None:
    assert stated(f, *specs) == [text]


def test_a_result_that_is_handed_back_computes_the_same() -> None:
    rng = np.random.default_rng(0)
    w, x = (rng.standard_normal(spec.shape, np.float32) for spec in (W, X))
    with jax.set_mesh(mesh()):
        found = autoshard.plan(of_matmul, W, X, mesh=mesh(), hardware="tpu_v5e")
    np.testing.assert_allclose(found.jit()(w, x), x @ w, rtol=1e-4, atol=1e-5)


def test_gradients_state_what_the_forward_pass_states_and_no_more() -> None:
    assert stated(jax.grad(lambda w, x: jnp.tanh(of_matmul(w, x)).sum()), W, X) == ['[{"x"}, {}]']


def test_what_follows_from_types_is_no_statement() -> None:
    def f(w: Any, x: Any) -> Any:
        h = of_matmul(w, x)
        return jax.nn.softmax(h)  # broadcasts its maxima and sums like h

    assert stated(f, W, X) == ['[{"x"}, {}]']


def test_the_batch_of_a_mapped_op_is_open() -> None:
    def f(w: Any, xs: Any) -> Any:
        return jax.vmap(lambda x: jnp.matmul(x, w, out_sharding=P(None, "y")))(xs)

    assert stated(f, W, f32(8, 16, 64)) == ['[{?}, {?}, {"y"}]']


def test_axes_that_are_automatic_inside_may_cut_everything() -> None:
    inside = jax.sharding.auto_axes(lambda w, x: jnp.tanh(x @ w), axes="y", out_sharding=P("x", None))
    assert stated(inside, W, X) == ['[{"x"}, {}]']


@pytest.mark.parametrize("choice", ["hints", "ignore"])
def test_what_is_said_of_shardings_in_the_code_holds_for_them(choice: str) -> None:
    assert stated(of_matmul, W, X, in_code=choice) == []
