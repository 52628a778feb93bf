"""Random numbers: keys are elements like any other, but the bits drawn from one key belong together.

The bits of one key depend on the whole drawn shape: counters run over it, and each generator assigns them to elements
in its own way. Partitionable threefry (the default of JAX) hashes the position of every element by itself, so a device
can make its block of the same bits from the positions of its elements. With other generators a device that draws its
block alone would draw other numbers. So their drawn dimensions must be whole (and may be cut afterwards, which is
free). Batches of keys are independent. The counter-based primitives underneath (``threefry2x32``, ...) are elementwise.
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


IN_PARTS = "_in_parts"
"""Parameter by which the front end tells that the bits of each block can be made by themselves."""

_LONGEST = 2**31
"""Longer dimensions are not cut: positions of blocks are counted in 32 bits."""


@rule(
    "random_bits",
    local_care="where dimensions of the drawn shape are cut, a device hashes the positions of its elements",
)
def random_bits(call: Call) -> ShardingRule:
    """Dimensions of the keys, then the drawn shape: free where blocks can be made by themselves, otherwise whole."""
    keys, bits = call.operands[0], call.results[0]
    if not call.params.get(IN_PARTS):
        return drawn(call)
    long = [d for d in range(keys.rank, bits.rank) if bits.shape[d] >= _LONGEST]
    return call.build([range(keys.rank)], [range(bits.rank)], need_replication=long)


@rule("random_split")
def drawn(call: Call) -> ShardingRule:
    """Dimensions of the keys, then the drawn shape, which must be whole."""
    return _leading(call, call.operands[0].rank)


@rule("random_gamma")
def random_gamma(call: Call) -> ShardingRule:
    """Keys, and parameters whose leading dimensions are those of the keys; the other dimensions must be whole."""
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
    """All numbers are drawn from one state or one counter: every dimension whole."""
    return call.conservative()
