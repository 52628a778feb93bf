"""Calls of plans whose arguments and results lie in another order of the devices."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from autoshard import InputError, MemoryKind, Pin, plan
from autoshard.api.plans import Plan

SPECS = (jax.ShapeDtypeStruct((16, 32), jnp.float32), jax.ShapeDtypeStruct((64, 16), jnp.float32))


def mesh(*, turned: bool = False) -> jax.sharding.Mesh:
    devices = np.array(jax.devices()[:8])
    grid = (devices[::-1] if turned else devices).reshape(2, 4)
    return jax.sharding.Mesh(grid, ("data", "model"), axis_types=(AxisType.Auto,) * 2)


def layer(w: Any, x: Any) -> Any:
    return jnp.tanh(x @ w) * 2.0


def planned(*statements: Any) -> Plan:
    return plan(layer, *SPECS, mesh=mesh(), hardware="tpu_v5e", constraints=statements)


def turned(name: str) -> Pin:
    return Pin(name, NamedSharding(mesh(turned=True), PartitionSpec("data", "model")))


def arrays() -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    return tuple(rng.standard_normal(spec.shape).astype(np.float32) for spec in SPECS)


def test_an_argument_in_another_order_lies_on_the_host_where_it_is_stated() -> None:
    found = planned(turned("w"), MemoryKind("w", "pinned_host"))
    assert found.in_shardings[0].memory_kind == "pinned_host"


def test_an_argument_in_another_order_is_taken_from_the_host() -> None:
    w, x = arrays()
    found = planned(turned("w"), MemoryKind("w", "pinned_host"))
    np.testing.assert_allclose(np.asarray(found.jit()(*found.place(w, x))), layer(w, x), atol=1e-5)


def test_a_result_in_another_order_is_given_to_the_host() -> None:
    found = planned(turned("out"), MemoryKind("out", "pinned_host"))
    assert found.jit()(*arrays()).sharding.memory_kind == "pinned_host"


def test_an_array_that_lies_elsewhere_is_named_beside_a_result_in_another_order() -> None:
    found = planned(turned("out"), Pin("x", '[{"data"}, {}]'))
    w, x = arrays()
    elsewhere = jax.device_put(x, NamedSharding(mesh(turned=True), PartitionSpec(None, "model")))
    run = found.jit()
    with pytest.raises(InputError, match="argument x lies as"):
        run(w, elsewhere)
