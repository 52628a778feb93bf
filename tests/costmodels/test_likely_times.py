"""Collectives as they are measured, transfers that are no collective, and what a whole domain has."""

from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoshard.costmodels import Profile, ProfileError, list_profiles, load_profile, place_mesh
from autoshard.costmodels.calibration import LineFit, calibrated_profile
from autoshard.costmodels.collectives import CollectiveKind
from autoshard.costmodels.hardware_tables import domain_rows
from autoshard.costmodels.likely import growing_latency_s
from autoshard.costmodels.model_questions import InferenceAnswer, ask_inference
from autoshard.costmodels.questions import ask_collective
from autoshard.costmodels.strategy_questions import ask_strategy
from autoshard.costmodels.transfers import ask_host_copy, ask_point_to_point, ask_ragged_all_to_all

KINDS = ("all_gather", "reduce_scatter", "all_reduce", "all_to_all", "shift")


def test_a_gather_over_nodes_has_a_step_for_each_device() -> None:
    machine = place_mesh(load_profile("a100_80"), {"fsdp": 1536})
    parts = machine.whole("fsdp")
    # 191 steps leave a node at 14 us, 192 * 7 stay in one at 3.4 us; latency 10 + 20 us (NCCL's table)
    steps = 191 * 14e-6 + 192 * 7 * 3.4e-6
    constant = machine.collective_s("all_gather", 3.6e9, parts)
    assert machine.likely_s("all_gather", 3.6e9, parts) == pytest.approx(constant + steps)


def test_an_all_reduce_is_a_tree_where_that_is_shorter() -> None:
    machine = place_mesh(load_profile("a100_80"), {"data": 1024})
    parts = machine.whole("data")
    tree = 2 * (7 * 3.4e-6 + 7 * 14e-6)  # up and down 8 devices of a node, 2^7 nodes
    constant = machine.collective_s("all_reduce", 1e10, parts)
    assert machine.likely_s("all_reduce", 1e10, parts) == pytest.approx(constant + tree)


def test_small_messages_have_short_steps_at_half_of_the_rate() -> None:
    machine = place_mesh(load_profile("h100"), {"tensor": 8})
    expected = 1e-5 + 7 * 0.6e-6 + 2 * 1e5 * 7 / 8 / 450e9
    assert machine.likely_s("all_gather", 1e5, machine.whole("tensor")) == pytest.approx(expected)


@pytest.mark.parametrize(("bytes_", "bus"), [(6.71e7, 166.63e9), (1.07e9, 228.10e9), (4.29e9, 230.48e9)])
def test_all_reduces_in_a_node_take_what_was_measured(bytes_: float, bus: float) -> None:  # Azure, ND A100 v4
    machine = place_mesh(load_profile("a100_80"), {"x": 8})
    assert 2 * 7 / 8 * bytes_ / machine.likely_s("all_reduce", bytes_, machine.whole("x")) == pytest.approx(
        bus, rel=0.01
    )


@given(
    st.sampled_from(list_profiles()),
    st.sampled_from([2, 4, 8, 16, 64, 256]),
    st.sampled_from(KINDS),
    st.floats(0, 1e11),
)
def test_likely_times_are_never_shorter_than_the_lower_bound(name: str, n: int, kind: str, bytes_: float) -> None:
    try:
        machine = place_mesh(load_profile(name), {"x": n})
    except ProfileError:  # a machine of fewer devices
        return
    parts = machine.whole("x")
    likely = machine.likely_s(kind, bytes_, parts)
    assert likely >= machine.collective(kind, bytes_, parts).least_s * (1 - 1e-9)
    assert machine.likely_s(kind, 2 * bytes_, parts) >= likely * (1 - 1e-9)


@given(st.sampled_from(["a100_80", "h100", "v100"]), st.sampled_from(KINDS[:3]), st.integers(3, 10))
def test_latency_grows_with_the_group(name: str, kind: str, log_size: int) -> None:
    few, many = (place_mesh(load_profile(name), {"x": 2**log}) for log in (log_size, log_size + 1))
    small, large = (
        growing_latency_s(CollectiveKind(kind), m.costs(kind, m.whole("x")), m.profile) for m in (few, many)
    )
    assert 0 < small < large


