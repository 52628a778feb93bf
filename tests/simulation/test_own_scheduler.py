"""Our own scheduler: every planned collective once, in an order that the data allow, and no phantom waits."""

from itertools import pairwise

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

import autoshard
from autoshard.api.simulate import planned_traffic, simulate
from autoshard.simulation.clock import COLLECTIVES, CORE, MATMUL, Event
from autoshard.simulation.result import Simulation

MESH = {"a": 2, "b": 4}


def f32(*shape):
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def planned(f, *shapes, hardware="tpu_v5e", mesh=MESH, **pins):
    named = [autoshard.Pin(name.replace("_", "/"), sharding) for name, sharding in pins.items()]
    specs = [f32(*shape) for shape in shapes]
    return autoshard.plan(f, *specs, mesh=mesh, hardware=hardware, constraints=named, memory_limit=None)


def own(plan) -> Simulation:
    return simulate(plan, compiler="own")


def on_links(found: Simulation, kinds: tuple[str, ...] = COLLECTIVES) -> list[Event]:
    return [e for e in found.timeline.collectives() if e.kind in kinds]


def test_the_bytes_of_an_all_to_all_are_the_planned_ones():
    plan = planned(jnp.sin, (256, 256), x='[{"a"}, {}]', out='[{}, {"a"}]')
    assert [r.kind for r in plan.cost.rows] == ["all_to_all"]
    assert own(plan).found() == planned_traffic(plan)


def returned_twice(weights, x):
    """What a loop makes leaves it twice, and is used nowhere in it."""

    def layer(x, w):
        x = jnp.tanh(x @ w)
        return x, x

    return lax.scan(layer, x, weights)


def test_what_only_leaves_the_body_of_a_loop_is_moved_there():
    ends = {"weights": '[{}, {}, {"a", "b"}]', "out_1": '[{}, {}, {"a"}]'}
    plan = planned(returned_twice, (3, 512, 512), (256, 512), **ends)
    assert any("for all its uses" in r.where and r.times == 3 for r in plan.cost.rows)
    assert own(plan).found() == planned_traffic(plan)


def test_a_loop_without_trips_takes_no_time():
    ends = {"weights": '[{}, {"a"}, {}]', "x": '[{}, {"a"}]', "out_0": '[{}, {"a"}]'}
    plan = planned(returned_twice, (0, 256, 256), (512, 256), **ends)
    assert plan.cost.rows
    assert own(plan).seconds == plan.cost.step_s == 0


SHARDINGS = st.sampled_from(["{}, {}", '{"a"}, {}', '{}, {"b"}', '{"a", "b"}, {}', '{"b"}, {"a"}'])


@settings(max_examples=10)
@given(SHARDINGS, SHARDINGS, SHARDINGS, st.sampled_from(["tpu_v5e", "h100", "tpu_v6e@compiler"]))
def test_a_step_has_all_that_is_planned_and_does_one_thing_at_a_time_on_each_track(weights, rows, out, hardware):
    pins = {"weights": f"[{{}}, {weights}]", "x": f"[{rows}]", "out_0": f"[{out}]"}
    plan = planned(returned_twice, (4, 256, 256), (512, 256), hardware=hardware, **pins)
    found = own(plan)
    assert found.found() == planned_traffic(plan)
    assert plan.step_time.lower_s <= found.seconds * (1 + 1e-9) and found.seconds <= plan.cost.step_s * (1 + 1e-9)
    core = sum(e.seconds * e.times for e in found.timeline.events if e.track == CORE)
    assert core == pytest.approx(found.seconds)
    for track in {e.track for e in found.timeline.events}:
        events = sorted((e.start_s, e.stop_s) for e in found.timeline.events if e.track == track)
        assert all(one[1] <= two[0] + 1e-15 for one, two in pairwise(events))


@pytest.mark.parametrize(
    ("before", "after", "kinds"),
    [
        ('[{"a"}, {"b"}]', '[{"b"}, {}]', ["all_gather", "all_to_all"]),
        ('[{"a", "b"}, {}]', '[{}, {"b"}]', ["all_to_all", "all_gather"]),
    ],
)
def test_steps_of_one_value_follow_each_other_whichever_of_them_can_hide(before, after, kinds):
    """Gathers hide here, exchanges do not."""
    moved = on_links(own(planned(lambda w: w * 2, (512, 512), w=before, out=after)))
    assert [e.kind for e in moved] == kinds
    assert moved[1].start_s >= moved[0].stop_s


