"""Arrays that come with a sharding state nothing, and a plan that lays them out otherwise says so (S5.1).

So does a plan that counts less of an input than JAX stores.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import Mesh as JaxMesh
from jax.sharding import PartitionSpec as P

import autoshard

NOTE = "arrays that lie otherwise than planned"


def f(x, w):
    return jnp.tanh(x @ w)


def on(shape, names, *spec):
    devices = np.array(jax.devices()[: int(np.prod(shape))]).reshape(shape)
    return NamedSharding(JaxMesh(devices, names, axis_types=(AxisType.Auto,) * len(names)), P(*spec))


def planned(x, w, pins=()):
    """Rows of x are pinned, which the output follows."""
    pins = [autoshard.Pin("out", '[{"a", "b"}, {}]'), *pins]
    return autoshard.plan(f, x, w, mesh={"a": 4, "b": 2}, hardware="tpu_v5e", constraints=pins)


X, W = jnp.ones((64, 32)), jnp.ones((32, 32))


def notes(plan):
    return [note for note in plan.notes if note.startswith(NOTE)]


@pytest.mark.parametrize("there", [on((4, 2), ("a", "b"), None, "a"), on((8,), ("other",), None, "other")])
def test_an_array_that_lies_otherwise_is_named_with_what_keeps_it_there(there):
    plan = planned(jax.device_put(X, there), W)
    (note,) = notes(plan)
    assert f'x ([{{}}, {{"{there.spec[1]}"}}], planned {plan["x"]})' in note
    assert "jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding)" in note
    assert not notes(planned(jax.ShapeDtypeStruct(X.shape, X.dtype, sharding=there), W))


@pytest.mark.parametrize("there", [on((4, 2), ("a", "b"), ("a", "b")), on((8,), ("other",), "other")])
def test_an_array_that_lies_as_planned_needs_no_note(there):
    plan = planned(jax.device_put(X, there), W)
    assert plan["x"] == '[{"a", "b"}, {}]'
    assert not notes(plan)


def test_arrays_of_other_devices_and_pinned_ones_need_no_note():
    assert not notes(planned(X, jax.device_put(W, on((2,), ("a",), "a"))))
    pin = autoshard.Pin("x", '[{"a", "b"}, {}]')
    assert not notes(planned(jax.device_put(X, on((4, 2), ("a", "b"), None, "a")), W, [pin]))


def test_an_input_that_a_pin_cuts_unevenly_is_noted_with_what_a_device_holds_of_it():
    w = jax.ShapeDtypeStruct((33, 32), jnp.float32)  # blocks of 9 rows; JAX stores all 33
    options = {"mesh": {"a": 4, "b": 2}, "hardware": "tpu_v5e"}
    plan = autoshard.plan(jnp.tanh, w, constraints=[autoshard.Pin("x", '[{"a"}, {"b"}]')], **options)
    (note,) = (note for note in plan.notes if note.startswith("inputs that pins cut unevenly"))
    argument = plan.jit().lower(w).compile().memory_analysis().argument_size_in_bytes
    assert 'x ([{"a"}, {"b"}], stored as [{}, {"b"}])' in note
    assert f"A device holds {argument} bytes of them for as long as they are arguments" in note


def test_an_input_in_host_memory_that_a_pin_cuts_unevenly_takes_none_of_a_device():
    pins = [autoshard.Pin("x", '[{"a"}, {}]'), autoshard.MemoryKind("x", "pinned_host")]
    plan = autoshard.plan(jnp.tanh, jnp.ones((33, 32)), constraints=pins, mesh={"a": 4}, hardware="tpu_v5e")
    assert not any("unevenly" in note for note in plan.notes)
