"""Cutting and joining: slice, pad, concatenate, split, reverse and their dynamic forms.

A dimension that is cut or joined must be whole: the blocks of operand and result do not lie on the
same devices. (Shardy calls it a *permutation* factor, and lets propagation pass through it.) Where one side is a run
of the other, the planner may cut it all the same (`Cutout`).
"""

from collections.abc import Sequence
from itertools import accumulate

from autoshard.program.rule import ShardingRule
from autoshard.rules.build import Call, Label, LabelledCutout, is_numeric
from autoshard.rules.registry import rule

SMALL_PART = 4
"""A slice may be a partial sum where it is at most one part in so many of the dimension."""


def _tied(rank: int, cut: Sequence[int], source: tuple[int, ...], target: tuple[int, ...]) -> tuple[list, list, list]:
    """Labels of operand and result where the dimensions in `cut` must be whole; one factor where sizes agree."""
    left: list[Label] = list(range(rank))
    right: list[Label] = [d if source[d] == target[d] else ("result", d) for d in range(rank)]
    return left, right, [x for d in cut for x in (left[d], right[d])]


@rule("slice", local_care="along whole dimensions nothing changes; along the others start 0 and the local limit")
def slice_(call: Call) -> ShardingRule:
    """A dimension kept in full with step 1 passes; the others must be whole, but for cutouts."""
    x, y = call.operands[0], call.results[0]
    steps = call.param("strides") or (1,) * x.rank
    cut = [d for d in range(x.rank) if x.shape[d] != y.shape[d] or steps[d] != 1]
    left, right, whole = _tied(x.rank, cut, x.shape, y.shape)
    starts = call.param("start_indices")
    cutouts = [_cutout(call, 0, d, left[d], right[d], starts[d]) for d in cut if steps[d] == 1 and y.elements]
    return call.build([left], [right], need_replication=whole, linear=((0,),), cutouts=cutouts)


def _cutout(call: Call, result: int, dim: int, taken: Label, made: Label, start: int | None) -> LabelledCutout:
    """The cutout of a slice. Numbers in a small part of a dimension may be summed with the zeros of other devices."""
    x, y = call.operands[0], call.results[result]
    few = y.shape[dim] * SMALL_PART <= x.shape[dim]
    return LabelledCutout(0, result, dim, taken, made, start, sums=is_numeric(x.dtype) and few)


@rule("pad")
def pad(call: Call) -> ShardingRule:
    """A dimension without padding (low, high and interior 0) passes; the others must be whole, but for cutouts.

    Linear where the padding value is partial too, or a literal 0.
    """
    x, y = call.operands[0], call.results[0]
    cut = [d for d, config in enumerate(call.param("padding_config")) if tuple(config) != (0, 0, 0)]
    left, right, whole = _tied(x.rank, cut, x.shape, y.shape)
    cutouts = [
        LabelledCutout(0, 0, d, left[d], right[d], -int(low), grows=True)
        for d, (low, _, interior) in enumerate(call.param("padding_config"))
        if d in cut and not interior and x.elements and y.elements and not x.dtype.startswith("key<")
    ]
    return call.build([left, ()], [right], need_replication=whole, linear=((0, 1),), cutouts=cutouts)


@rule("concatenate")
def concatenate(call: Call) -> ShardingRule:
    """The joined dimension must be whole, unless there is a single operand, but for cutouts."""
    y, dim = call.results[0], call.param("dimension") % call.results[0].rank
    operands, whole = [], []
    for k, t in enumerate(call.operands):
        mine = dim if t.shape[dim] == y.shape[dim] else (k, dim)
        operands.append([mine if d == dim else d for d in range(y.rank)])
        whole.append(mine)
    everything = tuple(range(len(call.operands)))
    if len(everything) == 1:
        return call.build(operands, [range(y.rank)], linear=(everything,))
    starts = accumulate((t.shape[dim] for t in call.operands), initial=0)
    cutouts = [LabelledCutout(k, 0, dim, mine, dim, -n, grows=True) for k, (mine, n) in enumerate(zip(whole, starts))]
    if y.dtype.startswith("key<") or not all(t.elements for t in call.operands):
        cutouts = []
    return call.build(operands, [range(y.rank)], need_replication=[*whole, dim], linear=(everything,), cutouts=cutouts)


