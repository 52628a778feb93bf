"""Arrays are placed shard by shard: generated values are functions of position, and checksums count elements once."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.sharding import NamedSharding, PartitionSpec

from autoshard.interop.place import place, place_tree
from autoshard.running.arrays import generated, held_bytes, own_sums, values_at
from autoshard.running.checksums import combined


@pytest.fixture(scope="module")
def mesh():
    return jax.make_mesh((2, 4), ("x", "y"), axis_types=(jax.sharding.AxisType.Auto,) * 2)


@given(st.lists(st.integers(1, 7), max_size=3), st.integers(0, 5), st.data())
def test_a_block_of_generated_values_is_that_block_of_the_whole(shape, seed, data):
    whole = values_at(shape, np.float32, [slice(None)] * len(shape), seed=seed)
    starts = [data.draw(st.integers(0, n - 1)) for n in shape]
    index = tuple(slice(s, data.draw(st.integers(s + 1, n))) for s, n in zip(starts, shape, strict=True))
    assert np.array_equal(values_at(shape, np.float32, index, seed=seed), whole[index])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8", "uint32", "bool", "complex64"])
def test_generated_values_vary_and_stay_small(dtype):
    values = values_at((64, 3), jnp.dtype(dtype), (slice(None),) * 2, seed=0)
    assert values.dtype == jnp.dtype(dtype)
    assert 0 <= float(np.abs(values).max()) < 8
    assert len(np.unique(values.astype(np.complex64))) > 1
    assert not np.array_equal(values, values_at((64, 3), jnp.dtype(dtype), (slice(None),) * 2, seed=0, number=1))


def test_random_keys_are_generated_as_keys(mesh):
    spec = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), 8))
    (keys,) = generated([spec], [NamedSharding(mesh, PartitionSpec("x"))], seed=5)
    assert jnp.issubdtype(keys.dtype, jax.dtypes.prng_key)
    assert len(np.unique(np.asarray(jax.random.bits(keys[0], (4,))))) == 4


@pytest.mark.parametrize("spec", [PartitionSpec(), PartitionSpec("x"), PartitionSpec("x", "y")])
def test_a_buffer_that_is_filled_again_does_not_change_what_was_placed(mesh, spec):
    raw = np.zeros(256 * 256 * 4 + 64, np.uint8)
    start = -raw.ctypes.data % 64  # aligned so, arrays are read by XLA where they stand
    buffer = raw[start : start + 256 * 256 * 4].view(np.float32).reshape(256, 256)
    buffer[:] = 1
    placed = place(buffer, NamedSharding(mesh, spec))
    buffer[:] = 2
    assert np.array_equal(placed, np.ones((256, 256)))


def test_placed_arrays_lie_as_the_sharding_says(mesh):
    wanted = {"a": NamedSharding(mesh, PartitionSpec("x", "y")), "b": NamedSharding(mesh, PartitionSpec())}
    tree = place_tree({"a": np.arange(32.0).reshape(4, 8), "b": 3}, wanted)
    assert tree["a"].sharding == wanted["a"]
    assert tree["a"].addressable_shards[0].data.shape == (2, 2)
    assert held_bytes(tree.values()) == 32 * tree["a"].itemsize + 8 * tree["b"].itemsize
    assert place_tree(tree, wanted)["a"] is tree["a"]


@pytest.mark.parametrize(
    "spec", [PartitionSpec(), PartitionSpec("x"), PartitionSpec(("x", "y")), PartitionSpec(None, "y")]
)
def test_checksums_count_every_element_once(mesh, spec):
    host = np.random.default_rng(0).normal(size=(8, 12)).astype(np.float32)
    found = combined(own_sums(place(host, NamedSharding(mesh, spec))))
    assert found["sum"] == pytest.approx(host.astype(np.float64).sum())
    assert found["l2"] == pytest.approx(np.linalg.norm(host.astype(np.float64)))
    assert found["max_abs"] == np.abs(host).max()
