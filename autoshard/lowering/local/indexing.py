"""Gather and scatter on blocks: indices become relative to the block of a cut dimension."""

from collections.abc import Sequence
from math import prod
from typing import Any

import jax
import numpy as np
from jax import lax

from autoshard.lowering.local.context import LocalOp, local, mask_tail

Mode = lax.GatherScatterMode


def _index_vectors(indices: Any, limits: Sequence[int]) -> tuple[Any, Any]:
    """The indices as int32 and, per index vector, whether all of its entries are within 0 .. limit.

    They are compared before the conversion, so that wide and unsigned types do not wrap.
    """
    inside = None
    parts = []
    for k, limit in enumerate(limits):
        entry = lax.index_in_dim(indices, k, axis=indices.ndim - 1, keepdims=True)
        info = jax.numpy.iinfo(indices.dtype)
        top = np.asarray(min(limit, int(info.max)), indices.dtype)
        zero = np.zeros((), indices.dtype)
        ok = lax.squeeze(lax.le(entry, _like(top, entry)) & lax.ge(entry, _like(zero, entry)), [entry.ndim - 1])
        inside = ok if inside is None else inside & ok
        parts.append(lax.convert_element_type(lax.clamp(zero, entry, top), np.int32))
    joined = lax.concatenate(parts, indices.ndim - 1) if parts else lax.convert_element_type(indices, np.int32)
    return joined, inside


def _like(scalar: Any, x: Any) -> Any:
    return lax.broadcast(scalar, x.shape)


@local("gather")
def gather(ctx: LocalOp, table: Any, indices: Any) -> Sequence[Any]:
    """Along a cut looked-up dimension: the elements of the own block, zeros for elements of other blocks.

    The sum over the group is the lookup. An index that is out of bounds of the *whole* table is clamped or
    filled first, as the mode says; the fill value comes from device 0 of the group.
    """
    numbers, shape = ctx.params["dimension_numbers"], ctx.operand_types[0].shape
    sizes = list(ctx.params["slice_sizes"])
    cut: dict[int, tuple[int, ...]] = {}  # looked-up operand dimension -> atoms
    for d in range(table.ndim):
        atoms = ctx.operand_atoms(0, d)
        if not atoms or d in numbers.operand_batching_dims:
            continue
        if sizes[d] == shape[d] and d not in numbers.collapsed_slice_dims:
            sizes[d] = table.shape[d]
        elif sizes[d] == 1 and d in numbers.start_index_map:
            cut[d] = atoms
        else:
            ctx.unsupported(f"operand dimension {d} is cut and taken in part")
    if not cut:
        return ctx.bind([table, indices], slice_sizes=tuple(sizes))

    mode = Mode.from_any(ctx.params["mode"])
    limits = [shape[d] - ctx.params["slice_sizes"][d] for d in numbers.start_index_map]
    position, in_bounds = _index_vectors(indices, limits)
    mine = None
    columns = []
    for k, d in enumerate(numbers.start_index_map):
        column = lax.index_in_dim(position, k, axis=position.ndim - 1, keepdims=True)
        if d in cut:
            column = column - ctx.grid.start(shape[d], cut[d])
            count = ctx.grid.count(shape[d], cut[d])
            inside = lax.squeeze((column >= np.int32(0)) & (column < count), [column.ndim - 1])
            mine = inside if mine is None else mine & inside
        columns.append(column)
    gathered = ctx.bind(
        [table, lax.concatenate(columns, position.ndim - 1)],
        slice_sizes=tuple(sizes),
        mode=Mode.CLIP,
        fill_value=None,
        indices_are_sorted=False,
    )[0]
    batch = [d for d in range(gathered.ndim) if d not in numbers.offset_dims]

    def spread(mask: Any) -> Any:
        return lax.broadcast_in_dim(mask, gathered.shape, batch)

    gathered = lax.select(spread(mine), gathered, lax.full_like(gathered, 0))
    if mode == Mode.FILL_OR_DROP:
        group = [a for atoms in cut.values() for a in atoms]
        group += [atom for atom, _ in ctx.placement.passes]
        fill = lax.full_like(gathered, _fill_value(ctx, gathered.dtype))
        fill = lax.select(_like(ctx.grid.is_first(group), fill), fill, lax.full_like(fill, 0))
        gathered = lax.select(spread(in_bounds), gathered, fill)
    return [gathered]


def _fill_value(ctx: LocalOp, dtype: Any) -> Any:
    """The default of `lax.gather`: NaN, the least signed or the greatest unsigned integer, True."""
    if (value := ctx.params.get("fill_value")) is not None:
        return value
    if jax.numpy.issubdtype(dtype, np.inexact):
        return np.nan
    if jax.numpy.issubdtype(dtype, np.signedinteger):
        return jax.numpy.iinfo(dtype).min
    return jax.numpy.iinfo(dtype).max if jax.numpy.issubdtype(dtype, np.unsignedinteger) else True


