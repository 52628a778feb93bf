"""A planning problem: a program on a machine under hard statements."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from autoshard.constraints import MatchedGroup, MatchedPin, Restriction
from autoshard.costmodels.machine import Machine
from autoshard.costs.exposure import Objective, Weights
from autoshard.errors import UnsupportedError
from autoshard.placements.atoms import choose_atoms
from autoshard.planning.parts import Parts, check_sub_axes, cuts_of, cuts_stated, parts_of_axes
from autoshard.program.program import Op, Program
from autoshard.sharding.layout import AtomMesh
from autoshard.sharding.mesh import Mesh

_PMAP_AXIS = "_internal_pmap_axis_name"
"""How JAX calls the axis of a `jax.pmap` that was given no name."""


@dataclass(frozen=True)
class Problem:
    """A program on a machine under hard statements: what planning decides.

    host_limit: bytes that the host may hold for each device. device_limit: True where nobody stated the memory limit,
    and it is the room that the device has. trips: assumed number of iterations of while loops whose count is not known.
    later: where these are the pins of a stage, those of the whole problem. They demand nothing here, but plans may have
    what they need: their orders of axes, and outputs in other layouts than the inputs that they replace. by_name:
    whether stages by names of strategies place axes. weights: see `weighing`. alike_in_order: axes alike keep the order
    of the mesh, whatever the size of the program (see `planning.axis_orders`). uncounted: its network leaves out the
    limits on counts of reshards, which stay among its statements (see `planning.counts_kept`).
    """

    program: Program
    mesh: AtomMesh
    machine: Machine
    pins: tuple[MatchedPin, ...] = ()
    memory_limit: int | None = None
    trips: int = 1
    share_repeats: bool = True
    groups: tuple[MatchedGroup, ...] = ()
    restrictions: tuple[Restriction, ...] = ()
    host_limit: int | None = None
    device_limit: bool = False
    objective: Objective = "serial"
    later: tuple[MatchedPin, ...] = ()
    by_name: bool = False
    weights: Weights = ()
    alike_in_order: bool = False
    uncounted: bool = False

    @property
    def statements(self) -> tuple[MatchedPin | MatchedGroup | Restriction, ...]:
        """All statements but the memory limit: pins, groups, restrictions."""
        return (*self.pins, *self.groups, *self.restrictions)

    @staticmethod
    def make(
        program: Program,
        mesh: Mesh,
        machine: Machine,
        *,
        pins: Sequence[MatchedPin] = (),
        memory_limit: int | None = None,
        sub_axes: Mapping[str, Sequence[int]] | None = None,
        trips: int = 1,
        share_repeats: bool = True,
        groups: Sequence[MatchedGroup] = (),
        restrictions: Sequence[Restriction] = (),
        host_limit: int | None = None,
        device_limit: bool = False,
    ) -> "Problem":
        """The problem on the refined mesh: axes are split as statements and `sub_axes` say, as the meshes are that
        statements are on (`planning.parts`), and as the program needs; with an empty `sub_axes` as statements say only.
        Raises `InputError` where these do not fit together, `UnsupportedError` where a `shard_map` of the program runs
        over an axis that is split, or that the mesh lacks or has in another size.
        """
        whole = sub_axes is not None and not sub_axes
        manual = {name for op, _ in program.walk() if op.kind == "shard_map" for name, _ in op.attrs["mesh_axes"]}

        def may_cut(axis: str, cuts: Collection[int]) -> bool:
            if axis in (sub_axes or ()):
                return cuts_of((sub_axes or {})[axis]).issuperset(cuts)
            return not whole and axis not in manual

        cuts = cuts_stated(pins, restrictions, mesh)
        check_sub_axes(sub_axes or {}, cuts, mesh)
        parts = parts_of_axes(pins, restrictions, mesh, len(program.ops), may_cut)
        stated = {**parts.named, **parts.apart}
        atoms = AtomMesh.split(mesh, stated) if whole else choose_atoms(program, mesh, sub_axes, stated)
        check_shard_maps(program, atoms, cuts)
        return Problem(
            program, atoms, machine, tuple(pins), memory_limit, trips, share_repeats, tuple(groups),
            tuple(restrictions), host_limit, device_limit,
        )  # fmt: skip

    def parts(self) -> Parts:
        """The parts of axes that its statements speak of; those on other meshes as far as its mesh has them."""
        mesh = self.mesh

        def may_cut(axis: str, cuts: Collection[int]) -> bool:
            return cuts_of(mesh.sizes[a] for a in mesh.atoms_of[axis]).issuperset(cuts)

        pins = (*self.pins, *self.later)
        return parts_of_axes(pins, self.restrictions, mesh.mesh, len(self.program.ops), may_cut)

    def under(self, pins: Sequence[MatchedPin]) -> "Problem":
        """The problem of a stage, in which some of the pins are in force: each plan of this problem is one of it."""
        return replace(self, pins=tuple(pins), later=self.pins)

    def minimising(self, objective: Objective) -> "Problem":
        """The same problem with another objective."""
        return replace(self, objective=objective, weights=())

    def weighing(self, weights: Weights) -> "Problem":
        """The same problem, of which a weighted mean is minimised that is never more than its objective."""
        return replace(self, weights=weights)

    @property
    def counting(self) -> tuple[Restriction, ...]:
        """The restrictions that its network counts reshards for."""
        return () if self.uncounted else tuple(r for r in self.restrictions if r.most_reshards is not None)

    def leaving_counts_out(self, uncounted: bool = True) -> "Problem":
        """The same problem, whose network knows nothing of counts of reshards: each plan of this problem is one of it.
        uncounted: False for the problem whose network counts them.
        """
        return replace(self, uncounted=uncounted)

    def staged_by_name(self, by_name: bool) -> "Problem":
        """The same problem, decided in stages by names of strategies, or not."""
        return replace(self, by_name=by_name)


def check_shard_maps(program: Program, mesh: AtomMesh, cuts: Mapping[str, Mapping[int, str]]) -> None:
    """Raise where a `shard_map` of the program runs over an axis that the mesh lacks, has in another size or splits:
    its body is written for the whole axis. cuts: the statements that split axes (`cuts_stated`).
    """
    for op in (op for op, _ in program.walk() if op.kind == "shard_map"):
        _check_axes(op, mesh.mesh)
        for name, _ in op.attrs["mesh_axes"]:
            parts = [mesh.names[a] for a in mesh.atoms_of[name]]
            if len(parts) > 1:
                raise UnsupportedError(
                    f"the shard_map at {op.source} runs over axis {name!r}, which statements or sub_axes split into "
                    f"{parts}; state whole axes there, or write the shard_map over axes that are these parts"
                    + "".join(f"\n  {words}" for words in dict.fromkeys(cuts.get(name, {}).values()))
                )


def _check_axes(op: Op, mesh: Mesh) -> None:
    missing = sorted(name for name, _ in op.attrs["mesh_axes"] if name not in mesh.axis_names)
    if missing == [_PMAP_AXIS]:
        raise UnsupportedError(
            f"{op.source}: jax.pmap in the program cuts by an axis without a name; plan the function in it with "
            "jax.vmap in the place of jax.pmap, or name the axis, jax.pmap(f, axis_name='data'), and plan on the mesh "
            "{'data': N} of its N devices"
        )
    if missing:
        raise UnsupportedError(
            f"{op.source}: a shard_map in the program uses mesh axes {missing}, which the planning mesh {mesh} does "
            "not have; give the plan a mesh with these axes"
        )
    for name, size in op.attrs["mesh_axes"]:
        if mesh.axis_size(name) != size:
            raise UnsupportedError(
                f"the shard_map at {op.source} runs over axis {name!r} of size {size}, the planning mesh is {mesh}; "
                "plan on the mesh of the shard_map"
            )
