"""The shardings at the borders of a manual computation: each value gets its own, complete on the manual axes."""

from collections.abc import Sequence
from typing import Any

from autoshard.constraints.manual.region import Region
from autoshard.constraints.patterns import Addresses
from autoshard.errors import InputError, ShardingError
from autoshard.program.program import Program
from autoshard.sharding.axis import AxisRef
from autoshard.sharding.dimension_sharding import DimensionSharding
from autoshard.sharding.mesh import Mesh
from autoshard.sharding.tensor_sharding import TensorSharding

REPLICATED = "replicated"
"""Stands for a sharding of any rank that manual axes do not cut and other axes may."""
MOST_NAMED = 8
"""How many values of a border a message names."""

Sharding = TensorSharding | str
Stated = tuple[tuple[int, TensorSharding], ...]
"""Values of a border of the region and their shardings."""


def assigned(
    what: str, key: str, stated: Any, border: Sequence[int], parts: Sequence[Region], addresses: Addresses
) -> list[tuple[int, Sharding]]:
    """Each value of a border with its sharding."""
    program = addresses.program
    side = "come in" if key == "in_shardings" else "leave"
    named = [f"{program.values[v].name} {program.type_of(v)}" for v in border]
    border_text = f"{len(border)} values {side}: {_some(named)}"
    if all(pattern is None for pattern, _ in stated):
        if len(stated) == len(border):
            return [(v, sharding) for v, (_, sharding) in zip(border, stated, strict=True)]
        sides = [part.entering if key == "in_shardings" else part.leaving for part in parts]
        if len(parts) > 1 and all(len(values) == len(stated) for values in sides):
            out: dict[int, Sharding] = {}
            for values in sides:
                for v, (_, sharding) in zip(values, stated, strict=True):
                    if out.setdefault(v, sharding) != sharding:
                        name = program.values[v].name
                        raise InputError(f"{what}: {key} gives {name} two shardings, as several calls use it: name it")
            return list(out.items())
        raise InputError(f"{what}: {key} has {len(stated)} entries, but {border_text} (S4.14: one for each)")
    if any(pattern is None for pattern, _ in stated):
        raise InputError(f"{what}: {key} is either a list or a mapping")
    shardings: dict[int, Sharding] = {}
    for pattern, sharding in stated:
        match = set(border) if pattern == "**" else _addressed(pattern, addresses) & set(border)
        if not match and pattern != "**":
            raise InputError(f"{what}: {key}: {pattern!r} is none of the values there; {border_text}")
        for v in border:
            if v in match:
                shardings.setdefault(v, sharding)
    missing = [f"{program.values[v].name} {program.type_of(v)}" for v in border if v not in shardings]
    if missing:
        raise InputError(
            f'{what}: {key} says nothing of {_some(missing)}; add them, or "**": {REPLICATED} for the rest'
        )
    return [(v, shardings[v]) for v in border]


def _addressed(pattern: str, addresses: Addresses) -> set[int]:
    program = addresses.program
    exact = {v.id for v in program.values if v.name == pattern}
    if exact:
        return exact
    match = addresses.find(pattern)
    return {*match.values, *(program.body.results[slot] for slot in match.outputs)}


def complete(
    what: str, value: int, sharding: Sharding, axes: Sequence[str], program: Program, mesh: Mesh
) -> TensorSharding:
    """A sharding with every manual axis in it: those that cut no dimension are replicated (S4.17)."""
    type_, name = program.type_of(value), program.values[value].name
    if isinstance(sharding, str):
        sharding = TensorSharding(None, (DimensionSharding(is_open=True),) * type_.rank)
    told = f"{what}: {name} {type_}: {sharding}"
    if sharding.rank != type_.rank:
        raise ShardingError(f"{told} has {sharding.rank} dimensions")
    if any(d.priority is not None for d in sharding.dims):
        raise InputError(f"{told}: borders of manual computations have no priorities")
    listed = {ref.name for d in sharding.dims for ref in d.axes} | {ref.name for ref in sharding.unreduced}
    rest = [a for a in axes if a not in listed and all(a != ref.name for ref in sharding.replicated)]
    try:
        full = TensorSharding(
            sharding.mesh_name, sharding.dims, (*sharding.replicated, *(AxisRef(a) for a in rest)), sharding.unreduced
        ).canonical(mesh)
    except ShardingError as error:
        raise ShardingError(f"{told}: {error}") from None
    faults = full.violations(mesh, type_.shape, what=f"{name} {type_}")
    if faults:
        raise ShardingError(f"{what}: " + "; ".join(faults))
    for d, dim in enumerate(full.dims):
        manual = [ref for ref in dim.axes if ref.name in axes]
        if any(ref.is_sub_axis for ref in manual):
            raise ShardingError(f"{told}: manual axes are used whole, not by their sub-axes")
        if list(dim.axes[: len(manual)]) != manual:
            raise ShardingError(f"{told}: dimension {d} has a free axis before a manual one; write manual axes first")
        size = 1
        for ref in manual:
            size *= mesh.axis_size(ref.name)
        if type_.shape[d] % size:
            raise ShardingError(
                f"{told}: {size} blocks do not divide dimension {d} of size {type_.shape[d]}; manual axes do not pad"
            )
    return full


def _some(names: Sequence[str]) -> str:
    rest = len(names) - MOST_NAMED
    return ", ".join(names[:MOST_NAMED]) + (f" and {rest} more" if rest > 0 else "")
