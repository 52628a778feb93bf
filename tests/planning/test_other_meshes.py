"""Meshes over the same devices in other factorisations and orders: planned, lowered, run and checked (S0.60)."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from plan_cases import f32

import autoshard
from autoshard.api.plans import Plan
from autoshard.errors import InfeasibleError, ShardingError, UnsupportedError
from autoshard.formulation.assign import assignment_of
from autoshard.planning import Problem, build_model
from autoshard.solver.network import usage_profile
from autoshard.verify import check_plan
from autoshard.verify.runs.checks import Runnable, verify_plan

P = PartitionSpec
GRIDS: dict[str, tuple[Callable[[np.ndarray], np.ndarray], tuple[str, ...]]] = {
    "turned": (lambda d: d[::-1].reshape(2, 4), ("data", "model")),
    "factored": (lambda d: d.reshape(4, 2), ("a", "b")),
    "transposed": (lambda d: d.reshape(4, 2).T, ("data", "model")),
    "flat": (lambda d: d, ("all",)),
    "ring": (lambda d: d[[0, 1, 3, 2, 6, 7, 5, 4]].reshape(4, 2), ("p", "q")),
}
MOVING = ("turned", "ring")
SPECS = (f32(16, 32), f32(64, 16))


def grid(name: str = "plan") -> jax.sharding.Mesh:
    make, names = GRIDS.get(name, (lambda d: d.reshape(2, 4), ("data", "model")))
    return jax.sharding.Mesh(make(np.array(jax.devices()[:8])), names, axis_types=(AxisType.Auto,) * len(names))


def on(name: str, *entries: Any) -> NamedSharding:
    mesh = grid(name)
    return NamedSharding(mesh, P(*(entries or mesh.axis_names)))


def layer(w: Any, x: Any) -> Any:
    return jnp.tanh(x @ w) * 2.0


def stated(name: str, where: str) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    """A function, its arguments and options, with one statement on the grid of this name."""
    there = on(name)
    if where == "argument":
        return layer, (SPECS[0], jax.ShapeDtypeStruct((64, 16), jnp.float32, sharding=there)), {}
    if where == "result":
        return layer, SPECS, {"constraints": autoshard.Pin("out", there)}

    def inside(w: Any, x: Any) -> Any:
        return jax.lax.with_sharding_constraint(jnp.tanh(x @ w), there) * 2.0

    return inside, SPECS, {}


def solve(f: Callable[..., Any], *specs: Any, mesh: Any = None, **options: Any) -> Plan:
    return autoshard.plan(f, *specs, mesh=grid() if mesh is None else mesh, hardware="tpu_v5e", **options)


def arguments(specs: Any) -> Any:
    rng = np.random.default_rng(0)
    return jax.tree.map(lambda s: rng.standard_normal(s.shape).astype(s.dtype), tuple(specs))


def verified(found: Plan, f: Callable[..., Any], specs: Any) -> None:
    runnable = Runnable(found.lowered.traced, f, lambda: arguments(specs))
    report = verify_plan(found.to_dict(), runnable)
    assert report.ok, str(report)


def permutes(found: Plan) -> list[dict[str, Any]]:
    return [c for c in found.to_dict()["collectives"] if c["where"].endswith("its order of devices")]


@pytest.mark.parametrize("where", ["argument", "code", "result"])
@pytest.mark.parametrize("name", GRIDS)
def test_statements_on_another_grid_are_planned_lowered_and_verified(name: str, where: str) -> None:
    f, specs, options = stated(name, where)
    found = solve(f, *specs, **options)
    verified(found, f, specs)
    wanted = 0 if name not in MOVING else 2 if where == "code" else 1
    assert len(permutes(found)) == wanted
    for row in permutes(found):
        assert row["kind"] == "permute"
        assert row["bytes"] == 4 * (64 * 16 if where == "argument" else 64 * 32) / 8
        assert 0 < row["seconds"] < 1e-3


@pytest.mark.parametrize("where", ["argument", "code", "result"])
def test_network_and_simulation_say_the_same_bytes_of_another_order(where: str) -> None:
    """What a tight memory limit asks for is worked out with the permutes: for the cheapest plan, to the byte."""
    f, specs, options = stated("turned", where)
    found = solve(f, *specs, **options)
    model = build_model(Problem.make(found.program, found.schedule.mesh.mesh, found.machine))
    start = assignment_of(model.collected, model.encoded, model.repeats, found.schedule)
    assert start is not None
    chosen = model.memory.all_of_them()
    usage = usage_profile(model.memory.network(chosen), model.memory.extended(start, chosen))
    assert max(held for _, held in usage) == found.memory.peak_bytes


def test_arguments_and_results_lie_where_they_are_stated() -> None:
    there, back = on("turned", "model"), on("ring", None, "q")
    specs = (SPECS[0], jax.ShapeDtypeStruct((64, 16), jnp.float32, sharding=there))
    found = solve(layer, *specs, constraints=autoshard.Pin("out", back))
    w, x = found.place(*arguments(specs))
    assert x.sharding.is_equivalent_to(there, 2)
    out = found.jit()(w, x)
    assert out.sharding.is_equivalent_to(back, 2)
    np.testing.assert_allclose(out, layer(*arguments(specs)), rtol=1e-5, atol=1e-5)
    compiled = found.jit().lower(*specs).compile()
    np.testing.assert_array_equal(compiled(w, x), out)
    # inside of another jit all arrays are in one order, and so are those of derivatives
    np.testing.assert_allclose(jax.jit(lambda a, b: found.jit()(a, b))(*arguments(specs)), out, rtol=1e-6)
    np.testing.assert_allclose(
        jax.grad(lambda a, b: found.jit()(a, b).sum())(*arguments(specs)),
        jax.grad(lambda a, b: layer(a, b).sum())(*arguments(specs)), rtol=1e-4, atol=1e-4,
    )  # fmt: skip


def test_several_orders_in_one_program_with_loops_and_donation(tmp_path: Path) -> None:
    """JAX itself compiles no program that names several orders."""
    turned, ring = on("turned", "data", "model"), on("ring", "q", "p")

    def step(state: Any, x: Any, *, place: bool = True) -> Any:
        at = jax.lax.with_sharding_constraint if place else lambda value, _: value

        def body(c: Any, _: Any) -> Any:
            c = at(c, turned)
            return jnp.tanh(c @ state["w"]) + c, c.sum()

        y, sums = jax.lax.scan(body, x, None, length=3)
        return {"w": state["w"] - 0.01 * at(y.T @ y, ring)}, sums

    w = jax.ShapeDtypeStruct((16, 16), jnp.float32, sharding=on("turned", "model", "data"))
    specs = ({"w": w}, jax.ShapeDtypeStruct((32, 16), jnp.float32, sharding=on("ring", "p")))
    found = solve(step, *specs, donate_argnums=(0,))
    assert check_plan(found.to_dict()).ok
    inside = [c for c in permutes(found) if c["times"] == 3]
    assert len(inside) == 2, "there and back in each of three rounds"
    assert not [c for c in found.lower().report().changes if c.what != "kept"]
    found.save(tmp_path / "plan.json")
    loaded = Plan.load(tmp_path / "plan.json").attach(step, *specs)
    given = ({"w": arguments(specs)[0]["w"] * 0.1}, arguments(specs)[1])
    state, x = loaded.place(*given)
    run = loaded.jit()
    wanted, sums = step(*given, place=False)
    out, found_sums = run(state, x)
    assert state["w"].is_deleted()
    assert out["w"].sharding.is_equivalent_to(w.sharding, 2), "the result takes the place of the donated input"
    np.testing.assert_allclose(out["w"], wanted["w"], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found_sums, sums, rtol=1e-4)
    again, _ = run(out, x)
    np.testing.assert_allclose(again["w"], step(wanted, given[1], place=False)[0]["w"], rtol=1e-4, atol=1e-5)


def test_a_mesh_given_without_an_order_takes_that_of_the_program() -> None:
    f, specs, _ = stated("turned", "code")
    found = solve(f, *specs, mesh={"data": 2, "model": 4})
    assert found.schedule.mesh.mesh.device_ids == tuple(range(7, -1, -1))
    assert not permutes(found)
    verified(found, f, specs)
    both = solve(
        f, SPECS[0], jax.ShapeDtypeStruct((64, 16), jnp.float32, sharding=on("plan")), mesh={"data": 2, "model": 4}
    )
    assert both.schedule.mesh.mesh.device_ids is None
    assert len(permutes(both)) == 2


def test_the_copy_of_an_argument_in_another_order_takes_memory_while_it_is_read() -> None:
    def f(w: Any, x: Any) -> Any:
        hidden = jnp.sin(x) @ w
        return (jnp.cos(hidden @ w.T) @ w + x) @ w

    def peak(name: str) -> Any:
        found = solve(
            f, f32(256, 256), jax.ShapeDtypeStruct((1024, 256), jnp.float32, sharding=on(name, ("data", "model")))
        )
        assert check_plan(found.to_dict()).ok
        return found.memory

    size = 4 * 1024 * 256 // 8
    there, home = peak("turned"), peak("plan")
    (copy,) = (h for h in there.held if h.what == "x, from its order of devices")
    assert copy.bytes == size
    assert copy.stop > copy.start + 1, "as long as it is read"
    assert there.peak_bytes == home.peak_bytes + size


@pytest.mark.parametrize("where", ["code", "result"])
def test_what_lies_in_another_order_takes_memory(where: str) -> None:
    f, specs, options = stated("turned", where)
    found = solve(f, *specs, **options)
    there = [h for h in found.memory.held if h.what.endswith("in its order of devices")]
    assert [h.bytes for h in there] == [4 * 64 * 32 // 8]


def test_random_keys_travel_to_another_order() -> None:
    def f(keys: Any) -> Any:
        keys = jax.lax.with_sharding_constraint(keys, on("turned", ("data", "model")))
        return jax.vmap(lambda k: jax.random.normal(k, (4,)))(keys)

    keys = jax.random.split(jax.random.key(3), 8)
    found = solve(f, keys, constraints=autoshard.Pin("keys", '[{"data", "model"}]'))
    assert len(permutes(found)) == 2
    np.testing.assert_allclose(found.jit()(keys), jax.vmap(lambda k: jax.random.normal(k, (4,)))(keys), rtol=1e-6)
    assert check_plan(found.to_dict()).ok


def test_partition_specs_are_pins_on_the_planning_mesh() -> None:
    found = solve(layer, *SPECS, constraints=[autoshard.Pin("x", P("data")), autoshard.Pin("w", P(None, "model"))])
    assert (found["x"], found["w"]) == ('[{"data"}, {}]', '[{}, {"model"}]')
    with pytest.raises(ShardingError, match="matches values of ranks 1, 2"):
        solve(lambda a, b: a + b, f32(8), f32(8, 8), constraints=autoshard.Pin("**", P("data")))


# -- some of the devices ------------------------------------------------------------------------------------------


def some(*numbers: int) -> jax.sharding.Mesh:
    devices = np.array(jax.devices())[list(numbers)].reshape(2, 2)
    return jax.sharding.Mesh(devices, ("data", "model"), axis_types=(AxisType.Auto,) * 2)


def where(result: jax.Array) -> list[int]:
    assert isinstance(result.sharding, NamedSharding) and isinstance(result.sharding.mesh, jax.sharding.Mesh)
    return [device.id for device in result.sharding.mesh.devices.flat]


def there(mesh: jax.sharding.Mesh) -> Any:
    return jax.ShapeDtypeStruct((64, 16), jnp.float32, sharding=NamedSharding(mesh, P("data", "model")))


def test_a_pin_by_a_partition_spec_is_cited_at_its_own_line() -> None:
    pins = [autoshard.Pin("x", P("data")), autoshard.Pin("x", P("model"))]
    with pytest.raises(InfeasibleError) as raised:
        solve(layer, *SPECS, constraints=pins)
    line = pins[0].written
    assert Path(__file__).name in line
    assert f'{line}: pin x: [{{"data"}}, {{}}]' in str(raised.value)


@pytest.mark.parametrize("form", ["explicit", "constraints", "shardings"])
def test_a_plan_runs_on_the_devices_of_its_mesh_in_their_order(form: str) -> None:
    found = solve(layer, *SPECS, mesh=some(6, 1, 3, 4))
    given = arguments(SPECS)
    result = found.jit(form=form)(*given)
    assert where(result) == [6, 1, 3, 4] == where(found.place(*given)[0])
    np.testing.assert_allclose(result, layer(*given), rtol=1e-5, atol=1e-5)


def test_sizes_of_a_mesh_take_the_devices_that_a_statement_names() -> None:
    found = solve(layer, SPECS[0], there(some(4, 5, 6, 7)), mesh={"data": 2, "model": 2})
    assert where(found.jit()(*arguments(SPECS))) == [4, 5, 6, 7]


def test_a_plan_that_is_read_back_runs_on_the_devices_that_its_arguments_name(tmp_path: Path) -> None:
    specs = (SPECS[0], there(some(4, 5, 6, 7)))
    solve(layer, *specs, mesh={"data": 2, "model": 2}).save(tmp_path / "plan.json")
    found = Plan.load(tmp_path / "plan.json").attach(layer, *specs)
    assert where(found.jit()(*arguments(SPECS))) == [4, 5, 6, 7]


def test_a_kept_plan_runs_on_the_devices_of_the_mesh_at_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOSHARD_PLANS", str(tmp_path))
    for mesh in (some(0, 1, 2, 3), some(4, 5, 6, 7)):
        run = autoshard.jit(layer, mesh=mesh, hardware="tpu_v5e")
        assert where(run(*arguments(SPECS))) == [d.id for d in mesh.devices.flat]
    assert len(list(tmp_path.iterdir())) == 1


def test_a_mesh_over_other_devices_than_a_statement_names_is_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"the mesh is over .*\[0, 1, 2, 3\], argument x .*over \[4, 5, 6, 7\]"):
        solve(layer, SPECS[0], there(some(4, 5, 6, 7)), mesh=some(0, 1, 2, 3))


# -- what cannot be ------------------------------------------------------------------------------------------------


def test_meshes_over_different_devices_are_refused_with_both_places() -> None:
    half = jax.sharding.Mesh(np.array(jax.devices()[4:8]), ("data",), axis_types=(AxisType.Auto,))
    spec = jax.ShapeDtypeStruct((64, 16), jnp.float32, sharding=NamedSharding(half, P("data")))
    f, specs, _ = stated("turned", "code")
    with pytest.raises(UnsupportedError, match=r"(?s)over the devices .*argument x one over \[4, 5, 6, 7\].*same ones"):
        solve(f, specs[0], spec)


def test_grids_without_a_common_refinement_are_refused() -> None:
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:6]).reshape(3, 2), ("a", "b"), axis_types=(AxisType.Auto,) * 2)
    spec = jax.ShapeDtypeStruct((12, 16), jnp.float32, sharding=NamedSharding(mesh, P("a")))
    with pytest.raises(UnsupportedError, match=r"argument x: .* cuts the devices otherwise .* plan on that mesh"):
        solve(layer, SPECS[0], spec, mesh={"data": 2, "model": 3})


def test_two_orders_for_one_value_contradict_each_other() -> None:
    f, specs, _ = stated("turned", "argument")
    with pytest.raises(
        InfeasibleError, match=r"(?s)two statements want x on devices in different orders.*device_ids.*device_ids"
    ):
        solve(f, *specs, constraints=autoshard.Pin("x", on("ring", "p")))


def test_an_input_that_is_cut_unevenly_in_another_order_is_refused() -> None:
    """JAX has no such array, and what it has instead has no blocks to permute."""
    with pytest.raises(UnsupportedError, match=r"JAX has no array float32\[63,16\] that is cut so"):
        solve(layer, SPECS[0], f32(63, 16), constraints=autoshard.Pin("x", on("turned", "data", None)))


def test_other_targets_refuse_boundaries_in_another_order() -> None:
    f, specs, _ = stated("turned", "argument")
    with pytest.raises(UnsupportedError, match="has one order of the devices"):
        solve(f, *specs).lower("constraints")


# -- corrupted plans -----------------------------------------------------------------------------------------------


def swapped_moves(data: Any) -> None:
    moves = data["program"]["orders"][0]["moves"]
    moves[0], moves[1] = moves[1], moves[0]


def no_permutation(data: Any) -> None:
    data["program"]["orders"][0]["moves"][0] = data["program"]["orders"][0]["moves"][1]


def other_mesh_stated(data: Any) -> None:
    pin = next(s for s in data["statements"] if "mesh" in s)
    pin["mesh"] = pin["mesh"].replace("[7, 6,", "[6, 7,")


def other_sharding_stated(data: Any) -> None:
    pin = next(s for s in data["statements"] if "mesh" in s)
    pin["stated"] = '[{"model"}, {"data"}]'


def order_left_out(data: Any) -> None:
    del data["program"]["orders"]


def order_nobody_asked_for(data: Any) -> None:
    data["program"]["orders"].append({**data["program"]["orders"][0], "where": "input", "index": 0})


def statement_left_out(data: Any) -> None:
    data["statements"] = [s for s in data["statements"] if "mesh" not in s]


def permute_left_out(data: Any) -> None:
    data["collectives"] = [c for c in data["collectives"] if not c["where"].endswith("its order of devices")]


def bytes_understated(data: Any) -> None:
    next(c for c in data["collectives"] if c["where"].endswith("its order of devices"))["bytes"] /= 2


def seconds_understated(data: Any) -> None:
    next(c for c in data["collectives"] if c["where"].endswith("its order of devices"))["seconds"] /= 2


def devices_of_the_plan_reordered(data: Any) -> None:
    data["mesh"]["device_ids"] = [1, 0, 2, 3, 4, 5, 6, 7]


CORRUPTIONS = (
    swapped_moves, no_permutation, other_mesh_stated, other_sharding_stated, order_left_out, order_nobody_asked_for,
    statement_left_out, permute_left_out, bytes_understated, seconds_understated, devices_of_the_plan_reordered,
)  # fmt: skip


@pytest.fixture(scope="module")
def sound() -> dict[str, Any]:
    out = {}
    for where in ("argument", "code", "result"):
        f, specs, options = stated("turned", where)
        out[where] = solve(f, *specs, **options).to_dict()
        assert check_plan(out[where]).ok
    return out


@pytest.mark.parametrize("where", ["argument", "code", "result"])
@pytest.mark.parametrize("corrupt", CORRUPTIONS, ids=lambda f: f.__name__)
def test_a_corrupted_order_is_caught(sound: dict[str, Any], corrupt: Callable[[Any], None], where: str) -> None:
    data = copy.deepcopy(sound[where])
    corrupt(data)
    assert not check_plan(data).ok
