"""Reductions, argument reductions and cumulative ops."""

from autoshard.program.rule import ShardingRule
from autoshard.rules.build import Call
from autoshard.rules.registry import rule


def _reduce(call: Call, axes: tuple[int, ...], *, combiner: str | None) -> ShardingRule:
    """Reduced dimensions leave partial results (combiner) or must be whole (None)."""
    x = call.operands[0]
    gone = {d % x.rank for d in axes}
    kept = [d for d in range(x.rank) if d not in gone]
    operands = [range(x.rank) if t.rank else () for t in call.operands]
    return call.build(
        operands,
        [kept] * len(call.results),
        reduction=sorted(gone) if combiner else (),
        need_replication=() if combiner else sorted(gone),
        combiner=combiner or "add",
        linear=((0,),) if combiner == "add" else (),
    )


@rule("reduce_sum")
def reduce_sum(call: Call) -> ShardingRule:
    """``float32[8,32] -> float32[8]``: ``([i, j])->([i]) reduction={j}``, linear."""
    return _reduce(call, call.param("axes"), combiner="add")


@rule("reduce_max")
def reduce_max(call: Call) -> ShardingRule:
    """As `reduce_sum` with combiner max; not linear."""
    return _reduce(call, call.param("axes"), combiner="max")


@rule("reduce_min")
def reduce_min(call: Call) -> ShardingRule:
    """As `reduce_sum` with combiner min; not linear."""
    return _reduce(call, call.param("axes"), combiner="min")


@rule("reduce_prod", "reduce_and", "reduce_or", "reduce_xor", "argmax", "argmin")
def reduce_whole(call: Call) -> ShardingRule:
    """Reductions whose partial results no collective combines (an index needs its value too): reduced dimensions
    whole.
    """
    return _reduce(call, call.param("axes"), combiner=None)


@rule("reduce")
def reduce_generic(call: Call) -> ShardingRule:
    """Any reducer. Operands are several arrays, then as many scalar initial values; reduced dimensions must be
    whole.
    """
    return _reduce(call, call.param("dimensions"), combiner=None)


@rule("cumsum")
def cumsum(call: Call) -> ShardingRule:
    """The axis must be whole; linear."""
    rank = call.operands[0].rank
    return call.build([range(rank)], [range(rank)], need_replication=[call.param("axis") % rank], linear=((0,),))


@rule("cumprod", "cummax", "cummin", "cumlogsumexp")
def cumulative(call: Call) -> ShardingRule:
    """The axis must be whole; not linear."""
    rank = call.operands[0].rank
    return call.build([range(rank)], [range(rank)], need_replication=[call.param("axis") % rank])
