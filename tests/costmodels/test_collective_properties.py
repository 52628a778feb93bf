"""Laws that hold for every machine: monotone in bytes and links, ring identities, sub-axes."""

from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodels import AxisPart, CollectiveKind, Machine, Profile, list_profiles, load_profile, place_mesh

PROFILES = list_profiles()
KINDS = list(CollectiveKind)


@st.composite
def machines(draw: st.DrawFn) -> Machine:
    profile = load_profile(draw(st.sampled_from(PROFILES)))
    sizes = draw(st.lists(st.sampled_from([1, 2, 3, 4, 6, 8, 16]), min_size=1, max_size=3))
    while prod(sizes) > 256:
        sizes.pop()
    return place_mesh(profile, {f"a{i}": n for i, n in enumerate(sizes)})


@st.composite
def machines_and_axes(draw: st.DrawFn) -> tuple[Machine, tuple[AxisPart, ...]]:
    machine = draw(machines())
    names = draw(st.lists(st.sampled_from([name for name, _ in machine.axes]), unique=True, min_size=1))
    return machine, machine.whole(*names)


@given(machines_and_axes(), st.sampled_from(KINDS), st.floats(0, 1e12), st.floats(0, 1e12))
def test_time_grows_with_bytes(placed, kind, x, y) -> None:
    machine, parts = placed
    low, high = sorted((x, y))
    assert machine.collective(kind, low, parts).seconds <= machine.collective(kind, high, parts).seconds
    assert machine.collective(kind, low, parts).least_s <= machine.collective(kind, high, parts).least_s


def slowed(profile: Profile, factor: float) -> Profile:
    data = profile.to_dict()
    for level in data["levels"]:
        for key in ("link", "egress"):
            if key in level:
                level[key]["value"] /= factor
        level["latency"]["value"] *= factor
        for key in ("vendor_both_ways", "vendor_both_ways_per_chip"):
            level.pop(key, None)
    return Profile.from_dict(data)


@given(machines_and_axes(), st.sampled_from(KINDS), st.floats(0, 1e12), st.floats(1, 10))
def test_slower_links_are_never_faster(placed, kind, bytes_, factor) -> None:
    machine, parts = placed
    slow = Machine(slowed(machine.profile, factor), machine.axes, machine.layout, machine.slice_shape)
    assert slow.collective_s(kind, bytes_, parts) >= machine.collective_s(kind, bytes_, parts) * (1 - 1e-12)


@given(machines_and_axes(), st.floats(0, 1e12))
def test_an_all_reduce_is_a_reduce_scatter_and_an_all_gather(placed, bytes_) -> None:
    machine, parts = placed
    both = machine.collective_s("reduce_scatter", bytes_, parts) + machine.collective_s("all_gather", bytes_, parts)
    assert machine.collective_s("all_reduce", bytes_, parts) == pytest.approx(both)


@given(machines_and_axes(), st.sampled_from(KINDS), st.data())
def test_splitting_an_axis_into_sub_axes_never_changes_a_collective_over_the_whole(placed, kind, data) -> None:
    machine, parts = placed
    split: list[AxisPart] = []
    for part in parts:
        pre, left = 1, part.size
        while left > 1:
            size = data.draw(st.sampled_from([d for d in range(2, left + 1) if left % d == 0]))
            split.append(AxisPart(part.axis, pre, size))
            pre, left = pre * size, left // size
    shuffled = tuple(data.draw(st.permutations(split)))
    alpha, beta = machine.alpha_beta(kind, parts)
    assert machine.alpha_beta(kind, shuffled) == (pytest.approx(alpha), pytest.approx(beta))


@given(machines())
def test_a_machine_survives_its_plain_data(machine) -> None:
    assert Machine.from_dict(machine.to_dict()) == machine


@given(machines_and_axes(), st.floats(0, 1e12))
def test_bytes_on_each_level_are_those_of_the_whole_gather(placed, bytes_) -> None:
    machine, parts = placed
    time = machine.collective("all_gather", bytes_, parts)
    n = time.group_size
    # each device takes in what it lacks, over all levels together
    assert sum(time.bytes_sent_per_device.values()) == pytest.approx(bytes_ * (n - 1) / n)
