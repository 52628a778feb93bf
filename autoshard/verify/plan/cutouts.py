"""Runs of dimensions that ops take (slices) or fill (pads) while the dimension is cut, as the checker sees them.

Who sends what follows from what each device holds before and wants after, element by element.
"""

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from itertools import product
from typing import Any, NamedTuple

from autoshard.verify.plan.layout import Atoms, Impossible, cut
from autoshard.verify.plan.program import Graph, Node

Factors = tuple[tuple[int, ...], ...]
Pairs = tuple[tuple[int, int], ...]

SLICES = frozenset(("slice", "split", "dynamic_slice", "roll"))
JOINS = "concatenate"
KINDS = SLICES | {"pad", JOINS}


class Cutout(NamedTuple):
    """Element r of a result's dimension is element start + r of the operand's; factors are -1 for dimensions of size 1.

    grows: the result may be cut alone. sums: the operand may be cut alone, and leaves partial sums. wraps: a roll:
    behind the last element comes element 0.
    """

    operand: int
    result: int
    dim: int
    taken: int
    made: int
    start: int | None
    grows: bool
    sums: bool
    wraps: bool = False


def read_cutout(data: Any, operands: Sequence[Factors], results: Sequence[Factors], text: str) -> Cutout:
    """A cutout of plan.json; `ValueError` where the rule has no such dimensions or factors."""
    operand, result, dim, taken, made = (int(n) for n in data[:5])
    found = Cutout(operand, result, dim, taken, made, None if data[5] is None else int(data[5]), *map(bool, data[6:9]))
    inside = 0 <= operand < len(operands) and 0 <= result < len(results)
    if not inside or not (0 <= dim < len(operands[operand]) and dim < len(results[result])):
        raise ValueError(f"rule {text!r} has no dimensions for the cutout {list(data)}")
    for factor, dims in ((taken, operands[operand]), (made, results[result])):
        if dims[dim] != ((factor,) if factor >= 0 else ()):
            raise ValueError(f"rule {text!r} has other factors in dimension {dim} than the cutout {list(data)}")
    return found


def cutout_faults(op: Node, cutouts: Sequence[Cutout], sizes: Sequence[int], graph: Graph) -> list[str]:
    """What is wrong with the cutouts of a rule: only slices take runs, only pads and joins fill them, and they lie
    inside.
    """
    faults: list[str] = []
    begin = 0  # of the next part of a split, or of what is joined
    for c in cutouts:
        taken, made = (sizes[f] if f >= 0 else 1 for f in (c.taken, c.made))
        where = f"dimension {c.dim} of result {c.result}"
        if (c.operand and op.kind != JOINS) or op.kind not in KINDS or c.grows == (op.kind in SLICES):
            faults.append(f"{op.kind} takes no run of elements of operand {c.operand}")
        elif c.sums and (c.grows or c.wraps or not graph.values[op.results[c.result]].is_summable):
            faults.append(f"{where} cannot be filled in by a sum")
        elif (c.start is None) != (op.kind == "dynamic_slice"):
            faults.append(f"the start of {where} is {c.start}, in a {op.kind}")
        elif c.wraps != (op.kind == "roll"):
            faults.append(f"{where} is {'' if c.wraps else 'not '}rolled, in a {op.kind}")
        elif c.start is not None and not _is_inside(op.kind, c, c.start, taken, made, begin):
            faults.append(f"{where} starts at {c.start} and has {made} elements, operand {c.operand} {taken}")
        begin += taken if op.kind == JOINS else made
    if op.kind == "split" and cutouts and len(cutouts) != len(op.results):
        faults.append(f"{len(cutouts)} of {len(op.results)} parts are runs")
    if op.kind == JOINS and cutouts and [c.operand for c in cutouts] != list(range(len(op.operands))):
        faults.append(f"runs of the operands {[c.operand for c in cutouts]} are joined, there are {len(op.operands)}")
    return faults


