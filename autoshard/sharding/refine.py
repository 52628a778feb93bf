"""Refining a mesh: axes are split only so far that every sub-axis in use is an axis of its own (S0.32, S0.35)."""

from collections.abc import Iterable
from itertools import pairwise

from autoshard.errors import ShardingError
from autoshard.sharding import axis_algebra as algebra
from autoshard.sharding.layout import AtomMesh
from autoshard.sharding.mesh import Mesh
from autoshard.sharding.tensor_sharding import TensorSharding


def refine(mesh: Mesh, shardings: Iterable[TensorSharding]) -> AtomMesh:
    """The coarsest atoms that every axis reference of the shardings falls on.

    `ShardingError` where two sub-axes of one axis cannot coexist.

    >>> refine(Mesh.from_dict({"x": 8}), [TensorSharding.from_text('[{"x":(2)2}]')]).names
    ('x:(1)2', 'x:(2)2', 'x:(4)2')
    """
    cuts: dict[str, set[int]] = {name: {1, size} for name, size in zip(mesh.axis_names, mesh.axis_sizes, strict=True)}
    for sharding in shardings:
        for ref in sharding.axes_used():
            mesh.ref_size(ref)
            cuts[ref.name].update(algebra.span(ref, mesh))
    splits: dict[str, list[int]] = {}
    for name, boundaries in cuts.items():
        bounds = sorted(boundaries)
        for low, high in pairwise(bounds):
            if high % low:
                raise ShardingError(
                    f'the sub-axes in use cut axis "{name}" of size {mesh.axis_size(name)} at {low} and at {high}, '
                    "and no factorisation holds both"
                )
        splits[name] = [high // low for low, high in pairwise(bounds)]
    return AtomMesh.split(mesh, splits)


def refined_mesh(atoms: AtomMesh) -> Mesh:
    """The mesh whose axes are the atoms, over the same devices in the same order."""
    return Mesh(atoms.names, atoms.sizes, atoms.mesh.name, atoms.mesh.device_ids)
