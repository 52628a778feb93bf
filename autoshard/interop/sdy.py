"""Shardings and meshes read from sdy attributes of the MLIR bindings."""

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import sdy

from autoshard.errors import UnsupportedError
from autoshard.sharding.axis import AxisRef
from autoshard.sharding.dimension_sharding import DimensionSharding
from autoshard.sharding.mesh import Mesh
from autoshard.sharding.tensor_sharding import TensorSharding


def is_maximal(attr: ir.Attribute) -> bool:
    """Whether a mesh attribute stands for one device: no axes and a single device id."""
    mesh = sdy.MeshAttr(attr)
    return not list(mesh.axes) and len(list(mesh.device_ids)) == 1


def mesh_from_attr(attr: ir.Attribute, name: str = "mesh") -> Mesh:
    """The mesh of an ``sdy.mesh`` attribute; `UnsupportedError` for a maximal one."""
    if is_maximal(attr):
        raise UnsupportedError(f"mesh @{name} is maximal (one device of a larger set); it has no axes to shard over")
    mesh = sdy.MeshAttr(attr)
    axes = [sdy.MeshAxisAttr(a) for a in mesh.axes]
    ids = tuple(mesh.device_ids)
    return Mesh(tuple(a.name for a in axes), tuple(a.size for a in axes), name, ids or None)


def axis_from_attr(attr: ir.Attribute) -> AxisRef:
    """The axis or sub-axis of an ``#sdy.axis_ref`` attribute."""
    axis = sdy.AxisRefAttr(attr)
    info = axis.sub_axis_info
    if info is None:
        return AxisRef(axis.name)
    sub = sdy.SubAxisInfoAttr(info)
    return AxisRef(axis.name, sub.pre_size, sub.size)


def sharding_from_attr(attr: ir.Attribute) -> TensorSharding:
    """The sharding of a ``#sdy.sharding`` attribute; its mesh must be a reference (lift inlined meshes first)."""
    sharding = sdy.TensorShardingAttr(attr)
    mesh = sharding.mesh_or_ref
    if not isinstance(mesh, ir.FlatSymbolRefAttr):
        raise UnsupportedError(f"the sharding {attr} has its mesh written inside; declare the mesh and refer to it")
    dims = []
    for entry in sharding.dimension_shardings:
        dim = sdy.DimensionShardingAttr(entry)
        axes = tuple(axis_from_attr(a) for a in dim.axes)
        dims.append(DimensionSharding(axes, not dim.is_closed, dim.priority))
    return TensorSharding(
        mesh.value,
        tuple(dims),
        tuple(axis_from_attr(a) for a in sharding.replicated_axes),
        tuple(axis_from_attr(a) for a in sharding.unreduced_axes),
        str(getattr(sharding, "reduction_op", "sum")),  # jaxlib 0.10 knows sums alone
    )
