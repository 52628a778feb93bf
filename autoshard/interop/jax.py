"""JAX meshes and shardings to and from those of autoshard (S2.55 to S2.59).

``None`` and missing entries of a PartitionSpec are closed empty dimensions, ``UNCONSTRAINED`` is an open one. JAX has
no sub-axes: a sharding with sub-axes is put on a refined mesh over the same devices. JAX also has no priorities, no
open dimensions with axes, and no explicit replication: these are dropped, or refused with `exact`.
"""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax import tree_util
from jax.sharding import NamedSharding, PartitionSpec

from autoshard.errors import InputError, ShardingError, UnsupportedError
from autoshard.sharding import axis_algebra as algebra
from autoshard.sharding.axis import AxisRef
from autoshard.sharding.dimension_sharding import DimensionSharding
from autoshard.sharding.mesh import Mesh
from autoshard.sharding.refine import refine, refined_mesh
from autoshard.sharding.tensor_sharding import TensorSharding


def mesh_from_jax(mesh: Any, name: str = "mesh") -> Mesh:
    """The mesh of a `jax.sharding.Mesh` or `AbstractMesh`; devices are numbered by the order of their ids."""
    names = tuple(str(n) for n in mesh.axis_names)
    sizes = tuple(mesh.shape[n] for n in mesh.axis_names)
    if not isinstance(mesh, jax.sharding.Mesh):
        return Mesh(names, sizes, name)
    ids = [d.id for d in mesh.devices.flat]
    rank = {device: at for at, device in enumerate(sorted(ids))}
    order = tuple(rank[i] for i in ids)
    return Mesh(names, sizes, name, None if order == tuple(range(len(order))) else order)


def devices_of_jax(mesh: Any) -> tuple[Any, ...] | None:
    """The devices of a `jax.sharding.Mesh` in the order of their ids; None for meshes without any that JAX runs on."""
    if not isinstance(mesh, jax.sharding.Mesh) or not set(mesh.devices.flat) <= set(jax.devices()):
        return None
    return tuple(sorted(mesh.devices.flat, key=lambda d: d.id))


def numbered_devices(numbers: Sequence[int]) -> tuple[Any, ...] | None:
    """The devices of JAX at these positions in the order of their ids; None where it has fewer."""
    known = sorted(jax.devices(), key=lambda d: d.id)
    return tuple(known[i] for i in numbers) if max(numbers) < len(known) else None


def mesh_to_jax(mesh: Mesh, devices: Sequence[Any] | None = None) -> jax.sharding.Mesh:
    """A `jax.sharding.Mesh` over `devices` (default: the process's devices in the order of their ids)."""
    usable = sorted(jax.devices(), key=lambda d: d.id) if devices is None else list(devices)
    if len(usable) < mesh.size:
        raise InputError(
            f"mesh {mesh} needs {mesh.size} devices, found {len(usable)}; for a trial on one machine set "
            f"XLA_FLAGS=--xla_force_host_platform_device_count={mesh.size}"
        )
    order = mesh.device_ids or range(mesh.size)
    grid = np.array([usable[i] for i in order], dtype=object).reshape(mesh.axis_sizes)
    return auto_mesh(grid, mesh.axis_names)


def auto_mesh(devices: np.ndarray, names: Sequence[str]) -> jax.sharding.Mesh:
    """A mesh whose axes are all of type `Auto`, on every version of JAX (the default became `Explicit` in 0.12).

    devices: grid of JAX devices, one dimension per axis name.
    """
    return jax.sharding.Mesh(devices, tuple(names), axis_types=(jax.sharding.AxisType.Auto,) * len(names))


def auto_abstract_mesh(sizes: Sequence[int], names: Sequence[str]) -> jax.sharding.AbstractMesh:
    """A mesh without devices whose axes are all of type `Auto`."""
    types = (jax.sharding.AxisType.Auto,) * len(names)
    return jax.sharding.AbstractMesh(tuple(sizes), tuple(names), axis_types=types)


def spec_from_jax(spec: PartitionSpec, rank: int, mesh: Mesh) -> TensorSharding:
    """The sharding of a tensor of this rank that a `PartitionSpec` states."""
    entries = getattr(spec, "partitions", spec)  # with unreduced axes a spec itself refuses to be iterated over
    if len(entries) > rank:
        raise ShardingError(f"{spec} has {len(entries)} entries but the tensor has rank {rank}")
    kind = getattr(getattr(spec, "unreduced_kind", None), "name", "sum")
    if kind != "sum":
        raise UnsupportedError(f"{spec}: only sums can be left to be combined, no {kind}ima; reduce the value first")
    dims: list[DimensionSharding] = []
    for entry in entries:
        if entry is PartitionSpec.UNCONSTRAINED:
            dims.append(DimensionSharding(is_open=True))
        elif entry is None:
            dims.append(DimensionSharding())
        else:
            names = entry if isinstance(entry, tuple) else (entry,)
            dims.append(DimensionSharding(tuple(AxisRef(str(n)) for n in names)))
    dims += [DimensionSharding()] * (rank - len(dims))
    unreduced = tuple(AxisRef(str(n)) for n in getattr(spec, "unreduced", None) or ())
    sharding = TensorSharding(None, tuple(dims), (), algebra.in_mesh_order(unreduced, mesh))
    sharding.validate(mesh, what=str(spec))
    return sharding


