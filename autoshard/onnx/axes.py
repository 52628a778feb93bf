"""Specs as shardings over mesh axes and back, where that is possible (S1.41 to S1.45).

Device i is the one at row-major position i of the mesh, whatever the order of the mesh's devices. Every sharding over
axes can be written as a spec; a spec is a sharding only where its lists of devices follow the coordinates of the mesh.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from autoshard.errors import ShardingError
from autoshard.onnx.graph import Dim
from autoshard.onnx.placement import Cut, Placement, members, spec_of
from autoshard.onnx.specs import ShardingSpec
from autoshard.sharding.axis import AxisRef
from autoshard.sharding.device_orders import read_digits
from autoshard.sharding.mesh import Mesh
from autoshard.sharding.refine import refine
from autoshard.sharding.tensor_sharding import DimensionSharding, TensorSharding


def placement_of_sharding(sharding: TensorSharding, mesh: Mesh, dims: Sequence[Dim] = ()) -> Placement:
    """The placement with the same blocks on the same devices. Unreduced axes are ignored: placements have none."""
    atoms = refine(mesh, [sharding])
    order = [[a for ref in dim.axes for a in atoms.atoms_for(ref)] for dim in sharding.dims]
    used = [a for dim in order for a in dim]
    rest = [a for a in range(len(atoms.sizes)) if a not in used]
    counts = [atoms.size(dim) for dim in order]
    ids = np.arange(mesh.size).reshape(atoms.sizes).transpose(*used, *rest).reshape(prod(counts), -1)
    cuts: list[Cut] = [
        ((dims[axis] if axis < len(dims) else None, n),) if n > 1 else () for axis, n in enumerate(counts)
    ]
    return Placement(tuple(cuts), tuple(sum(1 << int(d) for d in row) for row in ids))


def spec_of_sharding(tensor: str, sharding: TensorSharding, mesh: Mesh, dims: Sequence[Dim] = ()) -> ShardingSpec:
    """The spec of a tensor that is sharded over mesh axes.

    >>> mesh = Mesh.from_dict({"x": 2, "y": 2})
    >>> print(spec_of_sharding("w", TensorSharding.from_text('[{}, {"y"}]'), mesh, (4, 8)))
    w[1: 2 of 8] on {0,2} {1,3}
    """
    return spec_of(placement_of_sharding(sharding, mesh, dims), tensor, dims)


def lost(sharding: TensorSharding) -> tuple[str, ...]:
    """What a spec cannot say of this sharding, in words (S1.41); the names of axes are always lost."""
    kinds = []
    if any(d.is_open for d in sharding.dims):
        kinds.append("open dimensions")
    if any(d.priority is not None for d in sharding.dims):
        kinds.append("priorities")
    if sharding.replicated:
        kinds.append("explicit replication")
    if sharding.unreduced:
        kinds.append("pending partial sums")
    return tuple(kinds)


def sharding_of(placement: Placement, mesh: Mesh, rank: int, *, what: str = "the placement") -> TensorSharding:
    """The closed sharding of a tensor over axes of this mesh that puts the same blocks on the same devices.

    `ShardingError` where there is none (S1.43, S1.44).
    """
    copies = _regular(placement, what)
    if placement.devices != (1 << mesh.size) - 1:
        raise ShardingError(
            f"{what} uses {len(members(placement.devices))} of the devices 0..{mesh.size - 1} of mesh {mesh}; a tensor "
            "on some of the devices has no sharding over its axes"
        )
    positions = [d for holders in placement.holders for d in members(holders)]
    refs = read_digits(positions, [*placement.counts, copies], mesh, what)
    dims = [DimensionSharding(r) for r in refs[:-1]]
    return TensorSharding(None, (*dims, *[DimensionSharding()] * (rank - len(dims))))


@dataclass(frozen=True)
class OwnMesh:
    """A mesh made for one placement, and the sharding over it. devices: the device at each position of the mesh."""

    mesh: Mesh
    sharding: TensorSharding
    devices: tuple[int, ...]


def own_mesh(placement: Placement, rank: int, *, what: str = "the placement") -> OwnMesh:
    """A mesh with an axis for every cut axis, and one for the copies, on which this placement is a sharding (S1.42)."""
    copies = _regular(placement, what)
    names = [f"axis_{a}" for a, n in enumerate(placement.counts) if n > 1] + (["copies"] if copies > 1 else [])
    sizes = [n for n in placement.counts if n > 1] + ([copies] if copies > 1 else [])
    devices = tuple(d for holders in placement.holders for d in members(holders))
    dims = [DimensionSharding((AxisRef(f"axis_{a}"),) if n > 1 else ()) for a, n in enumerate(placement.counts)]
    dims += [DimensionSharding()] * (rank - len(dims))
    return OwnMesh(Mesh(tuple(names), tuple(sizes)), TensorSharding(None, tuple(dims)), devices)


def _regular(placement: Placement, what: str) -> int:
    """How many devices hold each shard; `ShardingError` where that differs, or a device holds two shards."""
    if any(len(cut) > 1 for cut in placement.cuts):
        raise ShardingError(f"{what} has strided blocks: a part of a fused axis is cut beneath one that is not")
    sizes = {holders.bit_count() for holders in placement.holders}
    if len(sizes) > 1:
        raise ShardingError(f"{what} has groups of unequal size ({', '.join(map(str, sorted(sizes)))} devices)")
    if placement.devices.bit_count() != sum(h.bit_count() for h in placement.holders):
        raise ShardingError(f"{what} has a device that holds two shards")
    return sizes.pop()
