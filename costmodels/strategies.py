"""A training step of a transformer under a named strategy: its collectives, their time and verdicts, in closed form.

A strategy is a `+` of parts, each on a mesh axis: ``fsdp+tensor`` on ``{"fsdp": 64, "tensor": 8}``. Per layer, with B
tokens in the whole batch and 2-byte numbers (How To Scale Your Model, chapter 5; MaxText's sharding guide):

| part | weights | collectives of a layer, forward + backward |
| --- | --- | --- |
| data | whole | all-reduce of the gradients, of their parts where zero1 or fsdp scattered them |
| zero1 | whole, optimizer cut | reduce-scatter of the gradients, all-gather of the updated weights |
| fsdp, fsdp_transpose | cut | all-gather of the weights, twice; reduce-scatter of the gradients |
| tensor | cut | per block (attention, MLP) all-gather and reduce-scatter of the activations, forward and backward |
| context | whole | all-gather of keys and values, reduce-scatter of their gradients; all-reduce of weight gradients |
| sequence | whole | all-to-alls of queries, keys, values and output round attention; the same all-reduce |
| expert | experts cut | two all-to-alls of the routed tokens, forward and backward; all-reduce of the other gradients |
| pipeline | layers cut | activations to the next stage and back, per boundary |

With ``expert+tensor`` each device of a tensor group sends its part of the tokens, and the group gathers at the experts.
Collectives on different link levels or torus dimensions can run at once, those on one axis one after another: the
lower bound takes the busiest link, the upper bound adds everything to the work, each as it is measured. What the
estimate hides, it hides behind work: it is no shorter than the collectives of one axis, one after another. What the
collectives are is in `step_collectives`, what links carry at least in `least_traffic`, the work in `step_work`, what
is held in `step_memory`. Nothing that is gathered for the forward pass is kept for the backward pass: a plan, or a
run that does not reshard after the forward pass, gathers once where memory allows, and can beat a bound by
communication.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autoshard.costmodels.collectives import CollectiveKind
from autoshard.costmodels.errors import ProfileError
from autoshard.costmodels.intensities import pipeline_bubble, sequence_head_limit
from autoshard.costmodels.least_traffic import least_link_seconds
from autoshard.costmodels.likely import growing_latency_s
from autoshard.costmodels.machine import AxisPart, Machine
from autoshard.costmodels.models import ModelCard
from autoshard.costmodels.step_collectives import BOTH_PASSES, Move, moves, weight_blocks
from autoshard.costmodels.step_memory import StepMemory, step_memory
from autoshard.costmodels.step_work import StepWork, step_work
from autoshard.costmodels.strategy_names import ON_ROWS, PARTS, part_size, read_strategy

MOST_TOKENS = 1e15
"""Tokens of the largest batch that is priced, a million times the largest that anybody trained with."""
_WHOLE = 1 - 1e-9  # of a sequence: batches are given in tokens, and rounded


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
    likely_seconds: float  # all of them, as measured (see `likely`): at least the upper figure
    exposed_seconds: float  # all of them, what of that the estimate does not hide
    bound: str
    flops_per_byte: float  # work of one device over V, all-reduce counted twice
    machine_flops_per_byte: float
    verdict: str  # "compute" or "communication": which of these collectives by themselves and all work is longer


@dataclass(frozen=True, slots=True)
class StrategyCost:
    """A training step under a strategy."""

    tokens_per_device: float
    flops_per_device: float
    compute_s: float  # work at the peak rate (or at the efficiency that was given)
    least_work_s: float  # work that no kernel can leave out, at that rate: the bound of a step that only works
    work: StepWork  # at the peak, recomputation included
    efficiency: float  # share of the peak that work reaches in the estimate and the upper bound
    bubble: float  # idle share of a pipeline, in the estimate and the upper bound
    terms: tuple[Term, ...]
    communication_s: dict[str, float]  # per link (level, or torus dimension), bandwidth alone
    lower_s: float
    in_turn_s: float  # likely seconds of the axis whose collectives, one after another, take longest
    estimate_s: float  # with the profile's overlap shares, and no less than that
    upper_s: float  # work and likely seconds of all collectives in turn
    mfu: float  # model FLOP utilisation at the estimate
    mfu_bounds: tuple[float, float]  # at upper and lower step time; at most 1, though causal kernels do less work
    bound: str  # of the step as a whole: which of all work and the busiest link, of all collectives, is longer
    sequences: float  # of the batch: data parallelism cuts it into no more rows than these
    rows: int  # into which the strategy cuts it
    memory: StepMemory
    notes: tuple[str, ...]


def refuse_batch(batch_tokens: float) -> None:
    """Raise `ProfileError` where a batch has not at least a token, or more than `MOST_TOKENS`."""
    if not 1 <= batch_tokens <= MOST_TOKENS:
        raise ProfileError(
            f"a batch of {batch_tokens:g} tokens; give the tokens of the whole batch, from 1 to {MOST_TOKENS:g}"
        )


def _refuse_numbers(efficiency: float | None, recompute: float, **counts: int | None) -> None:
    if (efficiency is not None and not 0 < efficiency <= 1) or not 0 <= recompute <= 1:
        raise ProfileError(f"efficiency {efficiency} and recompute {recompute} are shares between 0 and 1")
    for name, count in counts.items():
        if count is not None and not 1 <= count <= MOST_TOKENS:
            said = str(count) if count < 1 else f"about 2**{count.bit_length()}"
            raise ProfileError(f"{name} is {said}; give a whole number from 1 to {MOST_TOKENS:g}")


def _rows(n: Mapping[str, int]) -> int:
    """The parts of the batch that whole sequences go to."""
    rows = n["expert"]
    for part in ON_ROWS:
        rows *= n[part]
    return rows


def _cap_notes(rows: int, sequences: float, microbatches: int) -> list[str]:
    """What a user should know where a batch has fewer sequences than the strategy cuts it into."""
    if rows * _WHOLE > sequences:
        whole = max(1.0, sequences)  # a part of a sequence has a row of its own, too
        return [
            f"{sequences:g} sequences go to {rows} rows of devices: {1 - whole / rows:.0%} of them idle in the "
            f"estimate; cut the sequences (context, sequence) or the layers (tensor), or take a larger batch"
        ]
    if rows * microbatches * _WHOLE > sequences:
        return [f"{microbatches} microbatches on {rows} rows are less than one of the {sequences:g} sequences each"]
    return []


_OPTIONS_OF = {"repeats": ("pipeline",), "pieces": ("fsdp", "fsdp_transpose")}
"""Options that only these parts know."""


def _of_parts(
    strategy: str, parts: Mapping[str, tuple[str, ...]], n: Mapping[str, int], option: str, count: int
) -> list[str]:
    """What to know where an option changes nothing; `ProfileError` where the strategy has no part that knows it."""
    known = _OPTIONS_OF[option]
    mine = [part for part in known if part in parts]
    if count > 1 and not mine:
        whose = "a pipeline" if option == "repeats" else known[0]
        raise ProfileError(f"{option}={count} is of {whose}, and strategy {strategy} has none: add it, or leave it out")
    if count > 1 and all(n[part] == 1 for part in mine):
        return [f"{option}={count} changes nothing: {' and '.join(mine)} has one device"]
    return []


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
    pieces: int = 1,
    efficiency: float | None = None,
    recompute: float = 0.0,
) -> StrategyCost:
    """Price a training step on a machine whose mesh has the strategy's axes.

    The lower bound takes work at the peak rate, of attention what no kernel can leave out (causal, windowed), of
    collectives what no implementation can, and a pipeline without idle time. The estimate and the upper bound take work
    at `efficiency` of the peak, and the bubble of `microbatches` through a pipeline with `repeats` stages per device
    (interleaving). Without `efficiency` they use the profile's shares for matmuls and attention, and the memory traffic
    of everything else (see `step_work`); with it, it counts in the lower bound too. `recompute` is the share of the
    forward work that the backward pass repeats (1 for full rematerialisation). Without a pipeline, `microbatches`
    accumulate gradients: fsdp gathers the weights for each of them, those of a layer in so many `pieces` (one where
    they are flattened, as PyTorch's FSDP does, one for each matrix in DeepSpeed's ZeRO-3). By default a pipeline has
    four microbatches for each stage, as far as the batch has sequences for them.
    """
    refuse_batch(batch_tokens)
    _refuse_numbers(efficiency, recompute, seq=seq, microbatches=microbatches, repeats=repeats, pieces=pieces)
    mesh = dict(machine.axes)
    if too_many := _stages_beyond(card, strategy, mesh, repeats):
        raise ProfileError(too_many)
    parts = read_strategy(strategy, mesh)
    n = {part: part_size(parts[part], mesh) if part in parts else 1 for part in PARTS}
    idle = [*_of_parts(strategy, parts, n, "repeats", repeats), *_of_parts(strategy, parts, n, "pieces", pieces)]
    length = seq if seq is not None else card.train_seq
    if length is None:
        raise ProfileError("this model has no training context of its own; give the sequence length")
    rows, sequences = _rows(n), batch_tokens / length
    micro = microbatches or (min(4 * n["pipeline"], max(1, int(sequences / rows))) if n["pipeline"] > 1 else 1)
    notes = idle + _fits_the_model(card, strategy, n) + _cap_notes(rows, sequences, micro)
    # Tokens of the busiest device over those of an even cut: a sequence, or all of a batch that is less than one.
    crowded = max(1.0, rows * _WHOLE / max(1.0, sequences))
    bubble = pipeline_bubble(n["pipeline"], micro, repeats) if n["pipeline"] > 1 else 0.0
    tokens = batch_tokens / machine.num_devices
    flops, peak = tokens * card.train_flops_per_token(length), machine.flops_per_s(dtype)
    at_peak = peak * (efficiency or 1.0)
    compute = flops * (1 + recompute / 3) / at_peak
    work = step_work(machine, card, tokens, length, dtype, recompute)
    reached = compute if efficiency is not None else work.likely_s(machine.profile)
    likely = reached * crowded / (1 - bubble)
    found = [
        move
        for move in moves(card, n, batch_tokens, length, micro, repeats, pieces, dtype_bytes)
        if move.bytes and any(n[part] > 1 for part in move.over)
    ]
    terms = [_priced(machine, move, parts, flops, peak) for move in found]
    blocks = weight_blocks(card, n, dtype_bytes)
    per_link = least_link_seconds(machine, parts, found, blocks, card.layers / n["pipeline"], micro)
    floor = tokens * card.least_train_flops_per_token(length) * (1 + recompute / 3) / at_peak
    lower = max([floor, *per_link.values()])
    upper = likely + sum(t.likely_seconds for t in terms)
    in_turn = max((sum(t.likely_seconds for t in terms if axis in t.axes) for axis in mesh), default=0.0)
    estimate = max(lower, in_turn, likely + sum(t.exposed_seconds for t in terms))
    if lower > floor:
        notes += _kept_notes(terms, micro)
    notes += _staging_notes(machine, found)
    ideal = flops / peak
    on_device = tokens * n["tensor"] * n["pipeline"] * crowded / micro
    return StrategyCost(
        tokens_per_device=tokens,
        flops_per_device=flops,
        compute_s=compute,
        least_work_s=floor,
        work=work,
        efficiency=compute * (efficiency or 1.0) / reached,
        bubble=bubble,
        terms=tuple(terms),
        communication_s=per_link,
        lower_s=lower,
        in_turn_s=in_turn,
        estimate_s=estimate,
        upper_s=upper,
        mfu=ideal / estimate,
        mfu_bounds=(ideal / upper, min(1.0, ideal / lower)),
        bound="compute" if lower == floor else "communication",
        sequences=sequences,
        rows=rows,
        memory=step_memory(
            machine, card, n, on_device, length,
            microbatches=micro, repeats=repeats, recompute=recompute, dtype_bytes=dtype_bytes,
        ),
        notes=tuple(notes),
    )  # fmt: skip


def _kept_notes(terms: Sequence[Term], microbatches: int) -> list[str]:
    """What a bound by communication leaves out: of what is gathered anew for the backward pass, all could be kept."""
    notes = []
    for term in terms:
        if term.kind == "all_gather" and term.what.endswith(BOTH_PASSES):
            kept = term.bytes * term.times / 2 / (microbatches if term.part != "context" else 1)
            notes.append(
                f"{term.part} gathers {term.what.removesuffix(BOTH_PASSES)} for the forward pass and again for the "
                f"backward pass, in the bound too; a step that keeps them, in up to {kept / 2**30:.3g} GiB more, can "
                "be quicker than that"
            )
    return notes


def _staging_notes(machine: Machine, moves: Sequence[Move]) -> list[str]:
    """Which software an estimate has in it, where the machine names one."""
    rate = machine.profile.staging_rate
    if rate is None or not any(_staged_s(machine, move) for move in moves):
        return []
    by = machine.profile.sources[rate.source].title
    return [f"gathered and scattered weights also pass software at {rate.value:.3g} bytes/s, nothing hidden ({by})"]


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


def _priced(machine: Machine, move: Move, parts: Mapping[str, tuple[str, ...]], flops: float, peak: float) -> Term:
    axes = tuple(a for p in move.over if p in parts for a in parts[p] if machine.axis_size(a) > 1)
    group = machine.whole(*axes)
    time, staged = machine.collective(move.kind, move.bytes, group), _staged_s(machine, move)
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
        upper_seconds=move.times * (time.seconds + staged),
        likely_seconds=move.times * (machine.likely_s(move.kind, move.bytes, group) + staged),
        exposed_seconds=move.times * _exposed_s(machine, move, group),
        bound=time.bound,
        flops_per_byte=ratio,
        machine_flops_per_byte=machine_ratio,
        verdict="compute" if ratio > machine_ratio else "communication",
    )


def _exposed_s(machine: Machine, move: Move, group: tuple[AxisPart, ...]) -> float:
    """Seconds of one collective that a step waits for: its likely time, less the share of the profile that is hidden.

    Activations of tensor parallelism are on the critical path, and so are the steps of a ring that grow with the group:
    runs that others published slow down by about these as they grow. Nothing is hidden of what software stages.
    """
    kind = CollectiveKind(move.kind)
    likely = machine.likely_s(kind, move.bytes, group)
    if staged := _staged_s(machine, move):
        return likely + staged
    if move.part == "tensor":
        return likely
    growing = min(likely, growing_latency_s(kind, machine.costs(kind, group), machine.profile))
    hidden = getattr(machine.profile.overlap, "permute" if kind is CollectiveKind.SHIFT else kind.value)
    return growing + (likely - growing) * (1 - hidden)


def _staged_s(machine: Machine, move: Move) -> float:
    """Seconds that software takes for one collective of sharded weights beside the links, where the profile says so."""
    rate = machine.profile.staging_rate
    return 0.0 if rate is None or move.part not in ("fsdp", "fsdp_transpose") else move.bytes / rate.value


def strategy_rows(cost: StrategyCost) -> list[dict[str, Any]]:
    """The collectives of a strategy as plain rows."""
    return [{name: getattr(term, name) for name in term.__slots__} for term in cost.terms]


__all__ = ["MOST_TOKENS", "StrategyCost", "Term", "price_strategy", "refuse_batch", "strategy_rows"]