def test_a_collective_begins_no_sooner_than_the_collectives_on_what_its_value_is_made_of():
    """A weight is gathered over one axis, changed, and gathered over the other one."""

    def f(w):
        return checkpoint_name(jnp.cumsum(w, axis=0), "sums") * 2

    pins = {"w": '[{"a"}, {"b"}]', "@sums": '[{}, {"b"}]', "out": '[{"a"}, {}]'}
    first, second = on_links(own(planned(f, (1024, 1024), mesh={"a": 4, "b": 2}, **pins)))
    assert second.start_s >= first.stop_s


WHOLE, ROWS = "[{}, {}]", '[{"a"}, {}]'


def test_what_is_handed_out_is_on_its_way_as_soon_as_it_is_made():
    """A gradient is summed while the work behind it runs, and ahead of what that sends."""

    def f(x, y, z, v):
        return x.T @ y, checkpoint_name(z @ v, "turned") * 2

    shapes = (4096, 512), (4096, 512), (8192, 512), (512, 512)
    pins = {"x": ROWS, "y": ROWS, "z": ROWS, "v": WHOLE, "@turned": '[{}, {"a"}]', "out_0": WHOLE}
    found = own(planned(f, *shapes, mesh={"a": 8}, **pins))
    summed, exchanged = sorted(on_links(found), key=lambda e: e.start_s)
    made = next(e for e in found.timeline.events if e.kind == MATMUL)
    assert (summed.name, exchanged.kind) == ("output out/0", "all_to_all")
    assert summed.start_s == made.stop_s


def test_weights_are_fetched_while_links_are_free_before_other_collectives():
    def f(x, v, w):
        return checkpoint_name(x @ v, "turned") * 2, x @ w

    shapes = (65536, 512), (512, 512), (512, 512)
    pins = {"x": ROWS, "v": WHOLE, "w": ROWS, "@turned": '[{}, {"a"}]', "out_1": ROWS}
    gather, exchange = sorted(on_links(own(planned(f, *shapes, mesh={"a": 8}, **pins))), key=lambda e: e.start_s)
    assert (gather.kind, exchange.kind) == ("all_gather", "all_to_all")
    assert gather.start_s == 0


def test_a_link_that_trips_of_a_loop_do_not_use_is_free_meanwhile():
    def f(x, v, z, w):
        y = x @ v
        z = lax.fori_loop(0, 1000, lambda _, z: jnp.sin(z), z)
        return y, z, x @ w

    shapes = (256, 256), (256, 256), (256, 256), (256, 1024)
    pins = {"v": ROWS, "w": ROWS, "x": WHOLE, "z": ROWS, "out_0": WHOLE, "out_1": ROWS, "out_2": WHOLE}
    plan = planned(f, *shapes, mesh={"a": 8}, **pins)
    first, second = on_links(own(plan), ("all_gather",))
    assert second.start_s == first.stop_s


def gathered_in_their_own_map(mesh):
    def local(x, w):
        return jnp.tanh(x @ lax.all_gather(w, "a", axis=0, tiled=True))

    return jax.shard_map(
        local, mesh=mesh, in_specs=(P("b", None), P("a", None)), out_specs=P("b", None), check_vma=False
    )


def summed_in_a_loop_of_their_own_map(mesh):
    def local(x, w):
        return lax.fori_loop(0, 3, lambda _, x: jnp.tanh(lax.psum(x @ w, "a")), x)

    return jax.shard_map(local, mesh=mesh, in_specs=(P("b", None), P()), out_specs=P("b", None), check_vma=False)


@pytest.mark.parametrize("own_map", [gathered_in_their_own_map, summed_in_a_loop_of_their_own_map])
@pytest.mark.parametrize("trips", [1, 4])
def test_collectives_of_the_programs_own_shard_maps_are_there(own_map, trips):
    body = own_map(jax.make_mesh((2, 4), ("a", "b"), axis_types=(AxisType.Auto,) * 2))
    plan = planned(lambda x, w: lax.fori_loop(0, trips, lambda _, x: body(x, w), x), (256, 256), (256, 256))
    found = own(plan)
    assert plan.cost.communication_s > 0
    assert found.found() == planned_traffic(plan)
    assert sum(e.seconds * e.times for e in on_links(found)) == pytest.approx(plan.cost.communication_s)
    assert plan.step_time.lower_s <= found.seconds <= plan.cost.step_s * (1 + 1e-9)
