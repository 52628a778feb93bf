"""Which parts of mesh axes are axes of their own in the whole program: those that statements name, and those that are
axes of the meshes which statements are on.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import prod
from operator import mul

from autoshard.constraints import MatchedPin, Restriction
from autoshard.errors import InputError
from autoshard.sharding import axis_algebra as algebra
from autoshard.sharding.axis import AxisRef
from autoshard.sharding.device_orders import cuts_by
from autoshard.sharding.layout import AtomMesh
from autoshard.sharding.mesh import Mesh
from autoshard.sharding.tensor_sharding import TensorSharding

SOME_AXES = 3
"""Axes and parts larger than 1 that are told apart in programs of any size."""

PART_OPS = 60
"""Ops up to which parts that statements name are axes of their own where there are four axes and parts, not three. (A
step of one layer of a transformer, 132 ops on 4x16, took 100 s and 7.5 GiB with one pin that cuts the 16 in three
parts, ending 19% from its bound; 3 s without.)"""

Splits = dict[str, tuple[int, ...]]
"""Sizes of the parts of axes, major to minor."""


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of mesh axes that statements speak of.

    named: the parts that statements name; the atoms of a problem must have them. apart: the parts that are axes of
    their own, of axes in the order of the mesh. unused: axes with parts that are axes of a mesh which statements are
    on, not named by any, and too many to be axes of their own.
    """

    named: Splits
    apart: Splits
    unused: tuple[str, ...] = ()

    @property
    def together(self) -> tuple[str, ...]:
        """Axes of which statements name parts that are too many to be axes of their own."""
        return tuple(name for name in self.named if name not in self.apart)

    def atoms(self, mesh: AtomMesh) -> tuple[tuple[int, ...], ...]:
        """The atoms of each part that is an axis of its own."""
        return tuple(
            mesh.atoms_for(AxisRef(name, begin, size))
            for name, sizes in self.apart.items()
            for begin, size in zip(accumulate(sizes, mul, initial=1), sizes, strict=False)
        )


def shardings_stated(pins: Iterable[MatchedPin], restrictions: Iterable[Restriction]) -> list[TensorSharding]:
    """The shardings that statements write."""
    return [*(pin.sharding for pin in pins), *(sharding for r in restrictions for sharding in r.shardings)]


def parts_of_axes(
    pins: Sequence[MatchedPin],
    restrictions: Sequence[Restriction],
    mesh: Mesh,
    ops: int,
    may_cut: Callable[[str, Collection[int]], bool],
) -> Parts:
    """The parts of the axes of `mesh` that statements about a program of so many ops speak of.

    Networks grow as on a mesh with so many axes, so parts are axes only while there are few (`PART_OPS`): first those
    that statements name, of earlier axes of the mesh first, then those that are axes of other meshes. may_cut: whether
    an axis may be split into so many blocks where no statement says so.
    """
    most = SOME_AXES + (ops <= PART_OPS)
    stated = cuts_stated(pins, restrictions, mesh)
    named = {name: split_at((mesh.axis_size(name), *stated[name])) for name in mesh.axis_names if name in stated}

    def count(apart: Splits) -> int:
        """Axes and parts larger than 1."""
        sizes = zip(mesh.axis_names, mesh.axis_sizes, strict=True)
        return sum(len(apart.get(name, ())) or int(size > 1) for name, size in sizes)

    apart: Splits = {}
    for name, parts in named.items():
        if count({**apart, name: parts}) <= most:
            apart[name] = parts
    unused: dict[str, None] = {}
    meshes = sorted({pin.mesh for pin in pins if pin.mesh})  # not in the order of pins, which stages change
    for other in map(Mesh.from_text, meshes):
        for name, cuts in cuts_by(other, mesh).items():
            before = apart.get(name, named.get(name, (mesh.axis_size(name),)))
            parts = with_cuts(before, cuts)
            if parts is None or parts == before or (name in named and name not in apart):
                continue
            if count({**apart, name: parts}) > most:
                unused[name] = None
            elif may_cut(name, cuts):
                apart[name] = parts
    return Parts(named, {name: apart[name] for name in mesh.axis_names if name in apart}, tuple(unused))


def cuts_stated(
    pins: Iterable[MatchedPin], restrictions: Iterable[Restriction], mesh: Mesh
) -> dict[str, dict[int, str]]:
    """Into how many blocks statements split an axis where its parts end, and the first statement that does, in words.

    Raises `InputError` where two of these numbers do not fit together.
    """
    cuts: dict[str, dict[int, str]] = {}
    for statement in (*pins, *restrictions):
        refs = [ref for sharding in statement.shardings for ref in sharding.axes_used() if ref.is_sub_axis]
        for name, cut in ((ref.name, cut) for ref in refs for cut in algebra.span(ref, mesh)):
            if 1 < cut < mesh.axis_size(name) and cut not in cuts.setdefault(name, {}):
                cuts[name][cut] = _told(statement)
    for name, by in cuts.items():
        for few, many in pairwise(sorted(by)):
            if many % few:
                size = mesh.axis_size(name)
                raise InputError(
                    f'statements split axis "{name}" of {size} devices into {few} and into {many} blocks, and these '
                    "do not fit together: one number must divide the other\n  "
                    + "\n  ".join(dict.fromkeys((by[few], by[many])))
                    + f"\nstate parts that fit, such as {AxisRef(name, 1, few)} and {AxisRef(name, few, size // few)}"
                )
    return cuts


def _told(statement: MatchedPin | Restriction) -> str:
    """A statement as messages cite it, and how it was written where that was on another mesh."""
    if isinstance(statement, MatchedPin) and statement.mesh:
        return f"{statement.cited} (stated as {statement.stated} on {statement.mesh})"
    return statement.cited


def check_sub_axes(sub_axes: Mapping[str, Sequence[int]], stated: Mapping[str, Mapping[int, str]], mesh: Mesh) -> None:
    """Raise `InputError` where the parts that a caller gives an axis do not multiply to it, or do not end where a
    statement splits it. stated: see `cuts_stated`.
    """
    for name, parts in sub_axes.items():
        size, ends = mesh.axis_size(name), cuts_of(parts)
        if any(part < 1 for part in parts) or prod(parts) != size:
            raise InputError(
                f"sub_axes: axis {name!r} has {size} devices and cannot be split into {list(parts)}; give whole "
                f"numbers from 1 whose product is {size}, or leave {name!r} out"
            )
        for cut, words in stated.get(name, {}).items():
            if cut not in ends:
                fits = with_cuts(parts, stated[name])
                hint = "" if fits is None else f", or give it the parts {list(fits)}"
                raise InputError(
                    f"{words}\nsplits axis {name!r} of {size} devices into {cut} blocks, where none of the parts "
                    f"{list(parts)} ends that sub_axes gives it; leave {name!r} out of sub_axes{hint}"
                )


def cuts_of(parts: Iterable[int]) -> set[int]:
    """Into how many blocks an axis is split where its parts end: the products of their sizes, 2 and 8 of ``(2, 4)``."""
    return set(accumulate(parts, mul))


def with_cuts(parts: Sequence[int], cuts: Collection[int]) -> tuple[int, ...] | None:
    """Parts of an axis with these cuts too; None where they do not fit together."""
    ends = sorted({1, *cuts_of(parts), *cuts})
    return None if any(b % a for a, b in pairwise(ends)) else split_at(ends)


def split_at(ends: Iterable[int]) -> tuple[int, ...]:
    """The sizes of the parts that end where an axis is split into so many blocks."""
    return tuple(b // a for a, b in pairwise(sorted({1, *ends})))
