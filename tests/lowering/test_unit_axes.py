"""A user's `shard_map` may name mesh axes of size 1 that the plan's mesh does not have."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import PartitionSpec as P

import autoshard
from autoshard.interop.jax import auto_mesh

ASKED = {"mesh": {"data": 2, "fsdp": 4}, "hardware": "cpu_sim"}
NAMES = ("data", "stage", "fsdp", "tensor", "expert")


def _mesh():
    return auto_mesh(np.array(jax.devices()[:8]).reshape(2, 1, 4, 1, 1), NAMES)


def by_hand(a, b):
    """A matmul over many axes, with every collective over axes of size 1."""

    def body(a, b):
        gathered = lax.all_gather(b, ("fsdp", "tensor"), tiled=True)
        a = lax.all_gather(a, "stage")[0]
        a = lax.ppermute(a, "expert", [(0, 0)])
        a = lax.all_to_all(a, "tensor", 0, 1, tiled=True)
        a = lax.psum_scatter(a, "expert", tiled=True)
        number = lax.axis_index("stage") + lax.axis_index("fsdp")
        return lax.pmax(lax.psum(a @ gathered, ("stage", "expert")), "tensor") + number.astype(a.dtype)

    specs = P(("data", "stage"), ("tensor", "expert")), P("fsdp", None)
    mapped = jax.shard_map(
        body, mesh=_mesh(), in_specs=specs, out_specs=P(("data", "fsdp", "stage"), None), check_vma=False
    )
    return mapped(jnp.tanh(a), b)


@pytest.fixture(scope="module")
def arguments():
    random = np.random.default_rng(0)
    return random.normal(size=(8, 16)).astype(np.float32), random.normal(size=(16, 8)).astype(np.float32)


@pytest.fixture(scope="module")
def plan(arguments):
    return autoshard.plan(by_hand, *arguments, **ASKED)


def test_axes_of_size_1_are_not_in_the_program(plan):
    (region,) = (op for op in plan.program.body.ops if op.kind == "shard_map")
    assert [name for name, _ in region.attrs["mesh_axes"]] == ["data", "fsdp"]
    assert region.attrs["in_names"] == ((("data",), ()), (("fsdp",), ()))


def test_only_collectives_over_larger_axes_are_planned(plan):
    assert list(plan.collectives["kind"]) == ["all_gather"] and list(plan.collectives["axes"]) == ["fsdp"]


def test_planned_values_are_those_of_the_users_program(plan, arguments):
    np.testing.assert_allclose(plan.jit()(*arguments), jax.jit(by_hand)(*arguments), rtol=1e-5, atol=1e-5)


def test_shard_map_over_axes_of_size_1_alone_is_plain_ops():
    def scaled(a):
        return jax.shard_map(
            lambda a: lax.psum(2 * a, "stage"), mesh=_mesh(), in_specs=P("stage", "tensor"),
            out_specs=P(None, "tensor"),
            axis_names={"stage", "tensor"},
        )(a)  # fmt: skip

    plan = autoshard.plan(scaled, jax.ShapeDtypeStruct((8, 16), jnp.float32), **ASKED)
    kinds = [op.kind for op in plan.program.body.ops if op.kind != "convert_element_type"]  # JAX 0.12 has one of 2
    assert kinds == ["mul"]
