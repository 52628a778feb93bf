"""Collective times against published and hand-worked figures.

"Book" is How To Scale Your Model (jax-ml.github.io/scaling-book); w is one link one way, W = 2w, E a GPU's egress.
"""

import numpy as np
import pytest

from autoshard.costmodels import AxisPart, Machine, ProfileError, load_profile, place_mesh


def machine(hardware: str, links: dict[str, str] | None = None, sharp: bool = False, **axes: int) -> Machine:
    return place_mesh(load_profile(hardware), axes, links, in_network_reduction=sharp)


def bandwidth_s(m: Machine, kind: str, bytes_: float, *axes: str) -> float:
    return m.collective(kind, bytes_, m.whole(*axes)).bandwidth_s


# One torus axis


def test_gather_and_scatter_on_a_v5e_ring_take_v_over_w_times_15_sixteenths() -> None:
    m = machine("tpu_v5e", data=16, model=16)  # book ch. 3: T = V / W, W = 9e10; exactly V (n-1)/n / W
    for kind in ("all_gather", "reduce_scatter"):
        assert bandwidth_s(m, kind, 9e9, "model") == pytest.approx(0.1 * 15 / 16)


def test_all_reduce_is_twice_an_all_gather() -> None:
    m = machine("tpu_v5e", data=16, model=16)  # book ch. 3: 2 V / W
    assert bandwidth_s(m, "all_reduce", 9e9, "model") == pytest.approx(0.2 * 15 / 16)


def test_all_to_all_on_a_ring_is_a_quarter_of_v_over_w() -> None:
    m = machine("tpu_v5e", data=16, model=16)  # book ch. 3: V / (4 W)
    assert bandwidth_s(m, "all_to_all", 9e9, "model") == pytest.approx(0.1 / 4)


def test_an_unwrapped_v5e_axis_of_4_takes_three_hops_at_one_way_bandwidth() -> None:
    # Book ch. 3, pop quiz 2: a v5e slice of 8x4 does not wrap; the hops carry V/4 each at w = 4.5e10, 1 us at least.
    m = machine("tpu_v5e", x=8, y=4)
    size = 2048 * 8192 * 2
    time = m.collective("all_gather", size, m.whole("y"))
    assert time.bandwidth_s == pytest.approx(3 * (size / 4) / 4.5e10)
    assert (time.latency_s, time.bound) == (pytest.approx(3e-6), "bandwidth")
    assert time.links == ("ici: dimension 0 (line of 4)",)


def test_a_small_gather_over_three_hops_is_bound_by_their_latency() -> None:
    # Book ch. 3, pop quiz 2, second part: 256 x 256 bfloat16 over Y = 4; a hop of 32 kB takes less than 1 us at 4.5e10.
    m = machine("tpu_v5e", x=8, y=4)
    time = m.collective("all_gather", 256 * 256 * 2, m.whole("y"))
    assert (time.least_s, time.bound) == (pytest.approx(3e-6), "latency")
    assert time.least_s < time.seconds < 2 * time.least_s


def test_a_hop_is_latency_bound_below_45_kilobytes_on_v5e_and_90_on_v5p() -> None:
    for hardware, axis, threshold in (("tpu_v5e", 16, 45e3), ("tpu_v5p", 16, 90e3)):  # book ch. 3: w times 1 us
        m = machine(hardware, a=axis, b=axis)
        alpha, beta = m.alpha_beta("all_gather", m.whole("a"))
        per_hop = alpha / beta / axis  # V at the turn, in shards; n/2 hops both ways carry (n-1)/n of V
        assert per_hop == pytest.approx(threshold * axis / (axis - 1), rel=1e-6)


def test_two_chips_have_one_link_and_no_ring() -> None:
    m = machine("tpu_v5e", x=2, y=2)  # V/2 each way at w
    assert bandwidth_s(m, "all_gather", 9e9, "y") == pytest.approx(9e9 / 2 / 4.5e10)


