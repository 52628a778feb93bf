"""Shardings on another mesh over the same devices, translated to the mesh of a plan.

Another mesh over the same devices often has axes that are (sub-)axes of the plan's mesh. On a plan's mesh of
``x=2, y=4``, the axis of 4 of a 4x2 mesh is ``"x", "y":(1)2``; a transposed grid swaps two axes. A sharding on such a
mesh is then a sharding on the plan's mesh, with sub-axes. Some orders of devices follow no (sub-)axes (a reversed
grid, a ring). Then the value is cut into the same blocks in the plan's order, and one permute moves each block to the
device where the other mesh has it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod

import numpy as np

from autoshard.errors import ShardingError
from autoshard.sharding import axis_algebra as algebra
from autoshard.sharding.axis import AxisRef
from autoshard.sharding.dimension_sharding import DimensionSharding
from autoshard.sharding.layout import AtomMesh
from autoshard.sharding.mesh import Mesh
from autoshard.sharding.refine import refine
from autoshard.sharding.tensor_sharding import TensorSharding


@dataclass(frozen=True, slots=True)
class Translated:
    """A sharding on the plan's mesh, and where its blocks lie.

    moves: for each position of the mesh (row-major), the position at which its block lies. Empty where every block lies
    where `sharding` puts it.
    """

    sharding: TensorSharding
    moves: tuple[int, ...] = ()


def same_grid(one: Mesh, other: Mesh) -> bool:
    """Whether two meshes have the same axes over the same devices in the same order; their names do not count."""
    plain = tuple(range(one.size))
    axes = (one.axis_names, one.axis_sizes) == (other.axis_names, other.axis_sizes)
    return axes and (one.device_ids or plain) == (other.device_ids or plain)


def translate(sharding: TensorSharding, other: Mesh, mesh: Mesh) -> Translated:
    """The sharding on `mesh` that corresponds to one on `other`; both meshes have the same devices.

    Where blocks have to move, open dimensions become closed: axes that would cut them further lie in another order too.
    `ShardingError` where neither mesh can be refined so that the sharding is one of it (3x2 on 2x3 devices).

    >>> pin, grid = TensorSharding.from_text('[{"a"}, {?}]'), Mesh.from_dict({"x": 2, "y": 4})
    >>> str(translate(pin, Mesh.from_dict({"a": 4, "b": 2}), grid).sharding)
    '[{"x", "y":(1)2}, {?}]'
    >>> turned = Mesh(("x", "y"), (2, 4), "mesh", tuple(range(7, -1, -1)))
    >>> translate(TensorSharding.from_text('[{"x"}, {}]'), turned, grid).moves
    (4, 5, 6, 7, 0, 1, 2, 3)
    """
    if other.size != mesh.size:
        raise ShardingError(f"mesh {other} has {other.size} devices, the plan's mesh {mesh} has {mesh.size}")
    if same_grid(other, mesh):
        return Translated(sharding)
    grid, counts = _blocks(sharding, other)
    at = _positions(grid, mesh)
    try:
        parts = read_digits(np.sort(at, axis=1).reshape(-1).tolist(), counts, mesh, str(other))
        return Translated(_with_axes(sharding, parts, mesh))
    except ShardingError:
        pass
    plain = replace(other, device_ids=mesh.device_ids)
    closed = replace(sharding, dims=tuple(replace(d, is_open=False) for d in sharding.dims))
    here = _positions(_blocks(sharding, plain)[0], mesh)
    try:
        parts = read_digits(np.sort(here, axis=1).reshape(-1).tolist(), counts, mesh, str(other))
    except ShardingError:
        raise ShardingError(
            f"{sharding} on mesh {other} cuts the devices otherwise than any parts of the plan's mesh {mesh} do"
        ) from None
    return Translated(_with_axes(closed, parts, mesh), _moves(here, at))


@lru_cache(maxsize=256)
def cuts_by(other: Mesh, mesh: Mesh) -> Mapping[str, frozenset[int]]:
    """Into how many blocks axes of `mesh` are split where axes of another mesh over the same devices begin or end.
    Axes of the other mesh that follow no parts of these split none.

    >>> cuts_by(Mesh.from_dict({"a": 2, "b": 4}), Mesh.from_dict({"x": 8}))
    {'x': frozenset({2})}
    """
    cuts: dict[str, set[int]] = {}
    for name in other.axis_names if other.size == mesh.size else ():
        try:
            found = translate(TensorSharding(None, (DimensionSharding((AxisRef(name),)),)), other, mesh)
        except ShardingError:
            continue
        for ref in found.sharding.dims[0].axes:
            if ref.pre_size is not None and ref.size is not None:
                ends = {ref.pre_size, ref.pre_size * ref.size}
                cuts.setdefault(ref.name, set()).update(ends - {1, mesh.axis_size(ref.name)})
    return {name: frozenset(ends) for name, ends in cuts.items() if ends}


def moved_atoms(moves: Sequence[int], mesh: AtomMesh) -> tuple[int, ...]:
    """The atoms whose coordinate differs between some position and the position that its block moves to."""
    before = np.unravel_index(np.arange(len(moves)), mesh.sizes)
    after = np.unravel_index(np.array(moves), mesh.sizes)
    return tuple(a for a in range(len(mesh.sizes)) if bool(np.any(before[a] != after[a])))


def layout_on(sharding: TensorSharding, mesh: AtomMesh) -> tuple[tuple[int, ...], ...]:
    """The atoms of each dimension of a closed sharding."""
    return tuple(tuple(a for ref in dim.axes for a in mesh.atoms_for(ref)) for dim in sharding.dims)


def _blocks(sharding: TensorSharding, mesh: Mesh) -> tuple[np.ndarray, list[int]]:
    """Where the blocks of a sharding lie, and how many there are.

    The array holds device ids as [block, copy], blocks in row-major order. The list holds the number of blocks along
    each dimension, then the number of summands, then the number of copies.
    """
    atoms = refine(mesh, [sharding])
    dims = [[a for ref in dim.axes for a in atoms.atoms_for(ref)] for dim in sharding.dims]
    summed = [a for ref in sharding.unreduced for a in atoms.atoms_for(ref)]
    used = [a for dim in dims for a in dim] + summed
    rest = [a for a in range(len(atoms.sizes)) if a not in used]
    ids = np.array(mesh.device_ids or range(mesh.size)).reshape(atoms.sizes).transpose(*used, *rest)
    counts = [*(atoms.size(d) for d in dims), atoms.size(summed), atoms.size(rest)]
    return ids.reshape(prod(counts[:-1]), counts[-1]), counts


def _positions(ids: np.ndarray, mesh: Mesh) -> np.ndarray:
    where = np.empty(mesh.size, np.int64)
    where[list(mesh.device_ids or range(mesh.size))] = np.arange(mesh.size)
    return where[ids]


def _with_axes(sharding: TensorSharding, parts: Sequence[tuple[AxisRef, ...]], mesh: Mesh) -> TensorSharding:
    dims = tuple(
        DimensionSharding(axes, d.is_open, d.priority)
        for axes, d in zip(parts[: sharding.rank], sharding.dims, strict=True)
    )
    return TensorSharding(None, dims, (), algebra.in_mesh_order(parts[sharding.rank], mesh))


def _moves(here: np.ndarray, there: np.ndarray) -> tuple[int, ...]:
    """For each position, the position its block goes to. A copy stays in place where its target holds the same
    block.
    """
    moves = np.empty(here.size, np.int64)
    for sources, targets in zip(here.tolist(), there.tolist(), strict=True):
        left = sorted(set(targets) - set(sources))
        for source in sorted(sources):
            moves[source] = source if source in targets else left.pop(0)
    return tuple(int(m) for m in moves)


# -- lists of positions as digits ------------------------------------------------------------------------------


def read_digits(positions: Sequence[int], counts: Sequence[int], mesh: Mesh, what: str) -> list[tuple[AxisRef, ...]]:
    """The (sub-)axes behind each of `counts`.

    `positions` lists positions of the mesh in the order in which the counts run through them, row-major.
    `ShardingError` where the list follows no (sub-)axes of the mesh; `what` names the list in the message.
    """
    parts = _components(positions)
    refs: list[tuple[AxisRef, ...]] = []
    for count in counts:
        taken: list[AxisRef] = []
        while count > 1:
            stride, size = parts.pop()
            if size > count:
                if size % count:
                    raise ShardingError(
                        f"{what} does not follow the axes of mesh {mesh}: {size} parts against {count} tiles"
                    )
                parts.append((stride, size // count))
                stride, size = stride * (size // count), count
            elif count % size:
                raise ShardingError(
                    f"{what} does not follow the axes of mesh {mesh}: {count} tiles against {size} parts"
                )
            taken += _axes_at(stride, size, mesh, what)
            count //= size
        refs.append(algebra.merge(taken, mesh))
    return refs


def _components(positions: Sequence[int]) -> list[tuple[int, int]]:
    """(stride, size) of each digit of a list of positions read as a mixed-radix number, the minor-most digit first."""
    out: list[tuple[int, int]] = []
    left = list(positions)
    while len(left) > 1:
        stride = left[1] - left[0]
        n = 1
        for size in range(2, len(left) + 1):
            if len(left) % size == 0 and all(
                left[i] == left[i - i % size] + (i % size) * stride for i in range(len(left))
            ):
                n = size
        if n == 1:
            raise ShardingError(f"the device order {list(positions)[:16]} is no mixed-radix reading of the devices")
        out.append((stride, n))
        left = left[::n]
    return out


def _axes_at(stride: int, size: int, mesh: Mesh, what: str) -> list[AxisRef]:
    """The (sub-)axes, major to minor, that walk through `size` positions at a distance of `stride`."""
    out: list[AxisRef] = []
    minor = 1
    for axis, full in zip(reversed(mesh.axis_names), reversed(mesh.axis_sizes), strict=True):
        low, high = max(stride, minor), min(stride * size, minor * full)
        if high > low:
            part = high // low
            if low % minor or (minor * full) % high or high % low:
                raise ShardingError(f"{what} does not follow the axes of mesh {mesh}")
            pre = minor * full // high
            out.insert(0, AxisRef(axis) if part == full else AxisRef(axis, pre, part))
        minor *= full
    if prod(mesh.ref_size(a) for a in out) != size:
        raise ShardingError(f"{what} does not follow the axes of mesh {mesh}")
    return out
