"""Strategies by name: which parts a name has, and which mesh axes each part gets.

A name is a part or a mix of parts, ``fsdp+tensor``. Parts take the mesh axes that carry their names. Each part without
such an axis takes one of the other axes: the last part in `PARTS` takes the innermost, and so on; the first such part
takes all that remain. Axes that no part took join the first part of the mix, so that no device repeats work. Axes on
slow links (between slices) cut the batch only, as plain data parallelism, whatever the mix (S3.12, S3.13).
"""

from collections.abc import Collection
from math import prod
from types import MappingProxyType

from autoshard.errors import InputError
from autoshard.sharding.mesh import Mesh

PARTS = MappingProxyType(
    {
        "data": ("data", "replica"),
        "zero1": ("data", "replica"),
        "fsdp": ("fsdp",),
        "fsdp_transpose": ("fsdp_transpose",),
        "expert": ("expert",),
        "context": ("context",),
        "sequence": ("sequence",),
        "tensor": ("tensor", "model"),
    }
)
"""Every part and the mesh axes named for it, outermost first in the order in which parts get axes."""

ALIASES = MappingProxyType(
    {
        "dp": "data", "ddp": "data", "data_parallel": "data", "zero_1": "zero1", "zero2": "zero1", "zero_2": "zero1",
        "zero3": "fsdp", "zero_3": "fsdp", "tp": "tensor", "megatron": "tensor", "tensor_parallel": "tensor",
        "sp": "sequence", "ulysses": "sequence", "sequence_parallel": "sequence", "cp": "context",
        "context_parallel": "context", "ep": "expert", "expert_parallel": "expert", "fsdpt": "fsdp_transpose",
    }
)  # fmt: skip
"""Other names of parts. Gradients live within one step, so ZeRO-2 is ZeRO-1 here."""

DEFAULT = ("data", "fsdp", "tensor", "fsdp+tensor")
"""Baselines of a model of the library where the config names none."""


def parts_of(name: str) -> tuple[str, ...]:
    """The parts of a strategy's name in the order of `PARTS`.

    >>> parts_of("tp+zero3")
    ('fsdp', 'tensor')
    """
    parts = []
    for word in name.split("+"):
        plain = word.strip().lower().replace("-", "_")
        part = ALIASES.get(plain, plain)
        if part not in PARTS:
            hint = "; pipeline stages are no sharding of one program" if part in ("pipeline", "pp") else ""
            known = ", ".join((*PARTS, *sorted(ALIASES)))
            raise InputError(f"unknown baseline {name!r}; known are {known}, and mixes such as fsdp+tensor{hint}")
        if part in parts:
            raise InputError(f"baseline {name!r} names {part} twice")
        parts.append(part)
    if "zero1" in parts and {"data", "fsdp", "fsdp_transpose"} & set(parts):
        raise InputError(f"baseline {name!r}: zero1 is data parallelism with less optimizer state; name one of the two")
    return tuple(part for part in PARTS if part in parts)


def assign_axes(
    name: str, mesh: Mesh, slow: Collection[str] = ()
) -> tuple[dict[str, tuple[str, ...]], tuple[str, ...]]:
    """(part -> mesh axes, axes between slices that carry the batch only); `InputError` where a part gets no axis.

    >>> assign_axes("fsdp+tensor", Mesh.from_dict({"data": 2, "model": 4}))
    ({'fsdp': ('data',), 'tensor': ('model',)}, ())
    """
    parts = parts_of(name)
    free = [a for a, n in zip(mesh.axis_names, mesh.axis_sizes, strict=True) if n > 1]
    taken: dict[str, list[str]] = {part: [] for part in parts}
    for part in parts:
        taken[part] = [axis for axis in free if axis in PARTS[part]]
        free = [axis for axis in free if axis not in taken[part]]
    across = [a for a in free if a in slow]
    without = [part for part in parts if not taken[part]]
    inner = [a for a in free if a not in across]
    if len(inner) < len(without):  # a slow axis is better for a part than no axis
        inner, across = free, []
    for part in reversed(without):
        if not inner:
            raise InputError(
                f"baseline {name!r} needs a mesh axis larger than 1 for each of {', '.join(parts)}; the mesh is {mesh}"
            )
        taken[part] = list(inner) if part == without[0] else [inner[-1]]
        inner = [] if part == without[0] else inner[:-1]
    taken[parts[0]] += inner

    def in_order(axes: Collection[str]) -> tuple[str, ...]:
        return tuple(a for a in mesh.axis_names if a in axes)

    return {part: in_order(axes) for part, axes in taken.items()}, in_order(across)


def default_baselines(mesh: Mesh) -> tuple[str, ...]:
    """The names of `DEFAULT` for which the mesh has enough axes."""
    axes = sum(1 for n in mesh.axis_sizes if n > 1)
    return tuple(name for name in DEFAULT if len(parts_of(name)) <= axes)


_ON_ROWS = ("data", "zero1", "fsdp", "fsdp_transpose")
"""Parts that cut the batch by rows, and may be mixed with one of the others."""


def every_name(mesh: Mesh) -> tuple[str, ...]:
    """All parts, and all mixes of a part on rows with another one where the mesh has axes for two.

    >>> "fsdp+tensor" in every_name(Mesh.from_dict({"a": 2, "b": 4})), every_name(Mesh.from_dict({"a": 8}))[-1]
    (True, 'tensor')
    """
    if sum(1 for n in mesh.axis_sizes if n > 1) < 2:
        return tuple(PARTS)
    return (*PARTS, *(f"{rows}+{part}" for rows in _ON_ROWS for part in PARTS if part not in _ON_ROWS))


def fitting(axes: Collection[str], size: int, mesh: Mesh) -> tuple[str, ...]:
    """The longest leading part of `axes` whose product divides `size`."""
    leading: tuple[str, ...] = ()
    for axis in axes:
        if size % prod(map(mesh.axis_size, (*leading, axis))):
            break
        leading = (*leading, axis)
    return leading
