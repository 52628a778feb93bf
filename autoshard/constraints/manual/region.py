"""Regions of manual computations: sets of ops, and the values at their borders."""

from collections.abc import Iterable
from dataclasses import dataclass

from autoshard.program.program import Origin, Program


@dataclass(frozen=True, slots=True)
class Region:
    """A set of ops with all that is inside of them, and the values at its borders.

    inside: values that ops of the region define, arguments of their bodies included. entering: other values that they
    use, in the order of first use. leaving: values of `inside` that ops outside use, or that are outputs, in the order
    of definition.
    """

    ops: frozenset[int]
    inside: frozenset[int]
    entering: tuple[int, ...]
    leaving: tuple[int, ...]


def region_of(program: Program, ops: Iterable[int]) -> Region:
    """The borders of a set of ops, which holds the inner ops of its members."""
    chosen = frozenset(ops)
    inside: dict[int, None] = {}
    entering: dict[int, None] = {}
    leaving: dict[int, None] = {}
    used_outside = set(program.body.results)
    for op, _ in program.walk():
        handed = [v for region in op.regions for v in region.results]
        if op.id in chosen:
            inside.update(dict.fromkeys(v for region in op.regions for v in region.args))
        else:
            used_outside.update((*op.operands, *handed))
    for op, _ in program.walk():
        if op.id in chosen:
            inside.update(dict.fromkeys(op.results))
    for op, _ in program.walk():
        if op.id in chosen:
            handed = [v for region in op.regions for v in region.results]
            for v in (*op.operands, *handed):
                if v not in inside and program.values[v].origin is not Origin.LITERAL:
                    entering[v] = None
            leaving.update(dict.fromkeys(v for v in op.results if v in used_outside))
    return Region(chosen, frozenset(inside), tuple(entering), tuple(leaving))


def parts_of(program: Program, region: Region) -> list[Region]:
    """The pieces of a region that no value inside of it connects: one for each call of the same function."""
    part_of: dict[int, int] = {}
    owner: dict[int, int] = {}

    def root(op: int) -> int:
        while part_of[op] != op:
            op = part_of[op]
        return op

    def join(op: int, value: int) -> None:
        if value in owner:
            a, b = root(op), root(owner[value])
            part_of[max(a, b)] = min(a, b)
        elif value in region.inside:
            owner[value] = op

    outermost: dict[int, int] = {}
    for op, outer in program.walk():
        if op.id in region.ops:
            top = next((o.id for o in outer if o.id in region.ops), op.id)
            outermost[op.id] = top
            part_of.setdefault(top, top)
            for v in (*op.results, *(v for r in op.regions for v in r.args), *op.operands):
                join(top, v)
    members: dict[int, list[int]] = {}
    for op, top in outermost.items():
        members.setdefault(root(top), []).append(op)
    return [region_of(program, ops) for _, ops in sorted(members.items())]
