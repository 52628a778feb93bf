"""Questions without a program: a named strategy on a named model."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypedDict, Unpack

from autoshard.costmodels.critical_batches import CriticalBatch, critical_values
from autoshard.costmodels.errors import ProfileError
from autoshard.costmodels.models import load_model
from autoshard.costmodels.profile import Profile
from autoshard.costmodels.questions import Answer, dtype_bytes, placed
from autoshard.costmodels.strategies import StrategyCost, price_strategy, refuse_batch


@dataclass(frozen=True, slots=True)
class StrategyAnswer(Answer):
    """A training step of a named model under a named strategy."""

    model: str
    strategy: str
    hardware: str
    mesh: dict[str, int]
    batch_tokens: float
    params: int
    seconds: float  # lower bound of the step
    estimate_seconds: float
    upper_seconds: float
    mfu: float  # at the estimate
    tokens_per_s_per_device: float  # at the estimate
    bound: str  # "compute" or "communication"
    cost: StrategyCost
    critical: tuple[CriticalBatch, ...]
    layout: dict[str, Any]


class HowStepsRun(TypedDict, total=False):
    """How a training step is run; each key may be left out.

    microbatches, repeats, pieces: see `strategies.price_strategy`. efficiency: share of the peak that work reaches; by
    default the profile's, in the estimate. recompute: share of the forward work that is repeated.
    """

    microbatches: int | None
    repeats: int
    pieces: int
    efficiency: float | None
    recompute: float


def ask_strategy(
    model: str,
    strategy: str,
    mesh: Mapping[str, int],
    batch_tokens: float,
    hardware: str | Profile,
    *,
    seq: int | None = None,
    dtype: str = "bfloat16",
    links: Mapping[str, str] | None = None,
    slice_shape: Sequence[int] | None = None,
    **how: Unpack[HowStepsRun],
) -> StrategyAnswer:
    """Collectives, bounds and verdict of a training step; `batch_tokens` is the whole batch in tokens.

    >>> answer = ask_strategy("llama3_70b", "fsdp+tensor", {"fsdp": 64, "tensor": 8}, 4e6, "tpu_v5p")
    >>> answer.bound, [term.kind for term in answer.cost.terms]
    ('compute', ['all_gather', 'reduce_scatter', 'all_gather', 'reduce_scatter'])
    """
    machine = placed(hardware, mesh, links, slice_shape, False)
    card = load_model(model)
    cost = price_strategy(
        machine, card, strategy, batch_tokens,
        seq=seq, dtype=dtype, dtype_bytes=dtype_bytes(dtype), **how,
    )  # fmt: skip
    return StrategyAnswer(
        model=model,
        strategy=strategy,
        hardware=machine.profile.name,
        mesh=dict(mesh),
        batch_tokens=batch_tokens,
        params=card.params(),
        seconds=cost.lower_s,
        estimate_seconds=cost.estimate_s,
        upper_seconds=cost.upper_s,
        mfu=cost.mfu,
        tokens_per_s_per_device=cost.tokens_per_device / cost.estimate_s,
        bound=cost.bound,
        cost=cost,
        critical=tuple(critical_values(machine, card, strategy, dtype, dtype_bytes=dtype_bytes(dtype))),
        layout=machine.describe(),
    )


def ask_critical_batch(
    model: str,
    strategy: str,
    mesh: Mapping[str, int],
    hardware: str | Profile,
    *,
    batch_tokens: float | None = None,
    dtype: str = "bfloat16",
    links: Mapping[str, str] | None = None,
    slice_shape: Sequence[int] | None = None,
) -> list[dict[str, Any]]:
    """Batch and axis sizes at which each part of a strategy turns compute bound, as plain rows.

    With `batch_tokens`, fsdp+tensor has one more: the devices of fsdp that communicate least; `ProfileError` where the
    strategy has no such split.
    """
    machine = placed(hardware, mesh, links, slice_shape, False)
    card = load_model(model)
    if batch_tokens is not None:
        refuse_batch(batch_tokens)
    width = dtype_bytes(dtype)
    values = critical_values(machine, card, strategy, dtype, batch_tokens, dtype_bytes=width)
    if batch_tokens is not None and not any(value.at_least == value.at_most is not None for value in values):
        raise ProfileError(
            f"batch_tokens is for the best split of devices between fsdp (or data) and tensor, and strategy {strategy} "
            f"on {dict(mesh)} has no two such parts: leave it out"
        )
    return [asdict(value) for value in values]
