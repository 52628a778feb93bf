"""In explicit mode a function may need arguments whose types have shardings; it is traced with those they come with."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import autoshard
from autoshard.errors import InputError


def mesh() -> jax.sharding.Mesh:
    return jax.make_mesh((2, 4), ("x", "y"), axis_types=(AxisType.Explicit,) * 2)


def spec(shape: tuple[int, ...], *axes: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh(), P(*axes)))


W, X = spec((64, 64), None, "y"), spec((16, 64), "x", None)


def residual(w: Any, x: Any) -> Any:
    return x + jnp.tanh(jnp.matmul(x, w, out_sharding=P("x", None)))


def step(w: Any, x: Any) -> Any:
    loss, grad = jax.value_and_grad(lambda w: jnp.square(residual(w, residual(w, x))).mean())(w)
    return w - 0.1 * grad, loss


def masked(w: Any, x: Any) -> Any:
    return jnp.where(x > 0, x, jnp.matmul(x, w, out_sharding=P("x", None)))


def summed(w: Any, x: Any) -> Any:
    return w + jax.shard_map(lambda x: jax.lax.psum(x.sum(), "x"), in_specs=P("x", None), out_specs=P())(x)


@pytest.fixture(autouse=True)
def _mesh_is_set() -> Any:
    with jax.set_mesh(mesh()):
        yield


def arrays(*specs: Any) -> list[Any]:
    rng = np.random.default_rng(0)
    return [jax.device_put(rng.standard_normal(s.shape, np.float32), s.sharding) for s in specs]


@pytest.mark.parametrize("form", ["explicit", "constraints"])
@pytest.mark.parametrize("f", [step, masked, summed])
def test_a_function_that_needs_sharded_arguments_computes_the_same(f: Any, form: str) -> None:
    run = autoshard.plan(f, W, X, mesh=mesh(), hardware="tpu_v5e", carry=False).jit(form=form)
    ours, own = run(*arrays(W, X)), jax.jit(f)(*arrays(W, X))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4), ours, own)


def test_it_is_verified_with_arguments_that_lie_so() -> None:
    asked: dict[str, Any] = {"mesh": mesh(), "hardware": "tpu_v5e"}
    assert autoshard.plan(step, W, X, **asked).verify(step, W, X, **asked).ok


def test_arrays_that_lie_so_are_types_and_no_statements() -> None:
    found = autoshard.plan(step, *arrays(W, X), mesh=mesh(), hardware="tpu_v5e")
    assert {s["pattern"] for s in found.statements}.isdisjoint({"w", "x"})


def test_a_function_of_arrays_is_planned_at_its_first_call() -> None:
    run = autoshard.jit(step, mesh=mesh(), hardware="tpu_v5e", keep=False)
    w, x = arrays(W, X)
    np.testing.assert_allclose(run(w, x)[1], jax.jit(step)(w, x)[1], rtol=1e-5)


def test_without_shardings_the_error_says_how_to_give_them() -> None:
    w, x = (jax.ShapeDtypeStruct(s.shape, s.dtype) for s in (W, X))
    with pytest.raises(InputError, match=r"give arguments that come with shardings on such a mesh"):
        autoshard.plan(summed, w, x, mesh=mesh(), hardware="tpu_v5e")
