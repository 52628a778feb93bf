"""Ops that move dimensions around without computing: broadcast, transpose, squeeze, iota, tile, stack."""

from math import prod

from autoshard.program.rule import ShardingRule
from autoshard.rules.build import Call, Compound
from autoshard.rules.registry import rule


@rule("broadcast_in_dim", local_care="the local shape parameter is the result's local shape")
def broadcast_in_dim(call: Call) -> ShardingRule:
    """``float32[4] -> float32[3,4]`` along dimension 1 is ``([j])->([i, j])``: i is a factor of the result only."""
    dims = call.param("broadcast_dimensions")
    extra = [()] * (len(call.operands) - 1)
    return call.build([list(dims), *extra], [range(call.results[0].rank)], linear=((0,),))


@rule("transpose")
def transpose(call: Call) -> ShardingRule:
    """``permutation=(1, 0)`` is ``([i, j])->([j, i])``."""
    permutation = call.param("permutation")
    return call.build([range(len(permutation))], [list(permutation)], linear=((0,),))


@rule("squeeze")
def squeeze(call: Call) -> ShardingRule:
    """Dimensions of size 1 disappear; they had no factor."""
    x = call.operands[0]
    gone = {d % x.rank for d in call.param("dimensions")}
    return call.build([range(x.rank)], [[d for d in range(x.rank) if d not in gone]], linear=((0,),))


@rule("expand_dims")
def expand_dims(call: Call) -> ShardingRule:
    """Dimensions of size 1 appear, without a factor."""
    y = call.results[0]
    new = {d % y.rank for d in call.param("dimensions")}
    return call.build([[d for d in range(y.rank) if d not in new]], [range(y.rank)], linear=((0,),))


@rule("iota", local_care="along its dimension a device adds the offset of its block (its coordinate times local size)")
def iota(call: Call) -> ShardingRule:
    """Factors of the result only; every device makes its own block."""
    return call.build([()] * len(call.operands), [range(call.results[0].rank)])


@rule("empty", "empty2", "zeros_like", local_care="the local shape parameter is the result's local shape")
def made_from_nothing(call: Call) -> ShardingRule:
    """Every element is the same, so any factor of the result may be sharded."""
    labels = [range(t.rank) for t in call.operands]
    return call.build(labels, [range(call.results[0].rank)])


@rule("tile", local_care="the local repetitions are those of the result's local shape")
def tile(call: Call) -> ShardingRule:
    """``reps=(3,)``: ``([j])->([ij])`` with i=3, as the result runs through the operand three times."""
    x = call.operands[0]
    result = [Compound(((("repeat", d), n), (d, x.shape[d]))) for d, n in enumerate(call.param("reps"))]
    return call.build([range(x.rank)], [result], linear=((0,),))


@rule("stack")
def stack(call: Call) -> ShardingRule:
    """n operands along a new axis, which must be whole."""
    rank, axis = call.results[0].rank, call.param("axis") % call.results[0].rank
    rest = [d for d in range(rank) if d != axis]
    everything = tuple(range(len(call.operands)))
    return call.build([rest] * len(everything), [range(rank)], need_replication=[axis], linear=(everything,))


@rule("unstack")
def unstack(call: Call) -> ShardingRule:
    """The axis, which is split into the results, must be whole."""
    x, axis = call.operands[0], call.param("axis") % call.operands[0].rank
    rest = [d for d in range(x.rank) if d != axis]
    return call.build([range(x.rank)], [rest] * len(call.results), need_replication=[axis], linear=((0,),))


@rule("bitcast_convert_type")
def bitcast_convert_type(call: Call) -> ShardingRule:
    """Elementwise where the widths are equal; otherwise a trailing dimension holds the parts of an element and must
    be whole.
    """
    x, y = call.operands[0], call.results[0]
    whole = [max(x.rank, y.rank) - 1] if x.rank != y.rank else []
    assert abs(x.rank - y.rank) <= 1 and prod(x.shape[: y.rank]) == prod(y.shape[: x.rank])
    return call.build([range(x.rank)], [range(y.rank)], need_replication=whole)
