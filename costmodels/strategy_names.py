"""Strategies by name: a `+` of parts, and the mesh axes that each part lies on."""

from collections.abc import Mapping
from math import prod

from autoshard.costmodels.errors import ProfileError

# The parts of strategies and the mesh axes named for each; of several parts without one, the last gets the innermost.
PARTS: dict[str, tuple[str, ...]] = {
    "data": ("data", "replica"),
    "zero1": ("zero1", "data", "replica"),
    "fsdp": ("fsdp",),
    "fsdp_transpose": ("fsdp_transpose", "fsdp"),
    "tensor": ("tensor", "model"),
    "context": ("context",),
    "sequence": ("sequence",),
    "expert": ("expert",),
    "pipeline": ("pipeline", "stage"),
}
ON_ROWS = ("data", "zero1", "fsdp", "fsdp_transpose")
"""Parts that cut the batch by rows; they may take each other's axes (`fsdp` on an axis `data`)."""
_SPELLINGS = {
    "dp": "data", "data_parallel": "data", "ddp": "data", "zero3": "fsdp", "zero_3": "fsdp", "zero_1": "zero1",
    "tp": "tensor", "megatron": "tensor", "tensor_parallel": "tensor", "sp": "sequence", "ulysses": "sequence",
    "cp": "context", "ep": "expert", "pp": "pipeline",
}  # fmt: skip


def read_strategy(text: str, mesh: Mapping[str, int]) -> dict[str, tuple[str, ...]]:
    """The parts of a strategy and the mesh axes each lies on; every axis of size above 1 must have a part.

    A part takes the axis named for it. A part without such an axis takes the innermost axis that is named for no other
    part (parts on rows also one that is named for another part on rows). The axes of rows that are left join the part
    on rows.

    >>> read_strategy("fsdp+tp", {"fsdp": 64, "model": 8})
    {'fsdp': ('fsdp',), 'tensor': ('model',)}
    >>> read_strategy("fsdp+tensor", {"data": 64, "tensor": 8})
    {'fsdp': ('data',), 'tensor': ('tensor',)}
    """
    names: list[str] = []
    for word in (w.strip().lower() for w in text.split("+")):
        plain = word.replace("-", "_").replace(" ", "_")
        part = _SPELLINGS.get(plain, plain)
        if part not in PARTS:
            raise ProfileError(f"unknown strategy {word!r}; parts are {', '.join(PARTS)}, joined by +")
        if part in names:
            raise ProfileError(f"strategy {text!r} names {part} twice")
        names.append(part)
    axes_of: dict[str, tuple[str, ...]] = {}
    for part in names:
        axis = next((a for a in PARTS[part] if a in mesh and not _taken(a, axes_of)), None)
        if axis is not None:
            axes_of[part] = (axis,)
    for part in sorted(set(names) - set(axes_of), key=list(PARTS).index, reverse=True):
        free = [axis for axis in mesh if not _taken(axis, axes_of) and _may_take(part, axis, len(mesh))]
        if not free:
            raise ProfileError(
                f"strategy {text!r}: {part} needs a mesh axis of its own named {PARTS[part][0]!r}; "
                f"the mesh has {dict(mesh)}"
            )
        axes_of[part] = (free[-1],)
    idle = [axis for axis, size in mesh.items() if size > 1 and not _taken(axis, axes_of)]
    rows = next((part for part in names if part in ON_ROWS), None)
    if idle and (rows is None or not all(_may_take(rows, axis, len(mesh)) for axis in idle)):
        raise ProfileError(f"strategy {text!r} does not use mesh axes {idle}; the work would be repeated on them")
    if idle and rows is not None:
        axes_of[rows] = tuple(axis for axis in mesh if axis in {*idle, *axes_of[rows]})
    return {part: axes_of[part] for part in names}


def _taken(axis: str, found: Mapping[str, tuple[str, ...]]) -> bool:
    return any(axis in axes for axes in found.values())


def _may_take(part: str, axis: str, axes: int) -> bool:
    """Whether a part may lie on an axis that is not named for it."""
    others = [other for other, names in PARTS.items() if axis in names and other != part]
    if part == "data" and axes == 1:
        return True
    return not others or (part in ON_ROWS and all(other in ON_ROWS for other in others))


def part_size(axes: tuple[str, ...], mesh: Mapping[str, int]) -> int:
    """Number of devices along the axes of a part."""
    return prod(mesh[axis] for axis in axes)