def test_a_shift_sends_the_shard_over_one_link() -> None:
    m = machine("tpu_v5e", data=16, model=16)
    assert bandwidth_s(m, "shift", 4.5e6, "model") == pytest.approx(1e-4)
    assert m.collective("shift", 0.0, m.whole("model")).latency_s == pytest.approx(1e-6)


# Several torus axes


def test_two_wrapped_axes_gather_twice_as_fast() -> None:
    m = machine("tpu_v5e", data=16, model=16)  # book ch. 3: V / (a W)
    assert bandwidth_s(m, "all_gather", 9e9, "data", "model") == pytest.approx(0.05 * 255 / 256)
    assert m.collective("all_gather", 0.0, m.whole("data", "model")).latency_s == pytest.approx(16e-6)


def test_a_cube_of_v5p_gathers_over_three_axes() -> None:
    m = machine("tpu_v5p", a=4, b=4, c=4)
    assert bandwidth_s(m, "all_gather", 1.8e11, "a", "b", "c") == pytest.approx(63 / 64 / 3)


def test_a_corner_of_an_unwrapped_slice_takes_in_two_links() -> None:
    m = machine("tpu_v5e", x=4, y=4)  # book ch. 2, question 6: at least V / (2 w)
    assert bandwidth_s(m, "all_gather", 9e9, "x", "y") == pytest.approx(0.1 * 15 / 16)


def test_a_ring_and_a_line_add_their_bandwidth() -> None:
    m = machine("tpu_v5e", x=16, y=8)  # 8x16: only the 16 wraps
    assert m.describe()["slice"] == {"shape": [8, 16], "rings": [False, True]}
    assert bandwidth_s(m, "all_gather", 9e10 + 4.5e10, "x", "y") == pytest.approx(127 / 128)


def test_all_to_all_over_a_whole_16x16_slice_takes_a_sixteenth_of_one_axis() -> None:
    m = machine("tpu_v5e", data=16, model=16)
    one, both = bandwidth_s(m, "all_to_all", 9e9, "model"), bandwidth_s(m, "all_to_all", 9e9, "data", "model")
    assert both == pytest.approx(one / 16)


# Switched domains and nodes


def test_collectives_within_a_node_of_h100_run_at_450_gigabytes_a_second() -> None:
    m = machine("h100", tensor=8)  # book ch. 12; the vendor's 900 GB/s adds both directions
    assert bandwidth_s(m, "all_gather", 450e9, "tensor") == pytest.approx(7 / 8)
    assert bandwidth_s(m, "all_reduce", 450e9, "tensor") == pytest.approx(2 * 7 / 8)
    assert bandwidth_s(m, "all_to_all", 450e9, "tensor") == pytest.approx(7 / 64)
    assert bandwidth_s(m, "shift", 450e9, "tensor") == pytest.approx(1)


def test_in_network_reduction_makes_an_all_reduce_of_8_faster_by_three_quarters() -> None:
    plain, sharp = machine("h100", tensor=8), machine("h100", sharp=True, tensor=8)
    assert bandwidth_s(sharp, "all_reduce", 450e9, "tensor") == pytest.approx(1)  # V / E exactly
    ratio = bandwidth_s(plain, "all_reduce", 1, "tensor") / bandwidth_s(sharp, "all_reduce", 1, "tensor")
    assert ratio == pytest.approx(1.75)
    assert bandwidth_s(sharp, "all_gather", 1, "tensor") == bandwidth_s(plain, "all_gather", 1, "tensor")


def test_in_network_reduction_needs_such_switches() -> None:
    with pytest.raises(ProfileError, match="a100_80 has no switches that reduce"):
        machine("a100_80", sharp=True, tensor=8)


def test_a_gather_over_nodes_is_bound_by_the_nodes_egress() -> None:
    # Book ch. 12: max over levels; 8 GPUs of a node bring 8 x 50 = 400 GB/s together.
    m = machine("h100", data=128)
    time = m.collective("all_gather", 400e9, m.whole("data"))
    assert time.bandwidth_s == pytest.approx(15 / 16)
    assert time.bytes_sent_per_device == {
        "nvlink": pytest.approx(400e9 * 7 / 8),
        "scale_out": pytest.approx(400e9 / 8 * 15 / 16),
    }
    assert time.latency_s == pytest.approx(10e-6 + 20e-6)


