"""Shardings that are stated on another mesh over the same devices."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from autoshard.errors import ShardingError, UnsupportedError
from autoshard.sharding.axis import AxisRef
from autoshard.sharding.device_orders import Translated, same_grid, translate
from autoshard.sharding.mesh import Mesh
from autoshard.sharding.tensor_sharding import TensorSharding


def on_other_mesh(stated: str, other: str | None, mesh: Mesh, where: str) -> Translated | None:
    """A sharding stated on another mesh as one on the planning mesh, or None where axes are to be taken by name.

    Raises `UnsupportedError` where no parts of the planning mesh's axes cut the devices so.
    """
    written = None if other is None else Mesh.from_text(other)
    if written is None or written.size != mesh.size or same_grid(written, mesh):
        return None
    try:
        return translate(TensorSharding.from_text(stated, written), written, mesh)
    except ShardingError as error:
        raise UnsupportedError(
            f"{where}: {error}; plan on that mesh, or on one whose axes both can be cut from"
        ) from None


def by_name(stated: str, axes: Sequence[tuple[str, int]], mesh: Mesh) -> tuple[str, list[str]]:
    """A sharding whose axes are taken by name, and the axes that the planning mesh lacks.

    axes: those that it uses, with their sizes where it was written. One of size 1 there cuts nothing, and is left out
    where the planning mesh has none of that name.
    """
    lacking = {name: size for name, size in axes if name not in mesh.axis_names}
    missing = [name for name, size in lacking.items() if size > 1]
    if missing or not lacking:
        return stated, missing

    def kept(refs: Iterable[AxisRef]) -> tuple[AxisRef, ...]:
        return tuple(ref for ref in refs if ref.name not in lacking)

    whole = TensorSharding.from_text(stated)
    dims = tuple(replace(dim, axes=kept(dim.axes)) for dim in whole.dims)
    return str(replace(whole, dims=dims, replicated=kept(whole.replicated), unreduced=kept(whole.unreduced))), []
