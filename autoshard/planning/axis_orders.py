"""In which orders axes may cut one dimension: which of them plans are searched for.

The order matters where uses of a value are cut by part of its axes: from ``{"x", "y"}`` a gather over y leads to
``{"x"}``, and none to ``{"y"}``. All orders of all axes would make large networks several times as large. Axes that
are alike can change places in a plan as a whole, unless a statement tells them apart, so in large programs they keep
one order. What this leaves out are plans in which one value has such axes in one order and another value in the other
(docs/limits.md).
"""

from collections.abc import Iterator, Sequence
from itertools import combinations, permutations

from autoshard.constraints.axes_named import refs_of
from autoshard.costmodels.machine import Machine
from autoshard.planning.parts import SOME_AXES, shardings_stated
from autoshard.planning.problem import Problem
from autoshard.sharding.tensor_sharding import TensorSharding

FEW_AXES = 2
FEW_OPS = 200
"""Axes larger than 1 of which all orders are tried in any program; `SOME_AXES` are in programs of so many ops."""

ALIKE_OPS = {FEW_AXES: 200, SOME_AXES: 120}
"""Ops, by the number of axes larger than 1, up to which axes are tried in all orders even if they are alike. With three
axes searches within a memory limit take up to twice as long then (they begin with one order: `fewer_orders`)."""

_Unit = tuple[int, ...]
"""Atoms that go together: those of an axis, or one part of it alone (`AtomMesh.units`)."""


def axis_orders(problem: Problem) -> tuple[tuple[str, ...], ...]:
    """Orders of mesh axes within a dimension that plans may have besides the mesh's own.

    With few axes all orders, but that in programs of many ops (`ALIKE_OPS`) axes alike (of one size, over the same
    links, and named by no statement, nor placed by stages of strategies) stay as they are in the mesh. In any case
    those that statements use or leave open: on a mesh of x, y and z, ``{"y", "x"}`` uses the order y, x, z, and
    ``{"y", ?}`` leaves it open: x and z can only follow. Parts of an axis that are axes of their own
    (`parts_apart`) are ordered as axes are, by their names in the mesh: ``("x:(2)4", "x:(1)2")``.
    """
    mesh, apart = problem.mesh, parts_apart(problem)
    in_parts = {mesh.atoms[part[0]].name for part in apart}
    out: dict[tuple[str, ...], None] = {}
    for units in dict.fromkeys((mesh.units(), mesh.units(apart))):
        for order in _orders(problem, units):
            refs = ((mesh.atoms[a].name, mesh.names[a]) for unit in order for a in unit)
            out[tuple(dict.fromkeys(part if axis in in_parts else axis for axis, part in refs))] = None
    return tuple(out)


def _orders(problem: Problem, units: Sequence[_Unit]) -> Iterator[tuple[_Unit, ...]]:
    """Orders besides that of the mesh, each maybe several times."""
    mesh = problem.mesh
    cutting = tuple(unit for unit in units if mesh.size(unit) > 1)
    ops = len(problem.program.ops)
    most = SOME_AXES if ops <= FEW_OPS else FEW_AXES
    if len(cutting) <= most:
        every = ops <= ALIKE_OPS[max(FEW_AXES, len(cutting))] and not problem.alike_in_order
        named = set(mesh.mesh.axis_names) if every else _named(problem)
        whole = {name: atoms for name, atoms in mesh.atoms_of.items() if atoms in cutting and name not in named}
        alike = [(whole[a], whole[b]) for a, b in _alike(problem.machine, tuple(whole))]
        rest = [unit for unit in units if unit not in cutting]
        for order in permutations(cutting):
            place = {unit: k for k, unit in enumerate(order)}
            if order != cutting and all(place[a] < place[b] for a, b in alike):
                yield (*order, *rest)
    for listed, is_open in _listed(problem, units):
        order = (*listed, *(unit for unit in units if unit not in listed))
        later = listed != tuple(sorted(listed))
        if later or ((is_open or len(cutting) <= most) and order != tuple(units)):
            yield order


def parts_apart(problem: Problem) -> tuple[tuple[int, ...], ...]:
    """The parts of axes that statements name, the rest of these axes, and parts that are axes of the meshes which
    statements are on: each the atoms of what goes to one place, also where a dimension can take the whole axis. Only
    while they are few (`planning.parts`).
    """
    return problem.parts().atoms(problem.mesh)


def notes_on_parts(problem: Problem) -> tuple[str, ...]:
    """Notes where parts of axes are too many to be axes of their own in the whole program: those that statements name,
    and other axes of the meshes that statements are on.
    """
    parts, ops, notes = problem.parts(), len(problem.program.ops), []
    if parts.together:
        notes.append(
            f"statements name parts of {', '.join(parts.together)}; in a program of {ops} ops with so many axes and "
            "parts, ops are cut by these parts only where a dimension does not take the whole axis, so that a plan on "
            "a mesh which has them as axes may cost less (docs/limits.md)"
        )
    if parts.unused:
        notes.append(
            f"statements are on a mesh whose axes are parts of {', '.join(parts.unused)}; in a program of {ops} ops "
            "with so many axes and parts, those that no statement names are not told apart, so that a plan on that "
            "mesh may cost less (docs/limits.md)"
        )
    return tuple(notes)


def limits_of_refusals(problem: Problem) -> tuple[str, ...]:
    """A line for refusals where parts of axes that statements speak of are too many to be axes of their own: of what
    plans the refusal is proved.
    """
    parts = problem.parts()
    axes = dict.fromkeys((*parts.together, *parts.unused))
    if not axes:
        return ()
    ops = len(problem.program.ops)
    return (
        f"this is proved of plans in which the parts of {', '.join(axes)} that statements speak of are no axes of "
        f"their own, since a program of {ops} ops has too many axes and parts for that: a plan on a mesh which has "
        "them as axes may exist (docs/limits.md)",
    )


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
    return {*(ref.name for ref in refs), *(ref.name for r in problem.restrictions for ref in refs_of(r.axes)), *manual}


def _stated(problem: Problem) -> list[TensorSharding]:
    return shardings_stated((*problem.pins, *problem.later), problem.restrictions)


def _listed(problem: Problem, units: Sequence[_Unit]) -> list[tuple[tuple[_Unit, ...], bool]]:
    """What statements put on one dimension, in its order, and whether more may follow."""
    mesh = problem.mesh
    unit_of = {atom: unit for unit in units for atom in unit}
    dims = [dim for sharding in _stated(problem) for dim in sharding.dims]
    atoms = [[a for ref in dim.axes for a in mesh.atoms_for(ref)] for dim in dims]
    return [
        (tuple(dict.fromkeys(unit_of[a] for a in listed)), dim.is_open) for listed, dim in zip(atoms, dims, strict=True)
    ]
