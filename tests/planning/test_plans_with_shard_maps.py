"""Planner and checker agree on programs with a user's own `shard_map`: what it costs, and what is held around it."""

import json
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P
from plan_cases import f32

from autoshard import Pin, plan
from autoshard.api.plans import Plan
from autoshard.errors import InfeasibleError, UnsupportedError
from autoshard.verify import check_plan

AXES = {"x": 2, "y": 4}
MESH = jax.sharding.AbstractMesh((2, 4), ("x", "y"), axis_types=(AxisType.Auto,) * 2)


def local(body: Callable[..., Any], ins: Any, outs: Any) -> Callable[..., Any]:
    return jax.shard_map(body, mesh=MESH, in_specs=ins, out_specs=outs, check_vma=False)


def total(a: Any, w: Any) -> Any:
    """A sum by the user, then work of the planner's."""
    return local(lambda a: jax.lax.psum(jnp.tanh(a), "y"), P("x", "y"), P("x", None))(a) @ w[:32]


def contracted(a: Any, w: Any) -> Any:
    return jnp.tanh(local(lambda a, w: jax.lax.psum(a @ w, "y"), (P("x", "y"), P("y", None)), P("x"))(a, w)) * 2


def looped(a: Any, w: Any) -> Any:
    def body(a: Any) -> Any:
        return jax.lax.scan(lambda c, _: (jax.lax.pmean(jnp.sin(c) * 0.5, "x"), None), a, None, length=3)[0]

    return local(body, P("x", "y"), P("x", "y"))(a) @ w


def only_literals(a: Any, w: Any) -> Any:
    return local(lambda a: jnp.full(a.shape, 2.0) * a + 1.0, P(("x", "y")), P(("x", "y")))(a) @ w


def in_a_loop(a: Any, w: Any) -> Any:
    halve = local(lambda c: c * 0.5, P("x", "y"), P("x", "y"))
    return jax.lax.scan(lambda c, _: (jnp.tanh(halve(c)), None), a, None, length=4)[0] @ w


@pytest.mark.parametrize("f", [total, contracted, looped, only_literals, in_a_loop], ids=lambda f: f.__name__)
def test_the_checker_works_out_the_same_costs_and_memory(f: Callable[..., Any]) -> None:  # S2.11
    found: Plan = plan(f, f32(64, 128), f32(128, 32), mesh=AXES, hardware="tpu_v5e")
    checked = check_plan(json.loads(json.dumps(found.to_dict())))
    assert checked.ok, list(map(str, checked.findings))


def test_the_peak_is_named_after_the_op_that_runs_then() -> None:
    found = plan(total, f32(64, 128), f32(128, 4096), mesh=AXES, hardware="tpu_v5e")
    assert found.memory.where.startswith("dot_general")


def gathered(a: Any, w: Any) -> Any:
    """Weights cut like the batch, gathered by the user: devices along y do the same."""
    return local(lambda a, w: a @ jax.lax.all_gather(w, "x", tiled=True), (P("x"), P("x")), P("x"))(a, w)


def nested(a: Any, w: Any) -> Any:
    """Rows over x; inside of that, columns over y."""
    inner = jax.shard_map(jnp.matmul, axis_names={"y"}, in_specs=(P(), P(None, "y")), out_specs=P(None, "y"))
    outer = jax.shard_map(inner, mesh=MESH, axis_names={"x"}, in_specs=(P("x"), P()), out_specs=P("x"))
    return outer(a, w)


@pytest.mark.parametrize(("f", "repeated"), [(contracted, 1), (gathered, 4), (nested, 1)])
def test_a_bodys_work_is_useful_once_on_each_device_that_does_another_part_of_it(
    f: Callable[..., Any], repeated: int
) -> None:
    found = plan(f, f32(64, 128), f32(128, 32), mesh=AXES, hardware="tpu_v5e")
    assert found.step_time.model_flop == 2 * 64 * 128 * 32
    assert found.step_time.hfu["upper"] == pytest.approx(repeated * found.step_time.mfu["upper"])
    assert check_plan(found.to_dict()).findings == ()


def test_reads_of_a_bodys_arguments_count_as_traffic_of_the_memory() -> None:
    cut = P(("x", "y"))
    found = plan(local(jnp.tanh, cut, cut), f32(1024, 128), mesh=AXES, hardware="tpu_v5e")
    busy = found.to_dict()["cost"]["step_time"]["resources_s"]["memory"]
    block = 1024 * 128 * 4 / 8  # read once, written once
    assert busy == pytest.approx(2 * block / found.machine.profile.memory.bandwidth.value)


