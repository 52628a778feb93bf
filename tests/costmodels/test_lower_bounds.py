"""Lower bounds that nothing can beat: causal and windowed attention, experts that are read, equal meshes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoshard.costmodels import load_profile
from autoshard.costmodels.errors import ProfileError
from autoshard.costmodels.model_questions import ask_inference
from autoshard.costmodels.models import load_model, model_cards
from autoshard.costmodels.strategy_questions import ask_critical_batch, ask_strategy

V6E = "tpu_v6e"


def test_attention_counts_what_comes_before_a_token_and_itself() -> None:
    card = load_model("llama3_8b")
    seq = 16
    by_hand = sum(t + 1 for t in range(seq)) / seq * 12 * card.layers * card.heads * card.head_dim
    assert card.least_train_flops_per_token(seq) == pytest.approx(6 * card.matmul_params + by_hand)


def test_a_layer_with_a_window_looks_back_no_farther() -> None:
    card = load_model("gemma3_12b")
    assert (card.window, card.local_layers) == (1024, 40)
    seq = 4096
    seen = sum(min(t + 1, 1024) for t in range(seq)) / seq * 40 + (seq + 1) / 2 * 8
    by_hand = 6 * card.matmul_params + 12 * card.heads * card.head_dim * seen
    assert card.least_train_flops_per_token(seq) == pytest.approx(by_hand)


@given(st.sampled_from(sorted(model_cards())), st.integers(1, 100_000))
def test_no_model_needs_less_than_its_matmuls_nor_more_than_whole_attention(name: str, seq: int) -> None:
    card = load_model(name)
    least = card.least_train_flops_per_token(seq)
    assert 6.0 * card.matmul_params < least <= card.train_flops_per_token(seq) * (1 + 1e-12)


def test_weights_cut_over_two_parts_cost_what_they_cost_over_one() -> None:
    one = ask_strategy("llama3_70b", "fsdp", {"fsdp": 256}, 1e6, V6E).cost
    for first in (2, 16, 128):
        mesh = {"fsdp": first, "fsdp_transpose": 256 // first}
        two = ask_strategy("llama3_70b", "fsdp+fsdp_transpose", mesh, 1e6, V6E).cost
        assert two.lower_s == pytest.approx(one.lower_s, rel=0.01)
        assert sum(t.bytes * t.times for t in two.terms) == sum(t.bytes * t.times for t in one.terms)


def test_at_least_is_above_no_mesh_that_does_the_same() -> None:
    splits = [{"fsdp": n, "fsdp_transpose": 256 // n} for n in (1, 2, 4, 8, 16, 32, 64, 128, 256)]
    for tokens in (2.5e5, 1e6, 4e6):
        costs = [ask_strategy("llama3_70b", "fsdp+fsdp_transpose", mesh, tokens, V6E).cost for mesh in splits]
        assert max(c.lower_s for c in costs) <= min(c.estimate_s for c in costs)
        assert max(c.lower_s for c in costs) == pytest.approx(min(c.lower_s for c in costs), rel=0.01)


def test_weights_with_copies_may_be_gathered_over_the_links_of_the_copies() -> None:
    mesh = {"data": 16, "fsdp": 16}
    cut = ask_strategy("llama3_70b", "data+fsdp", mesh, 1e5, V6E).cost
    gather = next(term for term in cut.terms if term.kind == "all_gather")
    # V (n-1)/n / W over a ring of 16, W = 180e9; over both rings of the slice it is V 255/256 / (2 W)
    assert gather.seconds == pytest.approx(gather.times * gather.bytes * 15 / 16 / 180e9)
    gathers = gather.times * gather.bytes * 255 / 256 / 360e9
    others = [term for term in cut.terms if term is not gather]  # each on one dimension of the slice, in turn
    assert sum(cut.communication_s.values()) < 2 * gathers + sum(term.seconds for term in others)


def test_a_bound_by_communication_says_what_could_be_kept_instead_of_gathered_again() -> None:
    few, many = (
        ask_strategy("llama3_8b", "fsdp", {"fsdp": 64}, tokens, "h100", seq=1024).cost for tokens in (1e5, 1e8)
    )
    layers_gib = 2 * 32 * (load_model("llama3_8b").attention_params_per_layer + 3 * 4096 * 14336) / 2**30
    assert any(f"keeps them, in up to {layers_gib:.3g} GiB more" in note for note in few.notes)
    assert (few.bound, many.bound) == ("communication", "compute") and many.notes == ()


def test_latent_attention_has_heads_of_two_sizes() -> None:
    card = load_model("deepseek_v3")
    # keys 128 + 64 wide, values 128: 6 FLOP for each of both, not 12 of the wider
    by_hand = 6 * card.layers * card.heads * (192 + 128) * 4096
    assert card.train_flops_per_token(4096) - card.train_flops_per_token(0) == pytest.approx(by_hand)


def test_a_token_is_sent_to_a_device_once() -> None:
    cost = ask_strategy("mixtral_8x7b", "expert", {"expert": 8}, 1e6, "h100").cost
    exchange = next(term for term in cost.terms if term.kind == "all_to_all")
    routed = exchange.times * exchange.bytes * 7 / 8 / 8 / 450e9  # all k = 2 copies of a token
    rest = sum(t.times * t.bytes / 450e9 for t in cost.terms if t.kind == "all_reduce")  # added by the switch
    assert cost.communication_s["nvlink"] == pytest.approx(routed * 1.875 / 2 + rest)


def test_a_layer_with_a_window_needs_no_keys_beyond_it() -> None:
    short, long = (
        ask_strategy("gemma3_12b", "context", {"context": 8}, 8e6, "h100", seq=s).cost for s in (1024, 2**17)
    )
    moved = [
        sum(t.times * t.bytes for t in c.terms if t.part == "context" and t.kind == "all_gather") for c in (short, long)
    ]
    assert moved[0] == moved[1]
    assert long.communication_s["nvlink"] < 0.4 * short.communication_s["nvlink"]


@given(
    st.sampled_from(
        ["fsdp", "fsdp+tensor", "data+fsdp", "pipeline+data+tensor", "zero1+tensor", "data+context+tensor"]
    ),
    st.sampled_from(["h100", "a100_80", "tpu_v5p"]),
    st.sampled_from(["llama3_8b", "gpt3_175b", "gemma3_12b"]),
    st.integers(5, 12),
    st.floats(0, 1),
)
def test_bounds_hold_the_estimate(strategy: str, hardware: str, model: str, log_batch: int, recompute: float) -> None:
    sizes = {"fsdp": 8, "data": 4, "tensor": 4, "pipeline": 4, "zero1": 4, "context": 2}
    mesh = {part: sizes[part] for part in strategy.split("+")}
    tokens = 2.0**log_batch * 4096
    cost = ask_strategy(model, strategy, mesh, tokens, hardware, seq=4096, recompute=recompute).cost
    assert cost.lower_s <= cost.estimate_s <= cost.upper_s * (1 + 1e-9)
    card = load_model(model)
    least = cost.tokens_per_device * card.least_train_flops_per_token(4096) * (1 + recompute / 3)
    assert cost.lower_s >= least / load_profile(hardware).matmul_flops_per_s("bfloat16") * (1 - 1e-9)


@given(st.sampled_from([("fsdp", 64), ("tensor", 8), ("data", 64)]), st.integers(6, 14), st.sampled_from([2.0, 4.0]))
def test_a_larger_batch_never_has_a_smaller_bound(part: tuple[str, int], log_batch: int, factor: float) -> None:
    name, size = part
    small, large = (
        ask_strategy("llama3_8b", name, {name: size}, tokens, "h100").seconds
        for tokens in (2.0**log_batch * 8192, 2.0**log_batch * 8192 * factor)
    )
    assert small <= large


@given(st.sampled_from([(2, 128), (4, 64), (16, 16), (32, 8)]), st.floats(1e5, 1e7))
def test_a_lower_bound_never_lies_below_the_work_nor_above_the_estimate(sizes: tuple[int, int], tokens: float) -> None:
    cost = ask_strategy("llama3_70b", "fsdp+tensor", {"fsdp": sizes[0], "tensor": sizes[1]}, tokens, V6E).cost
    card = load_model("llama3_70b")
    work = tokens * card.least_train_flops_per_token(card.train_seq or 0) / 256 / 9.18e14
    assert work * (1 - 1e-9) <= cost.lower_s <= cost.estimate_s


def test_one_token_reads_the_experts_that_it_goes_to() -> None:
    card = load_model("deepseek_v3")
    assert card.read_params(1) == pytest.approx(card.matmul_params)
    assert card.read_params(100_000) == pytest.approx(card.matmul_params + card.params() - card.params(active=True))


@given(st.sampled_from([n for n, c in sorted(model_cards().items()) if c.experts]), st.integers(1, 500))
def test_more_tokens_never_read_fewer_parameters(name: str, tokens: int) -> None:
    card = load_model(name)
    assert card.matmul_params * (1 - 1e-12) <= card.read_params(tokens) <= card.read_params(tokens + 1) * (1 + 1e-12)


def test_a_batch_of_one_is_not_charged_for_all_experts() -> None:
    card = load_model("deepseek_v3")
    answer = ask_inference("deepseek_v3", 64, V6E, batch=1, context=4096)
    assert answer.weights_s == pytest.approx(2 * card.matmul_params / (64 * 1.64e12), rel=0.05)


def test_critical_batches_grow_with_the_bytes_of_a_number() -> None:
    two, four = (
        ask_critical_batch("llama3_70b", "fsdp", {"fsdp": 256}, V6E, dtype=dtype)[0]["at_least"]
        for dtype in ("bfloat16", "float32")
    )
    rates = 1.0  # matmuls of both run at one rate there
    assert four == pytest.approx(2 * two * rates)


def test_a_pipeline_has_no_more_chunks_than_layers() -> None:
    with pytest.raises(ProfileError, match="needs 96 chunks of at least one layer; the model has 80 layers"):
        ask_strategy("llama3_70b", "pipeline", {"pipeline": 32}, 1e6, "h100", repeats=3)


def test_repeats_without_a_pipeline_are_refused() -> None:
    with pytest.raises(ProfileError, match="repeats=4 is of a pipeline, and strategy fsdp has none"):
        ask_strategy("llama3_8b", "fsdp", {"fsdp": 8}, 1e6, "h100", repeats=4)


def test_a_pipeline_sends_the_part_that_a_tensor_group_divides() -> None:
    whole = ask_strategy("llama3_70b", "pipeline", {"pipeline": 8}, 1e6, "h100", microbatches=8).cost
    cut = ask_strategy("llama3_70b", "pipeline+tensor", {"pipeline": 8, "tensor": 8}, 1e6, "h100", microbatches=8).cost
    sent = [next(t for t in c.terms if t.part == "pipeline") for c in (whole, cut)]
    assert sent[1].bytes == pytest.approx(sent[0].bytes / 8)