def spread_specs(specs: Any, tree: Any, where: str) -> list[Any]:
    """For each leaf of a tree its `PartitionSpec` or `NamedSharding`, or None where none is given.

    specs: a pytree of them that is like the tree or a prefix of it, as `jax.jit` takes shardings. `InputError` where it
    does not fit the tree.
    """
    if specs is None:
        return [None] * tree.num_leaves

    def is_leaf(x: Any) -> bool:
        return x is None or isinstance(x, PartitionSpec | NamedSharding)

    whole = tree_util.tree_unflatten(tree, range(tree.num_leaves))
    spread: list[Any] = [None] * tree.num_leaves
    try:
        tree_util.tree_map(
            lambda spec, below: [spread.__setitem__(k, spec) for k in tree_util.tree_leaves(below)],
            specs, whole, is_leaf=is_leaf,
        )  # fmt: skip
    except ValueError as error:
        raise InputError(f"{where}: the tree does not fit {tree}: {error}") from None
    wrong = next((x for x in spread if not is_leaf(x)), None)
    if wrong is not None:
        raise InputError(f"{where}: leaves are PartitionSpecs, NamedShardings or None, found {wrong!r}")
    return spread


def sharding_from_jax(sharding: NamedSharding, rank: int) -> tuple[Mesh, TensorSharding]:
    """The mesh of a `NamedSharding`, and the sharding of a tensor of this rank on it."""
    if not isinstance(sharding, NamedSharding):
        raise UnsupportedError(f"only NamedSharding can be read, found {type(sharding).__name__}: {sharding}")
    mesh = mesh_from_jax(sharding.mesh)
    return mesh, spec_from_jax(sharding.spec, rank, mesh)


def spec_to_jax(sharding: TensorSharding, mesh: Mesh, *, exact: bool = False) -> PartitionSpec:
    """The `PartitionSpec` on `mesh`, whole axes only; parts that JAX cannot express are dropped, or refused with
    `exact`.
    """
    sharding.validate(mesh)
    for ref in sharding.axes_used():
        if ref.is_sub_axis:
            raise UnsupportedError(
                f"{sharding} uses the sub-axis {ref}, which a PartitionSpec cannot name; use sharding_to_jax, "
                "which refines the mesh"
            )
    if exact:
        lost = [f"priority of dimension {i}" for i, d in enumerate(sharding.dims) if d.priority]
        lost += [f"openness of dimension {i}" for i, d in enumerate(sharding.dims) if d.is_open and d.axes]
        lost += ["explicit replication"] if sharding.replicated else []
        if lost:
            raise UnsupportedError(f"a PartitionSpec cannot say all of {sharding}: {', '.join(lost)}")
    entries: list[Any] = []
    for dim in sharding.dims:
        if dim.axes:
            entries.append(dim.axes[0].name if len(dim.axes) == 1 else tuple(a.name for a in dim.axes))
        else:
            entries.append(PartitionSpec.UNCONSTRAINED if dim.is_open else None)
    if sharding.unreduced:
        return PartitionSpec(*entries, unreduced=frozenset(a.name for a in sharding.unreduced))
    return PartitionSpec(*entries)


def sharding_to_jax(
    sharding: TensorSharding, mesh: Mesh, devices: Sequence[Any] | None = None, *, exact: bool = False
) -> NamedSharding:
    """The `NamedSharding`; on a refined mesh where the sharding uses sub-axes (S2.59)."""
    sharding.validate(mesh)
    if not any(ref.is_sub_axis for ref in sharding.axes_used()):
        return NamedSharding(mesh_to_jax(mesh, devices), spec_to_jax(sharding, mesh, exact=exact))
    atoms = refine(mesh, [sharding])
    fine = refined_mesh(atoms)

    def whole(refs: tuple[AxisRef, ...]) -> tuple[AxisRef, ...]:
        return tuple(AxisRef(atoms.names[i]) for ref in refs for i in atoms.atoms_for(ref))

    renamed = TensorSharding(
        None,
        tuple(DimensionSharding(whole(d.axes), d.is_open, d.priority) for d in sharding.dims),
        whole(sharding.replicated),
        whole(sharding.unreduced),
    )
    return NamedSharding(mesh_to_jax(fine, devices), spec_to_jax(renamed, fine, exact=exact))
