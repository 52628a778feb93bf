"""Layouts that reshards pass through between those that are in use."""

from collections.abc import Iterator, Sequence
from itertools import permutations, product
from math import prod

from autoshard.program.types import TensorType
from autoshard.sharding.layout import AtomMesh, Layout

MAX_AXES_IN_ANY_ORDER = 3
"""With more mesh axes, way-points keep the canonical (mesh) order only, to bound the graph."""


def waypoints(
    type_: TensorType, mesh: AtomMesh, unreduced: frozenset[int], apart: Sequence[tuple[int, ...]] = ()
) -> list[Layout]:
    """Every evenly dividing layout of whole mesh axes; those in `unreduced` may be partial sums.

    Each axis is absent, on a dimension, or unreduced. Up to three axes come in every order within a dimension, more
    only in mesh order. Layouts that put sub-axes of one axis on different dimensions are among them where `apart` has
    these as axes of their own.
    """
    out: dict[Layout, None] = {}
    for units in dict.fromkeys((mesh.units(), mesh.units(apart))):
        out |= dict.fromkeys(_layouts_of([u for u in units if mesh.size(u) > 1], type_, mesh, unreduced))
    return list(out)


def _layouts_of(
    axes: Sequence[tuple[int, ...]], type_: TensorType, mesh: AtomMesh, unreduced: frozenset[int]
) -> list[Layout]:
    """The way-points of these axes, each of them the atoms that go together."""
    any_order = len(axes) <= MAX_AXES_IN_ANY_ORDER
    out: list[Layout] = []

    def visit(index: int, dims: list[tuple[tuple[int, ...], ...]], partial: tuple[int, ...]) -> None:
        if index == len(axes):
            orders: list[tuple[tuple[int, ...], ...]] = [()]
            for d in dims:
                choices = list(permutations(d)) if any_order else [d]  # a list: iterated once for each order so far
                orders = [(*o, tuple(a for axis in p for a in axis)) for o in orders for p in choices]
            out.extend(Layout(o, partial) for o in orders)
            return
        axis = axes[index]
        visit(index + 1, dims, partial)
        if unreduced.issuperset(axis):
            visit(index + 1, dims, (*partial, *axis))
        for place, kept in enumerate(dims):
            cut = prod(mesh.size(a) for a in kept) * mesh.size(axis)
            if type_.shape[place] % cut == 0:
                dims[place] = (*kept, axis)
                visit(index + 1, dims, partial)
                dims[place] = kept

    visit(0, [()] * type_.rank, ())
    return out


def beginnings(layout: Layout) -> Iterator[Layout]:
    """The layouts that lead to one by slices: those with a major part of its atoms in each dimension.

    Each also with its atoms in mesh order, from which one permute leads on.

    >>> [lay.dims for lay in beginnings(Layout(((2, 0), ())))]
    [((), ()), ((2,), ()), ((2, 0), ()), ((0, 2), ())]
    """
    cuts = [[atoms[:n] for n in range(len(atoms) + 1)] for atoms in layout.dims]
    both = (tuple(dims) for kept in product(*cuts) for dims in (kept, map(tuple, map(sorted, kept))))
    yield from dict.fromkeys(Layout(dims, layout.unreduced) for dims in both)
