"""Layouts as index arithmetic: which elements of a tensor each device holds, and what a step does to that.

A device is the list of its coordinates, one digit per atom of the refined mesh. Along one dimension it holds a run of
elements that starts at a sum of (digit times stride): a mixed-radix number. Steps are judged by what they would do to
these runs, never by lists of axes; two layouts are the same where every device holds the same elements.

Where an atom does not divide what it cuts, every piece is as long as the first and the last ones are short or empty
(padding): 5 elements over 2, then 2 have strides 3 and 2, and the runs 0-1, 2, 3-4 and none.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any


class Impossible(ValueError):
    """A layout or a step that no device could follow; the message says why."""


@dataclass(frozen=True, slots=True)
class Atoms:
    """The refined mesh: for each atom its axis, the product of the sizes before it in the axis, and its own size."""

    axes: tuple[str, ...]
    before: tuple[int, ...]
    sizes: tuple[int, ...]
    whole: Mapping[str, int]  # sizes of the mesh axes, in mesh order

    @property
    def devices(self) -> int:
        """How many devices the mesh has."""
        return prod(self.whole.values())

    def group(self, atoms: Iterable[int]) -> int:
        """How many devices a group over these atoms has."""
        return prod(self.sizes[a] for a in atoms)

    def of(self, axis: str, before: int = 1, size: int | None = None) -> tuple[int, ...]:
        """Atoms of (a part of) an axis, major to minor; `Impossible` where it does not fall on atoms."""
        if axis not in self.whole:
            raise Impossible(f"there is no mesh axis {axis!r}")
        wanted = self.whole[axis] // before if size is None else size
        atoms = [
            a for a in range(len(self.axes)) if self.axes[a] == axis and before <= self.before[a] < before * wanted
        ]
        if self.group(atoms) != wanted or (atoms and self.before[atoms[0]] != before):
            if wanted != 1:
                raise Impossible(f"the part {axis}:({before}){wanted} does not fall on the atoms of the plan")
        return tuple(atoms)

    def text(self, atoms: Sequence[int], quote: str = '"') -> str:
        """Axes as people write them; neighbouring parts of one axis are joined, ``"x", "y":(1)2``."""
        runs: list[list[int]] = []  # axis' atom, start, size
        for a in atoms:
            last = runs[-1] if runs else None
            if last is not None and self.axes[last[0]] == self.axes[a] and self.before[a] == last[1] * last[2] > 1:
                last[2] *= self.sizes[a]
            else:
                runs.append([a, self.before[a], self.sizes[a]])
        return ", ".join(
            f"{quote}{self.axes[a]}{quote}" + ("" if size == self.whole[self.axes[a]] else f":({start}){size}")
            for a, start, size in runs
        )


_AXIS = re.compile(r'^"?([^":]+)"?(?::\((\d+)\)(\d+))?$')


def read_atoms(mesh: Any) -> tuple[Atoms, list[str]]:
    """The refined mesh of ``plan["mesh"]``, and what is wrong with it; `Impossible` where it cannot be read at all."""
    faults: list[str] = []
    whole: dict[str, int] = {}
    for name, size in mesh["axes"].items():
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise Impossible(f"mesh axis {name!r} has size {size!r}; sizes are integers of at least 1")
        whole[name] = size
    if not whole:
        raise Impossible("the mesh has no axes")
    axes, before, sizes = [], [], []
    for text in mesh["atoms"]:
        match = _AXIS.match(str(text))
        if match is None or match[1] not in whole:
            raise Impossible(f"mesh.atoms has {text!r}, which is no part of an axis of {dict(whole)}")
        axes.append(match[1])
        before.append(int(match[2] or 1))
        sizes.append(int(match[3] or whole[match[1]]))
    order = [list(whole).index(axis) for axis in axes]
    if order != sorted(order):
        faults.append(f"mesh.atoms {mesh['atoms']} are not in the order of the mesh axes {list(whole)}")
    if len(set(mesh["atoms"])) < len(mesh["atoms"]) or set(axes) != set(whole):
        faults.append(f"mesh.atoms {mesh['atoms']} are not the parts of the mesh axes {list(whole)}, each once")
    for name, size in whole.items():
        reached = 1
        for axis, start, part in zip(axes, before, sizes, strict=True):
            if axis == name:
                if start != reached:
                    faults.append(
                        f"mesh.atoms: the part of {name!r} behind {start} follows parts of size {reached} in all"
                    )
                reached *= part
        if reached != size:
            faults.append(f"mesh.atoms: the parts of axis {name!r} multiply to {reached}, the axis has size {size}")
    ids = mesh.get("device_ids")
    if ids is not None and sorted(ids) != list(range(prod(whole.values()))):
        faults.append(f"mesh.device_ids is no permutation of 0..{prod(whole.values()) - 1}")
    return Atoms(tuple(axes), tuple(before), tuple(sizes), whole), faults


@dataclass(frozen=True, slots=True)
class Run:
    """What devices hold along one dimension of `size` elements: a piece that begins at the sum of digit(atom) * stride.

    A stride is the length of the pieces that its atom cuts. A piece ends where the next begins, or where the larger
    piece that it was cut from ends; the padding that fills it up to `length` is undefined.
    """

    size: int
    strides: tuple[tuple[int, int], ...] = ()  # (atom, stride), longest stride first; atoms of size 1 left out

    @property
    def atoms(self) -> tuple[int, ...]:
        """The atoms that cut the dimension, outermost first."""
        return tuple(a for a, _ in self.strides)

    @property
    def length(self) -> int:
        """Elements of the array on each device, padding included."""
        return self.strides[-1][1] if self.strides else self.size

    def held(self, device: Sequence[int]) -> range:
        """The elements of a device, given its digits."""
        start, stop = 0, self.size
        for a, stride in self.strides:
            start += device[a] * stride
            stop = min(stop, start + stride)
        return range(min(start, stop), stop)

    def is_even(self, mesh: "Atoms") -> bool:
        """Whether every device holds `length` elements."""
        return self.length * mesh.group(self.atoms) == self.size

    def is_regular(self, mesh: "Atoms") -> bool:
        """Whether every piece begins at a multiple of `length`, so that pieces can be exchanged as they are."""
        inner = self.length
        for a, stride in reversed(self.strides):
            if stride != inner:
                return False
            inner *= mesh.sizes[a]
        return True

    def divided(self, atoms: Sequence[int], mesh: "Atoms", what: str) -> "Run":
        """The run with each piece cut further by atoms, the first one outermost.

        `Impossible` where an atom is of no use: without the last one there must be fewer pieces than elements (S0.54).
        """
        strides, length = list(self.strides), self.length
        for a in atoms:
            length = -(-length // mesh.sizes[a])
            strides.append((a, length))
        if atoms and self.size % mesh.group(a for a, _ in strides):
            if mesh.group(a for a, _ in strides[:-1]) >= self.size:
                by = [a for a, _ in strides]
                raise Impossible(
                    f"{what} of size {self.size} is cut in {mesh.group(by)} parts by {mesh.text(by)}, which does not "
                    "divide it, and some axes leave nothing to cut"
                )
        return Run(self.size, tuple(strides))


@dataclass(frozen=True, slots=True)
class Holding:
    """What every device holds of a tensor: a run along each dimension, and over which atoms the copies are summands."""

    runs: tuple[Run, ...]
    partial: frozenset[int] = frozenset()

    def elements(self, shape: Sequence[int]) -> int:
        """Elements of one device's block."""
        return 0 if 0 in shape else prod(run.length for run in self.runs)

    def padded(self, mesh: "Atoms") -> list[int]:
        """Dimensions with devices that hold less than the others."""
        return [d for d, run in enumerate(self.runs) if not run.is_even(mesh)]

    @property
    def cutting(self) -> frozenset[int]:
        """The atoms that cut any dimension."""
        return frozenset(a for run in self.runs for a, _ in run.strides)

    def text(self, mesh: Atoms) -> str:
        """What is held as a sharding, ``[{"x"}, {}] unreduced={"y"}``."""
        dims = ", ".join("{" + mesh.text(run.atoms) + "}" for run in self.runs)
        tail = f" unreduced={{{mesh.text(sorted(self.partial))}}}" if self.partial else ""
        return f"[{dims}]{tail}"

    def stacked(self, length: int) -> "Holding":
        """What is held of `length` such tensors on top of each other, when the stack is not cut."""
        return Holding((Run(length), *self.runs), self.partial)


