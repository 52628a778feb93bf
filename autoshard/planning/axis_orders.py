"""In which orders axes may cut one dimension: which of them plans are searched for.

The order matters where uses of a value are cut by part of its axes: from ``{"x", "y"}`` a gather over y leads to
``{"x"}``, and none to ``{"y"}``. All orders of all axes would make large networks several times as large. Axes that
are alike can change places in a plan as a whole, unless a statement tells them apart, so in large programs they keep
one order. What this leaves out are plans in which one value has such axes in one order and another value in the other
(docs/limits.md).
"""

from collections.abc import Sequence
from itertools import combinations, permutations

from autoshard.costmodels.machine import Machine
from autoshard.planning.problem import Problem
from autoshard.sharding.tensor_sharding import TensorSharding

FEW_AXES = 2
SOME_AXES, FEW_OPS = 3, 200
"""Axes larger than 1 of which all orders are tried in any program, and in programs of so many ops."""

ALIKE_OPS = {FEW_AXES: 200, SOME_AXES: 120}
"""Ops, by the number of axes larger than 1, up to which axes are tried in all orders even if they are alike. With three
axes searches within a memory limit take up to twice as long then (they begin with one order: `fewer_orders`)."""


def axis_orders(problem: Problem) -> tuple[tuple[str, ...], ...]:
    """Orders of mesh axes within a dimension that plans may have besides the mesh's own.

    With few axes all orders, but that in programs of many ops (`ALIKE_OPS`) axes alike (of one size, over the same
    links, and named by no statement, nor placed by stages of strategies) stay as they are in the mesh. In any case
    those that statements use or leave open: on a mesh of x, y and z, ``{"y", "x"}`` uses the order y, x, z, and
    ``{"y", ?}`` leaves it open: x and z can only follow.
    """
    mesh = problem.mesh.mesh
    names = tuple(mesh.axis_names)
    cutting = tuple(n for n, size in zip(names, mesh.axis_sizes, strict=True) if size > 1)
    ops = len(problem.program.ops)
    most = SOME_AXES if ops <= FEW_OPS else FEW_AXES
    out: dict[tuple[str, ...], None] = {}
    if len(cutting) <= most:
        every = ops <= ALIKE_OPS[max(FEW_AXES, len(cutting))] and not problem.alike_in_order
        named = cutting if every else _named(problem)
        alike = _alike(problem.machine, [name for name in cutting if name not in named])
        rest = [n for n in names if n not in cutting]
        for order in permutations(cutting):
            place = {n: k for k, n in enumerate(order)}
            if order != cutting and all(place[a] < place[b] for a, b in alike):
                out[(*order, *rest)] = None
    for listed, is_open in _listed(problem):
        order = (*listed, *(n for n in names if n not in listed))
        later = listed != tuple(sorted(listed, key=names.index))
        if later or ((is_open or len(cutting) <= most) and order != names):
            out[order] = None
    return tuple(out)


def axes_apart(problem: Problem) -> frozenset[str]:
    """Axes of which statements name parts, as those on another mesh over the same devices do: these parts go to
    different places on all ops, also where one dimension can take the whole axis.
    """
    return frozenset(ref.name for sharding in _stated(problem) for ref in sharding.axes_used() if ref.is_sub_axis)


def _alike(machine: Machine, axes: Sequence[str]) -> list[tuple[str, str]]:
    """Pairs of axes, in the order of the mesh, that have the same size and go over the same links."""
    links = {
        name: (size, sorted((s.level, s.size) for s in segments if s.size > 1))
        for (name, size), segments in zip(machine.axes, machine.layout, strict=True)
    }
    return [(a, b) for a, b in combinations(axes, 2) if links[a] == links[b]]


def _named(problem: Problem) -> set[str]:
    """Axes that statements, a `shard_map` of the program or strategies name: others cannot take their places in a
    plan.
    """
    if problem.by_name:
        return set(problem.mesh.mesh.axis_names)
    refs = [
        ref
        for sharding in _stated(problem)
        for ref in (*(a for dim in sharding.dims for a in dim.axes), *sharding.replicated, *sharding.unreduced)
    ]
    manual = {name for op, _ in problem.program.walk() for name, _ in op.attrs.get("mesh_axes", ())}
    return {*(ref.name for ref in refs), *(name for r in problem.restrictions for name in r.axes), *manual}


def _stated(problem: Problem) -> list[TensorSharding]:
    return [
        *(pin.sharding for pin in (*problem.pins, *problem.later)),
        *(sharding for r in problem.restrictions for sharding in r.shardings),
    ]


def _listed(problem: Problem) -> list[tuple[tuple[str, ...], bool]]:
    """Axes that statements put on one dimension, in their order, and whether more may follow."""
    dims = [dim for sharding in _stated(problem) for dim in sharding.dims]
    return [(tuple(dict.fromkeys(a.name for a in dim.axes)), dim.is_open) for dim in dims]