@rule("split")
def split(call: Call) -> ShardingRule:
    """The dimension that is split must be whole, unless there is a single result, but for cutouts."""
    x, axis = call.operands[0], call.param("axis") % call.operands[0].rank
    single = len(call.results) == 1
    results = [[d if d != axis or single else (k, d) for d in range(x.rank)] for k in range(len(call.results))]
    whole = [] if single else [axis, *(labels[axis] for labels in results)]
    starts = list(accumulate((y.shape[axis] for y in call.results), initial=0))
    cutouts = [_cutout(call, k, axis, axis, (k, axis), starts[k]) for k in range(len(call.results)) if not single]
    cutouts = cutouts if all(y.elements for y in call.results) else []
    return call.build([range(x.rank)], results, need_replication=whole, linear=((0,),), cutouts=cutouts)


@rule("roll")
def roll(call: Call) -> ShardingRule:
    """The rolled dimension must be whole, but for a cutout whose last element is followed by its first."""
    x, dim = call.operands[0], call.param("dimension")
    shifted = LabelledCutout(0, 0, dim, dim, dim, int(call.param("start")), wraps=True)
    cutouts = [shifted] if x.elements and not x.dtype.startswith("key<") else []
    return call.build([range(x.rank)], [range(x.rank)], need_replication=[dim], linear=((0,),), cutouts=cutouts)


@rule("rev")
def rev(call: Call) -> ShardingRule:
    """Reversed dimensions must be whole: block k would become block n - 1 - k."""
    rank = call.operands[0].rank
    return call.build([range(rank)], [range(rank)], need_replication=list(call.param("dimensions")), linear=((0,),))


@rule("dynamic_slice", local_care="the local slice_sizes are the result's local shape")
def dynamic_slice(call: Call) -> ShardingRule:
    """A dimension taken in full passes (its start is clamped to 0); the others must be whole, but for cutouts."""
    x, *starts = call.operands
    y = call.results[0]
    cut = [d for d in range(x.rank) if x.shape[d] != y.shape[d]]
    left, right, whole = _tied(x.rank, cut, x.shape, y.shape)
    starts_labels = [[("start", k, d) for d in range(t.rank)] for k, t in enumerate(starts)]
    whole += [label for labels in starts_labels for label in labels]
    cutouts = [_cutout(call, 0, d, left[d], right[d], None) for d in cut if y.elements]
    return call.build([left, *starts_labels], [right], need_replication=whole, linear=((0,),), cutouts=cutouts)


@rule(
    "dynamic_update_slice",
    local_care="along a sharded dimension that the update does not fill: clamp the start as the whole array would "
    "(to 0 .. n - u), shift it by the offset of the block, and write only what falls inside (for example "
    "into the block padded by u on both sides, then cut)",
)
def dynamic_update_slice(call: Call) -> ShardingRule:
    """Operand and result have the same factors; the update must be whole where it does not fill the dimension (as in
    Shardy).
    """
    x, update, *starts = call.operands
    rank = x.rank
    update_labels: list[Label] = [d if x.shape[d] == update.shape[d] else ("update", d) for d in range(rank)]
    whole: list[Label] = [("update", d) for d in range(rank)]
    starts_labels = [[("start", k, d) for d in range(t.rank)] for k, t in enumerate(starts)]
    whole += [label for labels in starts_labels for label in labels]
    return call.build(
        [range(rank), update_labels, *starts_labels], [range(rank)], need_replication=whole, linear=((0, 1),)
    )
