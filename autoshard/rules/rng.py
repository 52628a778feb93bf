"""Random numbers: keys are elements like any other, the bits drawn from one key belong together.

What one key gives depends on the whole shape asked for: the counters run over it, and how they are
dealt out is each generator's own affair. A device asked for its block alone would draw other
numbers, so the drawn dimensions must be whole (and may be cut afterwards, which is free). Batches of keys are
independent. The counter-based primitives underneath (``threefry2x32``, ...) are elementwise.
"""

from autoshard.program.rule import ShardingRule
from autoshard.rules.build import Call, Label
from autoshard.rules.registry import rule


def _leading(call: Call, rank: int) -> ShardingRule:
    """The first `rank` dimensions are tied across all tensors of at least that rank; the others are whole."""
    tensors: list[list[Label]] = [
        [d if d < rank <= t.rank else (k, d) for d in range(t.rank)]
        for k, t in enumerate((*call.operands, *call.results))
    ]
    n = len(call.operands)
    whole = [x for t in tensors for x in t if isinstance(x, tuple)]
    return call.build(tensors[:n], tensors[n:], need_replication=whole)


@rule("random_bits", "random_split")
def drawn(call: Call) -> ShardingRule:
    """Dimensions of the keys, then the drawn shape, which must be whole."""
    return _leading(call, call.operands[0].rank)


@rule("random_gamma")
def random_gamma(call: Call) -> ShardingRule:
    """Keys, and parameters whose leading dimensions are the keys'; each key is split over the rest, which is whole."""
    key, a = call.operands
    rank = key.rank
    result: list[Label] = [d if d < rank else ("drawn", d) for d in range(a.rank)]
    return call.build([range(rank), result], [result], need_replication=[("drawn", d) for d in range(rank, a.rank)])


@rule("random_wrap", "random_unwrap")
def key_data(call: Call) -> ShardingRule:
    """A key's words are a trailing dimension, which must be whole."""
    return _leading(call, min(call.operands[0].rank, call.results[0].rank))


@rule("rng_bit_generator", "rng_uniform", "iota_2x32_shape")
def from_one_state(call: Call) -> ShardingRule:
    """All from one state or one counter: whole."""
    return call.conservative()
