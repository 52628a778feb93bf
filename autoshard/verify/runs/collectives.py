"""Counting collectives in lowered and compiled programs, and comparing them with the planned ones.

Two readers, one for StableHLO (what was lowered) and one for HLO text (what XLA compiled), give the same kind of
record; `compare` matches records to plans by kind, devices that talk to each other, elements and element type.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise, product
from math import prod
from typing import Protocol

from autoshard.program.types import dtype_bytes
from autoshard.sharding.layout import AtomMesh

UNCOMBINED = {
    "xla_disable_hlo_passes": "cpu-all-reduce-combiner,cse,dce,algsimp,"
    "while-loop-invariant-code-motion,while-loop-expensive-invariant-code-motion,simplify-while-loops,simplify-sorts"
}
"""Compiler options under which XLA for CPU keeps collectives one to one.

The passes left out merge equal collectives, drop those whose result is known (a gather of a broadcast scalar) or unused
(values that a loop carries or a sort brings along in vain), and move collectives out of loops: each of them can only
make a program communicate less than planned.
"""


@dataclass(frozen=True, slots=True)
class FoundLoop:
    """A region of the program text around a collective; `trips` is None where the text does not tell."""

    kind: str  # "loop", "branch"
    trips: int | None


@dataclass(frozen=True, slots=True)
class FoundCollective:
    """One collective operation of a program text.

    kind: ``all_gather``, ``all_reduce``, ``reduce_scatter``, ``all_to_all`` or ``permute``.
    groups: device positions that exchange data, in order; for a permute its (source, target) pairs.
    elements: of the array one device gives to it. dtype: its element type.
    loops: regions around it, outermost first.
    """

    kind: str
    groups: tuple[tuple[int, ...], ...]
    elements: int
    dtype: str
    loops: tuple[FoundLoop, ...] = ()
    combiner: str = ""

    @property
    def local_bytes(self) -> float:
        """Bytes of the array that one device gives to it."""
        return self.elements * dtype_bytes(self.dtype)


class Loop(Protocol):
    """What `compare` reads of a region around a planned collective."""

    @property
    def kind(self) -> str:
        """``scan``, ``while`` or ``branch``."""
        ...

    @property
    def trips(self) -> int | None:
        """How often it runs; None where that is not known."""
        ...


class Planned(Protocol):
    """What `compare` reads of a planned collective (see `autoshard.lowering.collectives.PlannedCollective`).

    A permute that exchanges edges between neighbours also has a `shift`, 1 or -1; one of a user's own shard_map has
    `pairs` of numbers in a group, in mesh order.
    """

    @property
    def where(self) -> str:
        """Its place in the program, for people."""
        ...

    @property
    def kind(self) -> str:
        """``all_gather``, ``all_reduce``, ``reduce_scatter``, ``all_to_all`` or ``permute``."""
        ...

    @property
    def atoms(self) -> tuple[int, ...]:
        """The atoms of its groups, major to minor."""
        ...

    @property
    def from_atoms(self) -> tuple[int, ...]:
        """Of a permute, the order of the atoms before."""
        ...

    @property
    def elements(self) -> int:
        """Elements of the array that one device gives to it."""
        ...

    @property
    def dtype(self) -> str:
        """The element type as it is sent."""
        ...

    @property
    def combiner(self) -> str:
        """``add``, ``max`` or ``min`` where it reduces, else empty."""
        ...

    @property
    def loops(self) -> Sequence[Loop]:
        """Regions around it, outermost first."""
        ...


@dataclass(frozen=True, slots=True)
class Difference:
    """Collectives that one side has more often than the other.

    text: the collective in words. planned, found: how many each side has. where: places of the planned ones, if any.
    """

    text: str
    planned: int
    found: int
    where: tuple[str, ...]

    def __str__(self) -> str:
        places = f" ({'; '.join(self.where[:3])}{'; ...' if len(self.where) > 3 else ''})" if self.where else ""
        return f"{self.text}: planned {self.planned}, found {self.found}{places}"


def compare(
    planned: Iterable[Planned], found: Iterable[FoundCollective], mesh: AtomMesh, *, dtypes: bool = True
) -> list[Difference]:
    """Differences between planned and found collectives; empty where they are the same.

    Compared are kind, combiner, groups (whole lists of devices, so also the axes and their order, but for all-reduces
    their order does not matter), elements per device, element type, and the loops around (a trip count that one side
    does not know agrees with any; where loops differ, as after unrolling, the total counts of executions decide). Those
    of loops that run zero times may be left out, as JAX leaves out the body of a scan over nothing.
    dtypes=False leaves out the element type: XLA for CPU computes bf16 collectives in f32.
    """
    wanted: dict[tuple, list[Planned]] = {}
    idle: Counter[tuple] = Counter()
    for p in planned:
        if mesh.size(p.atoms) > 1 and p.elements:  # one device alone, and empty arrays, send nothing
            groups = _ordered(p.kind, groups_of(p, mesh))
            if not groups:  # a permute of nothing to nobody
                continue
            key = (p.kind, groups, p.elements, p.dtype if dtypes else "", p.combiner)
            if any(loop.trips == 0 for loop in p.loops):
                idle[key] += 1
            else:
                wanted.setdefault(key, []).append(p)
    have: dict[tuple, list[FoundCollective]] = {}
    for f in found:
        if any(loop.trips == 0 for loop in f.loops):
            continue
        if f.elements and f.groups and (f.kind == "permute" or any(len(g) > 1 for g in f.groups)):
            key = (f.kind, _ordered(f.kind, f.groups), f.elements, f.dtype if dtypes else "", f.combiner)
            have.setdefault(key, []).append(f)
    out = []
    for key in [*wanted, *(k for k in have if k not in wanted)]:
        ours, theirs = wanted.get(key, []), have.get(key, [])
        our_loops = [tuple(loop.trips for loop in p.loops if loop.kind in ("scan", "while")) for p in ours]
        their_loops = [tuple(loop.trips for loop in f.loops if loop.kind == "loop") for f in theirs]
        if not any(_same_loops(our_loops, _without_idle(their_loops, n)) for n in range(idle[key] + 1)):
            text = _text(key, mesh)
            if len(ours) == len(theirs):
                text += f", loops {sorted(our_loops, key=repr)} against {sorted(their_loops, key=repr)}"
            out.append(Difference(text, len(ours), len(theirs), tuple(p.where for p in ours)))
    return out


def _without_idle(found: list[tuple[int | None, ...]], most: int) -> list[tuple[int | None, ...]]:
    """Found loops without at most so many of which the text does not tell that they run zero times."""
    unknown = [k for k, loops in enumerate(found) if None in loops]
    return [loops for k, loops in enumerate(found) if k not in unknown[:most]]


def groups_of(planned: Planned, mesh: AtomMesh) -> tuple[tuple[int, ...], ...]:
    """`planned_groups` of a planned collective."""
    shift, pairs = getattr(planned, "shift", 0), tuple(getattr(planned, "pairs", ()))
    return planned_groups(planned.kind, tuple(planned.atoms), tuple(planned.from_atoms), mesh, shift, pairs)


def _ordered(kind: str, groups: Sequence[Sequence[int]]) -> tuple[tuple[int, ...], ...]:
    """Groups in a canonical order; for all-reduces their members, too."""
    return tuple(sorted(tuple(sorted(g)) if kind == "all_reduce" else tuple(g) for g in groups))


def _same_loops(ours: list[tuple[int | None, ...]], theirs: list[tuple[int | None, ...]]) -> bool:
    left = Counter(theirs)
    unmatched = []
    for loops in ours:  # equal ones are paired first, so that unknown counts are left for what only they match
        if left[loops]:
            left[loops] -= 1
        else:
            unmatched.append(loops)
    for loops in list(unmatched):
        for other in sorted(left, key=repr):
            if (
                left[other]
                and len(other) == len(loops)
                and all(a == b or a is None or b is None for a, b in zip(loops, other, strict=True))
            ):
                left[other] -= 1
                unmatched.remove(loops)
                break
    rest = list((+left).elements())
    if any(n is None for loops in (*unmatched, *rest) for n in loops):
        return False
    return sum(map(_times, unmatched)) == sum(map(_times, rest))


def _times(loops: tuple[int | None, ...]) -> int:
    return prod(n for n in loops if n is not None)


@lru_cache(maxsize=512)
def planned_groups(
    kind: str,
    atoms: tuple[int, ...],
    from_atoms: tuple[int, ...],
    mesh: AtomMesh,
    shift: int = 0,
    pairs: tuple[tuple[int, int], ...] = (),
) -> tuple[tuple[int, ...], ...]:
    """The groups of devices (positions in the mesh, row-major) of a planned collective.

    For a permute they are pairs (source, target): the source holds the block that the target is to get. With a shift,
    these are every device of a group and the one that many places behind it; with `pairs`, those pairs in every group,
    whose devices are numbered in mesh order.

    >>> from autoshard.sharding.mesh import Mesh
    >>> mesh = AtomMesh.split(Mesh.from_dict({"x": 2, "y": 2}))
    >>> planned_groups("all_gather", (0,), (), mesh), planned_groups("permute", (1, 0), (0, 1), mesh)
    (((0, 2), (1, 3)), ((0, 0), (1, 2), (2, 1), (3, 3)))
    """
    strides = [prod(mesh.sizes[a + 1 :]) for a in range(len(mesh.sizes))]
    rest = [a for a in range(len(mesh.sizes)) if a not in atoms]

    def position(over: Sequence[int], where: Sequence[int]) -> int:
        return sum(strides[a] * i for a, i in zip(over, where, strict=True))

    def walk(over: Sequence[int]) -> list[int]:
        return [position(over, where) for where in product(*(range(mesh.sizes[a]) for a in over))]

    if shift:
        line = walk(atoms)
        steps = [(a, b) if shift == 1 else (b, a) for a, b in pairwise(line)]
        return tuple(sorted((s + base, t + base) for s, t in steps for base in walk(rest)))
    if kind == "permute" and not from_atoms:
        line = walk(sorted(atoms))
        return tuple(sorted((line[s] + base, line[t] + base) for s, t in pairs for base in walk(rest)))
    if kind == "permute":
        moves = zip(walk(from_atoms), walk(atoms), strict=True)
        return tuple(sorted((s + base, t + base) for s, t in moves for base in walk(rest)))
    return tuple(tuple(base + d for d in walk(atoms)) for base in walk(rest))


def atoms_of_groups(groups: Sequence[Sequence[int]], mesh: AtomMesh) -> tuple[int, ...] | None:
    """The atoms (larger than 1, in mesh order) along which groups of devices lie; None where they lie along none."""
    members = {frozenset(g) for g in groups}
    free = [a for a, size in enumerate(mesh.sizes) if size > 1]
    for chosen in product((False, True), repeat=len(free)):
        atoms = tuple(a for a, taken in zip(free, chosen, strict=True) if taken)
        if {frozenset(g) for g in planned_groups("all_reduce", atoms, (), mesh)} == members:
            return atoms
    return None


def _text(key: tuple, mesh: AtomMesh) -> str:
    kind, groups, elements, dtype, combiner = key
    atoms = None if kind == "permute" else atoms_of_groups(groups, mesh)
    over = f"{{{mesh.axes_text(atoms)}}}" if atoms else f"devices {list(groups)[:2]}{'...' if len(groups) > 2 else ''}"
    what = f"{kind}[{combiner}]" if combiner not in ("", "add") else kind
    return f"{what} over {over} of {elements} {dtype or 'elements'} a device"
