"""How mesh axes come to lie on links: slices, domains, links by hand, device orders."""

import numpy as np
import pytest

from autoshard.costmodels import Machine, ProfileError, load_profile, place_mesh


def placed(hardware: str, axes: dict[str, int], **options) -> dict[str, str]:
    """Axis -> links in words."""
    layout = place_mesh(load_profile(hardware), axes, **options).describe()["axes"]
    return {axis: entry["on"] for axis, entry in layout.items()}


# GPUs


@pytest.mark.parametrize("axes", [{"data": 128, "fsdp": 16, "tensor": 8}, {"data": 2048, "tensor": 8}])
def test_16384_h100_put_tensor_in_nvlink_and_the_rest_between_nodes(axes) -> None:
    on = placed("h100", axes)
    assert on.pop("tensor") == "nvlink: 8 through the switch"
    assert all(words.startswith("scale_out") and "nvlink" not in words for words in on.values())


def test_an_axis_that_straddles_the_node_border_is_split_there() -> None:
    assert placed("h100", {"fsdp": 32, "tensor": 2}) == {
        "fsdp": "scale_out: 8 through the switch; nvlink: 4 through the switch",
        "tensor": "nvlink: 2 through the switch",
    }


def test_an_odd_inner_axis_leaves_gpus_of_each_node_unused_and_says_so() -> None:
    machine = place_mesh(load_profile("h100"), {"data": 3, "tensor": 6})
    assert machine.notes == ("only 6 of 8 devices of each nvlink domain are used",)
    assert placed("h100", {"data": 3, "tensor": 6})["tensor"] == "nvlink: 6 through the switch"


def test_links_by_hand_put_an_outer_axis_inside() -> None:
    on = placed("h100", {"tensor": 8, "data": 4}, links={"tensor": "nvlink", "data": "scale_out"})
    assert on == {"tensor": "nvlink: 8 through the switch", "data": "scale_out: 4 through the switch"}
    assert placed("h100", {"tensor": 8, "data": 4}, links={"tensor": "nvlink"}) == on


@pytest.mark.parametrize(
    ("link", "message"),
    [
        ("dcn=0, ici", "a part has at least one device, found 'dcn=0'"),
        ("dcn=0", "a part has at least one device"),
        ("ici=" + "8" * 5000, "cannot read 'ici=888"),
        ("ici:" + "1" * 5000, "cannot read 'ici:111"),
    ],
)
def test_a_part_of_a_link_without_devices_or_beyond_all_numbers_is_refused(link: str, message: str) -> None:
    with pytest.raises(ProfileError, match=message):
        place_mesh(load_profile("tpu_v5e"), {"data": 8}, {"data": link})


# TPU slices


def test_a_v5e_pod_lies_on_two_rings_of_16() -> None:
    assert placed("tpu_v5e", {"data": 16, "model": 16}) == {
        "data": "ici: dimension 1 (ring of 16)",
        "model": "ici: dimension 0 (ring of 16)",
    }


@pytest.mark.parametrize(
    ("hardware", "shape", "rings"),
    [
        # MaxText's flags per slice: 2D axes wrap iff they are 16 long, 3D axes iff all are multiples of 4
        ("tpu_v5e", (16, 16), (True, True)),
        ("tpu_v5e", (8, 16), (False, True)),
        ("tpu_v6e", (8, 8), (False, False)),
        ("tpu_v6e", (2, 4), (False, False)),
        ("tpu_v4", (2, 2, 1), (False, False, False)),
        ("tpu_v4", (4, 4, 4), (True, True, True)),
        ("tpu_v5p", (2, 4, 4), (False, False, False)),
        ("tpu_v5p", (8, 8, 8), (True, True, True)),
        ("tpu_v7x", (4, 4, 8), (True, True, True)),
        ("tpu_v3", (32, 32), (True, True)),
        ("tpu_v3", (16, 32), (False, True)),
    ],
)
def test_the_wraparound_rule_of_each_chip(hardware, shape, rings) -> None:
    assert load_profile(hardware).levels[0].wraparound.wraps(shape) == rings  # type: ignore[union-attr]


