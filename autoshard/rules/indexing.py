"""Gather and scatter: lookups whose table, indices and windows may each be sharded."""

import math
from typing import Any

from autoshard.program.rule import ShardingRule
from autoshard.rules.build import Call, Label, is_numeric, read
from autoshard.rules.registry import rule

_INDEX_VECTOR = "index vector"


@rule(
    "gather",
    local_care="along a sharded looked-up dimension (a reduction factor): clamp the indices as the whole array would "
    "if the mode is CLIP, subtract the offset of the block, gather what falls inside the block (its padding not "
    "included) and put zeros elsewhere (by select, never by multiplication); the mode FILL_OR_DROP fills where the "
    "index is outside of the *whole* dimension, on the first device of the group only. slice_sizes of whole windows "
    "become local sizes",
)
def gather(call: Call) -> ShardingRule:
    """Embedding lookup, ``take_along_axis`` and their relatives.

    - A window dimension taken in full passes from operand to result.
    - A looked-up dimension (in start_index_map, slice size 1) is a *reduction* factor: each device
      looks into its own block and contributes zeros for elements of other blocks, so that the sum over
      the group is the lookup. For dtypes without addition (bool, keys) it must be whole.
    - Batch dimensions of the indices pass to the result; batching dimensions tie all three.
    - The index-vector dimension, and dimensions cut in any other way, must be whole.

    ``table[20,16], ids[4,5,1] -> [4,5,16]`` is ``([l, k], [i, j, _])->([i, j, k]) reduction={l}``.
    """
    x, indices = call.operands
    y = call.results[0]
    numbers, sizes = call.param("dimension_numbers"), call.param("slice_sizes")
    offset_dims = sorted(read(numbers, "offset_dims"))
    collapsed, looked_up = set(read(numbers, "collapsed_slice_dims")), set(read(numbers, "start_index_map"))
    batching = _batching(numbers, "operand_batching_dims", "start_indices_batching_dims")

    index_labels: list[Label] = [("batch", k) for k in range(indices.rank - 1)]
    batch = iter(index_labels)
    windows = [d for d in range(x.rank) if d not in collapsed and d not in batching]
    window_of = dict(zip(offset_dims, windows, strict=True))

    reduction: list[Label] = []
    whole: list[Label] = [_INDEX_VECTOR]
    operand: list[Label] = []
    for d, (n, size) in enumerate(zip(x.shape, sizes, strict=True)):
        if d in batching:
            operand.append(("batch", batching[d]))
        elif d not in collapsed and size == n:
            operand.append(("window", d))
        else:
            operand.append(("table", d))
            can_sum = d in looked_up and size == 1 and is_numeric(y.dtype)
            (reduction if can_sum else whole).append(("table", d))
    result: list[Label] = []
    for d in range(y.rank):
        if d not in window_of:
            result.append(next(batch))
        elif sizes[window_of[d]] == x.shape[window_of[d]]:
            result.append(("window", window_of[d]))
        else:
            result.append(("part", d))
            whole.append(("part", d))
    return call.build(
        [operand, [*index_labels, _INDEX_VECTOR]],
        [result],
        reduction=reduction,
        need_replication=whole,
        linear=((0,),) if _fill_is_additive(call) else (),
    )


def _fill_is_additive(call: Call) -> bool:
    """Whether the fill value of a gather, for indices out of bounds, may be summed over devices: 0, NaN, or no fill
    at all.
    """
    mode = call.params.get("mode")
    if getattr(mode, "name", str(mode)) not in ("FILL_OR_DROP", "fill", "drop"):
        return True
    fill = call.params.get("fill_value")
    if fill is None:  # JAX fills inexact dtypes with NaN, others with an extreme value
        return not call.results[0].dtype.startswith(("int", "uint"))
    return fill == 0 or (isinstance(fill, float) and math.isnan(fill))


def _batching(numbers: Any, operand: str, indices: str) -> dict[int, int]:
    """Operand dimension -> indices dimension, for batching dimensions."""
    return dict(zip(read(numbers, operand), read(numbers, indices), strict=True))


