"""A `shard_map` written by the user stays as it is: its specs are hard, its collectives are kept and counted
(S2.11).
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

import autoshard
from autoshard.interop.jax import auto_mesh
from autoshard.verify.collectives import compare
from autoshard.verify.numeric import numeric_check
from autoshard.verify.stablehlo import stablehlo_collectives

MESH = {"x": 2, "y": 4}


def _matmul_by_hand(a, b):
    mesh = auto_mesh(np.array(jax.devices()[:8]).reshape(2, 4), ("x", "y"))
    body = lambda a, b: jax.lax.psum(a @ b, "y")  # noqa: E731
    return jax.shard_map(body, mesh=mesh, in_specs=(P("x", "y"), P("y", None)), out_specs=P("x", None))(a, b)


def _loss(a, b):
    return (_matmul_by_hand(jnp.tanh(a), b) ** 2).sum()


@pytest.fixture(scope="module")
def arguments():
    random = np.random.default_rng(0)
    return random.normal(size=(64, 128)).astype(np.float32), random.normal(size=(128, 256)).astype(np.float32)


@pytest.fixture(scope="module")
def plan(arguments):
    return autoshard.plan(jax.value_and_grad(_loss), *arguments, mesh=MESH, hardware="cpu_sim")


def test_users_collective_is_planned_and_priced(plan):
    own = plan.collectives[plan.collectives["where"].str.contains("shard_map")]
    assert list(own["kind"]) == ["all_reduce"]
    assert list(own["axes"]) == ["y"]
    assert list(own["bytes"]) == [32 * 256 * 4]
    assert (own["seconds"] > 0).all()


def test_planned_collectives_are_the_lowered_ones(plan, arguments):
    text = plan.jit().lower(*arguments).as_text()
    assert compare(plan.lowered.planned, stablehlo_collectives(text), plan.schedule.mesh) == []


def test_values_and_gradients_are_those_of_the_users_program(plan, arguments):
    report = numeric_check(plan.jit(), jax.value_and_grad(_loss), arguments)
    assert report.ok, str(report)


def test_a_mesh_without_the_users_axes_is_refused(arguments):
    with pytest.raises(autoshard.UnsupportedError, match=r"uses mesh axes \['y'\]"):
        autoshard.plan(_loss, *arguments, mesh={"x": 8}, hardware="cpu_sim")
