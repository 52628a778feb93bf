"""Random keys are placed as other arrays are: each device has a copy of its own."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from autoshard.interop.place import place_tree


def state() -> dict[str, Any]:
    return {"w": jnp.arange(8.0), "key": jax.random.key(0)}


def test_what_was_placed_outlives_the_donation_of_its_copy() -> None:
    everywhere = NamedSharding(jax.make_mesh((8,), ("d",)), PartitionSpec())
    given = state()
    placed = place_tree(given, jax.tree.map(lambda _: everywhere, given))
    jax.jit(lambda s: jax.tree.map(jnp.copy, s), donate_argnums=0)(placed)
    assert not any(x.is_deleted() for x in jax.tree.leaves(given))


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg"])
@pytest.mark.parametrize("spec", [(), ("a",), (None, "b"), (("b", "a"),)], ids=str)
def test_placed_keys_are_the_same_keys_cut_as_asked(impl: str, spec: Any) -> None:
    keys = jax.random.split(jax.random.key(0, impl=impl), (8, 4))
    sharding = NamedSharding(jax.make_mesh((2, 4), ("a", "b")), PartitionSpec(*spec))
    placed = place_tree(keys, sharding)
    assert placed.sharding.is_equivalent_to(sharding, 2) and placed.dtype == keys.dtype
    np.testing.assert_array_equal(jax.random.key_data(placed), jax.random.key_data(keys))
