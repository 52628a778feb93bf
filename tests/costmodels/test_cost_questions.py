"""Collectives, sharded matmuls and strategies asked without a program."""

import json

import pytest

from autoshard.costmodels import ProfileError
from autoshard.costmodels import questions as ask
from autoshard.costmodels.matmul import parse_matmul
from autoshard.costmodels.strategy_questions import StrategyAnswer, ask_critical_batch, ask_strategy

POD = {"x": 16, "y": 16}
DIMS = {"B": 4096, "E": 8192, "M": 28672}


# Collectives


def test_a_gather_of_two_gigabytes_over_an_unwrapped_axis_of_4() -> None:
    answer = ask.ask_collective("all-gather", 2e9, {"x": 8, "y": 4}, ["y"], "tpu_v5e")
    assert answer.seconds == pytest.approx(2e9 * 3 / 4 / 4.5e10)
    assert answer.upper_seconds == pytest.approx(answer.seconds + 3e-6)
    assert (answer.bound, answer.links) == ("bandwidth", ("ici: dimension 0 (line of 4)",))
    assert answer.flip_bytes == pytest.approx(3e-6 * 4.5e10 * 4 / 3)
    assert json.loads(json.dumps(answer.to_dict()))["bytes_sent_per_device"] == {"ici": 1.5e9}


def test_what_the_book_rounds_to_stands_beside_the_exact_figure() -> None:
    # How To Scale Your Model, chapter 3, question 2: bf16[B, D] = [1024, 4096] on v4p 4x4x4, sharded B_X, D_Y
    mesh, size = {"X": 4, "Y": 4, "Z": 4}, 2 * 1024 * 4096
    over_x = ask.ask_collective("all-gather", size / 4, mesh, ["X"], "tpu_v4")  # 2BD / (W Y) = 23 us
    assert over_x.large_group_s == pytest.approx(23e-6, rel=0.02)
    assert over_x.seconds == pytest.approx(over_x.large_group_s * 3 / 4)
    over_xy = ask.ask_collective("all-gather", size, mesh, ["X", "Y"], "tpu_v4")  # 2BD / (2 W) = 46 us
    assert over_xy.large_group_s == pytest.approx(46e-6, rel=0.02)
    over_z = ask.ask_collective("all-reduce", size / 16, mesh, ["Z"], "tpu_v4")  # 2 * 2BD / (X Y W) = 11.6 us
    assert over_z.large_group_s == pytest.approx(11.6e-6, rel=0.01)


def test_kinds_have_their_usual_spellings() -> None:
    for text in ("psum", "all-reduce", "ALL_REDUCE"):
        assert ask.collective_kind(text) == "all_reduce"
    assert ask.collective_kind("collective-permute") == "shift"
    with pytest.raises(ProfileError, match="unknown collective 'broadcast'"):
        ask.collective_kind("broadcast")


def test_a_sub_axis_can_be_asked_about() -> None:
    answer = ask.ask_collective("all-gather", 1e9, {"x": 16, "y": 16}, ["y:(4)4"], "tpu_v5e")
    assert answer.group_size == 4


def test_a_reduction_in_the_network() -> None:
    answer = ask.ask_collective("all-reduce", 4.5e11, {"t": 8}, ["t"], "h100", in_network_reduction=True)
    assert answer.seconds == pytest.approx(1)
    assert answer.links == ("nvlink: 8 through the switch, reduced in it",)


# Sharded matmuls: the four cases of How To Scale Your Model, chapter 3


