"""The collectives of a training step under a strategy, before they are priced."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from autoshard.costmodels.models import ModelCard


@dataclass(frozen=True, slots=True)
class Move:
    """A collective of a strategy before it is priced: the parts it runs over, V, and how often it runs in a step."""

    part: str
    what: str
    kind: str
    over: tuple[str, ...]
    bytes: float
    times: float
    least: float = 1.0  # share of the bytes that no implementation can leave out
    copies: tuple[
        str, ...
    ] = ()  # parts over which it is replicated: it could be cut there for free, and use their links


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
    layers = card.layers / n["pipeline"]
    fsdp = n["fsdp"] * n["fsdp_transpose"]
    routed = routed_params(card)
    block = card.layers * card.attention_params_per_layer + card.mlp_params() + card.router_params
    # Bytes of one layer as an fsdp group sees it: cut by tensor parallelism, experts also by expert parallelism.
    common = (block - routed) / card.layers / n["tensor"] * dtype_bytes
    weights = common + routed / card.layers / n["tensor"] / n["expert"] * dtype_bytes
    tokens = batch_tokens / (n["data"] * n["zero1"] * fsdp * n["context"] * n["sequence"] * n["expert"])

    # Weights are gathered anew for every microbatch; gradients are scattered as often.
    # Weights cut over two parts are gathered over both at once, as over one axis of their devices.
    cut = ("fsdp", "fsdp_transpose")
    part = next((part for part in cut if n[part] > 1), "fsdp")
    often = 2 * layers * microbatches * pieces
    what, copies = "weights, forward and backward", ("data", "zero1")
    yield Move(part, what, "all_gather", cut, weights / pieces, often, copies=copies)
    yield Move(part, "weight gradients", "reduce_scatter", cut, weights, layers * microbatches)
    yield Move("zero1", "weight gradients", "reduce_scatter", ("zero1",), weights / fsdp, layers)
    yield Move("zero1", "updated weights", "all_gather", ("zero1",), weights / fsdp, layers)
    replicas = ("data", "context", "sequence")
    first = next((part for part in replicas if n[part] > 1), "data")
    yield Move(first, "weight gradients", "all_reduce", replicas, weights / fsdp, layers)
    yield Move("expert", "gradients of what is no expert", "all_reduce", ("expert",), common / fsdp, layers)
    to_experts = tokens * n["expert"] * card.d_model * card.experts_per_token * dtype_bytes
    once = distinct_devices(card.experts_per_token, n["expert"]) / max(1, card.experts_per_token)
    what = "tokens to experts and back"
    yield Move("expert", what, "all_to_all", ("expert",), to_experts, 4 * layers, min(1.0, once))
    activations = tokens * card.d_model * dtype_bytes / microbatches
    often = 4 * layers * microbatches
    yield Move("tensor", "activations into blocks", "all_gather", ("tensor",), activations, often)
    yield Move("tensor", "activations out of blocks", "reduce_scatter", ("tensor",), activations, often)
    kv_heads = max(1.0, card.kv_heads / n["tensor"])
    keys_values = 2 * tokens * n["context"] * kv_heads * card.head_dim * dtype_bytes
    seen, over = _seen_by_windows(card, seq), ("context",)
    yield Move("context", "keys and values, forward and backward", "all_gather", over, keys_values, 2 * layers, seen)
    yield Move("context", "gradients of keys and values", "reduce_scatter", over, keys_values, layers, seen)
    heads = 2 * card.heads / n["tensor"] + 2 * kv_heads  # queries and output, keys and values
    round_attention = tokens * n["sequence"] * heads * card.head_dim * dtype_bytes
    yield Move("sequence", "heads for tokens round attention", "all_to_all", ("sequence",), round_attention, 2 * layers)
    boundary = activations / n["tensor"]  # each device of a tensor group sends its part of the width
    what = "activations to the next stage, gradients back"
    yield Move("pipeline", what, "shift", ("pipeline",), boundary, 2 * microbatches * repeats)