def test_an_axis_takes_whole_physical_dimensions_where_a_shape_allows_it() -> None:
    # 4x4x16 serves both axes of 16 with whole dimensions; the inner one gets the two.
    assert placed("tpu_v5p", {"data": 16, "model": 16}) == {
        "data": "ici: dimension 2 (ring of 16)",
        "model": "ici: dimension 0 (ring of 4), dimension 1 (ring of 4)",
    }


def test_axes_share_a_dimension_where_no_shape_fits_and_the_inner_one_is_contiguous() -> None:
    assert placed("tpu_v5e", {"data": 2, "model": 8}) == {  # a slice of 4x4
        "data": "ici: dimension 0 (line of 2 every 2)",
        "model": "ici: dimension 0 (line of 2), dimension 1 (line of 4)",
    }


def test_the_slice_shape_can_be_given() -> None:
    machine = place_mesh(load_profile("tpu_v5p"), {"x": 8, "y": 8}, slice_shape=(2, 4, 8))
    assert machine.slice_shape == (2, 4, 8)
    with pytest.raises(ProfileError, match=r"no slice of shape \[4, 4, 4\] of tpu_v5p .* holds the mesh's 15 devices"):
        place_mesh(load_profile("tpu_v5p"), {"x": 3, "y": 5}, slice_shape=(4, 4, 4))


def test_shapes_that_are_not_sold_are_priced_as_part_of_a_slice() -> None:
    machine = place_mesh(load_profile("tpu_v5e"), {"x": 3, "y": 5})
    assert machine.slice_shape == (3, 5)
    assert machine.notes == ("a slice of 3x5 is not offered by itself; priced as part of a larger one",)


def test_more_chips_than_a_pod_become_slices_over_dcn() -> None:
    on = placed("tpu_v5e", {"data": 4, "fsdp": 256})
    assert on["data"] == "dcn: 4 through the switch"
    assert on["fsdp"] == "ici: dimension 0 (ring of 16), dimension 1 (ring of 16)"
    machine = place_mesh(load_profile("tpu_v5e"), {"data": 1024})
    assert machine.describe()["slices"] == 4


def test_a_hybrid_mesh_has_dcn_traffic_only_along_its_data_axis() -> None:
    # S3.12: ICI (1, 4) and DCN (2, 1) over (data, fsdp) make a mesh of (2, 4)
    machine = place_mesh(load_profile("tpu_v5e"), {"data": 2, "fsdp": 4}, {"data": "dcn", "fsdp": "ici"})
    assert machine.num_devices == 8
    levels = {axis: {c.level for c in machine.costs("all_reduce", machine.whole(axis))} for axis in ("data", "fsdp")}
    assert levels == {"data": {"dcn"}, "fsdp": {"ici"}}


def test_an_axis_may_lie_on_dcn_and_ici() -> None:
    on = placed("tpu_v5p", {"data": 8, "model": 16}, links={"data": "dcn=2, ici"})
    assert on["data"].startswith("dcn: 2 through the switch; ici: ")


def test_torus_dimensions_can_be_named() -> None:
    on = placed("tpu_v5p", {"x": 4, "y": 16}, links={"x": "ici:2", "y": "ici:0+1"})
    assert on["x"] == "ici: dimension 2 (ring of 4)"


def test_device_order_decides_which_links_an_axis_uses() -> None:  # S2.6
    straight = list(range(16))
    swapped = np.arange(16).reshape(8, 2).T.ravel().tolist()  # data inside the node
    profile, axes = load_profile("h100"), {"data": 2, "tensor": 8}
    by_order = [place_mesh(profile, axes, device_ids=ids) for ids in (straight, straight[::-1], swapped)]
    times = [m.collective_s("all_reduce", 1e9, m.whole("tensor")) for m in by_order]
    assert times[0] == times[1] < times[2]
    assert by_order[0].layout == place_mesh(profile, axes).layout


