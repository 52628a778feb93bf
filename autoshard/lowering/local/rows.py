"""Slices and pads of cut dimensions on blocks: rows change devices, or every device fills in those that it has."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from jax import lax

from autoshard.lowering.local.context import LocalOp, mask_tail
from autoshard.program.rule import Cutout
from autoshard.program.schedule import cutout_rounds, numbers_in_mesh_order
from autoshard.sharding.rows import Piece, pieces


def rows_at(x: Any, dim: int, first: Any, count: int) -> Any:
    """Elements first .. first + count of a dimension, zeros where it has none; `first` may be negative or traced."""
    n = x.shape[dim]
    width = min(n, count)
    if isinstance(first, int) and 0 <= first <= n - count:
        return lax.slice_in_dim(x, first, first + count, axis=dim)
    first = lax.convert_element_type(first, np.int32)  # a number outside, or traced
    begin = lax.clamp(np.int32(0), first, np.int32(n - width))
    taken = lax.dynamic_slice_in_dim(x, begin, width, dim)
    config = [(count, count, 0) if d == dim else (0, 0, 0) for d in range(x.ndim)]
    around = lax.pad(taken, lax.full((), 0, x.dtype), config)
    shift = lax.clamp(np.int32(-count), first - begin, np.int32(width))
    return lax.dynamic_slice_in_dim(around, shift + np.int32(count), count, dim)


def filled_in(ctx: LocalOp, x: Any, cutout: Cutout, start: Any) -> Any:
    """The run of a dimension from `start` on: what this device has of it, zeros elsewhere."""
    n, atoms = ctx.operand_types[0].shape[cutout.dim], ctx.operand_atoms(0, cutout.dim)
    if ctx.is_uneven(n, atoms):
        x = mask_tail(x, cutout.dim, n, atoms, 0, ctx.grid)
    count = ctx.result_types[cutout.result].shape[cutout.dim]
    return rows_at(x, cutout.dim, start - ctx.grid.start(n, atoms), count)


def taken_in(ctx: LocalOp, x: Any, cutout: Cutout) -> Any:
    """This device's block of a pad, or of what is joined, along a dimension that is whole before it; zeros where
    padding and other operands belong.
    """
    assert cutout.start is not None
    atoms = ctx.result_atoms(0, cutout.dim)
    start = ctx.grid.start(ctx.result_types[0].shape[cutout.dim], atoms)
    return rows_at(x, cutout.dim, start + np.int32(cutout.start), ctx.local_result(0)[cutout.dim])


def moved(ctx: LocalOp, x: Any, cutout: Cutout) -> Any:
    """This device's block of a dimension that is cut before and after: what it keeps, and what others send it.

    Elements of a pad that are padding are undefined, and of what is joined those of other operands.
    """
    assert cutout.start is not None
    atoms, dim, mesh = ctx.placement.factors[cutout.taken], cutout.dim, ctx.grid.mesh
    operand, result = ctx.rule.factor_sizes[cutout.taken], ctx.rule.factor_sizes[cutout.made]
    number, names = numbers_in_mesh_order(atoms, mesh), ctx.grid.names(sorted(atoms))
    found = pieces(operand, result, cutout.start, tuple(mesh.sizes[a] for a in atoms), cutout.wraps)
    kept = [p for p in found if p.source == p.target]
    blocks = [_Block(x, kept, [p.begin for p in kept])] if kept else []
    for sent in cutout_rounds(ctx.rule, cutout, atoms, mesh):
        width = max(p.count for p in sent)
        begins = [min(p.begin, x.shape[dim] - width) for p in sent]
        here = rows_at(x, dim, _by_device(ctx, atoms, {p.source: b for p, b in zip(sent, begins, strict=True)}), width)
        there = lax.ppermute(here, names, [(number[p.source], number[p.target]) for p in sent])
        blocks.append(_Block(there, sent, [p.begin - b for p, b in zip(sent, begins, strict=True)]))
    length = ctx.local_result(cutout.result)[dim]
    return _put_together(ctx, blocks, atoms, dim, length) if blocks else _zeros(x, dim, length)


class _Block:
    """A block that holds pieces for devices, and where in it each of them begins."""

    def __init__(self, array: Any, held: Sequence[Piece], begins: Sequence[int]) -> None:
        self.array, self.held = array, held
        self.first = {p.target: begin - p.at for p, begin in zip(held, begins, strict=True)}  # where row 0 would be
        self.low, self.high = min(p.at for p in held), max(p.at + p.count for p in held)


def _put_together(ctx: LocalOp, blocks: Sequence[_Block], atoms: Sequence[int], dim: int, length: int) -> Any:
    """One block out of the pieces of several. What no piece covers is undefined."""
    blocks = sorted(blocks, key=lambda b: (b.low, b.high))
    if all(len(set(b.first.values())) == 1 for b in blocks) and all(a.high <= b.low for a, b in pairwise(blocks)):
        parts, end = [], 0  # the same on every device
        for b in blocks:
            (first,) = set(b.first.values())
            parts += [_zeros(b.array, dim, b.low - end)] if b.low > end else []
            parts.append(lax.slice_in_dim(b.array, b.low + first, b.high + first, axis=dim))
            end = b.high
        parts += [_zeros(parts[0], dim, length - end)] if end < length else []
        return lax.concatenate(parts, dim) if len(parts) > 1 else parts[0]
    spans = _spans(blocks, length)
    out = None
    for b, span in zip(blocks, spans, strict=True):
        mine = rows_at(b.array, dim, _by_device(ctx, atoms, b.first), length)
        if out is None:
            out = mine
            continue
        begin = _by_device(ctx, atoms, {d: low for d, (low, _) in span.items()}, other=length)
        end = _by_device(ctx, atoms, {d: high for d, (_, high) in span.items()}, other=0)
        row = lax.broadcasted_iota(np.int32, mine.shape, dim)
        out = lax.select((row >= begin) & (row < end), mine, out)
    return out


def _spans(blocks: Sequence[_Block], length: int) -> list[dict[int, tuple[int, int]]]:
    """For each block, which rows of the result devices take from it; the first and the last piece reach to the ends."""
    by_device: dict[int, list[tuple[int, int, int]]] = {}
    for k, b in enumerate(blocks):
        for p in b.held:
            by_device.setdefault(p.target, []).append((p.at, p.at + p.count, k))
    spans: list[dict[int, tuple[int, int]]] = [{} for _ in blocks]
    for device, taken in by_device.items():
        taken.sort()
        for place, (low, high, k) in enumerate(taken):
            spans[k][device] = (low if place else 0, high if place < len(taken) - 1 else length)
    return spans


def _zeros(like: Any, dim: int, count: int) -> Any:
    return lax.full([count if d == dim else n for d, n in enumerate(like.shape)], 0, like.dtype)


def _by_device(ctx: LocalOp, atoms: Sequence[int], values: Mapping[int, int], other: int | None = None) -> Any:
    """The value of this device, by its number in the group of `atoms`; a plain number where all have the same.

    other: of devices without a value; None: it does not matter.
    """
    size = ctx.grid.mesh.size(atoms)
    alike = set(values.values())
    if len(alike) == 1 and (other is None or len(values) == size):
        return alike.pop()
    table = [values.get(d, next(iter(values.values())) if other is None else other) for d in range(size)]
    return lax.dynamic_index_in_dim(np.asarray(table, np.int32), ctx.grid.index(atoms), keepdims=False)
