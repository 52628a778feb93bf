"""Convolutions and ragged dots on blocks: global numbers of groups and rows become local ones."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jax import lax

from autoshard.lowering.local.context import LocalOp, local
from autoshard.lowering.steps import exchange


@local("conv_general_dilated")
def conv_general_dilated(ctx: LocalOp, lhs: Any, rhs: Any) -> Sequence[Any]:
    """Convolution of blocks.

    Batch and channels may be cut, channels also into whole groups. Along a cut spatial dimension, the edges of the
    neighbours' blocks take the place of the padding; they are zeros at the two ends.
    """
    numbers = ctx.params["dimension_numbers"]
    feature_groups, batch_groups = ctx.params["feature_group_count"], ctx.params["batch_group_count"]
    if feature_groups > 1:
        feature_groups = lhs.shape[numbers.lhs_spec[1]] // rhs.shape[numbers.rhs_spec[1]]
    if batch_groups > 1:
        batch_groups = lhs.shape[numbers.lhs_spec[0]] // ctx.local_result(0)[numbers.out_spec[0]]
    padding = [tuple(p) for p in ctx.params["padding"]]
    exchanges = ctx.placement.exchanges(ctx.rule, ctx.grid.mesh)
    for dim in dict.fromkeys(e.dim for e in exchanges):
        parts, around = [lhs], [e for e in exchanges if e.dim == dim]
        for e in around:
            edge = exchange(lhs, dim, e.atoms, e.width, e.shift, ctx.grid)
            parts = [edge, *parts] if e.shift == 1 else [*parts, edge]
        lhs = lax.concatenate(parts, dim)
        padding[numbers.lhs_spec.index(dim) - 2] = (0, 0)
    return ctx.bind(
        [lhs, rhs], feature_group_count=feature_groups, batch_group_count=batch_groups, padding=tuple(padding)
    )


@local("ragged_dot_general")
def ragged_dot_general(ctx: LocalOp, lhs: Any, rhs: Any, group_sizes: Any, *rest: Any) -> Sequence[Any]:
    """Rows of the left side belong to consecutive groups; a device holds a range of rows, of groups, or both.

    The sizes of all groups are cut to the own rows; their sum may exceed these. With a range of groups, the rows of
    its first group are rolled to the front, where the primitive wants them; rows of other groups give zeros, or do
    not enter where the ragged dimension is contracted.
    """
    numbers = ctx.params["ragged_dot_dimension_numbers"]
    ((lhs_contract, rhs_contract), (lhs_batch, _)) = numbers.dot_dimension_numbers
    (ragged,) = numbers.lhs_ragged_dimensions
    if rest:
        ctx.unsupported("it has a group offset")
    sizes = lax.convert_element_type(group_sizes, np.int32)
    last = sizes.ndim - 1

    rows = ctx.operand_atoms(0, ragged)
    contracted = ragged in lhs_contract
    group_dims = numbers.rhs_group_dimensions
    groups = ctx.result_atoms(0, 0) if contracted else ctx.operand_atoms(1, group_dims[0]) if group_dims else ()
    if rows or groups:
        begin = ctx.grid.start(ctx.operand_types[0].shape[ragged], rows)
        end = begin + ctx.grid.count(ctx.operand_types[0].shape[ragged], rows)
        ends = lax.cumsum(sizes, last)
        sizes = lax.clamp(begin, ends, end) - lax.clamp(begin, ends - sizes, end)
    if not groups:
        return ctx.bind([lhs, rhs, lax.convert_element_type(sizes, group_sizes.dtype)])

    if last > 0:
        ctx.unsupported("its groups are cut and the group sizes have leading dimensions")
    count = ctx.operand_types[2].shape[last]
    own = -(-count // ctx.grid.mesh.size(groups))
    first = ctx.grid.start(count, groups)
    before = lax.lt(lax.iota(np.int32, count), lax.broadcast(first, (count,)))
    offset = lax.reduce_sum(lax.select(before, sizes, lax.full_like(sizes, 0)), axes=(0,))
    known = lax.lt(lax.iota(np.int32, own), lax.broadcast(ctx.grid.count(count, groups), (own,)))
    padded = lax.pad(sizes, np.int32(0), [(0, own * ctx.grid.mesh.size(groups), 0)])
    sizes = lax.dynamic_slice_in_dim(padded, first, own, 0)
    sizes = lax.select(known, sizes, lax.full_like(sizes, 0))

    lhs = _roll(lhs, ragged, offset)
    if contracted:
        rhs = _roll(rhs, rhs_contract[list(lhs_contract).index(ragged)], offset)
    (out,) = ctx.bind([lhs, rhs, lax.convert_element_type(sizes, group_sizes.dtype)])
    if contracted:
        return [out]
    free = [d for d in range(lhs.ndim) if d not in lhs_contract and d not in lhs_batch]
    dim = len(lhs_batch) + free.index(ragged)
    mine = lax.lt(
        lax.broadcasted_iota(np.int32, out.shape, dim), lax.broadcast(lax.reduce_sum(sizes, axes=(0,)), out.shape)
    )
    return [_roll(lax.select(mine, out, lax.full_like(out, 0)), dim, np.int32(out.shape[dim]) - offset)]


def _roll(x: Any, dim: int, offset: Any) -> Any:
    """Element `offset` (0 .. n) of a dimension comes first, the ones before it last."""
    return lax.dynamic_slice_in_dim(lax.concatenate([x, x], dim), offset, x.shape[dim], dim)