@pytest.mark.parametrize(
    ("text", "needed"),
    [
        ("B_x E @ E M -> B_x M", []),  # case 1
        ("B_x E @ E M_y -> B_x M_y", []),
        ("B E_x @ E M -> B M", [("all_gather", "left", ("x",))]),  # case 2
        ("B_x E @ E_x M -> B_x M", [("all_gather", "right", ("x",))]),  # FSDP
        ("B E_x @ E_x M -> B M", [("all_reduce", "result", ("x",))]),  # case 3
        ("B M_x @ M_x E -> B E_x", [("reduce_scatter", "result", ("x",))]),  # S3.2
        ("B_x E @ E M_x -> B_x M", [("all_gather", "right", ("x",))]),  # case 4: one of them is gathered
        ("E B_x @ B_x M -> E_x M", [("reduce_scatter", "result", ("x",))]),  # FSDP gradients
        ("E B_x @ B_x M -> E M", [("all_reduce", "result", ("x",))]),  # data parallel gradients
        ("B_x E_y @ E_x M_y -> B_x M_y", [("all_gather", "left", ("y",)), ("all_gather", "right", ("x",))]),  # both
        ("B E_xy @ E_xy M -> B M", [("all_reduce", "result", ("x", "y"))]),
        ("B E @ E M -> B_x M", []),  # slicing is free
        ("B_x E @ E M -> B M", [("all_gather", "left", ("x",))]),
    ],
)
def test_the_communication_a_sharding_needs(text, needed) -> None:
    answer = ask.ask_matmul(text, DIMS, POD, "tpu_v5e")
    assert [(c.kind, c.tensor, c.axes) for c in answer.collectives] == needed


def test_the_bytes_and_work_of_a_tensor_parallel_matmul() -> None:  # S3.3
    answer = ask.ask_matmul("B M_x @ M_x E -> B E_x", DIMS, POD, "tpu_v6e")
    assert answer.flops_per_device == 2 * 4096 * (28672 / 16) * 8192
    (scatter,) = answer.collectives
    assert scatter.bytes == 2 * 4096 * 8192
    assert scatter.flops_per_byte == 28672 / 16  # M / x
    assert scatter.machine_flops_per_byte == pytest.approx(5100 * 15 / 16)
    assert (answer.bound, scatter.verdict) == ("communication", "communication")
    assert answer.seconds == answer.communication_s == scatter.seconds
    assert answer.upper_seconds > answer.seconds


def test_where_nothing_overlaps_a_matmul_takes_its_work_and_the_upper_figures_of_its_collectives() -> None:
    small = {"B": 64, "M": 1024, "E": 512}
    answer = ask.ask_matmul("B M_x @ M_x E -> B E_x", small, POD, "tpu_v6e")
    (scatter,) = answer.collectives
    assert scatter.upper_seconds > answer.seconds
    assert answer.upper_seconds == answer.compute_s + scatter.upper_seconds


def test_the_size_at_which_a_matmul_turns_compute_bound() -> None:
    answer = ask.ask_matmul("B M_x @ M_x E -> B E_x", DIMS, POD, "tpu_v6e")
    assert answer.flip_sizes == {"B": None, "E": None, "M": pytest.approx(16 * 5100 * 15 / 16)}
    fsdp = ask.ask_matmul("B_x E @ E_x M -> B_x M", DIMS, POD, "tpu_v5e")  # batch per device above 2189 (15/16 of it)
    assert fsdp.flip_sizes["B"] == pytest.approx(16 * 197e12 / 9e10 * 15 / 16)
    turned = {**DIMS, "B": fsdp.flip_sizes["B"] * 1.01}
    assert ask.ask_matmul("B_x E @ E_x M -> B_x M", turned, POD, "tpu_v5e").bound == "compute"


def test_a_quicker_way_is_told_beside_the_needed_one() -> None:
    # Few rows, wide weights: moving the activations instead of gathering the weights.
    answer = ask.ask_matmul("B_x E @ E_x M -> B_x M", {**DIMS, "B": 64}, POD, "tpu_v5e")
    assert answer.quicker is not None
    assert "result" in {c.tensor for c in answer.quicker}
    assert answer.quicker_seconds is not None
    assert answer.quicker_seconds < answer.seconds


