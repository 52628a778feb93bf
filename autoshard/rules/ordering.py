"""Ops that depend on the order of all elements of a dimension: sort, top_k."""

from autoshard.program.rule import ShardingRule
from autoshard.rules.build import Call, Label
from autoshard.rules.registry import rule


@rule("sort")
def sort(call: Call) -> ShardingRule:
    """All operands are permuted together along one dimension, which must be whole."""
    rank = call.operands[0].rank
    return call.build(
        [range(rank)] * len(call.operands),
        [range(rank)] * len(call.results),
        need_replication=[call.param("dimension") % rank],
    )


def _selected(call: Call, axis: int) -> ShardingRule:
    x, y = call.operands[0], call.results[0]
    axis %= x.rank
    picked: Label = axis if x.shape[axis] == y.shape[axis] else "picked"
    result = [picked if d == axis else d for d in range(x.rank)]
    return call.build([range(x.rank)], [result] * len(call.results), need_replication=[axis, picked])


@rule("top_k")
def top_k(call: Call) -> ShardingRule:
    """Values and indices of the k largest elements along an axis (by default the last), which must be whole."""
    return _selected(call, call.params.get("axis", -1))


@rule("approx_top_k")
def approx_top_k(call: Call) -> ShardingRule:
    """As `top_k`, along reduction_dimension; the result may be longer than k."""
    return _selected(call, call.param("reduction_dimension"))