def extent(size: int, mesh: Atoms) -> int:
    """The size that a dimension is counted with: a dimension of size 0 can be cut by any axes."""
    return size if size > 0 else mesh.devices


def cut(size: int, atoms: Sequence[int], mesh: Atoms, what: str = "a dimension") -> Run:
    """Cut `size` elements by atoms, the first one outermost; `Impossible` where an atom is of no use."""
    return Run(extent(size, mesh)).divided([a for a in atoms if mesh.sizes[a] > 1], mesh, what)


def holding(layout: Any, shape: Sequence[int], mesh: Atoms, what: str) -> Holding:
    """What devices hold under a LAYOUT of plan.json; `Impossible` where it does not fit the shape or the mesh."""
    dims, unreduced = layout["dims"], layout["unreduced"]
    if len(dims) != len(shape):
        raise Impossible(f"{what} has {len(shape)} dimensions, its layout {len(dims)}")
    _distinct([*(a for d in dims for a in d), *unreduced], mesh, what)
    runs = tuple(cut(n, d, mesh, f"dimension {k} of {what}") for k, (n, d) in enumerate(zip(shape, dims, strict=True)))
    return Holding(runs, frozenset(a for a in unreduced if mesh.sizes[a] > 1))


def _distinct(atoms: Sequence[int], mesh: Atoms, what: str) -> None:
    for a in atoms:
        if isinstance(a, bool) or not isinstance(a, int) or not 0 <= a < len(mesh.sizes):
            raise Impossible(f"{what} names atom {a!r}; the mesh has atoms 0 to {len(mesh.sizes) - 1}")
    twice = sorted({a for a in atoms if list(atoms).count(a) > 1})
    if twice:
        raise Impossible(f"{what} uses {mesh.text(twice)} twice; an axis appears at most once in a tensor")


