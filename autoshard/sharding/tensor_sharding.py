"""The sharding of one tensor in Shardy's terms, with its text form, its invariants and what it means.

A `TensorSharding` is what users write and what propagation moves. The planner works on the
smaller `Layout` (atoms per dimension); `to_layout` and `from_layout` lead from one to the other.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from autoshard.errors import ShardingError
from autoshard.sharding import axis_algebra as algebra
from autoshard.sharding.axis import AxisRef
from autoshard.sharding.dimension_sharding import DimensionSharding
from autoshard.sharding.invariants import sharding_violations
from autoshard.sharding.layout import AtomMesh, Layout
from autoshard.sharding.mesh import Mesh
from autoshard.sharding.text import read_sharding

Block = tuple[tuple[int, int], ...]
"""The part of a tensor that a device holds: (start, stop) of each dimension."""


@dataclass(frozen=True, slots=True)
class TensorSharding:
    """How a tensor is cut over a mesh.

    mesh_name: the mesh it is bound to, None where the context has only one.
    dims: one `DimensionSharding` per dimension.
    replicated: axes that no dimension may ever gain, in mesh order.
    unreduced: axes over which the tensor is a partial sum, in mesh order.
    combiner: what the parts over these are combined by: sum, or in MLIR modules also max and min.

    >>> str(TensorSharding.from_text('<@mesh, [{"x"}p1, {"z", ?}p2], replicated={"y"}>'))
    '<@mesh, [{"x"}p1, {"z", ?}p2], replicated={"y"}>'
    >>> str(TensorSharding.from_text("[{data}, {x, ?}] unreduced={z}"))
    '[{"data"}, {"x", ?}] unreduced={"z"}'
    """

    mesh_name: str | None
    dims: tuple[DimensionSharding, ...]
    replicated: tuple[AxisRef, ...] = ()
    unreduced: tuple[AxisRef, ...] = ()
    combiner: str = "sum"

    # text

    @staticmethod
    def from_text(text: str, mesh: Mesh | None = None) -> "TensorSharding":
        """Parse either notation; with `mesh`, check the mesh name and put replicated axes in mesh order (S0.12)."""
        sharding = TensorSharding(*read_sharding(text))
        if mesh is None:
            return sharding
        if sharding.mesh_name is not None and sharding.mesh_name != mesh.name:
            raise ShardingError(
                f"sharding {text.strip()} is bound to mesh @{sharding.mesh_name}, expected @{mesh.name}"
            )
        return sharding.canonical(mesh)

    def __str__(self) -> str:
        return self.to_text()

    def to_text(self) -> str:
        """The notation that `from_text` reads: Shardy's in ``<@mesh, ...>`` with a mesh name, else the part in
        brackets.
        """
        sep = " " if self.mesh_name is None else ", "
        text = "[" + ", ".join(map(str, self.dims)) + "]"
        summed = "" if self.combiner == "sum" else self.combiner
        for label, axes in (("replicated=", self.replicated), (f"unreduced={summed}", self.unreduced)):
            if axes:
                text += f"{sep}{label}{{{', '.join(map(str, axes))}}}"
        return text if self.mesh_name is None else f"<@{self.mesh_name}, {text}>"

    # construction

    @staticmethod
    def open(rank: int, mesh_name: str | None = None) -> "TensorSharding":
        """Every dimension open and empty: what a tensor without sharding behaves as (S0.9)."""
        return TensorSharding(mesh_name, (DimensionSharding(is_open=True),) * rank)

    @staticmethod
    def closed(rank: int, mesh_name: str | None = None) -> "TensorSharding":
        """Every dimension closed and empty: fully replicated."""
        return TensorSharding(mesh_name, (DimensionSharding(),) * rank)

    @staticmethod
    def from_layout(
        layout: Layout, atoms: AtomMesh, *, mesh_name: str | None = None, is_open: bool = False
    ) -> "TensorSharding":
        """The sharding that states a layout: its atoms merged to maximal (sub-)axes, no dimension with a priority.

        is_open: whether every dimension is open.
        """
        return TensorSharding(
            mesh_name,
            tuple(DimensionSharding(atoms.refs(d), is_open) for d in layout.dims),
            (),
            algebra.in_mesh_order(atoms.refs(layout.unreduced), atoms.mesh),
        )

    def to_layout(self, atoms: AtomMesh) -> Layout:
        """The planner's layout; `ShardingError` where a sub-axis does not fall on the atoms, or parts are no sums."""
        if self.combiner != "sum":
            raise ShardingError(f"sharding {self}: a layout has partial sums only, no {self.combiner}ima")
        return Layout(
            tuple(tuple(i for a in d.axes for i in atoms.atoms_for(a)) for d in self.dims),
            tuple(sorted(i for a in self.unreduced for i in atoms.atoms_for(a))),
        )

    # meaning

    @property
    def rank(self) -> int:
        """Number of dimensions of the tensor."""
        return len(self.dims)

    def axes_used(self) -> tuple[AxisRef, ...]:
        """Every axis reference, dimensions first, then replicated and unreduced ones."""
        return (*(a for d in self.dims for a in d.axes), *self.replicated, *self.unreduced)

    def canonical(self, mesh: Mesh) -> "TensorSharding":
        """The same sharding with replicated and unreduced axes in mesh order (S0.11, S0.23)."""
        return replace(
            self,
            replicated=algebra.in_mesh_order(self.replicated, mesh),
            unreduced=algebra.in_mesh_order(self.unreduced, mesh),
        )

    def up_to_priority(self, priority: int) -> "TensorSharding":
        """Only what counts in the round of this user priority; later dimensions become open and empty (S0.52)."""
        dims = tuple(d if d.effective_priority <= priority else DimensionSharding(is_open=True) for d in self.dims)
        return replace(self, dims=dims)

    def shard_counts(self, mesh: Mesh) -> tuple[int, ...]:
        """Into how many blocks each dimension is cut."""
        return tuple(prod(mesh.ref_size(a) for a in d.axes) for d in self.dims)

    def local_shape(self, mesh: Mesh, shape: Sequence[int]) -> tuple[int, ...]:
        """What one device holds: ceil(size / product of axis sizes) per dimension (S0.6)."""
        return tuple(-(-n // parts) for n, parts in zip(shape, self.shard_counts(mesh), strict=True))

    def device_blocks(self, mesh: Mesh, shape: Sequence[int]) -> dict[int, Block]:
        """The block of every device id; trailing blocks may be short or empty (S0.5, S0.56)."""
        local = self.local_shape(mesh, shape)
        ids = mesh.device_ids or tuple(range(mesh.size))
        blocks: dict[int, Block] = {}
        for position, device in enumerate(ids):
            block = []
            for dim, size, part in zip(self.dims, shape, local, strict=True):
                start = min(algebra.block_index(dim.axes, mesh, position) * part, size)
                block.append((start, min(start + part, size)))
            blocks[device] = tuple(block)
        return dict(sorted(blocks.items()))

    def partial_groups(self, mesh: Mesh) -> dict[int, int]:
        """For every device id, which of the summands of an unreduced tensor it holds."""
        ids = mesh.device_ids or tuple(range(mesh.size))
        return {d: algebra.block_index(self.unreduced, mesh, p) for p, d in sorted(enumerate(ids), key=lambda e: e[1])}

    def is_equivalent(self, mesh: Mesh, other: "TensorSharding", other_mesh: Mesh, shape: Sequence[int]) -> bool:
        """Whether both put the same elements on every device, whatever mesh they are written on (S0.34, S0.65)."""
        if mesh.size != other_mesh.size:
            return False
        same = self.device_blocks(mesh, shape) == other.device_blocks(other_mesh, shape)
        return same and self.partial_groups(mesh) == other.partial_groups(other_mesh)

    # invariants

    def violations(
        self, mesh: Mesh, shape: Sequence[int] | None = None, *, what: str = "tensor", full_axes_only: bool = False
    ) -> tuple[str, ...]:
        """One message for each broken invariant (S0.36 to S0.60); empty where the sharding is valid.

        what: how to call the tensor in messages. full_axes_only: reject sub-axes, as for shardings
        that a user wrote (S0.31).
        """
        return sharding_violations(self, mesh, shape, what=what, full_axes_only=full_axes_only)

    def validate(
        self, mesh: Mesh, shape: Sequence[int] | None = None, *, what: str = "tensor", full_axes_only: bool = False
    ) -> None:
        """Raise `ShardingError` with every broken invariant."""
        faults = self.violations(mesh, shape, what=what, full_axes_only=full_axes_only)
        if faults:
            raise ShardingError("\n".join(faults))


def bound_mesh(sharding: TensorSharding, meshes: Mapping[str, Mesh], *, what: str = "tensor") -> Mesh:
    """The mesh a sharding is bound to; `ShardingError` where it is not declared (S0.39).

    A sharding without mesh name is bound to the only mesh.
    """
    if sharding.mesh_name is None:
        if len(meshes) == 1:
            return next(iter(meshes.values()))
        raise ShardingError(f"{what}: sharding {sharding} names no mesh and there are {len(meshes)} of them")
    if sharding.mesh_name not in meshes:
        known = ", ".join(f"@{m}" for m in meshes) or "none"
        raise ShardingError(f"{what}: unknown mesh @{sharding.mesh_name}; the meshes are: {known}")
    return meshes[sharding.mesh_name]


def satisfies(layout: Layout, pin: TensorSharding, mesh: AtomMesh) -> bool:
    """Whether a layout holds what a sharding says: closed dimensions exactly, open ones as a prefix (S0.7)."""
    for have, want in zip(layout.dims, pin.dims, strict=True):
        atoms = [a for ref in want.axes for a in mesh.atoms_for(ref) if mesh.sizes[a] > 1]
        got = [a for a in have if mesh.sizes[a] > 1]
        if got[: len(atoms)] != atoms or (not want.is_open and len(got) != len(atoms)):
            return False
    cut = {a for d in layout.dims for a in d}
    if cut & {a for ref in pin.replicated for a in mesh.atoms_for(ref)}:
        return False
    return set(layout.unreduced) == {a for ref in pin.unreduced for a in mesh.atoms_for(ref)}
