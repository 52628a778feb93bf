"""The mesh that a lowered function runs on, whichever one its caller has set or brings arrays of."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import jax
from jax.sharding import AbstractMesh, AxisType, Mesh, use_abstract_mesh

from autoshard.errors import InputError


def on_mesh(mesh: Mesh | AbstractMesh) -> AbstractContextManager[Any]:
    """A context in which JAX takes this mesh for the one that is set, as `shard_map` demands."""
    return use_abstract_mesh(mesh if isinstance(mesh, AbstractMesh) else mesh.abstract_mesh)


def check_meshes(arrays: Sequence[Any], names: Sequence[str], mesh: Mesh | AbstractMesh) -> None:
    """`InputError` where the type of an array has explicit axes of another mesh, which JAX does not move by itself."""
    for array, name in zip(arrays, names, strict=True):
        sharding = getattr(jax.typeof(array), "sharding", None)
        other = getattr(sharding, "mesh", None)
        if other is None or AxisType.Explicit not in (other.axis_types or ()):
            continue
        if dict(other.shape) != dict(mesh.shape):
            raise InputError(
                f"argument {name} lies on another mesh, {dict(other.shape)} with explicit axes; the plan's is "
                f"{dict(mesh.shape)}: `Plan.place` moves arguments there"
            )