def test_an_irregular_device_order_is_refused() -> None:
    with pytest.raises(ProfileError, match="irregular along axis"):
        place_mesh(load_profile("h100"), {"data": 2, "tensor": 8}, device_ids=[1, 0, *range(2, 16)])
    with pytest.raises(ProfileError, match=r"permutation of 0\.\.15"):
        place_mesh(load_profile("h100"), {"data": 2, "tensor": 8}, device_ids=[0] * 16)


@pytest.mark.parametrize(
    ("axes", "options", "message"),
    [
        ({"x": 0}, {}, "axis 'x' has size 0"),
        ({"x": 8}, {"links": {"y": "ici"}}, "links name axis 'y'"),
        ({"x": 8}, {"links": {"x": "nvlink"}}, "no link level 'nvlink'"),
        ({"x": 8}, {"links": {"x": "ici:7"}}, "has 2 torus dimensions"),
        ({"x": 8}, {"links": {"x": "dcn=3, ici"}}, "must make 8"),
        ({"x": 8}, {"links": {"x": "DCN!"}}, "cannot read"),
        ({"x": 512}, {"links": {"x": "ici"}}, "holds the mesh's 512 devices"),
        ({"x": 8}, {"slice_shape": (3, 3)}, "slice"),
        ({"x": 8}, {"in_network_reduction": True}, "no switches that reduce"),
    ],
)
def test_what_does_not_fit_is_refused_with_what_was_found(axes, options, message) -> None:
    with pytest.raises(ProfileError, match=message):
        place_mesh(load_profile("tpu_v5e"), axes, **options)


def test_an_axis_too_big_for_its_link_is_refused() -> None:
    with pytest.raises(ProfileError, match=r"links put 16 devices on nvlink .* which has 8"):
        place_mesh(load_profile("h100"), {"tensor": 16}, {"tensor": "nvlink"})


def test_placing_a_large_mesh_of_many_axes_is_quick() -> None:
    machine = place_mesh(load_profile("tpu_v5p"), {f"a{i}": 2 for i in range(12)})
    assert machine.num_devices == 4096
    assert place_mesh(load_profile("tpu_v7x"), {"data": 36, "fsdp": 16, "tensor": 16}).num_devices == 9216


def test_a_plan_file_alone_suffices_to_price_again() -> None:
    machine = place_mesh(load_profile("h100"), {"data": 16, "tensor": 8}, in_network_reduction=True)
    again = Machine.from_dict(machine.to_dict())
    assert again == machine
    assert again.alpha_beta("all_reduce", again.whole("data")) == machine.alpha_beta(
        "all_reduce", machine.whole("data")
    )
    with pytest.raises(ProfileError, match="not a machine written by"):
        Machine.from_dict({"profile": machine.profile.to_dict()})


def test_a_layout_that_was_tampered_with_is_refused() -> None:
    good = place_mesh(load_profile("tpu_v5e"), {"data": 16, "model": 16}).to_dict()
    for change, message in (
        ({"layout": [[["ici", 0, 16, 1]], [["ici", 0, 16, 1]]]}, "do not tile dimension 0"),
        ({"layout": [[["ici", 0, 16, 1]], [["ici", 1, 8, 1]]]}, "its segments make"),
        ({"layout": [[["ici", 0, 16, 1]], [["nvlink", 0, 16, 1]]]}, "lies on level 'nvlink'"),
        ({"slice_shape": [16, 8]}, "do not tile dimension 1"),
        ({"slice_shape": [16]}, "dimensions that slice"),
    ):
        with pytest.raises(ProfileError, match=message):
            Machine.from_dict({**good, **change})
    node = place_mesh(load_profile("h100"), {"tensor": 8}).to_dict()
    with pytest.raises(ProfileError, match="16 devices on nvlink, which has 8"):
        Machine.from_dict({**node, "axes": [["tensor", 16]], "layout": [[["nvlink", 0, 16, 1]]]})
