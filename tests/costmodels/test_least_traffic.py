"""What the links carry at least: strategies that could do the same have the same bound, wherever their axes lie."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from autoshard.costmodels import ProfileError
from autoshard.costmodels.model_questions import ask_inference
from autoshard.costmodels.models import load_model
from autoshard.costmodels.step_collectives import routed_params
from autoshard.costmodels.strategies import StrategyCost
from autoshard.costmodels.strategy_questions import ask_strategy

DCN = 6.25e9  # bytes/s of a v5p chip
NODE = 50e9  # of an H100, between nodes
MODELS = ["llama3_8b", "gpt3_175b", "gemma3_12b", "mixtral_8x7b", "deepseek_v3"]
MACHINES = ["h100", "a100_40", "gb200_nvl72", "mi300x", "tpu_v4", "tpu_v5e", "tpu_v5p", "tpu_v6e"]
OUTER = {"h100": "scale_out", "a100_40": "scale_out", "gb200_nvl72": "scale_out", "mi300x": "scale_out"}


def step(model: str, strategy: str, mesh: dict[str, int], tokens: float, hardware: str, **how) -> StrategyCost:
    return ask_strategy(model, strategy, mesh, tokens, hardware, seq=4096, **how).cost


def bytes_of_layers(model: str) -> float:
    card = load_model(model)
    return 2.0 * (card.params() - card.embedding_params)


def test_copies_add_the_part_that_zero1_has_scattered() -> None:
    cost = step("llama3_8b", "data+zero1", {"data": 4, "zero1": 8}, 1e6, "h100")
    added = next(t for t in cost.terms if t.kind == "all_reduce")
    assert added.bytes * added.times == pytest.approx(bytes_of_layers("llama3_8b") / 8)


def test_zero1_within_nodes_sends_its_part_between_them() -> None:
    cost = step("llama3_8b", "data+zero1", {"data": 8, "zero1": 8}, 2**20, "h100")
    # V of an eighth, which the switches add
    assert cost.communication_s["scale_out"] == pytest.approx(bytes_of_layers("llama3_8b") / 8 / NODE)


def test_what_switches_add_is_sent_once() -> None:
    adding, sending = (step("llama3_8b", "data", {"data": 8}, 1e5, name) for name in ("h100", "a100_80"))
    assert adding.communication_s["nvlink"] == pytest.approx(bytes_of_layers("llama3_8b") / 450e9)
    assert sending.communication_s["nvlink"] == pytest.approx(2 * bytes_of_layers("llama3_8b") * 7 / 8 / 300e9)


def test_gradients_may_be_scattered_over_the_links_of_copies() -> None:
    mesh = {"fsdp": 64, "data": 8}
    cost = step("llama3_8b", "fsdp+data", mesh, 2**20, "tpu_v5p", links={"fsdp": "dcn"})
    # two gathers and a scatter, of which the slice's eight chips carry an eighth each
    assert cost.communication_s["dcn"] == pytest.approx(3 * bytes_of_layers("llama3_8b") * 63 / 64 / 8 / DCN)


def test_gradients_of_every_microbatch_may_be_scattered_over_the_links_of_copies() -> None:
    mesh = {"fsdp": 64, "data": 8}
    once, four = (
        step("llama3_8b", "fsdp+data", mesh, 2**23, "tpu_v5p", links={"fsdp": "dcn"}, microbatches=m) for m in (1, 4)
    )
    assert four.communication_s["dcn"] == pytest.approx(4 * once.communication_s["dcn"])


def test_only_layers_with_experts_send_tokens_to_them() -> None:
    cost = step("deepseek_v3", "expert", {"expert": 64}, 1e6, "h100")
    assert next(t for t in cost.terms if t.kind == "all_to_all").times == 4 * 58


def test_a_tensor_group_could_send_a_token_to_its_experts_in_parts() -> None:
    mesh = {"expert": 8, "tensor": 8}
    cost = step("mixtral_8x7b", "expert+tensor", mesh, 2**20, "h100")
    sent = 4 * 32 * 1.875 * (2**20 / 8) * 4096 * 2 / 8
    card = load_model("mixtral_8x7b")
    rest = bytes_of_layers("mixtral_8x7b") - 2 * routed_params(card)
    assert cost.communication_s["scale_out"] == pytest.approx((sent * 7 / 8 + rest / 8) / NODE)


def all_moved(cost: StrategyCost, part: str) -> dict[str, tuple[float, float]]:
    """Bytes and number of the collectives of a part, by what they move."""
    return {f"{term.kind} {term.what}": (term.bytes, term.times) for term in cost.terms if term.part == part}


def test_a_tensor_group_sends_a_token_to_its_experts_in_parts() -> None:
    """Megatron-LM: 32 layers, forward and backward, there and back; an eighth of 2 copies of 2^20 / 8 tokens each."""
    cost = step("mixtral_8x7b", "expert+tensor", {"expert": 8, "tensor": 8}, 2**20, "h100")
    whole = 8 * 2 * (2**20 / 8) * 4096 * 2
    assert all_moved(cost, "expert")["all_to_all tokens to experts and back"] == (whole / 8, 4 * 32)


def test_a_tensor_group_gathers_a_copy_for_each_expert_of_a_token() -> None:
    cost = step("mixtral_8x7b", "expert+tensor", {"expert": 8, "tensor": 8}, 2**20, "h100")
    tokens = (2**20 / 8) * 4096 * 2
    assert all_moved(cost, "tensor") == {
        "all_gather activations into blocks": (tokens, 2 * 32),  # attention alone
        "reduce_scatter activations out of blocks": (tokens, 2 * 32),
        "all_gather tokens into experts": (2 * tokens, 2 * 32),
        "reduce_scatter tokens out of experts": (2 * tokens, 2 * 32),
    }


def test_shared_experts_have_all_tokens_beside_those_that_are_sent() -> None:
    cost = step("deepseek_v3", "expert+tensor", {"expert": 8, "tensor": 8}, 2**20, "h100")
    moved = all_moved(cost, "tensor")
    assert moved["all_gather activations into blocks"][1] == 2 * 2 * 61
    assert moved["all_gather tokens into experts"] == (8 * (2**20 / 8) * 7168 * 2, 2 * 58)


def test_a_group_needs_a_token_once_however_many_experts_it_has() -> None:
    cost = step("mixtral_8x7b", "expert+tensor", {"expert": 8, "tensor": 8}, 2**20, "h100")
    once = step("mixtral_8x7b", "data+tensor", {"data": 8, "tensor": 8}, 2**20, "h100")
    assert cost.communication_s["nvlink"] == pytest.approx(once.communication_s["nvlink"])


def test_tokens_that_are_not_sent_are_gathered_once() -> None:
    cost = step("mixtral_8x7b", "data+tensor", {"data": 8, "tensor": 8}, 2**20, "h100")
    assert set(all_moved(cost, "tensor")) == {
        "all_gather activations into blocks", "reduce_scatter activations out of blocks",
    }  # fmt: skip


def test_a_token_could_be_sent_to_a_node_once() -> None:
    cost = step("deepseek_v3", "expert", {"expert": 64}, 2**20, "h100")
    card = load_model("deepseek_v3")
    nodes = 8 * (1 - (7 / 8) ** 8)  # that 8 experts of 64 devices lie on
    sent = 4 * 58 * nodes * (2**20 / 64) * card.d_model * 2 * 7 / 8
    rest = bytes_of_layers("deepseek_v3") - 2 * routed_params(card)
    assert cost.communication_s["scale_out"] == pytest.approx((sent + rest / 8) / NODE)


def test_of_latent_attention_the_compressed_rows_are_enough() -> None:
    mesh = {"context": 64}
    latent = step("deepseek_v3", "context", mesh, 2**20, "h100")
    rows = 3 * 61 * 2**20 * (512 + 64) * 2  # gathered twice, their gradients scattered
    gradients = bytes_of_layers("deepseek_v3")  # added by the switches
    assert latent.communication_s["scale_out"] == pytest.approx((rows * 7 / 8 + gradients) / 8 / NODE)


def test_the_inputs_of_layers_are_enough_where_keys_and_values_are_wider() -> None:
    cost = step("llama2_7b", "context", {"context": 64}, 2**20, "h100")  # as many heads of keys as of queries: 2 x 4096
    rows = 3 * 32 * 2**20 * 4096 * 2
    gradients = bytes_of_layers("llama2_7b")  # added by the switches
    assert cost.communication_s["scale_out"] == pytest.approx((rows * 7 / 8 + gradients) / 8 / NODE)


@pytest.mark.parametrize(("stages", "ends"), [(1, 2), (2, 1), (4, 0)])
def test_a_tensor_group_need_not_gather_at_the_ends_of_the_model(stages: int, ends: int) -> None:
    """Every device can work out all embeddings and all logits; a stage of a pipeline has one end, or none."""
    mesh = {"pipeline": stages, "tensor": 8} if stages > 1 else {"tensor": 8}
    cost = step("llama3_8b", "+".join(mesh), mesh, 2**18, "a100_80")
    passes = 2 * 64 / stages - ends  # two blocks of each of 32 layers, forward and backward
    gathered_and_scattered = 2 * passes * 2**18 * 4096 * 2 * 7 / 8 / 300e9
    assert cost.communication_s["nvlink"] == pytest.approx(gathered_and_scattered)


def test_a_tensor_group_may_have_its_sums_added_by_switches() -> None:
    """One all-reduce that switches add in the place of a scatter and a gather, for a block and a pass."""
    cost = step("llama3_8b", "tensor", {"tensor": 8}, 2**18, "h100")
    assert cost.communication_s["nvlink"] == pytest.approx((2 * 64 - 2) * 2**18 * 4096 * 2 / 450e9)


@pytest.mark.parametrize(("hardware", "sent"), [("h100", 1 / 8 / 50e9), ("a100_80", 2 * 7 / 8 / 8 / 25e9)])
def test_generating_sends_no_more_than_sums_need(hardware: str, sent: float) -> None:
    answer = ask_inference("llama3_8b", 64, hardware, batch=2**20, context=1)
    assert answer.least_seconds == pytest.approx((2 * 32 - 1) * 2**20 * 4096 * 2 * sent)


def test_latent_attention_makes_keys_wider_than_values() -> None:
    cost = step("deepseek_v3", "context", {"context": 64}, 2**20, "h100")
    gathered = next(t for t in cost.terms if t.kind == "all_gather")
    assert gathered.bytes == 2**20 * 128 * (192 + 128) * 2


def test_what_is_no_expert_is_added_over_experts_and_copies_at_once() -> None:
    cost = step("mixtral_8x7b", "data+expert", {"data": 8, "expert": 8}, 2**17, "h100")
    routed = 2.0 * routed_params(load_model("mixtral_8x7b"))
    rest = bytes_of_layers("mixtral_8x7b") - routed
    moved = {t.what: (t.axes, t.bytes * t.times) for t in cost.terms if t.kind == "all_reduce"}
    assert moved == {
        "gradients of what is no expert": (("data", "expert"), pytest.approx(rest)),
        "gradients of experts": (("data",), pytest.approx(routed / 8)),
    }
    # each device of a node sends its eighth of both to the switches between nodes, which add
    assert cost.communication_s["scale_out"] == pytest.approx((routed / 8 + rest / 8) / NODE)


def test_dimensions_of_a_slice_share_what_is_gathered() -> None:
    mesh = {"data": 16, "fsdp": 16}
    cost = step("llama3_70b", "data+fsdp", mesh, 1e5, "tpu_v6e")
    first, second = cost.communication_s["ici:0"], cost.communication_s["ici:1"]
    assert first == pytest.approx(second, rel=1e-4)
    # a device takes what it lacks, at 2 x 180e9 bytes/s: 15/16 of the weights twice, of its gradients all but a 256th
    # and back the 16th of which it has one of 16 parts
    taken = bytes_of_layers("llama3_70b") * (2 * 15 / 16 + 255 / 256 + 15 / 256)
    assert taken / 360e9 <= first <= 1.03 * taken / 360e9


Step = tuple[str, dict[str, int], float, str, dict[str, str]]
"""A model, sizes of axes in some order, tokens of the batch, a machine, and links of some axes."""


@st.composite
def steps(draw: st.DrawFn) -> Step:
    sizes = {name: draw(st.sampled_from([1, 2, 4, 8])) for name in ("data", "zero1", "fsdp", "tensor", "context")}
    mesh = {name: sizes[name] for name in draw(st.permutations(list(sizes)))}
    hardware = draw(st.sampled_from(MACHINES))
    outer = OUTER.get(hardware, "dcn")
    outside = draw(st.sets(st.sampled_from(list(mesh)), max_size=2))
    tokens = 2.0 ** draw(st.integers(16, 24))
    return draw(st.sampled_from(MODELS)), mesh, tokens, hardware, dict.fromkeys(sorted(outside), outer)


def priced(given_step: Step, strategies: list[str], **how: int) -> list[StrategyCost]:
    model, mesh, tokens, hardware, links = given_step
    try:
        return [step(model, strategy, mesh, tokens, hardware, links=links, **how) for strategy in strategies]
    except ProfileError:  # no machine like this has such a mesh
        assume(False)
        raise


@given(steps())
def test_copies_have_one_bound_whichever_of_them_cut_the_optimizer(given_step: Step) -> None:
    names = ["data+zero1", "zero1", "data"]
    costs = priced(given_step, [f"{name}+fsdp+tensor+context" for name in names])
    bounds = [cost.lower_s for cost in costs]
    assert bounds == pytest.approx(bounds[:1] * 3, rel=1e-5)
    assert max(bounds) <= min(cost.estimate_s for cost in costs) * (1 + 1e-5)


@given(steps())
def test_the_estimate_lies_between_the_bounds_wherever_axes_lie(given_step: Step) -> None:
    (cost,) = priced(given_step, ["data+zero1+fsdp+tensor+context"])
    assert cost.lower_s <= cost.estimate_s <= cost.upper_s * (1 + 1e-9)


@given(steps(), st.sampled_from([1, 2, 4]))
def test_no_link_carries_more_at_least_than_the_collectives_one_by_one(given_step: Step, microbatches: int) -> None:
    (cost,) = priced(given_step, ["data+zero1+fsdp+tensor+context"], microbatches=microbatches)
    assert max(cost.communication_s.values(), default=0.0) <= sum(t.seconds for t in cost.terms) * (1 + 1e-9)


@given(st.sampled_from(["mixtral_8x7b", "deepseek_v3"]), steps(), st.sampled_from([2, 4, 8]))
def test_experts_keep_the_estimate_between_the_bounds(model: str, given_step: Step, experts: int) -> None:
    _, mesh, tokens, hardware, links = given_step
    with_experts = (model, {**mesh, "expert": experts}, tokens, hardware, links)
    costs = priced(with_experts, [f"{name}+fsdp+tensor+context+expert" for name in ("data", "zero1")])
    assert costs[0].lower_s == pytest.approx(costs[1].lower_s, rel=1e-5)
    assert all(cost.lower_s <= cost.estimate_s <= cost.upper_s * (1 + 1e-9) for cost in costs)


@given(steps())
def test_weights_cut_over_two_parts_have_the_bound_of_one(given_step: Step) -> None:
    model, mesh, tokens, hardware, links = given_step
    name = {"zero1": "fsdp_transpose"}
    renamed = {name.get(axis, axis): size for axis, size in mesh.items()}
    on_links = {name.get(axis, axis): link for axis, link in links.items()}
    names = [f"{cut}+data+tensor+context" for cut in ("fsdp+fsdp_transpose", "fsdp")]
    one, two = priced((model, renamed, tokens, hardware, on_links), names)
    assert one.lower_s == pytest.approx(two.lower_s, rel=1e-5)
