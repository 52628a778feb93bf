"""Small programs written in the notation of rules."""

from collections.abc import Callable, Sequence

import pytest

from autoshard.program.program import Block, Op, Origin, Program, Value
from autoshard.program.rule import rule_from_text
from autoshard.program.types import TensorType


class Builder:
    """Adds inputs and ops by name; `program` closes it. Shapes of results follow from the rule."""

    def __init__(self) -> None:
        self.values: list[Value] = []
        self.ops: list[Op] = []
        self.inputs: list[int] = []
        self.ids: dict[str, int] = {}

    def value(self, name: str, shape: Sequence[int], origin: Origin = Origin.OP) -> int:
        self.values.append(Value(len(self.values), name, TensorType(tuple(shape), "float32"), origin))
        self.ids[name] = len(self.values) - 1
        return self.ids[name]

    def input(self, name: str, *shape: int) -> int:
        self.inputs.append(self.value(name, shape, Origin.INPUT))
        return self.inputs[-1]

    def op(self, kind: str, operands: str, result: str, rule: str, **attrs) -> int:
        """``op("dot_general", "a b", "c", "([i, k], [k, j])->([i, j]) {...} reduction={k}")``."""
        parsed = rule_from_text(rule)
        shape = [1 if not d else _product(parsed.factor_sizes[f] for f in d) for d in parsed.results[0]]
        value = self.value(result, shape)
        self.ops.append(
            Op(len(self.ops), kind, tuple(self.ids[o] for o in operands.split()), (value,), parsed, "", attrs)
        )
        return value

    def elementwise(self, kind: str, operands: str, result: str) -> int:
        shape = self.values[self.ids[operands.split()[0]]].type.shape
        names = [chr(ord("i") + k) for k in range(len(shape))]
        tensor = "[" + ", ".join(names) + "]"
        sizes = ", ".join(f"{n}={s}" for n, s in zip(names, shape, strict=True))
        count = len(operands.split())
        return self.op(kind, operands, result, f"({', '.join([tensor] * count)})->({tensor}) {{{sizes}}}")

    def region(self, kind: str, operands: str, results: dict[str, Sequence[int]], regions, **attrs) -> None:
        ids = tuple(self.value(n, s) for n, s in results.items())
        self.ops.append(
            Op(len(self.ops), kind, tuple(self.ids[o] for o in operands.split()), ids, None, "", attrs, tuple(regions))
        )

    def block(self, args: dict[str, Sequence[int]], body: Callable[[], None], results: str) -> Block:
        ids = tuple(self.value(n, s, Origin.ARG) for n, s in args.items())
        start = len(self.ops)
        body()
        inner, self.ops = self.ops[start:], self.ops[:start]
        return Block(ids, tuple(inner), tuple(self.ids[r] for r in results.split()))

    def program(self, outputs: str) -> Program:
        results = tuple(self.ids[o] for o in outputs.split())
        ops = _renumber(self.ops)
        names = tuple(self.values[i].name for i in self.inputs)
        return Program(
            "p",
            tuple(self.values),
            Block(tuple(self.inputs), ops, results),
            names,
            tuple(f"out/{o}" for o in outputs.split()),
        )


def _product(sizes) -> int:
    out = 1
    for n in sizes:
        out *= n
    return out


def _renumber(ops: Sequence[Op]) -> tuple[Op, ...]:
    from dataclasses import replace

    count = 0

    def visit(op: Op) -> Op:
        nonlocal count
        number = count
        count += 1
        regions = tuple(replace(r, ops=tuple(visit(o) for o in r.ops)) for r in op.regions)
        return replace(op, id=number, regions=regions)

    return tuple(visit(o) for o in ops)


@pytest.fixture
def build() -> Builder:
    return Builder()