def test_plan_prices_leave_out_what_grows() -> None:
    machine = place_mesh(load_profile("h100"), {"x": 64})
    alpha, _ = machine.alpha_beta("all_gather", machine.whole("x"))
    assert alpha == pytest.approx(30e-6)


def test_a_calibrated_level_has_no_shares_of_the_peak_that_it_replaces() -> None:
    fit = LineFit(1e-5, 2e11, 5, 0.0, 0.0)
    profile = calibrated_profile(load_profile("h100"), name="mine", date="2026-11", title="t", levels={"nvlink": fit})
    level = profile.level("nvlink")
    assert level.reached == () and getattr(level, "step_latency", None) is None


def test_shares_of_a_level_have_to_ascend() -> None:
    data = load_profile("h100").to_dict()
    data["levels"][0]["reached"] = [
        {"bytes": 1e6, "share": 0.5, "source": "nccl"},
        {"bytes": 1e7, "share": 0.2, "source": "nccl"},
    ]
    with pytest.raises(ProfileError, match="reached has to ascend in bytes and in share"):
        Profile.from_dict(data)


def test_a_collective_says_its_likely_seconds_too() -> None:
    answer = ask_collective("all-gather", 3.6e9, {"fsdp": 1536}, ["fsdp"], "a100_80")
    assert answer.seconds < answer.upper_seconds < answer.likely_seconds


# Transfers


def test_a_point_to_point_transfer_takes_one_link_and_all_hops() -> None:
    torus = ask_point_to_point(1e9, {"x": 4, "y": 4}, ["x", "y"], "tpu_v5e")
    assert (torus.bandwidth_s, torus.latency_s) == (pytest.approx(1e9 / 45e9), pytest.approx(6e-6))  # 3 + 3 hops


def test_a_point_to_point_transfer_between_nodes_takes_the_slower_link() -> None:
    answer = ask_point_to_point(1e9, {"data": 2, "tensor": 8}, ["data", "tensor"], "h100")
    assert answer.bandwidth_s == pytest.approx(1e9 / 50e9)
    assert answer.over == "nvlink, scale_out"


def test_a_ragged_exchange_sends_a_token_to_a_device_once() -> None:
    # 1/8 of 1e9 bytes of tokens, to 8 (1 - (7/8)^2) = 1.875 devices, 7/8 of it to others, at 450 GB/s
    answer = ask_ragged_all_to_all(1e9, {"expert": 8}, ["expert"], "h100", top_k=2)
    assert answer.bytes_sent == pytest.approx(1e9 / 8 * 1.875 * 7 / 8)
    assert answer.bandwidth_s == pytest.approx(answer.bytes_sent / 450e9)


def test_a_ragged_exchange_waits_for_the_busiest_device() -> None:
    even, skewed = (
        ask_ragged_all_to_all(1e9, {"expert": 8}, ["expert"], "h100", top_k=2, imbalance=factor)
        for factor in (1.0, 1.5)
    )
    assert skewed.bandwidth_s == pytest.approx(1.5 * even.bandwidth_s)
    with pytest.raises(ProfileError, match="both are numbers from 1 on"):
        ask_ragged_all_to_all(1e9, {"expert": 8}, ["expert"], "h100", top_k=2, imbalance=0.5)


@given(st.sampled_from([2, 8, 64]), st.integers(1, 16))
def test_a_ragged_exchange_never_sends_more_than_all_its_tokens_to_all(n: int, top_k: int) -> None:
    answer = ask_ragged_all_to_all(1e9, {"expert": n}, ["expert"], "gb200_nvl72", top_k=top_k)
    assert 1e9 / n * (n - 1) / n * (1 - 1e-9) <= answer.bytes_sent <= 1e9 / n * min(top_k, n) * (n - 1) / n * (1 + 1e-9)


def test_a_host_copy_takes_its_link() -> None:
    assert ask_host_copy(6.4e9, "h100").seconds == pytest.approx(0.1)
    with pytest.raises(ProfileError, match="does not say how fast the link to the host is"):
        ask_host_copy(1e9, "tpu_v7x")


