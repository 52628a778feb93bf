"""Invariants of one sharding: one clear message for each that is broken (S0.15 to S0.60).

Shardings with several faults get one message for each fault, so that a user can mend them in one go.
"""

from collections.abc import Iterator, Sequence
from itertools import combinations, pairwise
from math import prod
from typing import TYPE_CHECKING

from autoshard.sharding import axis_algebra as algebra
from autoshard.sharding.axis import AxisRef
from autoshard.sharding.dimension_sharding import DimensionSharding
from autoshard.sharding.mesh import Mesh

if TYPE_CHECKING:
    from autoshard.sharding.tensor_sharding import TensorSharding


def sharding_violations(
    sharding: "TensorSharding",
    mesh: Mesh,
    shape: Sequence[int] | None = None,
    *,
    what: str = "tensor",
    full_axes_only: bool = False,
) -> tuple[str, ...]:
    """Every broken invariant of `sharding` for a tensor of `shape` on `mesh`; empty where it is valid."""
    faults: list[str] = []
    if shape is not None and len(shape) != sharding.rank:
        faults.append(
            f"{what}: sharding {sharding} has {sharding.rank} dimensions but the tensor has rank {len(shape)} "
            f"(shape {list(shape)})"
        )
    places = _places(sharding)
    sound = [_axis_faults(ref, place, mesh, what, full_axes_only, faults) for place, ref in places]
    good = [entry for entry, ok in zip(places, sound, strict=True) if ok]
    faults += _clashes(good, mesh, what)
    for place, refs in _lists(sharding):
        faults += _unmerged(refs, place, mesh, what)
    for label, refs in (("replicated", sharding.replicated), ("unreduced", sharding.unreduced)):
        known = [r for r in refs if r.name in mesh.axis_names]
        if list(algebra.in_mesh_order(known, mesh)) != known:
            wanted = ", ".join(map(str, algebra.in_mesh_order(known, mesh)))
            faults.append(f"{what}: {label} axes are not in the order of mesh @{mesh.name}; write {label}={{{wanted}}}")
    for index, dim in enumerate(sharding.dims):
        faults += _priority_faults(dim, index, what)
        if shape is not None and len(shape) == sharding.rank and all(_fits(a, mesh) for a in dim.axes):
            faults += divisibility_violations(shape[index], dim.axes, mesh, what=f"{what}: dimension {index}")
    return tuple(faults)


def divisibility_violations(
    size: int, axes: Sequence[AxisRef], mesh: Mesh, *, what: str = "dimension"
) -> tuple[str, ...]:
    """The rule on padding: the minor-most axis must still split something (S0.54).

    If the product of the axis sizes exceeds the dimension, the product without the minor-most axis
    must be smaller than the dimension: 5 by [4, 2] is legal, 4 by [4, 2] is not. A dimension of size 0 is cut by none.
    """
    sizes = [mesh.ref_size(a) for a in axes]
    legal = [k for k in range(len(sizes) + 1) if k == 0 or prod(sizes[:k]) <= size or prod(sizes[: k - 1]) < size]
    if (kept := max(legal)) == len(sizes):
        return ()
    dropped = ", ".join(map(str, axes[kept:]))
    parts = prod(sizes[:kept])
    nothing = "there is nothing" if size == 0 else f"{parts} {'part leaves' if parts == 1 else 'parts leave'} nothing"
    return (
        f"{what} has size {size} and cannot be sharded by {{{', '.join(map(str, axes))}}} of sizes {sizes}: "
        f"{nothing} for {dropped} to split; drop {dropped}",
    )


def _lists(sharding: "TensorSharding") -> Iterator[tuple[str, tuple[AxisRef, ...]]]:
    for index, dim in enumerate(sharding.dims):
        yield f"dimension {index}", dim.axes
    yield "replicated axes", sharding.replicated
    yield "unreduced axes", sharding.unreduced


def _places(sharding: "TensorSharding") -> list[tuple[str, AxisRef]]:
    return [(place, ref) for place, refs in _lists(sharding) for ref in refs]


def _fits(ref: AxisRef, mesh: Mesh) -> bool:
    if ref.name not in mesh.axis_names:
        return False
    full = mesh.axis_size(ref.name)
    return ref.size is None or (full % ((ref.pre_size or 1) * ref.size) == 0 and ref.size != full)


def _axis_faults(ref: AxisRef, place: str, mesh: Mesh, what: str, full_axes_only: bool, found: list[str]) -> bool:
    """Append to `found` what is wrong with one axis reference by itself; True where nothing is."""
    if ref.name not in mesh.axis_names:
        known = ", ".join(f'"{a}"' for a in mesh.axis_names) or "none"
        found.append(f'{what}: {place} names axis "{ref.name}", which mesh @{mesh.name} does not have; it has {known}')
        return False
    if ref.pre_size is None or ref.size is None:
        return True
    full = mesh.axis_size(ref.name)
    if full_axes_only:
        found.append(
            f"{what}: {place} uses the sub-axis {ref}; a sharding given by the user names whole axes only. "
            f'Refine the mesh instead: split axis "{ref.name}"={full} into axes, one of them of size {ref.size}'
        )
    end = ref.pre_size * ref.size
    if full % end:
        found.append(
            f"{what}: {place}: sub-axis {ref} ends at pre-size {end}, which does not divide the size {full} "
            f'of axis "{ref.name}"'
        )
        return False
    if ref.size == full:
        found.append(f'{what}: {place}: sub-axis {ref} is the whole axis; write "{ref.name}"')
        return False
    return True


def _clashes(entries: Sequence[tuple[str, AxisRef]], mesh: Mesh, what: str) -> Iterator[str]:
    for (place_a, a), (place_b, b) in combinations(entries, 2):
        if a.name != b.name:
            continue
        where = place_a if place_a == place_b else f"{place_a} and {place_b}"
        if a == b:
            yield f"{what}: axis {a} is used twice, in {where}"
        elif not a.is_sub_axis or not b.is_sub_axis:
            yield f'{what}: both a sub-axis and the whole axis "{a.name}" are used, in {where}: {a}, {b}'
        elif algebra.overlap(a, b, mesh):
            yield f"{what}: sub-axes {a} and {b} overlap, in {where}"
        elif not algebra.can_coexist(a, b, mesh):
            yield (
                f"{what}: sub-axes {a} and {b} cannot coexist, in {where}: "
                f'no factorisation of the size {mesh.axis_size(a.name)} of axis "{a.name}" holds both'
            )


def _unmerged(refs: Sequence[AxisRef], place: str, mesh: Mesh, what: str) -> Iterator[str]:
    for a, b in pairwise(refs):
        if algebra.can_merge(a, b) and _fits(a, mesh) and _fits(b, mesh):
            yield f"{what}: {place}: {a}, {b} must be written as one, {algebra.merge_pair(a, b, mesh)}"


def _priority_faults(dim: DimensionSharding, index: int, what: str) -> Iterator[str]:
    if dim.priority is None:
        return
    if dim.priority < 0:
        yield f"{what}: dimension {index} has the negative priority {dim.priority}; priorities are 0, 1, 2, ..."
    if not dim.axes and not dim.is_open:
        yield (
            f"{what}: dimension {index} is empty and closed, so its priority p{dim.priority} means nothing; "
            "open it ({?}) or drop the priority"
        )