def test_the_fullest_point_is_named_where_no_plan_fits() -> None:
    with pytest.raises(InfeasibleError, match="the fullest point is dot_general"):
        plan(total, f32(64, 128), f32(128, 4096), mesh=AXES, hardware="tpu_v5e", memory_limit=60_000)


@pytest.mark.parametrize(
    "stated", [{"constraints": Pin("a", '[{"x":(1)2}, {?}]')}, {"sub_axes": {"x": (2, 2)}}], ids=["pin", "sub_axes"]
)
def test_parts_of_an_axis_that_a_shard_map_runs_over_are_refused(stated: dict[str, Any]) -> None:
    """The plan could not run: the body names the whole axis."""
    mesh = jax.make_mesh((4,), ("x",), axis_types=(AxisType.Auto,))
    f = jax.shard_map(lambda a: a * jax.lax.axis_index("x"), mesh=mesh, in_specs=P("x"), out_specs=P("x"))
    with pytest.raises(UnsupportedError, match=r"runs over axis 'x', which statements or sub_axes split into \['x:"):
        plan(lambda a: f(a * 2), f32(16, 16), mesh={"x": 4}, hardware="h100", **stated)


@pytest.mark.parametrize("mesh", [{"x": 4, "y": 2}, {"x": 2, "y": 2, "z": 2}, {"x": 8, "y": 1}], ids=str)
def test_an_axis_of_another_size_than_the_shard_maps_is_refused_before_anything_is_searched(
    mesh: dict[str, int],
) -> None:
    """The plan could not run, and its seconds would be those of blocks that no device holds."""
    with pytest.raises(UnsupportedError, match=r"runs over axis '[xy]' of size [24], the planning mesh is"):
        plan(total, f32(64, 128), f32(128, 32), mesh=mesh, hardware="tpu_v5e")


def test_an_axis_that_only_the_body_of_a_shard_map_names_is_refused_where_the_mesh_lacks_it() -> None:
    summed = local(lambda a: jax.lax.psum(a, "y"), P("x"), P("x"))
    with pytest.raises(UnsupportedError, match=r"uses mesh axes \['y'\], which the planning mesh"):
        plan(lambda a: summed(a) * 2, f32(64, 128), mesh={"x": 2}, hardware="tpu_v5e")


def test_sizes_of_a_mesh_that_are_searched_are_those_of_the_shard_map() -> None:
    found = plan(total, f32(64, 128), f32(128, 32), mesh={"devices": 8, "axes": ["x", "y"]}, hardware="tpu_v5e")
    assert found.mesh_search is not None
    assert [t.mesh for t in found.mesh_search.tried if t.status != "cannot be"] == [AXES]
    assert check_plan(json.loads(json.dumps(found.to_dict()))).ok


def test_a_search_of_sizes_without_any_that_the_shard_map_is_for_is_refused_in_the_same_words() -> None:
    with pytest.raises(UnsupportedError, match=r"runs over axis '[xy]' of size [24], the planning mesh is"):
        plan(total, f32(64, 128), f32(128, 32), mesh={"devices": 4, "axes": ["x", "y"]}, hardware="tpu_v5e")


def test_the_checker_finds_a_shard_map_for_another_mesh() -> None:
    data = json.loads(json.dumps(plan(total, f32(64, 128), f32(128, 32), mesh=AXES, hardware="tpu_v5e").to_dict()))
    (op,) = (op for op in data["program"]["body"]["ops"] if op["kind"] == "shard_map")
    op["attrs"]["mesh_axes"] = [["x", 2], ["y", 2]]
    assert "is for 2 devices along 'y', not 4" in "\n".join(map(str, check_plan(data).findings))


def test_no_larger_axis_is_said_to_make_room_where_a_shard_map_runs_over_it() -> None:
    """What its blocks would hold there is not known: it is written for the axis as it is."""
    with pytest.raises(InfeasibleError) as refused:
        plan(total, f32(64, 128), f32(128, 4096), mesh={**AXES, "z": 2}, hardware="tpu_v5e", memory_limit=60_000)
    axes = [r["text"] for r in refused.value.facts["relaxations"] if r["kind"] == "axis"]
    assert [text.split(" of ")[0] for text in axes] == ["a mesh axis z"]
