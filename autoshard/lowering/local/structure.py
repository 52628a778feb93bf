"""Ops that make, move and cut dimensions: sizes in their parameters become local sizes."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jax import lax

from autoshard.lowering.local.context import LocalOp, local


@local("broadcast_in_dim")
def broadcast_in_dim(ctx: LocalOp, *operands: Any) -> Sequence[Any]:
    return ctx.bind(operands, shape=ctx.local_result(0))


@local("empty")
def empty(ctx: LocalOp, *operands: Any) -> Sequence[Any]:
    return ctx.bind(operands, shape=ctx.local_result(0))


@local("reshape")
def reshape(ctx: LocalOp, x: Any, *rest: Any) -> Sequence[Any]:
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
    """Along its own dimension a block starts at its offset."""
    dim = ctx.params["dimension"]
    (block,) = ctx.bind(operands, shape=ctx.local_result(0))
    atoms = ctx.result_atoms(0, dim)
    if not atoms:
        return [block]
    start = lax.convert_element_type(ctx.grid.start(ctx.result_types[0].shape[dim], atoms), block.dtype)
    return [lax.add(block, lax.broadcast(start, block.shape))]


@local("tile")
def tile(ctx: LocalOp, x: Any) -> Sequence[Any]:
    target = ctx.local_result(0)
    shape = (1,) * (len(target) - x.ndim) + x.shape
    return ctx.bind(
        [x], reps=tuple(t // n if n else r for t, n, r in zip(target, shape, ctx.params["reps"], strict=True))
    )


@local("split")
def split(ctx: LocalOp, x: Any) -> Sequence[Any]:
    """The dimension taken apart is whole, or there is nothing to take apart."""
    return ctx.bind([x]) if len(ctx.op.results) > 1 else [x]


@local("slice")
def slice_(ctx: LocalOp, x: Any) -> Sequence[Any]:
    starts, limits = list(ctx.params["start_indices"]), list(ctx.params["limit_indices"])
    for d in range(x.ndim):
        if ctx.operand_atoms(0, d):
            if ctx.operand_types[0].shape[d] != ctx.result_types[0].shape[d]:
                ctx.unsupported(f"dimension {d} is cut and not taken in full")
            starts[d], limits[d] = 0, x.shape[d]
    return ctx.bind([x], start_indices=tuple(starts), limit_indices=tuple(limits))


@local("pad")
def pad(ctx: LocalOp, x: Any, value: Any) -> Sequence[Any]:
    for d, config in enumerate(ctx.params["padding_config"]):
        if ctx.operand_atoms(0, d) and tuple(config) != (0, 0, 0):
            ctx.unsupported(f"dimension {d} is cut and padded")
    return padded(ctx, x, value)


def padded(ctx: LocalOp, x: Any, value: Any) -> list[Any]:
    """Pads, then cuts off what negative amounts take away: XLA for CPU has no code for them once its simplifier,
    which merges collectives that we count, is left out.
    """
    config = [tuple(c) for c in ctx.params["padding_config"]]
    if all(low >= 0 and high >= 0 for low, high, _ in config):
        return ctx.bind([x, value])
    (wide,) = ctx.bind([x, value], padding_config=tuple((max(low, 0), max(high, 0), mid) for low, high, mid in config))
    limits = [n + min(high, 0) for n, (_, high, _) in zip(wide.shape, config, strict=True)]
    return [lax.slice(wide, [max(-low, 0) for low, _, _ in config], limits)]


@local("dynamic_slice")
def dynamic_slice(ctx: LocalOp, x: Any, *starts: Any) -> Sequence[Any]:
    """A dimension taken in full starts at 0 whatever the index says, on the block too."""
    for d in range(x.ndim):
        if ctx.operand_atoms(0, d) and ctx.operand_types[0].shape[d] != ctx.result_types[0].shape[d]:
            ctx.unsupported(f"dimension {d} is cut and not taken in full")
    return ctx.bind([x, *starts], slice_sizes=ctx.local_result(0))


@local("dynamic_update_slice")
def dynamic_update_slice(ctx: LocalOp, x: Any, update: Any, *starts: Any) -> Sequence[Any]:
    """Along a cut dimension that the update does not fill, each device writes what falls into its block.

    The block is padded by the size of the update on both sides, written at the shifted start, which the
    primitive clamps into this range, and cut out again.
    """
    shape, part = ctx.operand_types[0].shape, ctx.operand_types[1].shape
    moved = [d for d in range(x.ndim) if ctx.operand_atoms(0, d) and shape[d] != part[d]]
    if not moved:
        return ctx.bind([x, update, *starts])
    shifted = []
    for d, start in enumerate(starts):
        clamped = lax.clamp(np.zeros((), start.dtype), start, np.asarray(shape[d] - part[d], start.dtype))
        index = lax.convert_element_type(clamped, np.int32)
        if d in moved:
            index = index - ctx.grid.start(shape[d], ctx.operand_atoms(0, d)) + np.int32(part[d])
        shifted.append(index)
    config = [(part[d], part[d], 0) if d in moved else (0, 0, 0) for d in range(x.ndim)]
    padded = lax.pad(x, lax.full((), 0, x.dtype), config)
    (written,) = ctx.bind([padded, update, *shifted])
    begin = [part[d] if d in moved else 0 for d in range(x.ndim)]
    return [lax.slice(written, begin, [b + n for b, n in zip(begin, x.shape, strict=True)])]
