"""Shardings that a traced function states itself: constraints, `device_put`, shardings of an inner `jit`.

Each becomes an identity op ``sharding_constraint``. Its ``attrs["sharding"]`` is the text of the sharding, in axis
names of the mesh it was written for; ``attrs["mesh_axes"]`` has name and size of each axis it uses. For a mesh of
several devices, ``attrs["mesh"]`` is its text; ``attrs["devices"]`` has the numbers of its devices where they are not
the first ones.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax
from jax.sharding import Mesh, NamedSharding

from autoshard.errors import UnsupportedError
from autoshard.interop.jax import sharding_from_jax
from autoshard.program.program import ALIKE, Program, alike_tag

KIND = "sharding_constraint"
_DEFAULT_MEMORY = (None, "device")


def constraint_attrs(sharding: Any, rank: int, unconstrained: Sequence[int], where: str) -> dict[str, Any] | None:
    """The attributes of the op for a sharding; None where the sharding is no `NamedSharding`, which cannot be kept.

    unconstrained: dimensions that are open, whatever the sharding says about them.
    Raises `UnsupportedError` for a sharding in another memory than the device's own.
    """
    if not isinstance(sharding, NamedSharding):
        return None
    if sharding.memory_kind not in _DEFAULT_MEMORY and not _is_default_memory(sharding):
        raise UnsupportedError(
            f"{where} places a value in memory {sharding.memory_kind!r}; inside of a function only device memory can "
            "be planned: leave the memory kind out, and state MemoryKind for inputs and outputs that live on the host"
        )
    mesh, stated = sharding_from_jax(sharding, rank)
    dims = tuple(replace(d, is_open=True) if k in unconstrained else d for k, d in enumerate(stated.dims))
    stated = replace(stated, dims=dims)
    sizes = dict(zip(mesh.axis_names, mesh.axis_sizes, strict=True))
    used = sorted({ref.name for ref in stated.axes_used()}, key=mesh.axis_names.index)
    attrs: dict[str, Any] = {"sharding": str(stated), "mesh_axes": tuple((name, sizes[name]) for name in used)}
    if isinstance(sharding.mesh, Mesh) and mesh.size > 1:
        attrs["mesh"] = str(mesh)
        numbers = _numbers(sharding.mesh)
        if numbers != tuple(range(len(numbers))):
            attrs["devices"] = numbers
    return attrs


def _numbers(mesh: Mesh) -> tuple[int, ...]:
    """Positions of the mesh's devices among all devices of their kind, ordered by id; ids differ between processes."""
    devices = list(mesh.devices.flat)
    known = sorted({d.id for d in (*devices, *jax.devices(devices[0].platform))})
    return tuple(sorted(known.index(d.id) for d in devices))


def is_stated(sharding: Any) -> bool:
    """Whether a parameter of a primitive states a placement."""
    to_device = type(sharding).__name__ == "MemorySpace" and sharding.name == "Device"
    return sharding is not None and type(sharding).__name__ != "UnspecifiedValue" and not to_device


def is_empty_reshard(sharding: Any) -> bool:
    """Whether a `reshard` to a sharding does nothing: there is no axis in it whose shardings are part of types.

    Differentiation leaves such ones behind, and `auto_axes` makes them of its operands: where some axes are automatic,
    those that cut nothing repeat the type of an operand, which is traced without a sharding.
    """
    mesh = getattr(sharding, "mesh", None)
    if mesh is None or mesh.empty:
        return mesh is not None
    cuts = any(entry is not None for entry in sharding.spec)
    return _is_auto(mesh) or (_is_partly_auto(mesh) and not cuts)


def open_dims(sharding: Any, rank: int, scope: str) -> tuple[int, ...]:
    """Dimensions that a sharding of explicit mode leaves open though its spec has them whole.

    Automatic axes may cut all of them. Under `vmap`, one is that of the batch: JAX has it cut as the operands are,
    which are traced without shardings.
    """
    if _is_partly_auto(getattr(sharding, "mesh", None)):
        return tuple(range(rank))
    entries = (*sharding.spec, *[None] * (rank - len(sharding.spec)))
    return tuple(k for k, entry in enumerate(entries) if entry is None) if "vmap(" in scope else ()


def stated_of_result(eqn: Any, scope: str) -> tuple[list[Any] | None, tuple[int, ...]]:
    """The sharding that an op of explicit mode states of its result (``out_sharding=``), else None; and what is open.

    Those of backward passes, and of arrays that are broadcast like another one, follow from types.
    """
    kind, params = str(eqn.primitive.name), eqn.params
    stated = params.get("out_sharding") or (params.get("sharding") if kind in _OF_RESULT else None)
    if not isinstance(stated, NamedSharding) or stated.mesh.empty or _is_auto(stated.mesh) or "transpose(" in scope:
        return None, ()
    opened = open_dims(stated, len(eqn.outvars[0].aval.shape), scope)
    if kind != "broadcast_in_dim" or not eqn.invars[0].aval.shape:
        return [stated], opened
    entries = (*stated.spec, *[None] * (len(params["shape"]) - len(stated.spec)))
    like: list[Any] = [None] * len(entries)
    for dim, entry in zip(params["broadcast_dimensions"], eqn.invars[0].aval.sharding.spec, strict=False):
        like[dim] = entry
    return (None, ()) if list(entries) == like else ([stated], opened)


_OF_RESULT = frozenset({"reshape", "iota", "broadcast_in_dim"})
"""Primitives whose parameter ``sharding`` is that of the result."""


def _is_auto(mesh: Any) -> bool:
    return bool(getattr(mesh, "are_all_axes_auto", False))


def _is_partly_auto(mesh: Any) -> bool:
    return bool(getattr(mesh, "auto_axes", ())) and not _is_auto(mesh)


def why_ignored(sharding: Any) -> str:
    """Why a placement for which `constraint_attrs` has nothing is ignored, and what to do instead."""
    if type(sharding).__name__ == "MemorySpace" or getattr(sharding, "memory_kind", None) == "pinned_host":
        return (
            "it moves a value to the host's memory, and values inside of a function are planned on the device, as if "
            "it stayed there; jax.checkpoint without offloading makes room, and MemoryKind for inputs and outputs"
        )
    return "it is no NamedSharding; state it as a pin on a value named with checkpoint_name"


def _is_default_memory(sharding: NamedSharding) -> bool:
    """Whether a sharding is in the device's default memory; on CPUs this memory has another name."""
    try:
        device = next(iter(sharding.device_set))
        return device.default_memory().kind == sharding.memory_kind
    except (ValueError, RuntimeError, StopIteration, NotImplementedError):
        return False


def lone_groups(groups: Sequence[str], program: Program) -> tuple[str, ...]:
    """What to say of sharding groups of which a single value is left in a program, by the places that make them."""
    members = Counter(op.attrs[ALIKE] for op, _ in program.walk() if ALIKE in op.attrs)
    tags = Counter(tag for value in program.values for tag in value.tags)
    return tuple(
        f"shard_alike at {place} ties nothing: but for one of its values, nothing that is computed needs them"
        for number, place in enumerate(groups, 1)
        if members[number] + tags[alike_tag(number)] == 1
    )