def test_with_two_nodes_the_node_level_is_the_bottleneck() -> None:
    m = machine("h100", data=16)  # book ch. 12: the outer term is halved, (M-1)/M = 1/2
    assert bandwidth_s(m, "all_gather", 1e12, "data") == pytest.approx(1e12 * 7 / 8 / 450e9)


def test_tensor_parallelism_inside_a_node_does_not_make_the_outer_reduction_cheaper() -> None:
    # Book ch. 12: the outer term of an array of V bytes is V / Wn for any inner axis Y <= 8, each group having V / Y.
    for inner in (2, 4, 8):
        m = machine("h100", data=1024 // inner, tensor=inner)
        time = m.collective("reduce_scatter", 400e9 / inner, m.whole("data"))
        nodes = 1024 // 8
        assert time.bandwidth_s == pytest.approx((nodes - 1) / nodes)


def test_all_to_all_over_nodes_cannot_use_the_hierarchy() -> None:
    m = machine("h100", expert=64)  # V (M-1) / (M^2 Wn)
    assert bandwidth_s(m, "all_to_all", 400e9, "expert") == pytest.approx(7 / 64)


def test_a_part_of_a_mi300x_node_has_only_its_own_links() -> None:
    for m in (2, 4, 8):  # V (m-1)/m over m-1 links of 64 GB/s: V / (m w)
        placed = machine("mi300x", data=8 // m, tensor=m)
        assert bandwidth_s(placed, "all_gather", 64e9, "tensor") == pytest.approx(1 / m)
        assert bandwidth_s(placed, "all_to_all", 64e9, "tensor") == pytest.approx(1 / m**2)


def test_gb200_joins_72_gpus_in_one_domain() -> None:
    m = machine("gb200_nvl72", data=2, tensor=72)
    assert bandwidth_s(m, "all_gather", 900e9, "tensor") == pytest.approx(71 / 72)


# Slices


def test_gradients_between_slices_cross_dcn_with_the_slices_whole_capacity() -> None:
    # Book ch. 5: 2 V / (chips per slice * egress per chip), exactly (M-1)/M of it for M slices
    m = machine("tpu_v5p", {"data": "dcn"}, data=16, fsdp=64)
    over_both = m.collective("all_reduce", 1e9, m.whole("data", "fsdp"))
    assert over_both.bandwidth_s == pytest.approx(2 * 1e9 * 15 / 16 / (64 * 6.25e9))
    assert over_both.bytes_sent_per_device["dcn"] == pytest.approx(2 * 1e9 * 15 / 16 / 64)


# Arrays, zero, one


def test_collective_s_takes_arrays_and_agrees_with_alpha_beta() -> None:
    m = machine("tpu_v5p", data=8, model=8)
    sizes = np.array([0.0, 1e3, 1e9])
    alpha, beta = m.alpha_beta("all_reduce", m.whole("data"))
    np.testing.assert_allclose(m.collective_s("all_reduce", sizes, m.whole("data")), alpha + beta * sizes)
    assert m.collective("all_reduce", 1e9, m.whole("data")).seconds == alpha + beta * 1e9


def test_one_device_takes_no_time_and_zero_bytes_take_the_latency() -> None:
    m = machine("tpu_v5e", data=1, model=16)
    assert m.collective("all_reduce", 1e9, m.whole("data")).seconds == 0
    assert m.collective("all_reduce", 1e9, ()).seconds == 0
    time = m.collective("all_gather", 0.0, m.whole("model"))
    assert time.seconds == time.latency_s > 0


def test_unknown_axes_kinds_and_parts_are_refused() -> None:
    m = machine("tpu_v5e", data=16, model=16)
    with pytest.raises(ProfileError, match="no axis 'tensor'; its axes are"):
        m.whole("tensor")
    with pytest.raises(ProfileError, match="unknown collective 'gather'"):
        m.collective("gather", 1.0, m.whole("data"))
    with pytest.raises(ProfileError, match="which does not divide the size 16"):
        m.alpha_beta("all_gather", (AxisPart("data", 3, 2),))
    with pytest.raises(ProfileError, match="overlap"):
        m.alpha_beta("all_gather", (AxisPart("data", 1, 4), AxisPart("data", 2, 2)))
    with pytest.raises(ProfileError, match="cannot move -1"):
        m.collective("all_gather", -1.0, m.whole("data"))


# Roofline


def test_compute_is_the_slower_of_flops_and_memory() -> None:
    m = machine("tpu_v5e", data=16, model=16)
    assert m.compute_s(197e12, 0, "bfloat16") == pytest.approx(1)
    assert m.compute_s(394e12, 0, "int8") == pytest.approx(1)
    assert m.compute_s(0, 8.1e11, "bfloat16") == pytest.approx(1)
    np.testing.assert_allclose(m.compute_s(np.array([197e12, 0]), np.array([0, 1.62e12]), "bfloat16"), [1, 2])
    assert m.compute_s(6.1e12, 0, "float32", "vector") == pytest.approx(1)


def test_types_without_a_rate_of_their_own_run_at_a_wider_ones() -> None:
    v100, tpu = load_profile("v100"), load_profile("tpu_v5e")
    assert v100.matmul_flops_per_s("bfloat16") == v100.matmul_flops_per_s("float16") == 125e12
    assert tpu.matmul_flops_per_s("float8_e4m3fn") == 197e12  # no fp8 on v5e: widened to bfloat16
    assert tpu.matmul_flops_per_s("int32") == tpu.vector_flops.value  # not on the matrix unit
    assert load_profile("h100").matmul_flops_per_s("float8_e5m2") == 1979e12


# Sub-axes


def test_a_minor_sub_axis_is_a_line_of_neighbours() -> None:
    m = machine("tpu_v5e", data=16, model=16)
    time = m.collective("all_gather", 4.5e10, (AxisPart("model", 4, 4),))
    assert (time.bandwidth_s, time.links) == (pytest.approx(3 / 4), ("ici: dimension 0 (line of 4)",))


def test_the_groups_of_a_major_sub_axis_share_the_ring() -> None:
    # Four groups of every fourth chip: each has a ring of four, and a fourth of its links.
    m = machine("tpu_v5e", data=16, model=16)
    time = m.collective("all_gather", 9e10, (AxisPart("model", 1, 4),))
    assert (time.bandwidth_s, time.links) == (pytest.approx(3 / 4 * 4), ("ici: dimension 0 (ring of 4 every 4)",))


def test_sub_axes_of_a_switch_cost_alike() -> None:
    m = machine("h100", tensor=8)
    minor, major = (AxisPart("tensor", 4, 2),), (AxisPart("tensor", 1, 2),)
    assert m.alpha_beta("all_gather", minor) == m.alpha_beta("all_gather", major)


def test_a_sub_axis_across_the_node_border_runs_on_both_levels() -> None:
    m = machine("h100", data=32)  # 4 nodes x 8
    time = m.collective("all_gather", 1e9, (AxisPart("data", 2, 16),))
    assert set(time.bytes_sent_per_device) == {"nvlink", "scale_out"}
    assert set(m.collective("all_gather", 1e9, (AxisPart("data", 1, 4),)).bytes_sent_per_device) == {"scale_out"}


def test_a_sub_axis_that_does_not_line_up_with_the_chips_still_has_a_price() -> None:
    m = machine("tpu_v5p", data=12)  # lies on 2x6 or 3x4 chips; a minor sub-axis of 4 does not line up with 3 x 4
    alpha, beta = m.alpha_beta("all_gather", (AxisPart("data", 3, 4),))
    assert alpha > 0
    assert beta > 0