def test_small_matmuls_may_be_padded_to_the_matrix_units_tiles() -> None:
    small = {"B": 16 * 64, "E": 8192, "M": 28672}
    plain = ask.ask_matmul("B_x E @ E M -> B_x M", small, POD, "tpu_v5e")
    padded = ask.ask_matmul("B_x E @ E M -> B_x M", small, POD, "tpu_v5e", pad_tiles=True)
    assert plain.flops_per_device == padded.flops_per_device
    assert plain.bound == "memory"
    assert padded.compute_s >= plain.compute_s


def test_matmul_notation_is_read_in_its_variants() -> None:
    for text in (
        "B_x E @ E M -> B_x M",
        "B_x E * E M = B_x M",
        "A[B_X, E] * W[E, M] -> C[B_X, M]",
        "B_{x} E@E M->B_{x} M",
    ):
        left, right, out = parse_matmul(text, POD)
        assert (str(left), str(right), str(out)) == ("B_{x} E", "E M", "B_{x} M")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("B E", "cannot read matmul"),
        ("B_z E @ E M -> B M", "no axis 'z'"),
        ("B E @ E M -> B K", "is in neither input"),
        ("B E @ F M -> B M", "in one input only"),
        ("B_x E_x @ E M -> B M", "a mesh axis twice"),
    ],
)
def test_matmuls_that_make_no_sense_are_refused(text, message) -> None:
    with pytest.raises(ProfileError, match=message):
        ask.ask_matmul(text, DIMS, POD, "tpu_v5e")


def test_missing_sizes_are_named() -> None:
    with pytest.raises(ProfileError, match=r"give the sizes of dimensions \['M'\]"):
        ask.ask_matmul("B_x E @ E M -> B_x M", {"B": 1, "E": 1}, POD, "tpu_v5e")


# Strategies


def terms(answer: StrategyAnswer) -> dict[tuple[str, str], float]:
    return {(t.part, t.kind): t.bytes * t.times for t in answer.cost.terms}


def test_fsdp_moves_the_layers_three_times() -> None:  # two gathers and a scatter (S3.15)
    answer = ask_strategy("llama3_70b", "fsdp", {"fsdp": 512}, 4e6, "tpu_v5p")
    layers = 2 * (56371445760 + 12079595520)  # bytes of all layers, without embeddings
    assert terms(answer) == {
        ("fsdp", "all_gather"): pytest.approx(2 * layers),
        ("fsdp", "reduce_scatter"): pytest.approx(layers),
    }


def test_data_parallelism_moves_the_gradients_once() -> None:  # S3.14
    answer = ask_strategy("llama2_7b", "dp", {"data": 64}, 4e6, "tpu_v5e")
    assert terms(answer) == {("data", "all_reduce"): pytest.approx(2 * (4328521728 + 2147483648))}


def test_strategies_compose() -> None:  # S3.8: each part keeps its bytes per unit of work
    both = ask_strategy("llama3_70b", "fsdp+tensor", {"fsdp": 64, "tensor": 8}, 4e6, "tpu_v5p")
    tensor = ask_strategy("llama3_70b", "tensor", {"tensor": 8}, 4e6, "tpu_v5p")
    ratio = {t.kind: t.flops_per_byte for t in both.cost.terms if t.part == "tensor"}
    assert ratio == {t.kind: pytest.approx(t.flops_per_byte) for t in tensor.cost.terms}


def test_fsdp_cuts_the_weights_of_a_device() -> None:  # S3.16
    whole = ask_strategy("llama3_8b", "dp", {"data": 64}, 4e6, "tpu_v5e").cost.memory.weights
    cut = ask_strategy("llama3_8b", "fsdp", {"fsdp": 64}, 4e6, "tpu_v5e").cost.memory.weights
    assert (whole, cut) == (2 * 8029995008, whole / 64)


