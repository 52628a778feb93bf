"""Collective times against published and hand-worked figures."""

import numpy as np
import pytest

from costmodels import AxisPart, load_profile, place_mesh


def test_all_gather_on_a_v5e_ring_of_16_takes_v_over_w_times_15_sixteenths():
    machine = place_mesh(load_profile("tpu_v5e"), {"data": 16, "model": 16})
    # How To Scale Your Model, chapter 3: T = V / W, W = 9e10; exactly V (n-1)/n / W
    assert machine.collective("all_gather", 9e9, machine.whole("model")).bandwidth_s == pytest.approx(0.1 * 15 / 16)


def test_all_gather_on_an_unwrapped_v5e_axis_of_4_is_three_hops_at_one_way_bandwidth():
    # How To Scale Your Model, chapter 3, pop quiz 2: 4x8 slice of v5e has no wraparound;
    # 2048 x 8192 bfloat16 over Y=4 on an 8x4 mesh (X = 8 shards rows): V = 2048*8192*2/8, 3 hops of V/4 at 4.5e10
    machine = place_mesh(load_profile("tpu_v5e"), {"x": 8, "y": 4})
    size = 2048 * 8192 * 2
    time = machine.collective("all_gather", size, machine.whole("y"))
    assert time.bandwidth_s == pytest.approx(3 * size / 4 / 4.5e10)
    assert time.latency_s == pytest.approx(3e-6)
    assert time.bound == "bandwidth"


def test_collective_s_takes_arrays_and_agrees_with_alpha_beta():
    machine = place_mesh(load_profile("tpu_v5p"), {"data": 8, "model": 8})
    sizes = np.array([0.0, 1e3, 1e9])
    alpha, beta = machine.alpha_beta("all_reduce", machine.whole("data"))
    np.testing.assert_allclose(machine.collective_s("all_reduce", sizes, machine.whole("data")), alpha + beta * sizes)
    assert machine.collective("all_reduce", 1e9, machine.whole("data")).seconds == alpha + beta * 1e9


def test_parts_that_make_an_axis_cost_what_the_axis_costs():
    machine = place_mesh(load_profile("tpu_v5e"), {"data": 16, "model": 16})
    parts = (AxisPart("model", 1, 4), AxisPart("model", 4, 2), AxisPart("model", 8, 2))
    assert machine.alpha_beta("all_gather", parts) == machine.alpha_beta("all_gather", machine.whole("model"))


def test_16384_h100_put_tensor_in_nvlink_and_the_rest_between_nodes():
    for axes in ({"data": 128, "fsdp": 16, "tensor": 8}, {"data": 2048, "tensor": 8}):
        layout = place_mesh(load_profile("h100"), axes).describe()["axes"]
        assert [{s["level"] for s in layout[axis]["segments"]} for axis in axes] == [
            *({"scale_out"} for _ in range(len(axes) - 1)),
            {"nvlink"},
        ]
