"""Lowered functions run whichever mesh their caller has set, and refuse arrays of another explicit mesh in words."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import autoshard
from autoshard.errors import InputError

MESH = {"data": 2, "model": 4}
X = jnp.asarray(np.random.default_rng(0).normal(size=(8, 8)), jnp.float32)


def gram(x: jax.Array) -> jax.Array:
    return jnp.tanh(x @ x.T)


@pytest.fixture(scope="module")
def plan() -> autoshard.Plan:
    pins = [autoshard.Pin("x", '[{"data"}, {"model"}]')]
    return autoshard.plan(gram, X, mesh=MESH, hardware="tpu_v5e", constraints=pins, effort=0.2)


def mesh_of(shape: tuple[int, ...], names: tuple[str, ...], kind: AxisType) -> jax.sharding.Mesh:
    return jax.make_mesh(shape, names, axis_types=(kind,) * len(shape))


@pytest.mark.parametrize("form", ["explicit", "constraints"])
@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit], ids=["auto", "explicit"])
@pytest.mark.parametrize(
    ("shape", "names"), [((2, 4), ("data", "model")), ((8,), ("z",))], ids=["the plan's mesh", "another one"]
)
def test_a_plan_is_lowered_and_runs_while_a_mesh_is_set(
    plan: autoshard.Plan, shape: tuple[int, ...], names: tuple[str, ...], kind: AxisType, form: str
) -> None:
    with jax.set_mesh(mesh_of(shape, names, kind)):
        out = plan.lower(form).jit()(X)
    np.testing.assert_allclose(out, gram(X), rtol=1e-5)


def test_a_plan_has_gradients_while_its_mesh_is_set(plan: autoshard.Plan) -> None:
    with jax.set_mesh(mesh_of((2, 4), ("data", "model"), AxisType.Auto)):
        run = plan.jit()
        slope = jax.jit(jax.grad(lambda x: run(x).sum()))(X)
    np.testing.assert_allclose(slope, jax.grad(lambda x: gram(x).sum())(X), rtol=1e-4, atol=1e-5)


def test_autoshard_jit_runs_while_a_mesh_is_set() -> None:
    mesh = mesh_of((2, 4), ("data", "model"), AxisType.Auto)
    with jax.set_mesh(mesh):
        out = autoshard.jit(gram, mesh=mesh, hardware="tpu_v5e", effort=0.2)(X)
    np.testing.assert_allclose(out, gram(X), rtol=1e-5)


@pytest.mark.parametrize("form", ["explicit", "constraints"])
def test_an_array_of_another_explicit_mesh_is_refused_with_both_meshes(plan: autoshard.Plan, form: str) -> None:
    other = mesh_of((4, 2), ("a", "b"), AxisType.Explicit)
    placed = jax.device_put(X, NamedSharding(other, P("b", "a")))
    with pytest.raises(InputError, match=r"x lies on another mesh, {'a': 4, 'b': 2} .* `Plan.place` moves"):
        plan.lower(form).jit()(placed)
    np.testing.assert_allclose(plan.jit()(*plan.place(placed)), gram(X), rtol=1e-5)
