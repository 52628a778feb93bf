"""Shardings that are stated on another mesh over the same devices."""

from autoshard.errors import ShardingError, UnsupportedError
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
