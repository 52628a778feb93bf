"""The program as an outline: loops and branches, layers that are written out, and named scopes or functions.

Rows are in the order of the program; what is folded below a row are the deeper rows that follow it.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from autoshard.program.program import Block, Op, Program
from autoshard.report.view.layers import repeats
from autoshard.report.view.source import place_of

_NUMBERED = re.compile(r"^(.*?/\d+)(?:/|$)")
NESTED = 2
"""How deeply layers within layers are looked for."""


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the outline: an op, or a group of the rows that follow it with a larger `depth`.

    label: of a group or loop; empty for other ops. op: the id of the op; -1 for a group. phase: ``forward``,
    ``backward``, ``recomputed``, or "" (also where a group around this one has the phase).
    """

    depth: int
    label: str
    op: int
    phase: str = ""


def outline(program: Program) -> list[Row]:
    """All rows in the order of the program: one for every op, and one for every group."""
    return list(_Outline(program).block(program.body, 0, NESTED))


class _Outline:
    def __init__(self, program: Program) -> None:
        self.program = program
        self.inputs = dict(zip(program.body.args, program.input_names, strict=False))

    def block(self, block: Block, depth: int, nested: int) -> Iterator[Row]:
        yield from self._ops(block.ops, depth, nested)

    def _ops(self, ops: Sequence[Op], depth: int, nested: int) -> Iterator[Row]:
        at = 0
        for repeat in repeats([self._signature(op) for op in ops]) if nested else ():
            yield from self._scopes(ops[at : repeat.start], depth, 0)
            stretches = [
                ops[repeat.start + k * repeat.period : repeat.start + (k + 1) * repeat.period]
                for k in range(repeat.count)
            ]
            phase = _phase(ops[repeat.start : repeat.stop])
            yield Row(depth, f"{repeat.count} layers alike", -1, phase)
            for number, stretch in enumerate(stretches):
                yield Row(depth + 1, self._layer(stretch, number, repeat.count), -1)
                yield from self._ops(stretch, depth + 2, nested - 1)
            at = repeat.stop
        yield from self._scopes(ops[at:], depth, 0)

    def _signature(self, op: Op) -> tuple[object, ...]:
        types = tuple(str(self.program.type_of(v)) for v in (*op.operands, *op.results))
        return op.kind, op.source, types

    def _layer(self, ops: Sequence[Op], number: int, count: int) -> str:
        """The label of a layer: the numbered path (``layers/3``) of most parameters that it reads, else its number."""
        read = {self.inputs[v] for op in ops for v in op.operands if v in self.inputs}
        paths = Counter(m[1] for m in map(_NUMBERED.match, sorted(read)) if m)
        if paths:
            path, times = paths.most_common(1)[0]
            if 2 * times > sum(paths.values()):
                return path
        return f"{number + 1} of {count}"

    def _scopes(self, ops: Sequence[Op], depth: int, level: int) -> Iterator[Row]:
        """Rows of consecutive ops: those of one named scope, or else of one function, are a group."""
        for key, members in groupby(ops, _key(level)):
            run = list(members)
            if key is None or len(run) < 2:
                for op in run:
                    yield from self._op(op, depth)
                continue
            name, phase, named = key
            yield Row(depth, name, -1, phase)
            if named:
                yield from self._scopes(run, depth + 1, level + 1)
            else:
                for op in run:
                    yield from self._op(op, depth + 1)

    def _op(self, op: Op, depth: int) -> Iterator[Row]:
        if not op.regions or op.kind == "shard_map":
            yield Row(depth, "", op.id)
            return
        inner = [inner_op for region in op.regions for inner_op in region.ops]
        yield Row(depth, place_of(op.source).function, op.id, _phase(inner) if depth < 2 else "")
        names = {"while": ("condition", "body")}.get(op.kind)
        for number, region in enumerate(op.regions):
            if len(op.regions) == 1:
                yield from self.block(region, depth + 1, NESTED)
                continue
            yield Row(depth + 1, names[number] if names else f"branch {number}", -1)
            yield from self.block(region, depth + 2, NESTED)


def _key(level: int) -> Callable[[Op], tuple[str, str, bool] | None]:
    def key(op: Op) -> tuple[str, str, bool] | None:
        place = place_of(op.source)
        if level < len(place.scopes):
            return place.scopes[level], place.phase if level == 0 else "", True
        if op.regions or not place.function:
            return None
        return place.function, place.phase if level == 0 else "", False

    return key


def _phase(ops: Sequence[Op]) -> str:
    """The phase of most ops of a stretch; ``backward`` where it has such ops: that pass holds recomputed ones too."""
    phases = Counter(place_of(op.source).phase for op in ops)
    if phases["backward"]:
        return "backward"
    return phases.most_common(1)[0][0] if phases else ""