def _is_inside(kind: str, c: Cutout, start: int, taken: int, made: int, begin: int) -> bool:
    """Whether a run starts where it can. begin: where the parts of a split, or of what is joined, before it end."""
    match kind:
        case "pad":
            return True
        case "concatenate":
            return start == -begin
        case "roll":
            return c.taken == c.made and 0 < start < taken
        case "split":
            return start == begin and start <= taken - made
        case _:
            return 0 <= start <= taken - made


def cut_both(cutouts: Sequence[Cutout], factors: Any, mesh: Atoms) -> list[Cutout]:
    """The cutouts that a placement cuts on both sides; `Impossible` where it does so by different axes."""
    found = [c for c in cutouts if c.taken >= 0 and c.made >= 0 and factors[c.taken] and factors[c.made]]
    for c in found:
        if list(factors[c.taken]) != list(factors[c.made]) or c.start is None:
            raise Impossible(
                f"it cuts dimension {c.dim} by {mesh.text(factors[c.taken])} and the run that is taken from it by "
                f"{mesh.text(factors[c.made])}"
            )
    return found


def cut_alone(cutouts: Sequence[Cutout], factors: Any, mesh: Atoms) -> tuple[set[int], set[int]]:
    """Factors of cutouts that may be cut on one side only, and those of them that leave partial sums.

    `Impossible` where some results of a split are cut and others are not.
    """
    both = cut_both(cutouts, factors, mesh)
    taken = {c.taken for c in both}
    if any(c.taken in taken for c in cutouts if c not in both):
        raise Impossible("it cuts some of the runs that are taken from a dimension, and others not")
    summed = {c.taken for c in cutouts if c.sums and c.taken >= 0 and factors[c.taken] and c.taken not in taken}
    filled = {c.made for c in cutouts if c.grows and c.made >= 0 and factors[c.made]}
    return summed | filled, summed


def permutes(sizes: Sequence[int], c: Cutout, atoms: Sequence[int], mesh: Atoms) -> tuple[tuple[Pairs, int], ...]:
    """The permutes that bring the elements of a cutout to where they belong: pairs of devices, and how much each sends.

    Devices are numbered in mesh order, within a group over `atoms`.
    """
    assert c.start is not None
    around = sizes[c.taken] if c.wraps else 0
    return _permutes(sizes[c.taken], sizes[c.made], c.start, tuple(atoms), tuple(mesh.sizes[a] for a in atoms), around)


@lru_cache(maxsize=512)
def _permutes(
    taken: int, made: int, start: int, atoms: tuple[int, ...], sizes: tuple[int, ...], around: int
) -> tuple[tuple[Pairs, int], ...]:
    """Of all elements that change devices, those of one pair of devices go together, in as few permutes as can be."""
    mesh = Atoms(tuple(map(str, atoms)), (1,) * len(atoms), sizes, {})
    own = range(len(atoms))
    before, after = cut(taken, own, mesh), cut(made, own, mesh)
    in_mesh_order = sorted(own, key=lambda k: atoms[k])
    devices = []
    for digits in product(*(range(sizes[k]) for k in in_mesh_order)):
        at = dict(zip(in_mesh_order, digits, strict=True))
        devices.append([at[k] for k in own])
    moves = []
    for target, wants in enumerate(devices):
        want = after.held(wants)
        low, high = want.start + start, want.stop + start
        for source, has in enumerate(devices):
            have = before.held(has)
            for turn in {0, around}:  # what a roll takes from the beginning again
                count = min(high, have.stop + turn) - max(low, have.start + turn)
                if count > 0 and source != target:
                    moves.append((want.start, have.start + turn, source, target, count))
    moves.sort()
    busiest = max((n for side in (2, 3) for n in Counter(m[side] for m in moves).values()), default=0)
    out = []
    for k in range(busiest):
        together = moves[k::busiest]
        pairs = tuple((m[2], m[3]) for m in together)
        if len({s for s, _ in pairs}) < len(pairs) or len({t for _, t in pairs}) < len(pairs):
            raise Impossible("a device would send, or get, two blocks in one permute")
        out.append((pairs, max(m[4] for m in together)))
    return tuple(out)
