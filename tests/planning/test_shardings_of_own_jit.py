"""Shardings of a `jax.jit` around the planned function are those of its arguments and results, and hard (S4.4)."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from plan_cases import f32

import autoshard
from autoshard import InfeasibleError, Pin, Plan
from autoshard.verify import check_plan

AXES = {"x": 2, "y": 4}
W, X = f32(64, 128), f32(32, 64)


def grid(devices: Any = None) -> Mesh:
    whole = np.array(jax.devices()[:8] if devices is None else devices).reshape(2, 4)
    return Mesh(whole, ("x", "y"), axis_types=(AxisType.Auto,) * 2)


def named(*spec: Any, devices: Any = None) -> NamedSharding:
    return NamedSharding(grid(devices), P(*spec))


def step(w: Any, x: Any) -> Any:
    return jnp.tanh(x @ w)


jitted = jax.jit(step, in_shardings=(named(None, "y"), named("x")), out_shardings=named("y", "x"))


def planned(f: Any, *specs: Any, mesh: Any = None, **options: Any) -> Plan:
    found = autoshard.plan(f, *specs, mesh=mesh or AXES, hardware="tpu_v5e", **options)
    checked = check_plan(found.to_dict())
    assert checked.ok, checked.findings
    return found


@pytest.mark.parametrize("mesh", [AXES, {"y": 4, "x": 2}, {"all": 8}], ids=str)
def test_arguments_and_results_lie_as_the_jit_says(mesh: dict[str, int]) -> None:
    found = planned(jitted, W, X, mesh=mesh)
    for lies, said in zip(found.in_shardings, (named(None, "y"), named("x")), strict=True):
        assert lies.is_equivalent_to(said, 2)
    assert found.out_shardings.is_equivalent_to(named("y", "x"), 2)


def test_it_computes_what_the_jit_computes_from_arrays_that_lie_there() -> None:
    rng = np.random.default_rng(0)
    w, x = (
        jax.device_put(rng.standard_normal(spec.shape, np.float32), lies)
        for spec, lies in ((W, named(None, "y")), (X, named("x")))
    )
    found = planned(jitted, W, X, mesh={"all": 8}).jit()(w, x)
    np.testing.assert_allclose(found, jitted(w, x), rtol=1e-5)
    assert found.sharding.is_equivalent_to(named("y", "x"), 2)


def test_the_statements_name_the_jit_and_what_it_speaks_of() -> None:
    told = [(s["source"], s["pattern"]) for s in planned(jitted, W, X).statements]
    assert told == [
        ("in_shardings of jax.jit(step)", "w"),
        ("in_shardings of jax.jit(step)", "x"),
        ("out_shardings of jax.jit(step)", "out"),
    ]


@pytest.mark.parametrize(("pattern", "side"), [("w", "in_shardings"), ("out", "out_shardings")])
def test_a_pin_that_contradicts_it_is_an_error_that_names_both(pattern: str, side: str) -> None:
    pin = Pin(pattern, '[{"x", "y"}, {}]', source="mine")
    with pytest.raises(InfeasibleError) as caught:
        planned(jitted, W, X, constraints=[pin])
    assert f"{side} of jax.jit(step): pin {pattern}" in str(caught.value)
    assert "mine: pin" in str(caught.value)


def test_an_argument_that_nothing_reads_lies_there_too() -> None:
    f = jax.jit(lambda w, x: jnp.tanh(x), in_shardings=(named("x", "y"), None))
    assert planned(f, W, X)["w"] == '[{"x"}, {"y"}]'


def test_a_sharding_on_devices_in_another_order_takes_one_permute_at_the_border() -> None:
    there = named("y", devices=np.array(jax.devices())[[3, 1, 2, 0, 7, 5, 6, 4]])
    f = jax.jit(jnp.tanh, in_shardings=there, out_shardings=there)
    found = planned(f, X, mesh=grid(), carry=False)
    assert sorted(found.collectives["where"]) == ["output out to its order of devices", "x from its order of devices"]
    assert found.out_shardings.is_equivalent_to(there, 2)


def test_two_results_that_are_one_value_lie_apart() -> None:
    f = jax.jit(lambda x: (2 * x,) * 2, out_shardings=(named("x"), named(None, "y")))
    found = planned(f, X)
    assert (found["out/0"], found["out/1"]) == ('[{"x"}, {}]', '[{}, {"y"}]')


@pytest.mark.parametrize("choice", ["hints", "ignore"])
def test_what_is_said_of_shardings_in_the_code_holds_for_it(choice: str) -> None:
    assert not planned(jitted, W, X, in_code=choice).statements


def test_an_argument_of_a_jit_inside_may_lie_otherwise() -> None:
    found = planned(lambda x: 1 + jax.jit(jnp.tanh, in_shardings=named("x"))(x), X, constraints=[Pin("x", "[{}, {}]")])
    assert found["x"] == "[{}, {}]"


@pytest.mark.parametrize("left_out", range(3))
def test_a_plan_that_leaves_one_of_them_out_is_told(left_out: int) -> None:
    told = planned(jitted, W, X).to_dict()
    del told["statements"][left_out]
    assert any("is not among the plan's statements" in f.text for f in check_plan(told).findings)


def test_a_plan_is_verified_while_a_mesh_is_set() -> None:
    with jax.set_mesh(grid()):
        asked: dict[str, Any] = {"mesh": {"all": 8}, "hardware": "tpu_v5e"}
        checked = autoshard.plan(jitted, W, X, **asked).verify(jitted, W, X, **asked)
    assert checked.ok


def test_a_function_that_jax_does_not_run_by_itself_is_verified_but_for_its_results() -> None:
    lies = NamedSharding(AbstractMesh((2, 4), ("x", "y")), P("x"))
    asked: dict[str, Any] = {"mesh": AXES, "hardware": "tpu_v5e"}
    f = jax.jit(step, in_shardings=(None, lies))
    checked = autoshard.plan(f, W, X, **asked).verify(f, W, X, **asked)
    undone = [check.name for check in checked.checks if check.status == "not done"]
    assert checked.ok and undone == ["results against the unsharded program"]


def test_results_on_two_meshes_that_jax_cannot_name_are_verified_but_for_their_numbers() -> None:
    """JAX looks for the sharding of every result on the mesh of the first."""
    line = NamedSharding(Mesh(np.array(jax.devices()[:8]), ("all",)), P("all"))

    def f(x: Any) -> Any:
        return jax.lax.with_sharding_constraint(x * 2, line), jax.lax.with_sharding_constraint(x * 3, named("x"))

    asked: dict[str, Any] = {"mesh": AXES, "hardware": "tpu_v5e"}
    checked = autoshard.plan(f, X, **asked).verify(f, X, **asked)
    undone = [check.name for check in checked.checks if check.status == "not done"]
    assert checked.ok and undone == ["results against the unsharded program"]


@pytest.mark.parametrize("mesh", [{"all": 8}, {"model": 4, "data": 2}, {"a": 4, "b": 2}], ids=str)
def test_what_is_stated_on_another_mesh_needs_no_collectives_that_it_does_not_need_there(mesh: dict[str, int]) -> None:
    as_made = jax.jit(step, in_shardings=(named(None, "y"), named("x")), out_shardings=named("x", "y"))
    there, here = planned(as_made, W, X, mesh=AXES), planned(as_made, W, X, mesh=mesh)
    assert len(there.collectives) == len(here.collectives) == 0
    assert here.objective_s == pytest.approx(there.objective_s)


def test_an_argument_with_a_sharding_of_another_kind_is_told_to_state_nothing() -> None:
    alone = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    notes = planned(jnp.tanh, jax.ShapeDtypeStruct((32, 64), jnp.float32, sharding=alone)).notes
    assert any("other than a NamedSharding, which state nothing: x;" in note for note in notes)


@pytest.mark.parametrize(("mesh", "told"), [({"x": 4, "y": 4}, ["x=2"]), ({"x": 2, "y": 2}, ["y=4"])], ids=str)
def test_sizes_of_axes_that_differ_from_those_of_arguments_are_told(mesh: dict[str, int], told: list[str]) -> None:
    x = jax.ShapeDtypeStruct((32, 64), jnp.float32, sharding=named("x", "y"))
    notes = planned(jnp.tanh, x, mesh=mesh).notes
    assert [n.split("shardings for ")[1].split(";")[0] for n in notes if "shardings for" in n] == told


@pytest.mark.parametrize("mesh", [{"all": 8}, {"model": 4, "data": 2}, {"a": 4, "b": 2}], ids=str)
def test_what_is_stated_on_the_turned_grid_needs_no_collectives_on_any_other(mesh: dict[str, int]) -> None:
    turned = named(("y", "x"))
    found = planned(jax.jit(jnp.tanh, in_shardings=turned, out_shardings=turned), X, mesh=mesh)
    assert len(found.collectives) == 0
    assert found.out_shardings.is_equivalent_to(turned, 2)
