"""What a training step holds on one device, in closed form, and whether it fits.

Per token and layer, what the backward pass needs at least, in elements: the layer's input and that of the MLP block
2 D, queries N H, keys and values 2 K H, and the MLP's hidden width F (2 F with a gate). Norms, activation functions and
the core of attention are worked out again from these, 1 to 4% of the work. With recomputation of the matmuls the
layer's input D alone is kept (to repeat all of them but the last, whose result nothing reads, is the most there is to
repeat), and while its turn is, a whole layer stands: 4 D + 2 N H + 2 K H + 2 F (3 F with a gate), as Korthikanti et al.
count without dropout (arXiv 2205.05198, section 4.1). Tensor parallelism divides all of it (norms cut on the sequence),
a pipeline's first stage holds as many microbatches as there are stages.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from autoshard.costmodels.machine import Machine
from autoshard.costmodels.models import ModelCard
from autoshard.costmodels.step_collectives import routed_params

ADAM_BYTES_PER_PARAMETER = 8.0
"""Two float32 moments."""
_LOGIT_BYTES = 4.0
_GRADIENT_BYTES = 2.0  # at least, also beside 8-bit weights


@dataclass(frozen=True, slots=True)
class StepMemory:
    """Bytes that one device holds; the largest device where they differ.

    gathered: weights of the layer at hand, where fsdp cuts them. activations: kept for the backward pass, by
    recomputation. layer: a whole layer, where it is recomputed; it and the logits do not stand at once. usable: what
    the runtime leaves to programs (all of the memory where the profile does not say). total is at least what a run
    needs: master weights, fragmentation and buffers come on top.
    """

    weights: float
    gradients: float
    optimizer: float
    gathered: float
    activations: float
    layer: float
    logits: float
    total: float
    usable: float
    fits: bool


def _elements(card: ModelCard) -> tuple[float, float]:
    """Elements per token and layer: what the backward pass reads, and what a whole layer has."""
    queries, keys_values = card.heads * card.head_dim, 2 * card.kv_heads * card.head_dim
    width = card.mlp_params(active=True) / card.layers / (card.mlp_matrices * card.d_model)
    gate = 1 if card.gated_mlp else 0
    needed = 2 * card.d_model + queries + keys_values + (1 + gate) * width
    return needed, needed + 2 * card.d_model + queries + width


def most_recomputed(card: ModelCard, seq: int) -> float:
    """The share of the forward work that repeating everything but the last matmul of each layer repeats."""
    layer = card.train_flops_per_token(seq) / 3 / card.layers
    last = 2 * card.mlp_params(active=True) / card.layers / card.mlp_matrices
    return 1 - last / layer


def step_memory(
    machine: Machine,
    card: ModelCard,
    n: Mapping[str, int],
    tokens: float,
    seq: int,
    *,
    microbatches: int,
    repeats: int,
    recompute: float,
    dtype_bytes: float,
) -> StepMemory:
    """Bytes of a step; `tokens` are those of one microbatch on one device, before tensor parallelism divides them."""
    routed = routed_params(card)
    cut = n["fsdp"] * n["fsdp_transpose"]
    inside = n["tensor"] * n["pipeline"]
    params = (card.params() - routed + routed / n["expert"]) / inside
    block = card.params() - routed - card.embedding_params + routed / n["expert"]
    layer = block / card.layers / n["tensor"]
    stages = n["pipeline"]
    more = (stages - 1) / (stages * repeats) if repeats > 1 else 0.0  # interleaved chunks are in flight together
    at_once = min(stages * (1 + more), float(microbatches)) if stages > 1 else 1.0
    per_element = tokens / n["tensor"] * dtype_bytes
    read, whole = _elements(card)
    stays = max(0.0, 1 - recompute / most_recomputed(card, seq))
    one = per_element * card.layers / stages * (stays * (read - card.d_model) + card.d_model)  # of one microbatch
    whole_layer = per_element * whole if recompute else 0.0
    activations = at_once * one
    logits = tokens * card.vocab / n["tensor"] * _LOGIT_BYTES
    weights = params / cut * dtype_bytes
    gradients = params / cut * max(_GRADIENT_BYTES, dtype_bytes)
    optimizer = params / cut * ADAM_BYTES_PER_PARAMETER / n["zero1"]
    gathered = layer * dtype_bytes if cut > 1 else 0.0
    # The logits stand before the backward pass begins; the last stage, which has them, holds one microbatch.
    most = max(activations + whole_layer + gathered, one + logits)
    total = weights + gradients + optimizer + most
    return StepMemory(
        weights=weights,
        gradients=gradients,
        optimizer=optimizer,
        gathered=gathered,
        activations=activations,
        layer=whole_layer,
        logits=logits,
        total=total,
        usable=machine.usable_bytes,
        fits=total <= machine.usable_bytes,
    )
