"""What a training step holds on a device, and how far data parallelism can cut a batch."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoshard.costmodels.models import load_model
from autoshard.costmodels.step_memory import most_recomputed
from autoshard.costmodels.strategies import StrategyCost
from autoshard.costmodels.strategy_questions import ask_strategy

GB = 1e9


def step(strategy: str, mesh: dict[str, int], sequences: int, **how) -> StrategyCost:
    return ask_strategy("llama3_8b", strategy, mesh, sequences * 8192, how.pop("hardware", "h100"), **how).cost


def test_weights_gradients_and_moments_take_12_bytes_a_parameter() -> None:
    memory = step("data", {"data": 8}, 8).memory
    params = load_model("llama3_8b").params()
    assert (memory.weights, memory.gradients, memory.optimizer) == (2 * params, 2 * params, 8 * params)


def test_fsdp_cuts_them_and_gathers_a_layer() -> None:
    memory = step("fsdp", {"fsdp": 8}, 8).memory
    card = load_model("llama3_8b")
    assert memory.weights == pytest.approx(2 * card.params() / 8)
    assert memory.gathered == pytest.approx(2 * (card.params() - card.embedding_params) / 32)


def test_zero1_cuts_the_moments_alone() -> None:
    whole, cut = step("data", {"data": 8}, 8).memory, step("zero1", {"zero1": 8}, 8).memory
    assert (cut.weights, cut.gradients, cut.optimizer) == (whole.weights, whole.gradients, whole.optimizer / 8)


def test_activations_without_recomputation() -> None:
    # 8192 tokens, 32 layers, 2 bytes: 2 D + queries + keys and values + gate and up
    elements = 2 * 4096 + 4096 + 2 * 1024 + 2 * 14336
    assert step("fsdp", {"fsdp": 8}, 8).memory.activations == 8192 * 32 * 2 * elements


def test_full_recomputation_keeps_the_input_of_each_layer_and_a_whole_one() -> None:
    memory = step("fsdp", {"fsdp": 8}, 8, recompute=1).memory
    assert memory.activations == 8192 * 32 * 2 * 4096
    assert memory.layer == 8192 * 2 * (4 * 4096 + 2 * 4096 + 2 * 1024 + 3 * 14336)


def test_all_but_the_last_matmul_of_a_layer_is_the_most_that_is_repeated() -> None:
    # of 2 D N H + 2 D K H + 3 D F, the last matmul is D F; without attention's core
    card = load_model("llama3_8b")
    layer = 2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336
    head = 128256 * 4096 / 32
    assert most_recomputed(card, 0) == pytest.approx(1 - 4096 * 14336 / (layer + head))
    all_of_it = step("fsdp", {"fsdp": 8}, 8, recompute=most_recomputed(card, 8192)).memory
    assert all_of_it.activations == step("fsdp", {"fsdp": 8}, 8, recompute=1).memory.activations


def test_tensor_parallelism_divides_activations_and_logits() -> None:
    one, eight = (step("tensor", {"tensor": n}, 1).memory for n in (1, 8))
    assert eight.activations == pytest.approx(one.activations / 8)
    assert eight.logits == pytest.approx(one.logits / 8)


def test_the_first_stage_holds_a_microbatch_for_each_stage() -> None:
    one = step("fsdp", {"fsdp": 1}, 1).memory.activations
    piped = step("pipeline", {"pipeline": 8}, 32, microbatches=32).memory.activations
    assert piped == pytest.approx(8 * one / 8)  # 8 microbatches of an eighth of the layers
    interleaved = step("pipeline", {"pipeline": 8}, 32, microbatches=32, repeats=2).memory.activations
    assert interleaved == pytest.approx(piped * (1 + 7 / 16))
    assert step("pipeline", {"pipeline": 8}, 4, microbatches=4).memory.activations == pytest.approx(one / 2)


def test_microbatches_hold_their_part_of_the_batch() -> None:
    assert (
        step("data", {"data": 8}, 64, microbatches=8).memory.activations
        == step("data", {"data": 8}, 8).memory.activations
    )


def test_usable_bytes_decide_what_fits() -> None:
    memory = step("fsdp", {"fsdp": 64}, 64, hardware="tpu_v5e", recompute=1).memory
    assert memory.usable == 15.75 * 2**30  # of 16 GiB, what the TPU runtime leaves
    assert memory.fits == (memory.total <= memory.usable)
    assert not step("data", {"data": 8}, 8).memory.fits  # 12 bytes a parameter are more than 80 GB
    assert step("fsdp", {"fsdp": 8}, 8, recompute=1).memory.fits


@given(st.sampled_from(["data", "fsdp", "zero1"]), st.sampled_from([2, 8, 64]), st.floats(0, 1), st.floats(0, 1))
def test_more_recomputation_never_keeps_more(part: str, size: int, one: float, two: float) -> None:
    less, more = (step(part, {part: size}, 64, recompute=r).memory for r in sorted((one, two)))
    assert more.activations <= less.activations
    assert less.total >= less.weights + less.gradients + less.optimizer + less.activations


# Sequences as the cap of data parallelism


def test_rows_beyond_the_sequences_idle() -> None:
    full, idle = step("fsdp", {"fsdp": 64}, 64), step("fsdp", {"fsdp": 256}, 64)
    assert (idle.rows, idle.sequences) == (256, 64)
    work = [c.estimate_s - sum(t.exposed_seconds for t in c.terms) for c in (full, idle)]
    assert work[1] == pytest.approx(work[0])  # four times the devices take as long
    assert idle.notes[-1].startswith("64 sequences go to 256 rows of devices: 75% of them idle in the estimate")


@pytest.mark.parametrize("tokens", [1, 100, 4096])
def test_less_than_a_sequence_holds_no_more_than_its_tokens(tokens: int) -> None:
    part, whole = (ask_strategy("llama3_8b", "fsdp", {"fsdp": 64}, t, "h100").cost.memory for t in (tokens, 8192))
    assert part.activations == pytest.approx(whole.activations * tokens / 8192)
    assert part.logits == pytest.approx(whole.logits * tokens / 8192)


def test_less_than_a_sequence_has_a_row_of_its_own() -> None:
    first, *_ = ask_strategy("llama3_8b", "fsdp", {"fsdp": 4}, 4096, "h100").cost.notes
    assert first.startswith("0.5 sequences go to 4 rows of devices: 75% of them idle in the estimate")


@given(st.sampled_from(["data", "fsdp", "zero1"]), st.sampled_from([2, 8, 64]), st.floats(1, 1e6), st.floats(1, 4))
def test_fewer_tokens_never_hold_more_activations(part: str, size: int, tokens: float, factor: float) -> None:
    few, many = (ask_strategy("llama3_8b", part, {part: size}, t, "h100").cost for t in (tokens, tokens * factor))
    assert few.memory.activations <= many.memory.activations * (1 + 1e-8)


def test_a_rounded_batch_of_as_many_sequences_as_rows_idles_nowhere() -> None:
    assert step("fsdp", {"fsdp": 64}, 64).notes == ()


def test_context_parallelism_goes_on_where_the_sequences_end() -> None:
    rows = step("fsdp", {"fsdp": 256}, 64)
    cut = step("fsdp+context", {"fsdp": 64, "context": 4}, 64)
    assert cut.rows == 64 and cut.notes == ()
    assert cut.estimate_s < rows.estimate_s


def test_a_pipeline_has_no_more_microbatches_than_sequences_by_default() -> None:
    few = step("pipeline+data", {"pipeline": 4, "data": 8}, 32)  # four sequences a row, not 16 microbatches
    assert few.bubble == pytest.approx(3 / (4 + 3))
    many = step("pipeline+data", {"pipeline": 4, "data": 8}, 512)
    assert many.bubble == pytest.approx(3 / (16 + 3))


def test_interleaved_stages_send_as_often_as_they_are() -> None:
    once, twice = (step("pipeline", {"pipeline": 4}, 32, microbatches=8, repeats=r) for r in (1, 2))
    times = [next(t for t in c.terms if t.part == "pipeline").times for c in (once, twice)]
    assert times == [16, 32]


def test_weights_gathered_in_pieces_wait_more_often() -> None:
    flat, pieces = (step("fsdp", {"fsdp": 512}, 512, pieces=p) for p in (1, 4))
    assert pieces.lower_s == pytest.approx(flat.lower_s)
    assert pieces.estimate_s > flat.estimate_s
