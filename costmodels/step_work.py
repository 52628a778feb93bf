"""The work of a training step of one device: at the peak, and as training runs reach it."""

from dataclasses import dataclass

from autoshard.costmodels.machine import Machine
from autoshard.costmodels.models import ModelCard
from autoshard.costmodels.profile import Profile

POINTWISE_ELEMENTS = 150.0
"""Elements that norms, residuals, activation functions and the like read and write, forward and backward.

Per token, layer and unit of width. Set, not fitted: 100 to 250 do nearly as well (experiments/training_runs).
"""
_ACTIVATION_BYTES = 2.0


@dataclass(frozen=True, slots=True)
class StepWork:
    """Seconds of a device's work at its peak rates, recomputation included.

    attention_s: all of S x S counted; 8-bit training leaves it at 16 bits. traffic_s: what is neither a matmul nor
    attention, through memory.
    """

    matmul_s: float
    attention_s: float
    traffic_s: float

    def likely_s(self, profile: Profile) -> float:
        """Seconds at the profile's shares of the peak; without shares, at the peak and without the traffic."""
        matmuls, attention = profile.matmul_efficiency, profile.attention_efficiency
        if matmuls is None:
            return self.matmul_s + self.attention_s
        return self.matmul_s / matmuls.value + self.attention_s / (attention or matmuls).value + self.traffic_s


def step_work(
    machine: Machine, card: ModelCard, tokens_per_device: float, seq: int, dtype: str, recompute: float
) -> StepWork:
    """The work on so many tokens, forward and backward; `recompute` is the share of the forward work done again."""
    tokens = tokens_per_device * (1 + recompute / 3)
    peak = machine.flops_per_s(dtype)
    weights = 6.0 * card.matmul_params
    attention = card.train_flops_per_token(seq) - weights
    moved = card.layers * card.d_model * POINTWISE_ELEMENTS * _ACTIVATION_BYTES
    return StepWork(
        matmul_s=tokens * weights / peak,
        attention_s=tokens * attention / min(peak, machine.flops_per_s("bfloat16")),
        traffic_s=tokens * moved / machine.profile.memory.bandwidth.value,
    )
