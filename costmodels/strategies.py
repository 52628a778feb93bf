"""A training step of a transformer under a named strategy: its collectives, their time and verdicts, in closed form.

A strategy is a `+` of parts, each on a mesh axis: ``fsdp+tensor`` on ``{"fsdp": 64, "tensor": 8}``. Per layer, with B
tokens in the whole batch and 2-byte numbers (How To Scale Your Model, chapter 5; MaxText's sharding guide):

| part | weights | collectives of a layer, forward + backward |
| --- | --- | --- |
| data | whole | all-reduce of the gradients |
| zero1 | whole, optimizer cut | reduce-scatter of the gradients, all-gather of the updated weights |
| fsdp, fsdp_transpose | cut | all-gather of the weights, twice; reduce-scatter of the gradients |
| tensor | cut | per block (attention, MLP) all-gather and reduce-scatter of the activations, forward and backward |
| context | whole | all-gather of keys and values, reduce-scatter of their gradients; all-reduce of weight gradients |
| sequence | whole | all-to-alls of queries, keys, values and output round attention; the same all-reduce |
| expert | experts cut | two all-to-alls of the routed tokens, forward and backward; all-reduce of the other gradients |
| pipeline | layers cut | activations to the next stage and back, per boundary |

Collectives on different link levels or torus dimensions can run at once, those on one axis one after another: the
lower bound takes the busiest link, the upper bound adds everything to the work.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from autoshard.costmodels.errors import ProfileError
from autoshard.costmodels.intensities import pipeline_bubble, sequence_head_limit
from autoshard.costmodels.machine import Machine
from autoshard.costmodels.models import ModelCard
from autoshard.costmodels.strategy_names import ON_ROWS, PARTS, part_size, read_strategy

_ADAM_BYTES_PER_PARAMETER = 8.0  # two float32 moments
_POINTWISE_ELEMENTS = 150.0
"""Elements that norms, residuals, activation functions and the like read and write, forward and backward.

