"""Closed-form intensities of the strategies, as MaxText's sharding guide prints them (S3.4 to S3.8, S3.19, S3.22)."""

import pytest

from autoshard.costmodels import intensities as it

TRILLIUM = (917e12, 180e9)  # the guide's FLOP/s and bytes/s of one ICI axis


def test_trillium_needs_5094_flops_per_byte_on_one_axis() -> None:
    assert TRILLIUM[0] / TRILLIUM[1] == pytest.approx(5094.44, abs=0.01)  # the guide rounds to 5100


def test_tensor_parallel_intensity_is_m_over_x() -> None:
    assert it.tensor_parallel(batch=1000, embed=8192, mlp=28672, x=4).ratio == 28672 / 4


def test_tensor_parallel_is_compute_bound_on_trillium_at_4_and_not_at_8() -> None:  # S3.6
    for x, verdict in ((4, True), (8, False)):
        intensity = it.tensor_parallel(batch=1000, embed=8192, mlp=28672, x=x)
        assert intensity.is_compute_bound(*TRILLIUM) is verdict


def test_an_independent_batch_axis_leaves_tensor_parallelism_as_it_is() -> None:  # S3.7
    alone = it.tensor_parallel(batch=1024, embed=8192, mlp=28672, x=4)
    beside = it.tensor_parallel(batch=1024, embed=8192, mlp=28672, x=4, y=16)
    assert beside.ratio == alone.ratio
    assert (beside.flops, beside.bytes) == (alone.flops / 16, alone.bytes / 16)


def test_data_parallel_intensity_is_the_local_batch_over_the_sparsity() -> None:
    assert it.data_parallel_backward(local_batch=4096, params=7e9).ratio == pytest.approx(4096)
    assert it.data_parallel_backward(local_batch=4096, params=7e9, sparsity=256 / 8).ratio == pytest.approx(128)


def test_fsdp_intensity_is_the_local_batch_whichever_weight_axis_is_cut() -> None:  # S3.15, S3.17
    assert it.fsdp_matmul(batch=65536, embed=8192, mlp=28672, x=16).ratio == 4096
    assert it.fsdp_matmul(batch=65536, embed=28672, mlp=8192, x=16).ratio == 4096


def test_fsdp_gradients_are_twice_as_intense_when_scattered() -> None:
    assert it.fsdp_gradient(local_batch=4096, params=7e9).ratio == 8192
    assert it.fsdp_gradient(local_batch=4096, params=7e9, reduce_scatter=False).ratio == 4096


def test_context_parallel_intensity_is_seq_times_heads_over_kv_heads_of_a_device() -> None:
    group = it.context_parallel(batch=1, seq=8192, q_heads=64, kv_heads=8, head_dim=128)
    device = it.context_parallel(batch=1, seq=8192, q_heads=64, kv_heads=8, head_dim=128, x=4)
    assert group.ratio == 8192 * 64 / 8
    assert device.ratio == group.ratio / 4


def test_sequence_parallel_intensity_grows_with_the_sequence_alone() -> None:
    ratios = [it.sequence_parallel(batch=2, seq=s, heads=32, head_dim=128).ratio for s in (4096, 8192)]
    assert ratios == [4096, 8192]


def test_expert_parallel_intensity_is_the_experts_width() -> None:
    for tokens in (1e3, 1e6):
        intensity = it.expert_parallel(tokens=tokens, embed=7168, mlp_expert=2048, experts_per_token=8)
        assert intensity.ratio == 2048


def test_pipeline_intensity() -> None:
    intensity = it.pipeline(tokens=1e6, embed=8192, mlp=28672, layers_per_stage=10)
    assert intensity.ratio == 1.5 * 10 * 28672
    assert it.pipeline_bubble(4, 12) == 3 / 15
    assert it.pipeline_bubble(4, 12, repeats=2) == 3 / 27


def test_striping_makes_causal_work_even() -> None:  # S3.19
    assert it.causal_chunk_work(2, striped=False) == (4, 12)
    assert it.causal_chunk_work(2, striped=True) == (8, 8)
    naive, striped = it.causal_chunk_work(8, striped=False), it.causal_chunk_work(8, striped=True)
    assert max(naive) / (sum(naive) / 8) == 1.875
    assert max(striped) / (sum(striped) / 8) == 1.0


def test_nothing_communicated_is_infinitely_intense() -> None:
    assert it.Intensity("none", 1.0, 0.0, "").ratio == float("inf")
