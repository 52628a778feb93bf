"""Batch and axis sizes at which the parts of a strategy turn from communication bound to compute bound."""

from dataclasses import dataclass

from autoshard.costmodels.machine import Machine
from autoshard.costmodels.models import ModelCard
from autoshard.costmodels.strategy_names import ON_ROWS, part_size, read_strategy


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
    """Per part of a strategy, the batch or axis size at which it turns compute bound, forward and backward each.

    C is the peak rate, W the bytes/s of the part's links (all torus dimensions of the axis, 2w for each ring) and
    alpha = C / W, times the bytes of a number over 2. Data and fsdp need more than alpha tokens per device (times
    experts over experts per token), tensor fewer than F / alpha devices, fsdp+tensor together more than
    alpha_x alpha_y / F tokens per device if their collectives overlap, 4 times that if they add (the same chapter).
    The backward pass of fsdp, a gather and a reduce-scatter, needs half as many again where a compiler runs the latter
    as an all-reduce.
    """
    mesh = dict(machine.axes)
    parts = {part: axes for part, axes in read_strategy(strategy, mesh).items() if part_size(axes, mesh) > 1}
    size = {part: part_size(axes, mesh) for part, axes in parts.items()}
    peak = machine.flops_per_s(dtype)
    sparsity = card.experts / card.experts_per_token if card.experts else 1.0
    width = (card.d_ff_expert if card.experts else card.d_ff) or 1
    wide = dtype_bytes / 2  # C / W counts bytes; of 2-byte numbers it is the number of tokens
    gathers = {p: machine.collective("all_gather", 1.0, machine.whole(*axes)) for p, axes in parts.items()}
    exact = {p: wide * peak * time.bandwidth_s for p, time in gathers.items()}
    alpha = {p: wide * peak * time.large_group_s for p, time in gathers.items()}
    values: list[CriticalBatch] = []

    def words(part: str) -> str:
        return " x ".join(parts[part])

    def add(name: str, what: str, formula: str, value: float, with_mesh: float, at_most: bool = False) -> None:
        values.append(
            CriticalBatch(name, what, None if at_most else value, value if at_most else None, formula, with_mesh)
        )

    for part in parts:
        if part in ON_ROWS:
            # Copies of what zero1 and fsdp cut add parts of it, and have so many more tokens to do it in.
            outside = ON_ROWS[: ON_ROWS.index(part) + 1]
            batch_axes = [axis for other in outside for axis in parts.get(other, ())]
            what = f"batch tokens / ({' * '.join(batch_axes)})"
            formula = "C / W * experts / experts per token"
            add(part, what, formula, alpha[part] * sparsity, exact[part] * sparsity)
            longer = _backward_of_fsdp(machine, parts[part]) if part.startswith("fsdp") else 1.0
            if longer > 1:
                what += ", the reduce-scatter run as an all-reduce"
                factor = longer * sparsity
                add(part, what, f"{longer:g} * {formula}", alpha[part] * factor, exact[part] * factor)
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


def _backward_of_fsdp(machine: Machine, axes: tuple[str, ...]) -> float:
    """Seconds of a gather and a reduce-scatter over those of two gathers: 1.5 where the latter is an all-reduce."""
    gather, scatter = (machine.alpha_beta(kind, machine.whole(*axes))[1] for kind in ("all_gather", "reduce_scatter"))
    return (gather + scatter) / (2 * gather)
