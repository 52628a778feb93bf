"""JAX meshes and shardings both ways (S2.55 to S2.60)."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax._src import partition_spec
from jax.sharding import NamedSharding, PartitionSpec

from autoshard.errors import InputError, ShardingError, UnsupportedError
from autoshard.interop.jax import (
    mesh_from_jax,
    mesh_to_jax,
    sharding_from_jax,
    sharding_to_jax,
    spec_from_jax,
    spec_to_jax,
)
from autoshard.sharding.mesh import Mesh
from autoshard.sharding.tensor_sharding import TensorSharding

pytestmark = pytest.mark.smoke

P = PartitionSpec
MESH = Mesh.from_dict({"data": 4, "model": 2})


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        (P("data", P.UNCONSTRAINED), '[{"data"}, {?}]'),  # S2.56
        (P("data"), '[{"data"}, {}]'),  # S2.58
        (P(("data", "model")), '[{"data", "model"}, {}]'),  # S2.58
        (P(None, "model"), '[{}, {"model"}]'),
        (P(), "[{}, {}]"),
    ],
)
def test_partition_specs_are_read_and_written(spec: PartitionSpec, text: str) -> None:
    found = spec_from_jax(spec, 2, MESH)
    assert str(found) == text
    assert spec_from_jax(spec_to_jax(found, MESH), 2, MESH) == found


def test_unreduced_axes_of_a_partition_spec_are_those_of_a_partial_sum() -> None:
    found = spec_from_jax(P("data", unreduced={"model"}), 2, MESH)
    assert str(found) == '[{"data"}, {}] unreduced={"model"}'
    assert spec_from_jax(spec_to_jax(found, MESH), 2, MESH) == found


def test_a_partition_spec_that_leaves_a_maximum_to_be_taken_is_refused() -> None:
    kinds = getattr(partition_spec, "UnreducedKind", None)
    if kinds is None:
        pytest.skip("JAX 0.10 knows sums alone")
    spec = P("data", unreduced={"model"}, unreduced_kind=kinds.max)
    with pytest.raises(UnsupportedError, match="only sums can be left to be combined, no maxima"):
        spec_from_jax(spec, 2, MESH)


def test_local_shapes_of_partition_specs() -> None:  # S2.56, S2.57
    assert spec_from_jax(P("data", P.UNCONSTRAINED), 2, MESH).local_shape(MESH, (32, 64)) == (8, 64)
    assert spec_from_jax(P("data"), 1, MESH).local_shape(MESH, (32,)) == (8,)


def test_meshes_go_both_ways_with_their_device_order() -> None:  # S2.55
    devices = np.array(jax.devices()[:8])[::-1].reshape(4, 2)
    there = mesh_from_jax(jax.sharding.Mesh(devices, ("data", "model")))
    assert there == Mesh(("data", "model"), (4, 2), "mesh", (7, 6, 5, 4, 3, 2, 1, 0))
    assert [d.id for d in mesh_to_jax(there).devices.flat] == [d.id for d in devices.flat]
    assert mesh_from_jax(jax.sharding.AbstractMesh((4, 2), ("data", "model"))) == MESH


@pytest.mark.parametrize("text", ["[{data}, {model}]", "[{model, data}, {}]", "[{data:(1)2}, {data:(2)2, model}]"])
def test_jax_puts_the_blocks_where_we_say(text: str) -> None:  # S2.59
    sharding = TensorSharding.from_text(text)
    blocks = sharding.device_blocks(MESH, (8, 8))
    theirs = sharding_to_jax(sharding, MESH).devices_indices_map((8, 8))
    for device, index in theirs.items():
        assert tuple(s.indices(8)[:2] for s in index) == blocks[device.id]


def test_named_shardings_are_read() -> None:
    jax_mesh = mesh_to_jax(MESH)
    mesh, sharding = sharding_from_jax(NamedSharding(jax_mesh, P("model")), 2)
    assert (mesh, str(sharding)) == (MESH, '[{"model"}, {}]')
    with pytest.raises(UnsupportedError, match="only NamedSharding"):
        sharding_from_jax(jax.sharding.SingleDeviceSharding(jax.devices()[0]), 2)  # type: ignore[arg-type]


def test_what_jax_cannot_say_is_dropped_or_refused() -> None:
    sharding = TensorSharding.from_text("[{data, ?}p1, {}] replicated={model}")
    assert spec_to_jax(sharding, MESH) == P("data", None)
    with pytest.raises(
        UnsupportedError, match="priority of dimension 0, openness of dimension 0, explicit replication"
    ):
        spec_to_jax(sharding, MESH, exact=True)
    with pytest.raises(UnsupportedError, match="refines the mesh"):
        spec_to_jax(TensorSharding.from_text("[{data:(1)2}]"), MESH)


def test_faulty_requests_are_refused() -> None:
    with pytest.raises(ShardingError, match="rank 1"):
        spec_from_jax(P("data", "model"), 1, MESH)
    with pytest.raises(ShardingError, match='names axis "nope"'):
        spec_from_jax(P("nope"), 1, MESH)
    with pytest.raises(InputError, match="needs 64 devices"):
        mesh_to_jax(Mesh.from_dict({"x": 64}))


def test_a_propagated_program_computes_the_same() -> None:  # S2.60
    def mlp(x, w1, w2):
        return jnp.tanh(x @ w1) @ w2

    x, w1, w2 = (np.random.default_rng(0).normal(size=s).astype(np.float32) for s in ((16, 64), (64, 32), (32, 8)))
    texts = ["[{data}, {}]", "[{}, {model}]", "[{model}, {}]"]
    shardings = [sharding_to_jax(TensorSharding.from_text(t), MESH) for t in texts]
    out = sharding_to_jax(TensorSharding.from_text("[{data}, {}]"), MESH)
    found = jax.jit(mlp, in_shardings=shardings, out_shardings=out)(x, w1, w2)
    np.testing.assert_allclose(found, mlp(x, w1, w2), rtol=1e-4, atol=1e-4)


def test_what_jax_lowers_is_what_we_write() -> None:  # S2.58
    from autoshard.frontends.mlir.program import read_mlir

    jax_mesh = mesh_to_jax(MESH)
    specs = (P("data", P.UNCONSTRAINED), P(("data", "model")))
    arrays = [jax.ShapeDtypeStruct((32, 64), jnp.float32, sharding=NamedSharding(jax_mesh, s)) for s in specs]
    read = read_mlir(jax.jit(lambda a, b: a + b).lower(*arrays).as_text())
    for value, spec in zip(read.program.body.args, specs, strict=True):
        assert read.shardings[value].dims == spec_from_jax(spec, 2, MESH).dims


def test_a_manual_computation_computes_the_same() -> None:  # S2.12
    mesh = mesh_to_jax(MESH)
    x, w = (np.random.default_rng(0).normal(size=s).astype(np.float32) for s in ((2, 16), (16, 32)))

    def local(a, b):
        assert (a.shape, b.shape) == ((2, 8), (8, 32))
        return jax.lax.psum(a @ b, "model")

    specs = (P(None, "model"), P("model", None))
    manual = jax.shard_map(local, mesh=mesh, in_specs=specs, out_specs=P(), axis_names={"model"})
    np.testing.assert_allclose(jax.jit(manual)(x, w), x @ w, rtol=1e-4, atol=1e-4)