# Whole domains


@pytest.mark.parametrize(
    ("name", "devices", "links", "bisection"),
    [
        ("h100", 8, 3.6e12, 1.8e12),
        ("gb200_nvl72", 72, 72 * 9e11, 36 * 9e11),  # NVIDIA: 130 TB/s, both ways
        ("tpu_v6e", 256, 256 * 4 * 90e9, 2 * 16 * 90e9),  # Google: 3.2 TB/s of bisection, with links of 100 GB/s
        ("tpu_v5e", 256, 256 * 4 * 45e9, 2 * 16 * 45e9),
        ("mi300x", 8, 8 * 7 * 64e9, 16 * 64e9),  # 4 x 4 pairs between the halves
    ],
)
def test_a_whole_domain(name: str, devices: int, links: float, bisection: float) -> None:
    row = domain_rows(load_profile(name))[0]
    assert row["devices"] == devices
    assert row["flops_per_s"] == devices * load_profile(name).matmul_flops_per_s("bfloat16")
    assert (row["links_bytes_per_s"], row["bisection_bytes_per_s"]) == (pytest.approx(links), pytest.approx(bisection))


# Generation


def test_generation_sends_activations_four_times_a_layer() -> None:
    alone, shared = (ask_inference("llama3_8b", n, "h100", batch=64, context=4096) for n in (1, 8))
    assert alone.communication_s == 0
    machine = place_mesh(load_profile("h100"), {"tensor": 8})
    one = sum(machine.likely_s(k, 64 * 4096 * 2, machine.whole("tensor")) for k in ("all_gather", "reduce_scatter"))
    assert shared.communication_s == pytest.approx(2 * 32 * one)
    assert shared.estimate_seconds == pytest.approx(shared.book_seconds + shared.communication_s)


def test_copies_of_the_weights_send_less_and_hold_more() -> None:
    shared, copied = (ask_inference("llama3_8b", 8, "h100", batch=64, context=4096, tensor=t) for t in (8, 1))
    assert copied.communication_s == 0 and copied.bytes_per_device > shared.bytes_per_device
    assert copied.weights_s == pytest.approx(8 * shared.weights_s)
    with pytest.raises(ProfileError, match="tensor=3 does not divide the 8 devices"):
        ask_inference("llama3_8b", 8, "h100", tensor=3)


@given(st.sampled_from(["llama3_8b", "mixtral_8x7b", "gemma3_12b"]), st.integers(1, 512), st.sampled_from([1, 2, 8]))
def test_nothing_generates_faster_than_the_busiest_resource(model: str, batch: int, tensor: int) -> None:
    answer = ask_inference(model, 8, "h100", batch=batch, context=4096, tensor=tensor)
    assert answer.least_seconds <= answer.estimate_seconds * (1 + 1e-9)
    assert answer.least_seconds >= max(answer.attention_s, answer.weights_s, answer.work_s) * (1 - 1e-9)


def test_a_cache_keeps_what_a_window_reaches() -> None:
    short, long = (ask_inference("gemma3_12b", 8, "h100", context=c) for c in (1024, 4096))
    assert long.kv_bytes == pytest.approx(short.kv_bytes * (40 * 1024 + 8 * 4096) / (48 * 1024))


def test_a_sequence_lies_on_one_copy_of_the_weights() -> None:
    one, copied = (ask_inference("llama3_8b", n, "h100", context=2**20, tensor=1) for n in (1, 8))
    assert copied.bytes_per_device == one.bytes_per_device == pytest.approx(153.5e9, rel=1e-3)
    assert (copied.fits, copied.largest_batch) == (False, 0)
    assert copied.prefill_seconds == one.prefill_seconds


def test_generation_fits_what_the_runtime_leaves() -> None:  # of 16 GiB 15.75
    answer = ask_inference("llama3_8b", 8, "tpu_v5e", batch=112, context=8192)
    assert answer.usable_bytes < answer.bytes_per_device < 16 * 2**30
    assert (answer.fits, answer.largest_batch) == (False, 111)


