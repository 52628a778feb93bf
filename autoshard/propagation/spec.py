"""The compact form of axes and shardings that propagation computes with.

A `Ref` is (position of the axis in the mesh, pre-size, pre-size times size); a whole axis of size n
is (i, 1, n), so whole axes need no special case. Specs are plain tuples: cheap to hash, which
lets every step of propagation be remembered (`step.py`).
"""

from typing import NamedTuple

from autoshard.sharding.axis import AxisRef
from autoshard.sharding.dimension_sharding import DimensionSharding
from autoshard.sharding.mesh import Mesh
from autoshard.sharding.tensor_sharding import TensorSharding

Ref = tuple[int, int, int]
Refs = tuple[Ref, ...]


class Dim(NamedTuple):
    """One dimension: axes major to minor, open or closed, priority (None where none was given)."""

    axes: Refs
    is_open: bool
    priority: int | None = None


class Spec(NamedTuple):
    """The sharding of one tensor on the mesh with index `mesh`."""

    mesh: int
    dims: tuple[Dim, ...]
    replicated: Refs = ()
    unreduced: Refs = ()
    combiner: str = "sum"

    @property
    def has_axes(self) -> bool:
        """Whether any axis is named: on a dimension, replicated or unreduced."""
        return bool(self.replicated or self.unreduced or any(d.axes for d in self.dims))

    @property
    def is_open_and_empty(self) -> bool:
        """Whether no dimension says anything: each is open and without axes."""
        return all(d.is_open and not d.axes for d in self.dims)


def open_spec(mesh: int, rank: int) -> Spec:
    """The spec whose dimensions are all open and empty."""
    return Spec(mesh, (Dim((), True),) * rank)


def to_spec(sharding: TensorSharding, mesh: Mesh, mesh_index: int) -> Spec:
    """The compact form of a sharding; `mesh_index` is the number of its mesh in the graph."""

    def ref(axis: AxisRef) -> Ref:
        pre = axis.pre_size or 1
        return mesh.axis_names.index(axis.name), pre, pre * mesh.ref_size(axis)

    def refs(axes: tuple[AxisRef, ...]) -> Refs:
        return tuple(ref(a) for a in axes)

    return Spec(
        mesh_index,
        tuple(Dim(refs(d.axes), d.is_open, d.priority) for d in sharding.dims),
        tuple(sorted(refs(sharding.replicated))),
        tuple(sorted(refs(sharding.unreduced))),
        sharding.combiner,
    )


def axis_ref(ref: Ref, mesh: Mesh) -> AxisRef:
    """The compact axis as an `AxisRef` with its name."""
    axis, pre, end = ref
    name = mesh.axis_names[axis]
    if pre == 1 and end == mesh.axis_sizes[axis]:
        return AxisRef(name)
    return AxisRef(name, pre, end // pre)


def from_spec(spec: Spec, mesh: Mesh, mesh_name: str | None) -> TensorSharding:
    """The inverse of `to_spec`."""

    def refs(axes: Refs) -> tuple[AxisRef, ...]:
        return tuple(axis_ref(a, mesh) for a in axes)

    return TensorSharding(
        mesh_name,
        tuple(DimensionSharding(refs(d.axes), d.is_open, d.priority) for d in spec.dims),
        refs(spec.replicated),
        refs(spec.unreduced),
        spec.combiner,
    )


def size(ref: Ref) -> int:
    """Number of parts into which the (sub-)axis cuts a dimension."""
    return ref[2] // ref[1]


def is_prefix(a: Ref, b: Ref) -> bool:
    """Whether `a` is a major part of `b`, or `b` itself."""
    return a[0] == b[0] and a[1] == b[1] and a[2] <= b[2]


def contains(a: Ref, b: Ref) -> bool:
    """Whether `a` covers all of `b`: the same axis, and `b` lies within the stretch of `a`."""
    return a[0] == b[0] and a[1] <= b[1] and a[2] >= b[2]


def overlaps(a: Ref, b: Ref) -> bool:
    """Whether the two cover a common part of one axis (S0.24)."""
    return a[0] == b[0] and (a == b or (a[1] < b[2] and b[1] < a[2]))


def compatible_cut(a: Ref, b: Ref) -> bool:
    """Whether one factorisation of the axis has the ends of both among its boundaries."""
    if a[0] != b[0]:
        return True
    low_pre, high_pre = (a[1], b[1]) if a[1] <= b[1] else (b[1], a[1])
    low_end, high_end = (a[2], b[2]) if a[2] <= b[2] else (b[2], a[2])
    if low_end > high_pre:
        return low_end % high_pre == 0 and high_pre % low_pre == 0 and high_end % low_end == 0
    return high_pre % low_end == 0


def prefix_without(ref: Ref, others: Refs) -> Ref | None:
    """The largest major part of `ref` that overlaps none of `others`; None where there is none."""
    for other in others:
        if ref[0] != other[0]:
            continue
        if not compatible_cut(ref, other):
            return None
        if not overlaps(ref, other):
            continue
        if ref[1] >= other[1]:
            return None
        ref = (ref[0], ref[1], other[1])
    return ref


def append_merged(axes: list[Ref], ref: Ref) -> None:
    """Append `ref`, merged into the last axis where the two are one sub-axis."""
    if axes and axes[-1][0] == ref[0] and axes[-1][2] == ref[1]:
        axes[-1] = (ref[0], axes[-1][1], ref[2])
    else:
        axes.append(ref)


def is_list_prefix(first: Refs, second: Refs, *, strict: bool) -> bool:
    """Whether the list `first` is a prefix of `second`; its last axis may be a part of its counterpart."""
    if not first:
        return bool(second) or not strict
    n = len(first)
    if n > len(second) or first[:-1] != second[: n - 1]:
        return False
    if n == len(second) and first[-1] == second[-1]:
        return not strict
    return is_prefix(first[-1], second[n - 1])