_SCATTER_CARE = (
    "along a sharded scattered dimension of the operand: clamp the indices as the whole array would if the mode is "
    "CLIP, subtract the offset of the block and drop what falls outside (mode FILL_OR_DROP, signed indices). Along "
    "sharded updates (a reduction factor) nothing but the combination afterwards"
)


@rule("scatter-add", "scatter-sub", "scatter_add", "scatter_sub", local_care=_SCATTER_CARE)
def scatter_add(call: Call) -> ShardingRule:
    """Updates may be sharded: each device adds its own to a partial operand (`accumulators`)."""
    return _scatter(call, combiner="add", linear=((0, 2),))


@rule("scatter-max", "scatter_max", local_care=_SCATTER_CARE)
def scatter_max(call: Call) -> ShardingRule:
    """Updates may be sharded: every device starts from the whole operand, and the maximum is idempotent."""
    return _scatter(call, combiner="max")


@rule("scatter-min", "scatter_min", local_care=_SCATTER_CARE)
def scatter_min(call: Call) -> ShardingRule:
    """As `scatter_max`, with the minimum."""
    return _scatter(call, combiner="min")


@rule("scatter", "scatter-mul", "scatter_mul", local_care=_SCATTER_CARE)
def scatter(call: Call) -> ShardingRule:
    """Replace elements. Updates of different devices cannot be combined, so batch dimensions of updates must be
    whole.
    """
    unique = call.kind == "scatter" and call.params.get("unique_indices", False)
    return _scatter(call, combiner=None, linear=((0, 2),) if unique else ())


def _scatter(call: Call, *, combiner: str | None, linear: tuple[tuple[int, ...], ...] = ()) -> ShardingRule:
    """Operand, indices, updates -> result.

    - Window dimensions of full size pass through operand, updates and result.
    - Scattered dimensions (window size 1) are parallel in operand and result: each device drops the
      updates that fall outside its block.
    - Batch dimensions of indices and updates: reduction (combiner) or whole (None); batching
      dimensions tie all.
    """
    x, indices, updates = call.operands
    numbers = call.param("dimension_numbers")
    window_dims = sorted(read(numbers, "update_window_dims"))
    inserted, scattered = set(read(numbers, "inserted_window_dims")), set(read(numbers, "scatter_dims_to_operand_dims"))
    batching = _batching(numbers, "operand_batching_dims", "scatter_indices_batching_dims")

    index_labels: list[Label] = [("batch", k) for k in range(indices.rank - 1)]
    batch = iter(index_labels)
    windows = [d for d in range(x.rank) if d not in inserted and d not in batching]
    window_of = dict(zip(window_dims, windows, strict=True))
    window_size = {d: updates.shape[u] for u, d in window_of.items()} | dict.fromkeys(inserted, 1)

    whole: list[Label] = [_INDEX_VECTOR]
    operand: list[Label] = []
    for d, n in enumerate(x.shape):
        if d in batching:
            operand.append(("batch", batching[d]))
        elif d not in inserted and window_size[d] == n:
            operand.append(("window", d))
        else:
            operand.append(("target", d))
            if window_size[d] != 1 or d not in scattered:
                whole.append(("target", d))
    update: list[Label] = []
    for u in range(updates.rank):
        if u not in window_of:
            update.append(next(batch))
        elif window_size[window_of[u]] == x.shape[window_of[u]]:
            update.append(("window", window_of[u]))
        else:
            update.append(("part", u))
            whole.append(("part", u))
    spread = [label for k, label in enumerate(index_labels) if k not in batching.values()]
    can_combine = combiner is not None and is_numeric(x.dtype)
    return call.build(
        [operand, [*index_labels, _INDEX_VECTOR], update],
        [operand],
        reduction=spread if can_combine else (),
        need_replication=whole if can_combine else [*whole, *spread],
        combiner=combiner or "add",
        linear=linear,
        accumulators=(0,) if combiner == "add" and can_combine else (),
    )