def test_critical_batches_of_v5p() -> None:
    # How To Scale Your Model, chapter 5: 2550 tokens a chip on one axis, 850 on three; F / 2550 chips of tensor; and
    # 2550^2 / (a_x a_y F) for both, with collectives that overlap.
    def critical(strategy: str, mesh: dict[str, int]) -> dict[str, float]:
        rows = ask_critical_batch("llama3_70b", strategy, mesh, "tpu_v5p", slice_shape=(16, 16, 16))
        return {
            row["strategy"] + ("*" if "add" in row["what"] else "+" if "all-reduce" in row["what"] else ""): (
                row["at_least"] or row["at_most"]
            )
            for row in rows
        }

    # over a whole slice the compiler runs the scatter of the backward pass as an all-reduce: three units for two
    assert critical("fsdp", {"fsdp": 4096}) == {"fsdp": pytest.approx(850), "fsdp+": pytest.approx(1275)}
    mixed = critical("fsdp+tensor", {"fsdp": 256, "tensor": 16})
    assert mixed["fsdp"] == pytest.approx(1275)
    assert mixed["tensor"] == pytest.approx(28672 / 2550)
    assert mixed["fsdp+tensor"] == pytest.approx(2550**2 / (2 * 28672))
    assert mixed["fsdp+tensor*"] == pytest.approx(4 * 2550**2 / (2 * 28672))


def test_mixtures_need_a_larger_batch_by_their_sparsity() -> None:
    rows = ask_critical_batch("deepseek_v3", "fsdp", {"fsdp": 8}, "h100")
    assert rows[0]["at_least"] == pytest.approx(989e12 / 450e9 * 256 / 8)


def test_data_parallelism_between_slices_needs_many_tokens_a_slice() -> None:
    rows = ask_critical_batch(
        "llama3_70b", "data+fsdp", {"data": 4, "fsdp": 256}, "tpu_v5p", links={"data": "dcn", "fsdp": "ici"}
    )
    assert rows[0]["what"] == "batch tokens / (data)"
    assert rows[0]["at_least"] == pytest.approx(459e12 / 6.25e9)  # 73e3 tokens per slice (book ch. 5)


@pytest.mark.parametrize("cut", ["zero1", "fsdp"])
def test_copies_add_parts_whichever_is_named_first(cut: str) -> None:
    first, second = (
        {
            row["what"]: row["at_least"]
            for row in ask_critical_batch("llama3_70b", name, {"data": 4, cut: 64}, "tpu_v5p")
        }
        for name in (f"data+{cut}", f"{cut}+data")
    )
    assert first == second
    assert list(first)[:2] == ["batch tokens / (data)", f"batch tokens / (data * {cut})"]


def test_a_training_step_has_a_lower_and_an_upper_bound_and_an_estimate_between() -> None:
    for strategy, mesh in (
        ("fsdp+tensor", {"fsdp": 32, "tensor": 8}),
        ("data+fsdp+tensor", {"data": 4, "fsdp": 8, "tensor": 8}),
        ("fsdp+cp", {"fsdp": 16, "context": 16}),
        ("fsdp+sp", {"fsdp": 32, "sequence": 8}),
        ("pp+dp+tp", {"pipeline": 8, "data": 4, "tensor": 8}),
    ):
        cost = ask_strategy("llama3_70b", strategy, mesh, 1e6, "h100").cost
        assert cost.lower_s <= cost.estimate_s <= cost.upper_s
        assert cost.compute_s <= cost.estimate_s
        assert 0 < cost.mfu_bounds[0] <= cost.mfu_bounds[1] <= 1