@given(st.integers(1, 64), st.sampled_from([1, 2, 8]))
def test_the_largest_batch_is_the_last_that_fits(context: int, tensor: int) -> None:
    def asked(batch: int) -> InferenceAnswer:
        return ask_inference("llama3_8b", 8, "h100", batch=batch, context=1024 * context, tensor=tensor)

    most = asked(1).largest_batch
    assert asked(most).fits and not asked(most + 1).fits


def test_tokens_a_second_are_those_of_the_step_with_its_collectives() -> None:
    answer = ask_inference("llama3_8b", 256, "tpu_v5e", batch=4096, context=1024)
    assert answer.tokens_per_s == pytest.approx(4096 / answer.estimate_seconds)
    assert answer.tokens_per_s <= 4096 / answer.least_seconds < answer.book_tokens_per_s
    assert (answer.bound, answer.book_bound) == ("communication", "compute")


@pytest.mark.parametrize("model", ["llama3_8b", "gemma3_12b", "mixtral_8x7b", "deepseek_v3"])
@pytest.mark.parametrize("tensor", [8, 2])
def test_the_matmuls_of_a_step_are_compute_bound_from_the_critical_batch_on(model: str, tensor: int) -> None:
    def bound(share: float) -> str:
        return ask_inference(model, 8, "h100", batch=round(share * critical), context=64, tensor=tensor).book_bound

    critical = ask_inference(model, 8, "h100", context=64, tensor=tensor).critical_batch
    assert (bound(0.99), bound(1.01)) == ("memory", "compute")


STEPS = (
    ("fsdp", {"fsdp": 64}), ("data", {"data": 8}), ("zero1", {"zero1": 32}), ("tensor", {"tensor": 8}),
    ("fsdp+tensor", {"fsdp": 16, "tensor": 8}), ("pipeline+data", {"pipeline": 4, "data": 16}),
    ("data+fsdp", {"data": 4, "fsdp": 16}), ("fsdp+context", {"fsdp": 8, "context": 8}),
)  # fmt: skip


@given(st.sampled_from(["a100_40", "a100_80", "h100", "v100"]), st.sampled_from(STEPS), st.integers(0, 12))
def test_a_step_hides_no_more_of_its_collectives_than_it_has_work(name: str, step, log_tokens: int) -> None:
    strategy, mesh = step
    devices = prod(mesh.values())
    cost = ask_strategy("llama2_13b", strategy, mesh, devices * 2**log_tokens, name, seq=4096).cost
    in_turn = [sum(term.likely_seconds for term in cost.terms if axis in term.axes) for axis in mesh]
    assert cost.in_turn_s == pytest.approx(max(in_turn))
    assert cost.estimate_s >= cost.in_turn_s


@given(st.sampled_from(["a100_40", "h100", "tpu_v5p"]), st.sampled_from(STEPS), st.integers(0, 12))
def test_a_step_takes_at_most_its_work_and_its_collectives_as_measured(name: str, step, log_tokens: int) -> None:
    strategy, mesh = step
    cost = ask_strategy("llama2_13b", strategy, mesh, prod(mesh.values()) * 2**log_tokens, name, seq=4096).cost
    hidden = sum(term.likely_seconds - term.exposed_seconds for term in cost.terms)
    assert all(term.exposed_seconds <= term.likely_seconds * (1 + 1e-9) for term in cost.terms)
    if cost.estimate_s > max(cost.lower_s, cost.in_turn_s):  # work and what is not hidden
        assert cost.upper_s == pytest.approx(cost.estimate_s + hidden)
    assert cost.lower_s <= cost.estimate_s <= cost.upper_s * (1 + 1e-9)


def test_a_small_batch_waits_for_its_gathers_as_they_are_measured() -> None:
    cost = ask_strategy("llama2_13b", "fsdp", {"fsdp": 8}, 8 * 256, "a100_80", seq=256).cost
    machine = place_mesh(load_profile("a100_80"), {"fsdp": 8})
    measured = sum(t.times * machine.likely_s(t.kind, t.bytes, machine.whole("fsdp")) for t in cost.terms)
    assert cost.lower_s < 0.8 * measured  # at the links' full rate, of which a node reaches 74 to 77%
    assert cost.estimate_s == pytest.approx(measured)
