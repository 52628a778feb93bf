"""Axes that restrictions name: whole ones, or parts of them in the notation of shardings, ``model:(1)2``."""

from collections.abc import Iterable

from autoshard.errors import ShardingError, listing
from autoshard.sharding import axis_algebra as algebra
from autoshard.sharding.axis import AxisRef
from autoshard.sharding.mesh import Mesh


def axis_named(text: str, mesh: Mesh) -> AxisRef:
    """The axis, or the part of one, that a text names; `ShardingError` where the mesh has none such.

    >>> axis_named('"x":(1)2', Mesh.from_dict({"x": 8}))
    AxisRef(name='x', pre_size=1, size=2)
    """
    if text in mesh.axis_names:
        return AxisRef(text)
    ref = AxisRef.from_text(text)
    if ref.name not in mesh.axis_names:
        raise ShardingError(f"the mesh has no axis {ref.name!r}; {listing(ref.name, mesh.axis_names)}")
    try:
        mesh.ref_size(ref)
    except ShardingError as error:
        size = mesh.axis_size(ref.name)
        hint = f"; a part is written {ref.name}:(before)size, where before times size divides {size}"
        raise ShardingError(str(error) + (hint if ref.size != size else "")) from None
    return ref


def whole_axis_named(text: str, mesh: Mesh) -> AxisRef:
    """The same for what runs over whole axes: `ShardingError` for a part of one, too."""
    ref = axis_named(text, mesh)
    if ref.is_sub_axis:
        raise ShardingError(
            f"{ref} is a part of an axis; a manual computation runs over whole ones, such as {ref.name}"
        )
    return ref


def axes_named(texts: Iterable[str], mesh: Mesh) -> tuple[str, ...]:
    """Names of axes as they stand in plan.json; where some are parts, in mesh order, what overlaps or meets as one.

    >>> axes_named(['"x":(1)2', "x:(2)2", "y"], Mesh.from_dict({"x": 8, "y": 2}))
    ('x:(1)4', 'y')
    """
    refs = tuple(axis_named(text, mesh) for text in texts)
    return tuple(str(ref).replace('"', "") for ref in (algebra.union(refs, mesh) if parts_in(refs) else refs))


def refs_of(axes: Iterable[str]) -> tuple[AxisRef, ...]:
    """The axes and parts behind names that `axes_named` gave."""
    return tuple(AxisRef.from_text(axis) if ":" in axis else AxisRef(axis) for axis in axes)


def parts_in(refs: Iterable[AxisRef]) -> tuple[AxisRef, ...]:
    """Those that are parts of axes."""
    return tuple(ref for ref in refs if ref.is_sub_axis)