def combine(factors: Sequence[tuple[int, Sequence[int]]], mesh: Atoms, what: str) -> Run:
    """The run of a dimension made of factors (size, atoms), the first one outermost.

    `Impossible` where the elements of a device do not lie in one piece: a factor is cut although one before it is not
    cut down to single indices, or a factor that is not alone is padded.
    """
    if any(size == 0 for size, _ in factors):
        return cut(0, [a for _, atoms in factors for a in atoms], mesh, what)
    total, strides, outer_whole = prod(size for size, _ in factors), [], False
    inner = total
    for size, atoms in factors:
        inner //= size
        run = cut(size, atoms, mesh, f"a factor of {what}")
        if len(factors) > 1 and not run.is_even(mesh):
            raise Impossible(
                f"{what} has a factor of size {size} cut in {mesh.group(run.atoms)} parts by {mesh.text(run.atoms)}, "
                "which does not divide it: its elements do not lie in one block"
            )
        if run.strides and outer_whole:
            raise Impossible(f"{what} is cut by {mesh.text(run.atoms)} inside of a factor that is not cut up: no block")
        outer_whole = outer_whole or run.length > 1
        strides += [(a, stride * inner) for a, stride in run.strides]
    return Run(total, tuple(strides))


def apply_step(step: Any, held: Holding, mesh: Atoms, summable: bool) -> Holding:
    """What devices hold after a STEP of plan.json. `Impossible` where it cannot be carried out on what they hold."""
    kind, atoms, dim, to_dim = step["kind"], list(step["atoms"]), step["dim"], step["to_dim"]
    if not atoms:
        raise Impossible(f"a step {kind} names no atoms")
    _distinct(atoms, mesh, f"a step {kind}")
    group = [a for a in atoms if mesh.sizes[a] > 1]
    name = mesh.text(atoms)
    runs = list(held.runs)
    partial = set(held.partial)
    for d, needed in ((dim, kind not in ("mask", "all_reduce")), (to_dim, kind == "all_to_all")):
        if needed and not 0 <= d < len(runs):
            raise Impossible(f"{kind} over {{{name}}} on dimension {d} of a tensor of rank {len(runs)}")
        if not needed and d != -1:
            raise Impossible(f"{kind} over {{{name}}} names a dimension {d} that it does not have")

    def same_data() -> None:
        """`Impossible` unless all devices of a group hold the same elements, and no partial sums over the group."""
        busy = [a for a in group if a in held.cutting or a in partial]
        if busy:
            raise Impossible(
                f"{kind} over {{{name}}}, but the devices along {{{mesh.text(busy)}}} do not hold the same data"
            )

    def joined(run: Run) -> Run:
        """The blocks of a group, joined in the order of its devices."""
        kept = len(run.strides) - len(group)  # pieces that were cut last are joined, these cuts stay
        if kept < 0 or [a for a, _ in run.strides[kept:]] != group:
            raise Impossible(
                f"{kind} over {{{name}}} on dimension {dim}: in the order of the devices the blocks do not follow "
                f"each other (it is cut by {{{mesh.text(run.atoms)}}})"
            )
        return Run(run.size, run.strides[:kept])

    def divided(run: Run) -> Run:
        """Each device of a group keeps the piece of its rank."""
        return run.divided(group, mesh, f"{kind} over {{{name}}}: a dimension")

    def summed() -> None:
        missing = [a for a in group if a not in partial]
        if missing:
            raise Impossible(f"{kind} over {{{name}}}, but the value is no partial sum over {{{mesh.text(missing)}}}")
        partial.difference_update(group)

    if kind == "slice":
        same_data()
        runs[dim] = divided(runs[dim])
    elif kind == "mask":
        same_data()
        if not summable:
            raise Impossible(f"mask over {{{name}}}: values of this type cannot be partial sums")
        partial |= set(group)
    elif kind == "all_gather":
        runs[dim] = joined(runs[dim])
    elif kind == "all_reduce":
        summed()
    elif kind == "reduce_scatter":
        summed()
        runs[dim] = divided(runs[dim])
    elif kind == "all_to_all":
        if dim == to_dim:
            raise Impossible(f"all_to_all over {{{name}}} from dimension {dim} to itself")
        runs[dim], runs[to_dim] = joined(runs[dim]), divided(runs[to_dim])
    elif kind == "permute":
        if sorted(group) != sorted(runs[dim].atoms):
            raise Impossible(
                f"permute of dimension {dim} to {{{name}}}, which is cut by {{{mesh.text(runs[dim].atoms)}}}"
            )
        moved = cut(runs[dim].size, group, mesh)
        if not (moved.is_regular(mesh) and runs[dim].is_regular(mesh)):
            raise Impossible(
                f"permute of dimension {dim} of size {moved.size} from {{{mesh.text(runs[dim].atoms)}}} to {{{name}}}: "
                "the blocks of one order are not those of the other"
            )
        if moved == runs[dim]:
            raise Impossible(f"permute of dimension {dim} to {{{name}}}, where it is already")
        runs[dim] = moved
    else:
        raise Impossible(f"there is no step {kind!r}")
    return Holding(tuple(runs), frozenset(partial))
