"""Lower bounds that nothing can beat: causal and windowed attention, experts that are read, equal meshes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

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


def test_a_pipeline_sends_the_part_that_a_tensor_group_divides() -> None:
    whole = ask_strategy("llama3_70b", "pipeline", {"pipeline": 8}, 1e6, "h100", microbatches=8).cost
    cut = ask_strategy("llama3_70b", "pipeline+tensor", {"pipeline": 8, "tensor": 8}, 1e6, "h100", microbatches=8).cost
    sent = [next(t for t in c.terms if t.part == "pipeline") for c in (whole, cut)]
    assert sent[1].bytes == pytest.approx(sent[0].bytes / 8)