@local("scatter", "scatter-add", "scatter-sub", "scatter-mul", "scatter-min", "scatter-max")
def scatter(ctx: LocalOp, operand: Any, indices: Any, updates: Any) -> Sequence[Any]:
    """Along a cut scattered dimension each device drops the updates that fall outside of its block.

    JAX promises indices in bounds for gradients, whatever the indices are. XLA drops updates that break the promise,
    and so does this function.
    """
    numbers, shape = ctx.params["dimension_numbers"], ctx.operand_types[0].shape
    windows = [
        d
        for d in range(operand.ndim)
        if d not in numbers.inserted_window_dims and d not in numbers.operand_batching_dims
    ]
    window = dict(zip(windows, (ctx.operand_types[2].shape[u] for u in numbers.update_window_dims), strict=True))
    cut: dict[int, tuple[int, ...]] = {}
    for d in range(operand.ndim):
        atoms = ctx.operand_atoms(0, d)
        if not atoms or d in numbers.operand_batching_dims or (window.get(d, 1) == shape[d] and d in window):
            continue
        if window.get(d, 1) != 1 or d not in numbers.scatter_dims_to_operand_dims:
            ctx.unsupported(f"operand dimension {d} is cut and written in part")
        cut[d] = atoms

    dropped = _padding_of_updates(ctx, indices)
    if not cut and dropped is None:
        return ctx.bind([operand, indices, updates])

    mode = Mode.from_any(ctx.params["mode"])
    limits = [shape[d] - window.get(d, 1) for d in numbers.scatter_dims_to_operand_dims]
    position, in_bounds = _index_vectors(indices, limits)
    keep = None if mode == Mode.CLIP else in_bounds
    if dropped is not None:
        keep = ~dropped if keep is None else keep & ~dropped
    columns = []
    for k, d in enumerate(numbers.scatter_dims_to_operand_dims):
        column = lax.index_in_dim(position, k, axis=position.ndim - 1, keepdims=True)
        if d in cut:
            column = column - ctx.grid.start(shape[d], cut[d])
            inside = lax.squeeze(
                (column >= np.int32(0)) & (column < ctx.grid.count(shape[d], cut[d])), [indices.ndim - 1]
            )
            keep = inside if keep is None else keep & inside
        columns.append(column)
    if prod(indices.shape[:-1]) == 1 and keep is not None:
        return [_one_update(ctx, operand, columns, keep, updates)]
    if keep is not None:  # any index that is out of bounds drops the whole update
        spread = lax.broadcast_in_dim(keep, columns[0].shape, range(keep.ndim))
        outside = [operand.shape[d] for d in numbers.scatter_dims_to_operand_dims]
        columns = [lax.select(spread, c, lax.full_like(c, n)) for c, n in zip(columns, outside, strict=True)]
    return ctx.bind(
        [operand, lax.concatenate(columns, position.ndim - 1), updates],
        mode=Mode.FILL_OR_DROP,
        indices_are_sorted=False,
    )


def _one_update(ctx: LocalOp, operand: Any, columns: Sequence[Any], keep: Any, updates: Any) -> Any:
    """The scatter of a single update, or the operand as it was where it is not kept.

    No index is out of bounds here, although XLA drops such updates: for that it reads what they would replace, in a
    slice whose start is out of bounds. Where the operand is a slice itself, its simplifier makes one slice of both,
    which reads beyond the block, and that is what it writes (XLA of JAX 0.10).
    """
    numbers = ctx.params["dimension_numbers"]
    taken = [d for d in range(operand.ndim) if d not in (*numbers.inserted_window_dims, *numbers.operand_batching_dims)]
    sizes = [1] * operand.ndim
    for d, u in zip(taken, numbers.update_window_dims, strict=True):
        sizes[d] = updates.shape[u]
    starts = [np.int32(0)] * operand.ndim
    for d, column in zip(numbers.scatter_dims_to_operand_dims, columns, strict=True):
        starts[d] = lax.clamp(np.int32(0), lax.reshape(column, ()), np.int32(operand.shape[d] - sizes[d]))
    before = lax.dynamic_slice(operand, starts, sizes)
    first = lax.concatenate([lax.full_like(column, 0) for column in columns], columns[0].ndim - 1)
    (after,) = ctx.bind([before, first, updates], mode=Mode.FILL_OR_DROP)
    written = lax.select(_like(lax.reshape(keep, ()), after), after, before)
    return lax.dynamic_update_slice(operand, written, starts)


def _padding_of_updates(ctx: LocalOp, indices: Any) -> Any:
    """Which index vectors are padding of unevenly cut batch dimensions; None if there is none."""
    padding = None
    for d in range(indices.ndim - 1):
        atoms, n = ctx.operand_atoms(1, d), ctx.operand_types[1].shape[d]
        factors = ctx.rule.operands[1][d]
        if atoms and ctx.is_uneven(n, atoms) and set(factors) & ctx.rule.reduction:
            real = mask_tail(lax.full(indices.shape[:-1], True), d, n, atoms, False, ctx.grid)
            padding = ~real if padding is None else padding | ~real
    return padding
