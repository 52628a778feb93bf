"""Groups of a compiled program on a machine's links: the same seconds as the plan's for the same groups."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoshard.costmodels import load_profile, place_mesh
from autoshard.simulation.links import Links
from autoshard.simulation.places import places

MACHINES = [
    place_mesh(load_profile(hardware), mesh)
    for hardware, mesh in (
        ("tpu_v5e", {"data": 4, "model": 4}),
        ("tpu_v5e", {"slices": 2, "data": 16, "model": 16}),
        ("tpu_v5p", {"data": 2, "model": 4}),
        ("tpu_v5p", {"data": 4, "model": 16}),
        ("h100", {"data": 4, "model": 4}),
        ("h100", {"data": 8}),
    )
]


@pytest.mark.parametrize("machine", MACHINES, ids=lambda m: f"{m.profile.name}-{m.num_devices}")
def test_no_two_positions_lie_in_one_place(machine):
    assert len(set(places(machine))) == machine.num_devices


@given(st.sampled_from(MACHINES), st.data())
def test_collectives_over_axes_take_as_long_as_the_plan_says(machine, data):
    names = [name for name, _ in machine.axes]
    axes = data.draw(st.lists(st.sampled_from(names), min_size=1, unique=True))
    kind = data.draw(st.sampled_from(["all_gather", "reduce_scatter", "all_reduce", "all_to_all"]))
    bytes_ = data.draw(st.floats(0, 1e9))
    ids = np.arange(machine.num_devices).reshape([size for _, size in machine.axes])
    moved = np.moveaxis(ids, [names.index(a) for a in axes], range(-len(axes), 0))
    size = int(np.prod([machine.axis_size(a) for a in axes]))
    groups = tuple(tuple(group) for group in moved.reshape(-1, size).tolist())
    found = Links(machine).collective(kind, bytes_, groups)
    assert found.seconds == pytest.approx(machine.collective_s(kind, bytes_, machine.whole(*axes)))


def test_a_shift_along_a_line_takes_one_link_and_the_way_back_its_other_direction():
    machine = place_mesh(load_profile("tpu_v5e"), {"x": 4, "y": 4})
    ring = tuple((4 * i + j, 4 * ((i + 1) % 4) + j) for i in range(4) for j in range(4))
    found = Links(machine).collective("permute", 4.5e10, ring)
    hops = 3 * machine.profile.levels[0].latency.value
    assert found.seconds == pytest.approx(1.0 + hops)


def test_a_group_that_is_no_box_is_priced_as_a_line():
    machine = place_mesh(load_profile("tpu_v5e"), {"x": 4, "y": 4})
    crooked = ((0, 1, 5, 6),)
    found = Links(machine).collective("all_gather", 1e9, crooked)
    assert found.seconds >= machine.collective_s("all_gather", 1e9, machine.whole("x"))


def test_single_devices_exchange_nothing():
    assert Links(MACHINES[0]).collective("all_reduce", 1e9, ((0,), (1,))).seconds == 0
