"""The collectives of a training step under a strategy, before they are priced."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from autoshard.costmodels.models import ModelCard

COPIED = ("zero1", "data", "context", "sequence")
"""Parts over which all weights of a device are the same."""
BOTH_PASSES = ", forward and backward"
"""How what is gathered once for each pass ends."""


@dataclass(frozen=True, slots=True)
class Move:
    """A collective of a strategy before it is priced: the parts it runs over, V, and how often it runs in a step.

    least: share of the bytes that no implementation can leave out. drawn: devices drawn for each token, which is sent
    to a device, and into a domain, once. of_weights: it moves weights or their gradients, see `least_traffic`.
    """

    part: str
    what: str
    kind: str
    over: tuple[str, ...]
    bytes: float
    times: float
    least: float = 1.0
    drawn: int = 1
    of_weights: bool = False


@dataclass(frozen=True, slots=True)
class Block:
    """Weights of one layer, on average over the layers, that have the same copies.

    bytes: as an fsdp group sees them, cut by tensor parallelism, those of experts also by expert parallelism. copies:
    the parts over which devices hold the same weights.
    """

    what: str
    bytes: float
    copies: tuple[str, ...]


def distinct_devices(chosen: int, devices: int) -> float:
    """Devices that a token goes to when its experts are drawn evenly: ``n (1 - (1 - 1/n)^k)``; it is sent to each once.

    >>> distinct_devices(8, 1), round(distinct_devices(2, 8), 3), round(distinct_devices(8, 64), 2)
    (1.0, 1.875, 7.58)
    """
    return devices * (1 - (1 - 1 / devices) ** chosen)


def _seen_by_windows(card: ModelCard, seq: int) -> float:
    """Share of the keys and values that attention has to see, over all layers: in layers with a window, the window."""
    if card.window is None:
        return 1.0
    return (card.layers - card.local_layers * (1 - min(1.0, card.window / seq))) / card.layers


def routed_params(card: ModelCard) -> int:
    """Parameters of the experts that a router chooses from, all layers."""
    if not card.experts:
        return 0
    assert card.d_ff_expert is not None
    return (card.layers - card.dense_layers) * card.mlp_matrices * card.d_model * card.d_ff_expert * card.experts


def weight_blocks(card: ModelCard, n: Mapping[str, int], dtype_bytes: float) -> tuple[Block, ...]:
    """The weights of a layer by what they are copied over: all of them, or with `expert` the experts by themselves."""
    routed = routed_params(card)
    block = card.layers * card.attention_params_per_layer + card.mlp_params() + card.router_params
    per_param = dtype_bytes / card.layers / n["tensor"]
    if n["expert"] == 1:
        return (Block("weight gradients", block * per_param, COPIED),)
    rest = Block("gradients of what is no expert", (block - routed) * per_param, (*COPIED, "expert"))
    return (rest, Block("gradients of experts", routed / n["expert"] * per_param, COPIED))


def moves(
    card: ModelCard,
    n: Mapping[str, int],
    batch_tokens: float,
    seq: int,
    microbatches: int,
    repeats: int,
    pieces: int,
    dtype_bytes: float,
) -> Iterator[Move]:
    """The collectives of a training step; `n` gives the size of every part (1 where it is not used).

    pieces: collectives in which fsdp gathers the weights of a layer.
    """
    yield from _of_weights(card, n, microbatches, pieces, dtype_bytes)
    rows = n["data"] * n["zero1"] * n["fsdp"] * n["fsdp_transpose"]
    tokens = batch_tokens / (rows * n["context"] * n["sequence"] * n["expert"])
    activations = tokens * card.d_model * dtype_bytes
    yield from _of_experts(card, n, activations, microbatches)
    yield from _of_blocks(card, n, activations / microbatches, microbatches)
    yield from _of_attention(card, n, tokens * dtype_bytes, seq)
    boundary = activations / microbatches / n["tensor"]  # each device of a tensor group sends its part of the width
    what = "activations to the next stage, gradients back"
    yield Move("pipeline", what, "shift", ("pipeline",), boundary, 2 * microbatches * repeats)


def _of_experts(card: ModelCard, n: Mapping[str, int], activations: float, microbatches: int) -> Iterator[Move]:
    """Tokens to their experts and back, in the layers that have them; activations: of the tokens of a device.

    Between blocks each device of a tensor group has its part of the tokens (or of their width), and sends no more than
    that; at the experts the group gathers what came, once for every expert of a token, and scatters the results before
    they go back: Megatron-LM, megatron/core/transformer/moe/token_dispatcher.py, `MoEAlltoAllTokenDispatcher` ("A2A(EP)
    -> AG(TP)", "RS(TP) -> A2A(EP)"; commit 0014f137). MaxText gathers before it sends, so that whole tokens go out, and
    returns parts (layers/moe.py, `sparse_matmul`; commit 0077e52a).
    """
    if n["expert"] == 1:
        return
    mixtures, drawn = (card.layers - card.dense_layers) / n["pipeline"], max(1, card.experts_per_token)
    routed = activations * card.experts_per_token
    what = "tokens to experts and back"
    sent = routed * n["expert"] / n["tensor"]
    yield Move("expert", what, "all_to_all", ("expert",), sent, 4 * mixtures, drawn=drawn)
    # A group that gathers before it sends has every token once, as shared experts need it anyway.
    least = 0.0 if card.shared_experts else 1 / drawn
    part, often = routed / microbatches, 2 * mixtures * microbatches
    yield Move("tensor", "tokens into experts", "all_gather", ("tensor",), part, often, least=least)
    yield Move("tensor", "tokens out of experts", "reduce_scatter", ("tensor",), part, often, least=least)


def _of_blocks(card: ModelCard, n: Mapping[str, int], activations: float, microbatches: int) -> Iterator[Move]:
    """Activations of a microbatch into and out of the blocks that a tensor group divides, forward and backward.

    Blocks of experts alone have none of these where tokens are sent to their devices. At the ends of the model every
    device can work out all of the embeddings and of the logits, so that the first block is handed whole tokens and its
    gradients are added in those of the embedding, and so at the last block.
    """
    blocks = 2 * card.layers
    if n["expert"] > 1 and not card.shared_experts:
        blocks -= card.layers - card.dense_layers
    often = 2 * blocks / n["pipeline"] * microbatches
    ends = 2 / n["pipeline"] if n["pipeline"] <= 2 else 0.0  # of a stage; a stage between others has none
    least = max(0.0, 1 - ends * microbatches / often) if often else 1.0
    yield Move("tensor", "activations into blocks", "all_gather", ("tensor",), activations, often, least=least)
    yield Move("tensor", "activations out of blocks", "reduce_scatter", ("tensor",), activations, often, least=least)


def _of_weights(
    card: ModelCard, n: Mapping[str, int], microbatches: int, pieces: int, dtype_bytes: float
) -> Iterator[Move]:
    """Weights and their gradients: gathered and scattered anew for every microbatch by fsdp, then summed over copies.

    Weights cut over two parts are gathered over both at once, as over one axis of their devices. What zero1 has
    scattered is summed over the other copies in parts.
    """
    layers, fsdp = card.layers / n["pipeline"], n["fsdp"] * n["fsdp_transpose"]
    blocks = weight_blocks(card, n, dtype_bytes)
    weights = sum(block.bytes for block in blocks)
    cut = ("fsdp", "fsdp_transpose")
    part, often = next((part for part in cut if n[part] > 1), "fsdp"), 2 * layers * microbatches * pieces
    what, gradients = f"weights{BOTH_PASSES}", "weight gradients"
    yield Move(part, what, "all_gather", cut, weights / pieces, often, of_weights=True)
    yield Move(part, gradients, "reduce_scatter", cut, weights, layers * microbatches, of_weights=True)
    zero1, share = ("zero1",), weights / fsdp
    yield Move("zero1", gradients, "reduce_scatter", zero1, share, layers, of_weights=True)
    yield Move("zero1", "updated weights", "all_gather", zero1, share, layers, of_weights=True)
    for block in blocks:
        over = tuple(part for part in block.copies if part != "zero1")
        part = next((part for part in over if n[part] > 1), "data")
        share = block.bytes / fsdp / n["zero1"]
        yield Move(part, block.what, "all_reduce", over, share, layers, of_weights=True)


def _of_attention(card: ModelCard, n: Mapping[str, int], token_bytes: float, seq: int) -> Iterator[Move]:
    """What attention over a cut sequence moves; token_bytes: one number for each token of a device.

    The rows that keys and values are made of are enough where they are shorter: the input of the layer, of latent
    attention what it compresses that to.
    """
    layers, over = card.layers / n["pipeline"], ("context",)
    kv_heads = max(1.0, card.kv_heads / n["tensor"])
    numbers = 2 * kv_heads * card.attention_width
    keys_values = token_bytes * n["context"] * numbers
    enough = min(1.0, (card.d_model if card.mla is None else card.kv_numbers) / numbers)
    seen = enough * _seen_by_windows(card, seq)
    what = f"keys and values{BOTH_PASSES}"
    yield Move("context", what, "all_gather", over, keys_values, 2 * layers, least=seen)
    what = "gradients of keys and values"
    yield Move("context", what, "reduce_scatter", over, keys_values, layers, least=seen)
    heads = 2 * card.heads / n["tensor"] + 2 * kv_heads  # queries and output, keys and values
    round_attention = token_bytes * n["sequence"] * heads * card.attention_width
    yield Move("sequence", "heads for tokens round attention", "all_to_all", ("sequence",), round_attention, 2 * layers)