def test_kernel_efficiency_and_recompute_are_terms_of_their_own() -> None:
    mesh = {"fsdp": 32, "tensor": 8}
    plain = ask_strategy("llama3_70b", "fsdp+tensor", mesh, 1e6, "h100").cost
    slower = ask_strategy("llama3_70b", "fsdp+tensor", mesh, 1e6, "h100", efficiency=0.5, recompute=1.0).cost
    assert slower.compute_s == pytest.approx(plain.compute_s * 2 * 4 / 3)
    assert slower.flops_per_device == plain.flops_per_device  # the model's, as MFU counts them
    with pytest.raises(ProfileError, match="shares between 0 and 1"):
        ask_strategy("llama3_70b", "fsdp+tensor", mesh, 1e6, "h100", efficiency=2)


# Published training runs: the utilisation they reached lies below the bound for a machine at its peak.
RUNS = [
    # Llama 3 paper, table 4: 8,192 and 16,384 H100, 16 million tokens a batch, sequences of 8192
    ("llama3_405b", {"pipeline": 16, "data": 64, "tensor": 8}, 16e6, "h100", 8192, 32, 0.43),
    ("llama3_405b", {"pipeline": 16, "data": 128, "tensor": 8}, 16e6, "h100", 8192, 16, 0.41),
    # Megatron-LM (arXiv 2104.04473), table 1: 1,536 and 3,072 A100, batch x 2048 tokens, share of the peak
    ("megatron_gpt_145b", {"pipeline": 8, "data": 24, "tensor": 8}, 2304 * 2048, "a100_80", 2048, 96, 0.47),
    ("megatron_gpt_1t", {"pipeline": 64, "data": 6, "tensor": 8}, 3072 * 2048, "a100_80", 2048, 512, 0.52),
]


@pytest.mark.parametrize(("model", "mesh", "tokens", "hardware", "seq", "microbatches", "reached"), RUNS)
def test_no_published_run_beats_the_lower_bound(model, mesh, tokens, hardware, seq, microbatches, reached) -> None:
    cost = ask_strategy(model, "pp+dp+tp", mesh, tokens, hardware, seq=seq, microbatches=microbatches).cost
    assert cost.mfu_bounds[1] >= reached


def test_fsdp_inside_a_pipeline_gathers_for_every_microbatch() -> None:
    answer = ask_strategy("llama3_70b", "pp+fsdp", {"pipeline": 4, "fsdp": 64}, 512 * 8192, "h100", microbatches=8)
    gather = next(t for t in answer.cost.terms if t.kind == "all_gather")
    assert gather.times == 2 * 80 / 4 * 8
    assert answer.cost.notes == (
        "fsdp inside a pipeline gathers the weights for every microbatch; data parallelism does not",
    )


def test_axes_on_one_link_take_turns_in_the_lower_bound() -> None:
    cost = ask_strategy("llama3_405b", "data+fsdp+tensor", {"data": 128, "fsdp": 16, "tensor": 8}, 4e6, "h100").cost
    cut = sum(t.seconds for t in cost.terms if t.axes == ("fsdp",))
    added = sum(t.bytes * t.times for t in cost.terms if t.axes == ("data",)) / 50e9  # once, by the switches
    outside = cut + added
    assert cost.communication_s["scale_out"] == pytest.approx(outside)
    assert cost.lower_s == cost.communication_s["scale_out"]


def test_a_strategy_must_use_every_axis_and_have_its_own() -> None:
    with pytest.raises(ProfileError, match=r"does not use mesh axes \['tensor'\]"):
        ask_strategy("llama3_8b", "fsdp", {"fsdp": 8, "tensor": 8}, 1e6, "h100")
    with pytest.raises(ProfileError, match="tensor needs a mesh axis of its own"):
        ask_strategy("llama3_8b", "fsdp+tensor", {"fsdp": 8}, 1e6, "h100")
    with pytest.raises(ProfileError, match="unknown strategy 'magic'"):
        ask_strategy("llama3_8b", "magic", {"fsdp": 8}, 1e6, "h100")
    with pytest.raises(ProfileError, match="does not divide the model's 8 experts"):
        ask_strategy("mixtral_8x7b", "ep", {"expert": 16}, 1e6, "h100")
    with pytest.raises(ProfileError, match="batch of 0 tokens"):
        ask_strategy("llama3_8b", "dp", {"data": 8}, 0, "h100")