Per token, layer and unit of width. Fitted to published runs; 100 to 250 do nearly as well (experiments/training_runs).
"""
_ACTIVATION_BYTES = 2.0


@dataclass(frozen=True, slots=True)
class Term:
    """One kind of collective of a strategy, over a whole training step of one device."""

    part: str
    what: str
    kind: str
    axes: tuple[str, ...]
    bytes: float  # V of one of them
    times: float  # per step
    seconds: float  # all of them, lower figure
    upper_seconds: float
    bound: str
    flops_per_byte: float  # work of one device over V, all-reduce counted twice
    machine_flops_per_byte: float
    verdict: str  # "compute" or "communication": which of this part alone and the work is longer


@dataclass(frozen=True, slots=True)
class StrategyCost:
    """A training step under a strategy."""

    tokens_per_device: float
    flops_per_device: float
    compute_s: float  # work at the peak rate (or at the efficiency that was given)
    efficiency: float  # share of the peak that work reaches in the estimate and the upper bound
    bubble: float  # idle share of a pipeline, in the estimate and the upper bound
    terms: tuple[Term, ...]
    communication_s: dict[str, float]  # per link (level, or torus dimension), bandwidth alone
    lower_s: float
    estimate_s: float  # with the profile's overlap shares
    upper_s: float
    mfu: float  # model FLOP utilisation at the estimate
    mfu_bounds: tuple[float, float]  # at upper and lower step time; at most 1, though causal kernels do less work
    bound: str
    weight_bytes_per_device: float
    optimizer_bytes_per_device: float
    notes: tuple[str, ...]


def _refuse_numbers(efficiency: float | None, recompute: float, microbatches: int | None, repeats: int) -> None:
    if (efficiency is not None and not 0 < efficiency <= 1) or not 0 <= recompute <= 1:
        raise ProfileError(f"efficiency {efficiency} and recompute {recompute} are shares between 0 and 1")
    for name, count in (("microbatches", microbatches), ("repeats", repeats)):
        if count is not None and count < 1:
            raise ProfileError(f"{name} is {count}; give a whole number from 1 on")


def _fits_the_model(card: ModelCard, strategy: str, n: Mapping[str, int]) -> list[str]:
    """What a user should know of cutting this model into `n` parts; raises `ProfileError` where it cannot be cut so."""
    if n["expert"] > 1 and not card.experts:
        raise ProfileError(f"strategy {strategy!r}: the model is dense, it has no experts to cut")
    if n["expert"] > 1 and card.experts % n["expert"]:
        raise ProfileError(f"expert={n['expert']} does not divide the model's {card.experts} experts")
    notes: list[str] = []
    if not sequence_head_limit(n["tensor"], n["sequence"], card.kv_heads):
        notes.append(
            f"tensor x sequence = {n['tensor'] * n['sequence']} cuts {card.kv_heads} key/value heads: they are repeated"
        )
    if card.layers % n["pipeline"]:
        notes.append(f"{card.layers} layers do not divide into {n['pipeline']} stages; the largest stage is longer")
    if n["pipeline"] > 1 and n["fsdp"] * n["fsdp_transpose"] > 1:
        notes.append("fsdp inside a pipeline gathers the weights for every microbatch; data parallelism does not")
    return notes


def price_strategy(
    machine: Machine,
    card: ModelCard,
    strategy: str,
    batch_tokens: float,
    *,
    seq: int | None = None,
    dtype: str = "bfloat16",
    dtype_bytes: float = 2.0,
    microbatches: int | None = None,
    repeats: int = 1,
    efficiency: float | None = None,
    recompute: float = 0.0,
) -> StrategyCost:
    """Price a training step on a machine whose mesh has the strategy's axes.

    The lower bound takes work at the peak rate, of attention what no kernel can leave out (causal, windowed), and a
    pipeline without idle time. The estimate and the upper bound take work at `efficiency` of the peak, and the bubble
    of `microbatches` through a pipeline with `repeats` stages per device (interleaving). Without `efficiency` they
    use the profile's shares for matmuls and attention, and the memory traffic of everything else (see
    `_likely_work_s`); with it, it counts in the lower bound too. `recompute` is the share of the forward work that
    the backward pass repeats (1 for full rematerialisation). Without a pipeline, `microbatches` accumulate
    gradients: fsdp gathers the weights for each of them.
    """
    _refuse_numbers(efficiency, recompute, microbatches, repeats)
    mesh = dict(machine.axes)
    if too_many := _stages_beyond(card, strategy, mesh, repeats):
        raise ProfileError(too_many)
    parts = read_strategy(strategy, mesh)
    size = {part: part_size(axes, mesh) for part, axes in parts.items()}
    length = seq if seq is not None else card.train_seq
    if length is None:
        raise ProfileError("this model has no training context of its own; give the sequence length")
    n = {part: size.get(part, 1) for part in PARTS}
    notes = _fits_the_model(card, strategy, n)
    flops = batch_tokens * card.train_flops_per_token(length) / machine.num_devices
    peak = machine.flops_per_s(dtype)
    micro = microbatches if microbatches is not None else 4 * n["pipeline"] if n["pipeline"] > 1 else 1
    bubble = pipeline_bubble(n["pipeline"], micro, repeats) if n["pipeline"] > 1 else 0.0
    compute = flops * (1 + recompute / 3) / (peak * (efficiency or 1.0))
    likely = compute if efficiency is not None else _likely_work_s(machine, card, flops, length, peak, recompute)
    likely /= 1 - bubble
    terms = [
        _priced(machine, move, parts, flops, peak)
        for move in _moves(card, n, batch_tokens, micro, dtype_bytes)
        if move.bytes and any(n[part] > 1 for part in move.over)
    ]
    per_link: dict[str, float] = {}
    for term in terms:
        for link, per_byte in machine.link_seconds(term.kind, machine.whole(*term.axes)).items():
            per_link[link] = per_link.get(link, 0.0) + term.times * term.bytes * per_byte
    exposed = sum(t.upper_seconds * (1 - _hidden(machine, t)) for t in terms)
    least = batch_tokens * card.least_train_flops_per_token(length) / machine.num_devices
    floor = least * (1 + recompute / 3) / (peak * (efficiency or 1.0))
    lower = max([floor, *per_link.values()])
    upper = likely + sum(t.upper_seconds for t in terms)
    estimate = max(lower, likely + exposed)
    shards = n["fsdp"] * n["fsdp_transpose"] * n["tensor"] * n["pipeline"]
    routed = _routed_params(card)
    on_device = (card.params() - routed + routed / n["expert"]) / shards
    ideal = flops / peak
    return StrategyCost(
        tokens_per_device=batch_tokens / machine.num_devices,
        flops_per_device=flops,
        compute_s=compute,
        efficiency=compute * (efficiency or 1.0) / (likely * (1 - bubble)),
        bubble=bubble,
        terms=tuple(terms),
        communication_s=per_link,
        lower_s=lower,
        estimate_s=estimate,
        upper_s=upper,
        mfu=ideal / estimate,
        mfu_bounds=(ideal / upper, min(1.0, ideal / lower)),
        bound="compute" if lower == floor else "communication",
        weight_bytes_per_device=on_device * dtype_bytes,
        optimizer_bytes_per_device=on_device * _ADAM_BYTES_PER_PARAMETER / n["zero1"],
        notes=tuple(notes),
    )


def _stages_beyond(card: ModelCard, strategy: str, mesh: Mapping[str, int], repeats: int) -> str | None:
    """What is wrong where a pipeline has more chunks of layers than layers; None where nothing is."""
    parts = read_strategy(strategy, mesh)
    stages = part_size(parts["pipeline"], mesh) if "pipeline" in parts else 1
    if stages * repeats <= card.layers:
        return None
    return (
        f"pipeline={stages} with repeats={repeats} needs {stages * repeats} chunks of at least one layer; "
        f"the model has {card.layers} layers"
    )


def _likely_work_s(
    machine: Machine, card: ModelCard, flops: float, length: int, peak: float, recompute: float
) -> float:
    """Seconds of a device's work as training runs reach it.

    Matmuls and attention run at the profile's shares of the peak. Everything else moves `_POINTWISE_ELEMENTS` per
    token, layer and unit of width through memory. Fitted to published runs (experiments/training_runs). A profile
    without shares gives the work at its peak.
    """
    matmuls, attention = machine.profile.matmul_efficiency, machine.profile.attention_efficiency
    again = 1 + recompute / 3
    if matmuls is None:
        return flops * again / peak
    per_token = card.train_flops_per_token(length)
    weights = 6.0 * card.matmul_params / per_token  # the rest is attention, which 8-bit training leaves at 16 bits
    slower = peak / min(peak, machine.flops_per_s("bfloat16"))
    reached = weights / matmuls.value + (1 - weights) * slower / (attention or matmuls).value
    moved = flops / per_token * card.layers * card.d_model * _POINTWISE_ELEMENTS * _ACTIVATION_BYTES
    return again * (flops * reached / peak + moved / machine.profile.memory.bandwidth.value)


@dataclass(frozen=True, slots=True)
class _Move:
    """A collective of a strategy before it is priced: the parts it runs over, V, and how often it runs in a step."""

    part: str
    what: str
    kind: str
    over: tuple[str, ...]
    bytes: float
    times: float


def _routed_params(card: ModelCard) -> int:
    """Parameters of the experts that a router chooses from, all layers."""
    if not card.experts:
        return 0
    assert card.d_ff_expert is not None
    return (card.layers - card.dense_layers) * card.mlp_matrices * card.d_model * card.d_ff_expert * card.experts


def _moves(
    card: ModelCard, n: Mapping[str, int], batch_tokens: float, microbatches: int, dtype_bytes: float
) -> Iterator[_Move]:
    """The collectives of a training step; `n` gives the size of every part (1 where it is not used)."""
    layers = card.layers / n["pipeline"]
    fsdp = n["fsdp"] * n["fsdp_transpose"]
    routed = _routed_params(card)
    block = card.layers * card.attention_params_per_layer + card.mlp_params() + card.router_params
    # Bytes of one layer as an fsdp group sees it: cut by tensor parallelism, experts also by expert parallelism.
    common = (block - routed) / card.layers / n["tensor"] * dtype_bytes
    weights = common + routed / card.layers / n["tensor"] / n["expert"] * dtype_bytes
    tokens = batch_tokens / (n["data"] * n["zero1"] * fsdp * n["context"] * n["sequence"] * n["expert"])

    # Weights are gathered anew for every microbatch; gradients are scattered as often.
    # Weights cut over two parts are gathered over both at once, as over one axis of their devices.
    cut = ("fsdp", "fsdp_transpose")
    part = next((part for part in cut if n[part] > 1), "fsdp")
    yield _Move(part, "weights, forward and backward", "all_gather", cut, weights, 2 * layers * microbatches)
    yield _Move(part, "weight gradients", "reduce_scatter", cut, weights, layers * microbatches)
    yield _Move("zero1", "weight gradients", "reduce_scatter", ("zero1",), weights / fsdp, layers)
    yield _Move("zero1", "updated weights", "all_gather", ("zero1",), weights / fsdp, layers)
    replicas = ("data", "context", "sequence")
    first = next((part for part in replicas if n[part] > 1), "data")
    yield _Move(first, "weight gradients", "all_reduce", replicas, weights / fsdp, layers)
    yield _Move("expert", "gradients of what is no expert", "all_reduce", ("expert",), common / fsdp, layers)
    to_experts = tokens * n["expert"] * card.d_model * card.experts_per_token * dtype_bytes
    yield _Move("expert", "tokens to experts and back", "all_to_all", ("expert",), to_experts, 4 * layers)
    activations = tokens * card.d_model * dtype_bytes / microbatches
    often = 4 * layers * microbatches
    yield _Move("tensor", "activations into blocks", "all_gather", ("tensor",), activations, often)
    yield _Move("tensor", "activations out of blocks", "reduce_scatter", ("tensor",), activations, often)
    kv_heads = max(1.0, card.kv_heads / n["tensor"])
    keys_values = 2 * tokens * n["context"] * kv_heads * card.head_dim * dtype_bytes
    yield _Move("context", "keys and values, forward and backward", "all_gather", ("context",), keys_values, 2 * layers)
    yield _Move("context", "gradients of keys and values", "reduce_scatter", ("context",), keys_values, layers)
    heads = 2 * card.heads / n["tensor"] + 2 * kv_heads  # queries and output, keys and values
    round_attention = tokens * n["sequence"] * heads * card.head_dim * dtype_bytes
    yield _Move(
        "sequence", "heads for tokens round attention", "all_to_all", ("sequence",), round_attention, 2 * layers
    )
    boundary = activations / n["tensor"]  # each device of a tensor group sends its part of the width
    yield _Move(
        "pipeline", "activations to the next stage, gradients back", "shift", ("pipeline",), boundary, 2 * microbatches
    )


def _priced(machine: Machine, move: _Move, parts: Mapping[str, tuple[str, ...]], flops: float, peak: float) -> Term:
    axes = tuple(a for p in move.over if p in parts for a in parts[p] if machine.axis_size(a) > 1)
    group = machine.whole(*axes)
    time = machine.collective(move.kind, move.bytes, group)
    passes = 2 if move.kind == "all_reduce" else 1
    ratio = flops / (passes * move.bytes * move.times)
    machine_ratio = peak * machine.alpha_beta(move.kind, group)[1] / passes
    return Term(
        part=move.part,
        what=move.what,
        kind=move.kind,
        axes=axes,
        bytes=move.bytes,
        times=move.times,
        seconds=move.times * time.least_s,
        upper_seconds=move.times * time.seconds,
        bound=time.bound,
        flops_per_byte=ratio,
        machine_flops_per_byte=machine_ratio,
        verdict="compute" if ratio > machine_ratio else "communication",
    )


def _hidden(machine: Machine, term: Term) -> float:
    """Share of a term that the estimate hides: activations of tensor parallelism are on the critical path."""
    if term.part == "tensor":
        return 0.0
    return getattr(machine.profile.overlap, "permute" if term.kind == "shift" else term.kind)


@dataclass(frozen=True, slots=True)
class CriticalBatch:
    """The batch or axis size at which a part of a strategy turns from communication bound to compute bound."""

    strategy: str
    what: str  # the quantity, in words
    at_least: float | None  # compute bound above this
    at_most: float | None  # compute bound below this
    formula: str
    exact: float  # the same with the (n-1)/n of the mesh at hand


def critical_values(
    machine: Machine,
    card: ModelCard,
    strategy: str,
    dtype: str = "bfloat16",
    batch_tokens: float | None = None,
    *,
    dtype_bytes: float = 2.0,
) -> list[CriticalBatch]:
    """Per part of a strategy, the batch or axis size at which it turns compute bound on this machine.

    C is the peak rate, W the bytes/s of the part's links (all torus dimensions of the axis, 2w for each ring) and
    alpha = C / W, times the bytes of a number over 2. Data and fsdp need more than alpha tokens per device (times
    experts over experts per token), tensor fewer than F / alpha devices, fsdp+tensor together more than
    alpha_x alpha_y / F tokens per device if their collectives overlap, 4 times that if they add (the same chapter).
    """
    mesh = dict(machine.axes)
    parts = {part: axes for part, axes in read_strategy(strategy, mesh).items() if part_size(axes, mesh) > 1}
    size = {part: part_size(axes, mesh) for part, axes in parts.items()}
    peak = machine.flops_per_s(dtype)
    sparsity = card.experts / card.experts_per_token if card.experts else 1.0
    width = (card.d_ff_expert if card.experts else card.d_ff) or 1
    wide = dtype_bytes / 2  # C / W counts bytes; of 2-byte numbers it is the number of tokens
    exact = {p: wide * peak * machine.alpha_beta("all_gather", machine.whole(*axes))[1] for p, axes in parts.items()}
    alpha = {p: exact[p] * size[p] / (size[p] - 1) for p in parts}
    batch_axes: list[str] = []
    values: list[CriticalBatch] = []

    def words(part: str) -> str:
        return " x ".join(parts[part])

    def add(name: str, what: str, formula: str, value: float, with_mesh: float, at_most: bool = False) -> None:
        values.append(
            CriticalBatch(name, what, None if at_most else value, value if at_most else None, formula, with_mesh)
        )

    for part in parts:
        if part in ON_ROWS:
            batch_axes += parts[part]
            what = f"batch tokens / ({' * '.join(batch_axes)})"
            add(part, what, "C / W * experts / experts per token", alpha[part] * sparsity, exact[part] * sparsity)
        elif part == "tensor":
            add(part, f"size of {words(part)}", "F * W / C", width / alpha[part], width / exact[part], at_most=True)
        elif part == "context":
            share = card.kv_heads / card.heads
            what = f"tokens of a sequence / {words(part)}"
            add(part, what, "C / W * kv_heads / heads", alpha[part] * share, exact[part] * share)
        elif part == "expert":
            # Time of an all-to-all per byte of a whole gather, against one matmul of the experts.
            beta = machine.alpha_beta("all_to_all", machine.whole(*parts[part]))[1] * size[part]
            beta *= wide
            add(part, "width of an expert", "C * n * t(all-to-all) / V", peak * beta, peak * beta)
    weights = next((p for p in ("fsdp", "fsdp_transpose", "zero1", "data") if p in parts), None)
    if weights is not None and "tensor" in parts:
        name, product = f"{weights}+tensor", alpha[weights] * alpha["tensor"] / width
        add(name, "tokens per device, collectives overlap", "alpha_x alpha_y / F", product, product)
        add(name, "tokens per device, collectives add", "4 alpha_x alpha_y / F", 4 * product, 4 * product)
        if batch_tokens is not None:
            devices = size[weights] * size["tensor"]
            best = (batch_tokens / width * alpha["tensor"] / alpha[weights] * devices) ** 0.5
            what = f"size of {words(weights)} that communicates least, of {devices} on both"
            values.append(CriticalBatch(name, what, best, best, "sqrt(B / F * alpha_y / alpha_x * N)", best))
    return values


def strategy_rows(cost: StrategyCost) -> list[dict[str, Any]]:
    """The collectives of a strategy as plain rows."""
    return [{name: getattr(term, name) for name in term.__slots__} for term in cost.terms]


__all__ = [
    "CriticalBatch", "StrategyCost", "Term", "critical_values", "price_strategy", "strategy_rows",
]  # fmt: skip
