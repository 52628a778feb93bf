"""Algebra of (sub-)axes on a mesh: order, overlap, coexistence, merging (S0.20 to S0.30)."""

from collections.abc import Iterable, Sequence

from autoshard.sharding.axis import AxisRef
from autoshard.sharding.mesh import Mesh


def span(ref: AxisRef, mesh: Mesh) -> tuple[int, int]:
    """(pre-size, pre-size times size) of a whole axis or sub-axis: the stretch of its axis that it covers."""
    pre = ref.pre_size or 1
    size = mesh.axis_size(ref.name) if ref.size is None else ref.size
    return pre, pre * size


def overlap(a: AxisRef, b: AxisRef, mesh: Mesh) -> bool:
    """Whether the two cover a common part of one axis (S0.24).

    >>> overlap(AxisRef("x", 1, 4), AxisRef("x", 2, 4), Mesh.from_dict({"x": 8}))
    True
    """
    if a.name != b.name:
        return False
    (a_pre, a_end), (b_pre, b_end) = span(a, mesh), span(b, mesh)
    return a_pre < b_end and b_pre < a_end


def can_coexist(a: AxisRef, b: AxisRef, mesh: Mesh) -> bool:
    """Whether one factorisation of the axis holds both as disjoint parts (S0.25).

    Disjoint is not enough: on an axis of 6 no factorisation holds both ``(1)2`` and ``(3)2``.
    """
    if a.name != b.name:
        return True
    (_, a_end), (b_pre, _) = sorted((span(a, mesh), span(b, mesh)))
    return a_end <= b_pre and b_pre % a_end == 0


def can_merge(a: AxisRef, b: AxisRef) -> bool:
    """Whether ``a, b`` in a list is one longer sub-axis: ``"x":(1)2, "x":(2)4`` (S0.27)."""
    if a.name != b.name or a.pre_size is None or a.size is None or b.pre_size is None:
        return False
    return a.pre_size * a.size == b.pre_size


def merge_pair(a: AxisRef, b: AxisRef, mesh: Mesh) -> AxisRef:
    """The sub-axis, or the whole axis, that ``a, b`` make up together."""
    return _stretch(a.name, span(a, mesh)[0], span(b, mesh)[1], mesh)


def _stretch(name: str, pre: int, end: int, mesh: Mesh) -> AxisRef:
    """The inverse of `span`."""
    full = pre == 1 and end == mesh.axis_size(name)
    return AxisRef(name) if full else AxisRef(name, pre, end // pre)


def union(refs: Iterable[AxisRef], mesh: Mesh) -> tuple[AxisRef, ...]:
    """All that these cover, in mesh order; what overlaps or meets is one.

    >>> mesh = Mesh.from_dict({"x": 8, "y": 2})
    >>> [str(ref) for ref in union([AxisRef("y"), AxisRef("x", 2, 2), AxisRef("x", 1, 4)], mesh)]
    ['"x":(1)4', '"y"']
    """
    out: list[AxisRef] = []
    for ref in sorted(refs, key=lambda r: (mesh.axis_names.index(r.name), span(r, mesh))):
        pre, end = span(ref, mesh)
        if out and out[-1].name == ref.name and pre <= span(out[-1], mesh)[1]:
            first, last = span(out.pop(), mesh)
            ref = _stretch(ref.name, first, max(last, end), mesh)
        out.append(ref)
    return tuple(out)


def merge(refs: Iterable[AxisRef], mesh: Mesh) -> tuple[AxisRef, ...]:
    """The same list with every mergeable neighbouring pair merged (maximality, S0.27)."""
    out: list[AxisRef] = []
    for ref in refs:
        if out and can_merge(out[-1], ref):
            out[-1] = merge_pair(out[-1], ref, mesh)
        else:
            out.append(ref)
    return tuple(out)


def mesh_key(ref: AxisRef, mesh: Mesh) -> tuple[int, int, int]:
    """Sort key of mesh order: axes as in the mesh, sub-axes by pre-size, then size (S0.11, S0.23)."""
    names = mesh.axis_names
    position = names.index(ref.name) if ref.name in names else len(names)
    return position, ref.pre_size or 0, ref.size or 0


def in_mesh_order(refs: Iterable[AxisRef], mesh: Mesh) -> tuple[AxisRef, ...]:
    """The references in mesh order."""
    return tuple(sorted(refs, key=lambda r: mesh_key(r, mesh)))


def coordinate(ref: AxisRef, mesh: Mesh, position: int) -> int:
    """Index along `ref` of the device at row-major `position` of the mesh (S0.20)."""
    minor = 1
    for axis, size in zip(reversed(mesh.axis_names), reversed(mesh.axis_sizes), strict=True):
        if axis == ref.name:
            along = (position // minor) % size
            pre, end = span(ref, mesh)
            return (along // (size // end)) % (end // pre)
        minor *= size
    mesh.axis_size(ref.name)  # raises: there is no such axis
    raise AssertionError("unreachable")


def block_index(refs: Sequence[AxisRef], mesh: Mesh, position: int) -> int:
    """Which block the device at `position` holds of a dimension cut by `refs`, major to minor (S0.3)."""
    index = 0
    for ref in refs:
        index = index * mesh.ref_size(ref) + coordinate(ref, mesh, position)
    return index
