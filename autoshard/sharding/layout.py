"""Layouts: the planner's compact form of a sharding, on a mesh refined into atoms.

An *atom* is a whole mesh axis, or one of the sub-axes that a mesh axis was split into for this
program (8 kv heads do not divide an axis of 16, so ``x`` becomes ``"x":(1)8`` and ``"x":(8)2``).
Inside the planner every axis reference is an atom's index; a layout says which atoms cut which
dimension, major to minor, and over which atoms the value is still a partial sum.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

from autoshard.errors import ShardingError
from autoshard.sharding.axis import AxisRef
from autoshard.sharding.mesh import Mesh


@dataclass(frozen=True)
class AtomMesh:
    """A mesh whose axes are split into atoms; atoms are in mesh order, each axis major to minor.

    >>> am = AtomMesh.split(Mesh.from_dict({"x": 16, "y": 2}), {"x": (8, 2)})
    >>> am.names, am.sizes
    (('x:(1)8', 'x:(8)2', 'y'), (8, 2, 2))
    """

    mesh: Mesh
    atoms: tuple[AxisRef, ...]

    @staticmethod
    def split(mesh: Mesh, splits: Mapping[str, Sequence[int]] | None = None) -> "AtomMesh":
        """Split axes into consecutive sub-axes of the given sizes (their product is the axis size)."""
        atoms: list[AxisRef] = []
        for axis, size in zip(mesh.axis_names, mesh.axis_sizes, strict=True):
            parts = [p for p in (splits or {}).get(axis, (size,)) if p > 1]
            if prod(parts) != size:
                raise ShardingError(f'axis "{axis}" of size {size} cannot be split into {list(parts)}')
            if len(parts) <= 1:
                atoms.append(AxisRef(axis))
                continue
            pre = 1
            for part in parts:
                atoms.append(AxisRef(axis, pre, part))
                pre *= part
        return AtomMesh(mesh, tuple(atoms))

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Number of devices along each atom."""
        return tuple(self.mesh.ref_size(a) for a in self.atoms)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Axis names of the refined mesh, as used in JAX: ``x`` or ``x:(1)8``."""
        return tuple(a.name if not a.is_sub_axis else f"{a.name}:({a.pre_size}){a.size}" for a in self.atoms)

    @cached_property
    def atoms_of(self) -> dict[str, tuple[int, ...]]:
        """Atom indices of each mesh axis, major to minor."""
        out: dict[str, list[int]] = {name: [] for name in self.mesh.axis_names}
        for index, atom in enumerate(self.atoms):
            out[atom.name].append(index)
        return {name: tuple(ids) for name, ids in out.items()}

    def units(self, apart: Sequence[tuple[int, ...]] = ()) -> tuple[tuple[int, ...], ...]:
        """Atoms that go together as one axis: those of an axis, or the parts of it that are in `apart`.

        >>> AtomMesh.split(Mesh.from_dict({"x": 16, "y": 8}), {"x": (8, 2), "y": (2, 2, 2)}).units([(2,), (3, 4)])
        ((0, 1), (2,), (3, 4))
        """
        whole = self.atoms_of.values()
        return tuple(unit for atoms in whole for unit in [part for part in apart if part[0] in atoms] or [atoms])

    def size(self, atoms: Sequence[int]) -> int:
        """Number of parts into which these atoms cut a dimension: the product of their sizes."""
        return prod([self.sizes[a] for a in atoms])

    def refs(self, atoms: Sequence[int]) -> tuple[AxisRef, ...]:
        """Maximal axis references for a major-to-minor list of atoms (S0.27)."""
        out: list[AxisRef] = []
        for index in atoms:
            atom = self.atoms[index]
            last = out[-1] if out else None
            if (
                last is not None
                and last.name == atom.name
                and last.pre_size is not None
                and last.size is not None
                and atom.pre_size == last.pre_size * last.size
                and atom.size is not None
            ):
                merged = last.size * atom.size
                full = last.pre_size == 1 and merged == self.mesh.axis_size(atom.name)
                out[-1] = AxisRef(atom.name) if full else AxisRef(atom.name, last.pre_size, merged)
            else:
                out.append(atom)
        return tuple(out)

    def atoms_for(self, ref: AxisRef) -> tuple[int, ...]:
        """Atoms that together make up `ref`, major to minor; `ShardingError` where atoms are too coarse."""
        pre = ref.pre_size or 1
        size = self.mesh.ref_size(ref)
        atoms_found: list[int] = []
        have = 1
        for index in self.atoms_of[ref.name]:
            atom = self.atoms[index]
            if (atom.pre_size or 1) >= pre * size:
                break
            if (atom.pre_size or 1) >= pre:
                atoms_found.append(index)
                have *= self.sizes[index]
        if have != size:
            raise ShardingError(f"{ref} does not fall on the sub-axes {list(self.names)} used for this program")
        return tuple(atoms_found)

    def atoms_named(self, axis: str) -> tuple[int, ...]:
        """Atoms of an axis, or of the part of one, of this name: ``x`` or ``x:(1)8``."""
        return self.atoms_of[axis] if axis in self.atoms_of else self.atoms_for(AxisRef.from_text(axis))

    def axes_text(self, atoms: Sequence[int]) -> str:
        """The axes that these atoms make up, as text: ``"x", "y":(1)2``."""
        return ", ".join(str(r) for r in self.refs(atoms))


@dataclass(frozen=True, slots=True)
class Layout:
    """Atoms on each dimension, major to minor, and the atoms the value is *unreduced* over.

    The value is the sum over the `unreduced` atoms of what the devices hold. An atom appears at
    most once in a layout; `unreduced` is sorted.
    """

    dims: tuple[tuple[int, ...], ...]
    unreduced: tuple[int, ...] = ()

    @staticmethod
    def replicated(rank: int) -> "Layout":
        """The layout in which every device holds the whole tensor."""
        return Layout(((),) * rank)

    def local_shape(self, shape: Sequence[int], mesh: AtomMesh) -> tuple[int, ...]:
        """Shape held by one device: ceil(size / product) per dimension (S0.6)."""
        return tuple(-(-n // mesh.size(d)) for n, d in zip(shape, self.dims, strict=True))

    def is_even(self, shape: Sequence[int], mesh: AtomMesh) -> bool:
        """Whether every dimension divides into equal blocks, so that no device pads."""
        return all(n % mesh.size(d) == 0 for n, d in zip(shape, self.dims, strict=True))

    def even_part(self, shape: Sequence[int], mesh: AtomMesh) -> "Layout":
        """The layout without the minor atoms of dimensions that they cut unevenly: what a JAX array can have.

        >>> mesh = AtomMesh.split(Mesh.from_dict({"x": 2, "y": 4, "z": 8}))
        >>> Layout(((0, 1), (2,))).even_part((12, 12), mesh).dims
        ((0,), ())
        """
        dims = []
        for n, dim in zip(shape, self.dims, strict=True):
            count = len(dim)
            while n % mesh.size(dim[:count]):
                count -= 1
            dims.append(dim[:count])
        return Layout(tuple(dims), self.unreduced)

    def is_gathered_from(self, other: "Layout") -> bool:
        """Whether gathers alone lead here from another layout of the same tensor, and slices alone back to it.

        >>> Layout(((0,), ())).is_gathered_from(Layout(((0, 1), (2,))))
        True
        """
        if self.unreduced or other.unreduced or self == other:
            return False
        return all(mine == its[: len(mine)] for mine, its in zip(self.dims, other.dims, strict=True))

    def text(self, mesh: AtomMesh) -> str:
        """The layout with the names of its axes: ``[{"x"}, {}] unreduced={"y"}``."""
        dims = ", ".join("{" + mesh.axes_text(d) + "}" for d in self.dims)
        tail = f" unreduced={{{mesh.axes_text(self.unreduced)}}}" if self.unreduced else ""
        return f"[{dims}]{tail}"