def test_answers_are_plain_data() -> None:
    answer = ask_strategy("mixtral_8x7b", "fsdp+ep", {"fsdp": 8, "expert": 8}, 1e6, "h100")
    data = json.loads(json.dumps(answer.to_dict()))
    assert {"seconds", "bound", "cost", "critical", "layout"} <= set(data)
    matmul = ask.ask_matmul("B_x E @ E_x M -> B_x M", DIMS, POD, "tpu_v5e")
    assert json.loads(json.dumps(matmul.to_dict()))["collectives"][0]["kind"] == "all_gather"


@pytest.mark.parametrize(
    ("strategy", "mesh", "parts"),
    [
        ("fsdp+tensor", {"data": 64, "tensor": 8}, {"fsdp": ("data",), "tensor": ("tensor",)}),
        ("fsdp+tensor", {"data": 64, "model": 8}, {"fsdp": ("data",), "tensor": ("model",)}),
        ("fsdp+tensor", {"x": 64, "y": 8}, {"fsdp": ("x",), "tensor": ("y",)}),
        ("fsdp", {"x": 16, "y": 16}, {"fsdp": ("x", "y")}),
        ("fsdp", {"data": 4, "fsdp": 64}, {"fsdp": ("data", "fsdp")}),
        ("data+fsdp", {"data": 4, "fsdp": 64}, {"data": ("data",), "fsdp": ("fsdp",)}),
        ("zero1+tp", {"data": 4, "tensor": 8}, {"zero1": ("data",), "tensor": ("tensor",)}),
        ("dp", {"anything": 8}, {"data": ("anything",)}),
        ("data-parallel + tensor parallel", {"d": 4, "t": 2}, {"data": ("d",), "tensor": ("t",)}),
    ],
)
def test_parts_take_the_axes_named_for_them_then_free_ones(strategy, mesh, parts) -> None:
    from autoshard.costmodels.strategy_names import read_strategy

    assert read_strategy(strategy, mesh) == parts


def test_fsdp_over_two_axes_costs_what_one_axis_of_all_costs() -> None:
    one = ask_strategy("llama3_8b", "fsdp", {"fsdp": 256}, 4e6, "tpu_v5e")
    two = ask_strategy("llama3_8b", "fsdp", {"x": 16, "y": 16}, 4e6, "tpu_v5e")
    assert (two.seconds, two.estimate_seconds, two.bound) == (one.seconds, one.estimate_seconds, one.bound)
    assert two.cost.memory.weights == one.cost.memory.weights


def test_zero1_moves_what_data_parallelism_moves_and_cuts_the_optimizer() -> None:
    whole = ask_strategy("llama3_8b", "data", {"data": 64}, 4e6, "h100").cost
    cut = ask_strategy("llama3_8b", "zero1", {"data": 64}, 4e6, "h100").cost
    assert cut.communication_s == {k: pytest.approx(v) for k, v in whole.communication_s.items()}
    assert cut.memory.optimizer == whole.memory.optimizer / 64
    assert cut.memory.weights == whole.memory.weights


def test_a_dense_model_has_no_experts_to_cut() -> None:
    with pytest.raises(ProfileError, match="the model is dense"):
        ask_strategy("llama3_8b", "ep", {"expert": 8}, 1e6, "h100")


def test_cutting_an_array_that_every_device_has_sends_nothing() -> None:
    answer = ask.ask_collective("slice", 2e9, {"x": 8, "y": 4}, ["y"], "tpu_v5e")
    assert (answer.seconds, answer.links, answer.group_size) == (0.0, (), 4)
    with pytest.raises(ProfileError, match="no axis 'z'"):
        ask.ask_collective("slice", 2e9, {"x": 8, "y": 4}, ["z"], "tpu_v5e")
