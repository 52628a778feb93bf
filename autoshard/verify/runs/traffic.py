"""What the collectives of a program move: bytes per device and call, and how two lists of collectives differ.

Bytes are those a device sends in the usual ring algorithms, which are optimal in bytes (Chan, Heimlich, Purkayastha and
van de Geijn, "Collective communication: theory, practice, and experience", 2007): with n devices in a group and b bytes
given by each, all-gather (n - 1) b, reduce-scatter and all-to-all (n - 1) / n b, all-reduce 2 (n - 1) / n b, and for a
permute b where a device sends to another one.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from autoshard.program.types import dtype_bytes
from autoshard.sharding.layout import AtomMesh
from autoshard.verify.runs.collectives import FoundCollective, Planned, atoms_of_groups, groups_of

_LOOPS = ("loop", "scan", "while")


@dataclass(frozen=True, order=True)
class Traffic:
    """What equal collectives move. How often they run in one call is counted beside it, in a `Counter`.

    axes: text, ``data, model:(1)2``. given: bytes of the array that one device gives to the collective. moved: bytes
    that one device sends each time, on average over the devices. combiner: of reductions.
    """

    kind: str
    axes: str
    given: int
    moved: float
    combiner: str = ""


_EIGHT_BITS = ("e3m4", "e4m3", "e4m3b11fnuz", "e4m3fn", "e4m3fnuz", "e5m2", "e5m2fnuz", "e8m0fnu")
ON_CPU: Mapping[str, str] = {
    **dict.fromkeys(("bfloat16", "float16", "float4_e2m1fn", *(f"float8_{e}" for e in _EIGHT_BITS)), "float32"),
    **{f"{sign}int{bits}": f"{sign}int8" for sign in ("", "u") for bits in (2, 4)},
}
"""Element type -> the one to count it as in programs of XLA for CPU, which computes collectives of narrow types in
wider ones (those of float8 in float16, which stands for float32 here as it does where it is the program's own)."""


def of_planned(planned: Iterable[Planned], mesh: AtomMesh, dtypes: Mapping[str, str] | None = None) -> Counter[Traffic]:
    """Planned collectives with their numbers of executions; a loop of unknown length counts once. See `of_found`."""
    total: Counter[Traffic] = Counter()
    for p in planned:
        if mesh.size(p.atoms) == 1 or not p.elements:
            continue
        collective = FoundCollective(p.kind, groups_of(p, mesh), p.elements, p.dtype, tuple(p.loops), p.combiner)  # type: ignore[arg-type]
        total += of_found([collective], mesh, dtypes)
    return total


def of_found(
    found: Iterable[FoundCollective], mesh: AtomMesh, dtypes: Mapping[str, str] | None = None
) -> Counter[Traffic]:
    """Collectives of a program text with their numbers of executions; a loop of unknown length counts once.

    dtypes: element type -> the one to count it as (XLA for CPU computes bfloat16 collectives in float32).
    """
    total: Counter[Traffic] = Counter()
    for f in found:
        if not f.elements or not f.groups or (f.kind != "permute" and not any(len(g) > 1 for g in f.groups)):
            continue
        payload = round(f.elements * dtype_bytes((dtypes or {}).get(f.dtype, f.dtype)))
        times = prod(1 if loop.trips is None else loop.trips for loop in f.loops if loop.kind in _LOOPS)
        if not times:
            continue
        total[Traffic(f.kind, _axes(f, mesh), payload, _moved(f, payload, mesh), f.combiner)] += times
    return total


def moved_bytes(traffic: Counter[Traffic]) -> float:
    """Bytes that one device sends in one call."""
    return sum(t.moved * times for t, times in traffic.items())


def _moved(f: FoundCollective, payload: int, mesh: AtomMesh) -> float:
    if f.kind == "permute":
        return payload * sum(s != t for s, t in f.groups) / prod(mesh.sizes)
    n = max(len(g) for g in f.groups)
    factor = {"all_gather": n - 1, "all_reduce": 2 * (n - 1) / n}.get(f.kind, (n - 1) / n)
    return payload * factor


def _axes(f: FoundCollective, mesh: AtomMesh) -> str:
    if f.kind == "permute":
        atoms: Sequence[int] | None = [a for a in range(len(mesh.sizes)) if _differs(f.groups, a, mesh)]
    else:
        atoms = atoms_of_groups(f.groups, mesh)
    return f"{len(f.groups)} groups of {len(f.groups[0])}" if atoms is None else mesh.axes_text(atoms).replace('"', "")


def _differs(pairs: Sequence[Sequence[int]], atom: int, mesh: AtomMesh) -> bool:
    """Whether a permute moves blocks along an atom."""
    stride = prod(mesh.sizes[atom + 1 :])
    return any(s // stride % mesh.sizes[atom] != t // stride % mesh.sizes[atom] for s, t in pairs)


# -- differences -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Change:
    """What became of planned collectives in a program, or how found ones are explained.

    what: ``kept``, ``changed`` (another kind or size over the same axes), ``dropped`` (planned, found nowhere) or
    ``added`` (not planned). times: executions in one call.
    """

    what: str
    planned: Traffic | None
    found: Traffic | None
    times: int

    def to_dict(self) -> dict[str, Any]:
        """The change as plain data, for JSON."""

        def told(t: Traffic | None) -> dict[str, Any] | None:
            return None if t is None else {"kind": t.kind, "axes": t.axes, "bytes": t.given, "moved_bytes": t.moved}

        return {"change": self.what, "count": self.times, "planned": told(self.planned), "found": told(self.found)}


def changes(planned: Counter[Traffic], found: Counter[Traffic]) -> list[Change]:
    """Every planned and every found collective once: equal ones first, then pairs over the same axes, nearest first."""
    left, free = planned.copy(), found.copy()
    out: list[Change] = []

    def pair(what: str, ours: Traffic, theirs: Traffic) -> None:
        times = min(left[ours], free[theirs])
        if times > 0:
            out.append(Change(what, ours, theirs, times))
            left[ours] -= times
            free[theirs] -= times

    for same in sorted(planned):
        pair("kept", same, same)
    near = [(_distance(a, b), a, b) for a in sorted(+left) for b in sorted(+free) if a.axes == b.axes]
    for _, ours, theirs in sorted(near):
        pair("changed", ours, theirs)
    out += [Change("dropped", t, None, times) for t, times in sorted((+left).items())]
    out += [Change("added", None, t, times) for t, times in sorted((+free).items())]
    return out


def _distance(a: Traffic, b: Traffic) -> tuple[bool, float]:
    """How far apart two collectives are: first whether both kind and bytes differ, then by the bytes that they move."""
    size = abs(a.moved - b.moved) / max(a.moved, b.moved, 1e-300)
    return a.kind != b.kind and a.given != b.given, size
