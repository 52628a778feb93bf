"""Ops that make, move and cut dimensions: sizes in their parameters become local sizes."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jax import lax

from autoshard.frontends.jax.rolls import rolled
from autoshard.frontends.jax.starts import clamped
from autoshard.lowering.local.context import LocalOp, local
from autoshard.lowering.local.rows import filled_in, moved, taken_in
from autoshard.program.rule import Cutout


@local("broadcast_in_dim")
def broadcast_in_dim(ctx: LocalOp, *operands: Any) -> Sequence[Any]:
    """The primitive with the local shape of its result."""
    return ctx.bind(operands, shape=ctx.local_result(0))


@local("empty")
def empty(ctx: LocalOp, *operands: Any) -> Sequence[Any]:
    """The primitive with the local shape of its result."""
    return ctx.bind(operands, shape=ctx.local_result(0))


@local("reshape")
def reshape(ctx: LocalOp, x: Any, *rest: Any) -> Sequence[Any]:
    """The primitive with local sizes; unsupported where blocks of the operand would not become blocks of the result."""
    target = ctx.local_result(0)
    if int(np.prod(target)) != x.size:
        ctx.unsupported(f"its blocks hold {x.size} elements before and {int(np.prod(target))} after")
    order = ctx.params.get("dimensions") or range(x.ndim)
    before = _strides(ctx, [ctx.rule.operands[0][d] for d in order])
    after = _strides(ctx, ctx.rule.results[0])
    if any(before[f] != after[f] for f, atoms in enumerate(ctx.placement.factors) if ctx.grid.mesh.size(atoms) > 1):
        ctx.unsupported(f"it permutes dimensions ({list(order)}) and its rule {ctx.rule} does not")
    return ctx.bind([x, *rest], new_sizes=target)


def _strides(ctx: LocalOp, dims: Sequence[tuple[int, ...]]) -> dict[int, int]:
    """For each factor, how many elements lie between its neighbours in row-major order."""
    strides, size = {}, 1
    for f in reversed([f for dim in dims for f in dim]):
        strides[f] = size
        size *= ctx.rule.factor_sizes[f]
    return strides


@local("iota")
def iota(ctx: LocalOp, *operands: Any) -> Sequence[Any]:
    """Positions along one dimension; a block starts at its offset in the whole array."""
    dim = ctx.params["dimension"]
    (block,) = ctx.bind(operands, shape=ctx.local_result(0))
    atoms = ctx.result_atoms(0, dim)
    if not atoms:
        return [block]
    start = lax.convert_element_type(ctx.grid.start(ctx.result_types[0].shape[dim], atoms), block.dtype)
    return [lax.add(block, lax.broadcast(start, block.shape))]


@local("tile")
def tile(ctx: LocalOp, x: Any) -> Sequence[Any]:
    """The primitive with the number of repetitions that turns the local operand into the local result."""
    target = ctx.local_result(0)
    shape = (1,) * (len(target) - x.ndim) + x.shape
    return ctx.bind(
        [x], reps=tuple(t // n if n else r for t, n, r in zip(target, shape, ctx.params["reps"], strict=True))
    )


@local("split")
def split(ctx: LocalOp, x: Any) -> Sequence[Any]:
    """The primitive unchanged where the dimension it splits is whole, or there is one result only."""
    axis = ctx.params["axis"] % x.ndim
    if len(ctx.op.results) > 1 and ctx.operand_atoms(0, axis):
        return [_run(ctx, x, c) for c in ctx.rule.cutouts]
    return ctx.bind([x]) if len(ctx.op.results) > 1 else [x]


@local("slice")
def slice_(ctx: LocalOp, x: Any) -> Sequence[Any]:
    """The primitive with local limits along whole dimensions and those taken in full, then the cut ones."""
    starts, limits = list(ctx.params["start_indices"]), list(ctx.params["limit_indices"])
    strides = list(ctx.params["strides"] or (1,) * x.ndim)
    for d in range(x.ndim):
        if ctx.operand_atoms(0, d):
            starts[d], limits[d], strides[d] = 0, x.shape[d], 1
    (x,) = ctx.bind([x], start_indices=tuple(starts), limit_indices=tuple(limits), strides=tuple(strides))
    return [_cut_dimensions(ctx, x)]


def _cut_dimensions(ctx: LocalOp, x: Any, starts: Sequence[Any] = ()) -> Any:
    """The block after its cut dimensions that are not taken in full; `starts` of these, where the op gets them."""
    cut = [d for d in range(x.ndim) if ctx.operand_atoms(0, d)]
    cut = [d for d in cut if ctx.operand_types[0].shape[d] != ctx.result_types[0].shape[d]]
    runs = {c.dim: c for c in ctx.rule.cutouts}
    if missing := [d for d in cut if d not in runs]:
        ctx.unsupported(f"dimension {missing[0]} is cut and not taken in full")
    for d in sorted(cut, key=lambda d: (bool(ctx.result_atoms(0, d)), d)):  # those that are summed first
        x = _run(ctx, x, runs[d], starts[d] if starts else None)
    return x


def _run(ctx: LocalOp, x: Any, cutout: Cutout, start: Any = None) -> Any:
    """A run of a cut dimension: its rows move to where they belong, or every device fills in what it has."""
    if ctx.result_atoms(cutout.result, cutout.dim):
        return moved(ctx, x, cutout)
    return filled_in(ctx, x, cutout, start if cutout.start is None else np.int32(cutout.start))


@local("pad")
def pad(ctx: LocalOp, x: Any, value: Any) -> Sequence[Any]:
    """The primitive on blocks: first the dimensions that are cut and padded, then the others."""
    config = [tuple(c) for c in ctx.params["padding_config"]]
    runs = {c.dim: c for c in ctx.rule.cutouts}
    for d, amounts in enumerate(config):
        before, after = ctx.operand_atoms(0, d), ctx.result_atoms(0, d)
        if amounts == (0, 0, 0) or not (before or after):
            continue
        if d not in runs or (before and not after):
            ctx.unsupported(f"dimension {d} is cut and padded")
        config[d] = (0, 0, 0)
        x = moved(ctx, x, runs[d]) if before else taken_in(ctx, x, runs[d])
        n = ctx.operand_types[0].shape[d]
        position = _positions(ctx, x, d) - np.int32(amounts[0])
        inside = (position >= np.int32(0)) & (position < np.int32(n))
        x = lax.select(inside, x, lax.broadcast(value, x.shape))
    return padded(ctx, x, value, config)


@local("roll")
def roll(ctx: LocalOp, x: Any) -> Sequence[Any]:
    """Two runs change places along a whole dimension; blocks of a cut one get what belongs there."""
    dim, start = ctx.params["dimension"], ctx.params["start"]
    atoms = ctx.operand_atoms(0, dim)
    if not atoms:
        return [rolled(x, dim, start)]
    if not ctx.rule.cutouts or ctx.is_uneven(ctx.operand_types[0].shape[dim], atoms):
        ctx.unsupported(f"dimension {dim} is rolled and cut into uneven blocks")
    return [moved(ctx, x, c) for c in ctx.rule.cutouts]


@local("concatenate")
def concatenate(ctx: LocalOp, *operands: Any) -> Sequence[Any]:
    """The primitive unchanged along a whole dimension. Of a cut one, a device gets what each operand has for its block,
    and takes every element from the operand it is from.
    """
    dim = ctx.params["dimension"]
    atoms = ctx.result_atoms(0, dim)
    if not atoms or len(operands) == 1:
        return ctx.bind(operands)
    if len(ctx.rule.cutouts) != len(operands):
        ctx.unsupported(f"dimension {dim} is cut and joined")
    out = None
    for k, (x, cutout) in enumerate(zip(operands, ctx.rule.cutouts, strict=True)):
        assert cutout.start is not None
        block = moved(ctx, x, cutout) if ctx.operand_atoms(k, dim) else taken_in(ctx, x, cutout)
        if out is None:
            out = block
            continue
        out = lax.select(_positions(ctx, block, dim) < np.int32(-cutout.start), out, block)
    return [out]


def _positions(ctx: LocalOp, block: Any, dim: int) -> Any:
    """Of each element of a block of the result, its place along a dimension of the whole."""
    start = ctx.grid.start(ctx.result_types[0].shape[dim], ctx.result_atoms(0, dim))
    return lax.broadcasted_iota(np.int32, block.shape, dim) + start


def padded(ctx: LocalOp, x: Any, value: Any, config: Sequence[tuple[int, int, int]]) -> list[Any]:
    """Pads, then cuts off what negative amounts take away.

    XLA for CPU has no code for negative amounts without its simplifier, which is left out because it merges collectives
    that are counted.
    """
    if all(low >= 0 and high >= 0 for low, high, _ in config):
        return ctx.bind([x, value], padding_config=tuple(config))
    (wide,) = ctx.bind([x, value], padding_config=tuple((max(low, 0), max(high, 0), mid) for low, high, mid in config))
    limits = [n + min(high, 0) for n, (_, high, _) in zip(wide.shape, config, strict=True)]
    return [lax.slice(wide, [max(-low, 0) for low, _, _ in config], limits)]


@local("dynamic_slice")
def dynamic_slice(ctx: LocalOp, x: Any, *starts: Any) -> Sequence[Any]:
    """The primitive with local sizes. The slice of a cut dimension that is taken in full starts at 0 whatever the
    index is; of others every device fills in what it has.
    """
    shape, taken = ctx.operand_types[0].shape, ctx.result_types[0].shape
    firsts = [
        lax.convert_element_type(clamped(s, n - m), np.int32) for s, n, m in zip(starts, shape, taken, strict=True)
    ]
    cut = [bool(ctx.operand_atoms(0, d)) for d in range(x.ndim)]
    sizes = [n if c else m for n, m, c in zip(x.shape, ctx.local_result(0), cut, strict=True)]
    starts = tuple(np.zeros((), s.dtype) if c else s for s, c in zip(starts, cut, strict=True))
    (x,) = ctx.bind([x, *starts], slice_sizes=tuple(sizes))
    return [_cut_dimensions(ctx, x, firsts)]


@local("dynamic_update_slice")
def dynamic_update_slice(ctx: LocalOp, x: Any, update: Any, *starts: Any) -> Sequence[Any]:
    """Along a cut dimension that the update does not fill, each device writes the part that falls into its block: over
    a window of it, of the size of the update, which has what was there wherever the update lies outside.

    Where a block is shorter than the update it is padded by the size of the update on both sides. The update is written
    at the shifted start, which the primitive clamps into this range, and the padding is cut off again.
    """
    shape, part = ctx.operand_types[0].shape, ctx.operand_types[1].shape
    moved = [d for d in range(x.ndim) if ctx.operand_atoms(0, d) and shape[d] != part[d]]
    if not moved:
        return ctx.bind([x, update, *starts])
    shifted = []
    for d, start in enumerate(starts):
        index = lax.convert_element_type(clamped(start, shape[d] - part[d]), np.int32)
        if d in moved:
            index = index - ctx.grid.start(shape[d], ctx.operand_atoms(0, d))
        shifted.append(index)
    if all(part[d] <= x.shape[d] for d in moved):
        return [_written_over(x, update, shifted, moved)]
    shifted = [index + np.int32(part[d]) if d in moved else index for d, index in enumerate(shifted)]
    config = [(part[d], part[d], 0) if d in moved else (0, 0, 0) for d in range(x.ndim)]
    padded = lax.pad(x, lax.full((), 0, x.dtype), config)
    (written,) = ctx.bind([padded, update, *shifted])
    begin = [part[d] if d in moved else 0 for d in range(x.ndim)]
    return [lax.slice(written, begin, [b + n for b, n in zip(begin, x.shape, strict=True)])]


def _written_over(x: Any, update: Any, starts: Sequence[Any], moved: Sequence[int]) -> Any:
    """A block with what falls into it of an update that is no longer than it. starts: of the update, which along the
    dimensions `moved` may lie outside of the block.
    """
    first = list(starts)
    inside = lax.full(update.shape, True)
    for d in moved:
        size = update.shape[d]
        first[d] = lax.clamp(np.int32(0), starts[d], np.int32(x.shape[d] - size))
        behind = first[d] - starts[d]  # the window begins so far behind the update
        row = lax.broadcasted_iota(np.int32, update.shape, d) + behind
        inside = inside & (row >= np.int32(0)) & (row < np.int32(size))
        if size > 1:
            wide = lax.pad(
                update, lax.full((), 0, update.dtype), [(size, size, 0) if k == d else (0, 0, 0) for k in range(x.ndim)]
            )
            at = lax.clamp(np.int32(0), behind + np.int32(size), np.int32(2 * size))
            update = lax.dynamic_slice_in_dim(wide, at, size, d)
    before = lax.dynamic_slice(x, first, update.shape)
    return lax.dynamic_update_slice(x, lax.select(inside, update, before), first)
