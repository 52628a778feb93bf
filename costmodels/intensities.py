"""Arithmetic intensities of the named strategies in closed form: FLOP per byte of communication, as in MaxText.

`B` tokens (or batch rows) in the whole mesh, `E` embedding, `M` MLP width, `x` and `y` mesh axes, `P` parameters;
bfloat16. A strategy is compute bound on an axis iff its intensity exceeds the machine's, ``peak FLOP/s / link
bytes/s`` (S3.4). Sources: MaxText, docs/guides/optimization/sharding.md (commit e591f30c); corrections are named
where they apply.
"""

from dataclasses import dataclass

BF16_BYTES = 2


@dataclass(frozen=True, slots=True)
class Intensity:
    """Work and communication of one device, and their ratio in FLOP per byte."""

    name: str
    flops: float
    bytes: float
    formula: str

    @property
    def ratio(self) -> float:
        """FLOP per byte; infinite where nothing is communicated."""
        return self.flops / self.bytes if self.bytes else float("inf")

    def is_compute_bound(self, flops_per_s: float, bytes_per_s: float) -> bool:
        """Whether the work takes longer than the communication at these rates (S3.4).

        >>> tensor_parallel(batch=1024, embed=8192, mlp=28672, x=4).is_compute_bound(917e12, 180e9)
        True
        >>> tensor_parallel(batch=1024, embed=8192, mlp=28672, x=8).is_compute_bound(917e12, 180e9)
        False
        """
        return self.ratio > flops_per_s / bytes_per_s


def tensor_parallel(*, batch: float, embed: float, mlp: float, x: float, y: float = 1) -> Intensity:
    """``B M_x @ M_x E``, then a reduce-scatter of ``B E``; `y` is an independent axis on the batch (S3.6, S3.7)."""
    rows = batch / y
    return Intensity("tensor parallel", 2 * rows * (mlp / x) * embed, BF16_BYTES * rows * embed, "M / x")


def tensor_parallel_transposed(*, batch: float, embed: float, mlp: float, x: float) -> Intensity:
    """The embedding dimension is cut instead, and activations of width M are sent: for experts narrower than E."""
    return Intensity("tensor parallel, transposed", 2 * batch * mlp * (embed / x), BF16_BYTES * batch * mlp, "E / x")


def data_parallel_backward(*, local_batch: float, params: float, sparsity: float = 1) -> Intensity:
    """Gradient all-reduce (two passes over 2 P bytes) against ``4 * local_batch * P`` FLOP (S3.14).

    `sparsity` is experts over experts per token of a mixture: P is all of it, the work is done by a part.
    """
    flops = 4 * local_batch * params / sparsity
    return Intensity("data parallel", flops, 2 * BF16_BYTES * params, "local_batch / sparsity")


def fsdp_matmul(*, batch: float, embed: float, mlp: float, x: float, sparsity: float = 1) -> Intensity:
    """``B_x E @ (E_x M gathered)``; cutting M instead of E (FSDP transpose) does not change it (S3.15, S3.17)."""
    flops = 2 * (batch / x) * embed * mlp / sparsity
    return Intensity("fsdp", flops, BF16_BYTES * embed * mlp, "(B / x) / sparsity")


def fsdp_gradient(*, local_batch: float, params: float, reduce_scatter: bool = True) -> Intensity:
    """Backward of a sharded weight: 4 FLOP per parameter and row, a reduce-scatter (an all-reduce is twice that)."""
    passes = 1 if reduce_scatter else 2
    formula = "2 * local_batch" if reduce_scatter else "local_batch"
    return Intensity("fsdp gradients", 4 * local_batch * params, passes * BF16_BYTES * params, formula)


def context_parallel(
    *, batch: float, seq: float, q_heads: float, kv_heads: float, head_dim: float, x: float = 1
) -> Intensity:
    """Keys and values are gathered, queries stay sharded (S3.18).

    The guide prints ``seq * q_heads / kv_heads``, with the work of the whole group (x = 1 here); one device of x does
    1/x of it, which later versions of the guide divide by.
    """
    flops = 4 * batch * seq**2 * q_heads * head_dim / x
    gathered = 2 * BF16_BYTES * batch * seq * kv_heads * head_dim
    return Intensity("context parallel", flops, gathered, "seq * q_heads / (kv_heads * x)")


def sequence_parallel(*, batch: float, seq: float, heads: float, head_dim: float) -> Intensity:
    """All-to-alls between a sequence-sharded MLP and head-sharded attention; of the order of seq (S3.21)."""
    flops = 4 * batch * seq**2 * heads * head_dim
    return Intensity("sequence parallel", flops, 2 * BF16_BYTES * batch * seq * heads * head_dim, "seq")


def expert_parallel(*, tokens: float, embed: float, mlp_expert: float, experts_per_token: float) -> Intensity:
    """One matmul of the experts against one all-to-all of their activations; the batch cancels.

    Bytes count a whole gather; on a ring an all-to-all takes a quarter of its time.
    """
    rows = tokens * experts_per_token
    return Intensity("expert parallel", 2 * rows * embed * mlp_expert, BF16_BYTES * rows * embed, "M")


def pipeline(
    *, tokens: float, embed: float, mlp: float, layers_per_stage: float, experts_per_token: float = 1
) -> Intensity:
    """A stage of gated MLP layers (6 B E M FLOP each) against the activations that it receives and sends."""
    flops = 6 * tokens * embed * mlp * experts_per_token * layers_per_stage
    formula = "3/2 * layers_per_stage * M * experts_per_token"
    return Intensity("pipeline", flops, 2 * BF16_BYTES * tokens * embed, formula)


def sequence_head_limit(tensor: int, sequence: int, kv_heads: int) -> bool:
    """Whether heads can be cut by both: ``tensor * sequence <= kv_heads`` (S3.22; the guide prints ``<``).

    >>> sequence_head_limit(tensor=8, sequence=1, kv_heads=8), sequence_head_limit(tensor=8, sequence=2, kv_heads=8)
    (True, False)
    """
    return tensor * sequence <= kv_heads


def causal_chunk_work(shards: int, striped: bool) -> tuple[int, ...]:
    """Causal attention work of each context shard, in chunk units: chunk c of 2n costs 2c + 1 (S3.19).

    Striping gives shard i the chunks i and 2n-1-i.

    >>> causal_chunk_work(4, striped=False), causal_chunk_work(4, striped=True)
    ((4, 12, 20, 28), (16, 16, 16, 16))
    """
    pairs = [(i, 2 * shards - 1 - i) if striped else (2 * i, 2 * i + 1) for i in range(shards)]
    return tuple(sum(2 * c + 1 for c in pair) for pair in pairs)


def pipeline_bubble(stages: int, microbatches: int, repeats: int = 1) -> float:
    """Share of a pipeline's time that is idle, ``(P-1) / (r MB + P - 1)`` (GPipe and 1F1B with r = 1; MaxText)."""
    return (stages - 1) / (repeats * microbatches + stages - 1)
