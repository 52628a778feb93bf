"""Programs with switches: chosen values get two forms, one for their definition and one for their uses.

Propagation gives a value one sharding. Where a strategy changes the layout in the middle of a layer, an op without
any common factor is put behind the value, so that nothing propagates through it; it exists for propagation only.
"""

from collections.abc import Collection
from dataclasses import replace

from autoshard.program.program import Block, Op, Origin, Program, Value
from autoshard.program.rule import ShardingRule

SWITCH = "layout_switch"


def with_switches(program: Program, chosen: Collection[int]) -> tuple[Program, dict[int, int]]:
    """The program with a switch behind each chosen value, and value -> the value its uses see instead."""
    forms: dict[int, int] = {}
    values = list(program.values)
    next_op = max(program.ops, default=-1) + 1

    def block(old: Block) -> Block:
        nonlocal next_op
        ops: list[Op] = []

        def switch(defined: tuple[int, ...]) -> None:
            nonlocal next_op
            for value in defined:
                if value in chosen:
                    definition = program.values[value]
                    forms[value] = len(values)
                    values.append(Value(len(values), f"{definition.name}'", definition.type, Origin.OP))
                    rule = _nothing_in_common(definition.type.shape)
                    ops.append(Op(next_op, SWITCH, (value,), (forms[value],), rule))
                    next_op += 1

        switch(old.args)
        for op in old.ops:
            operands = tuple(forms.get(v, v) for v in op.operands)
            ops.append(replace(op, operands=operands, regions=tuple(map(block, op.regions))))
            switch(op.results)
        return Block(old.args, tuple(ops), tuple(forms.get(v, v) for v in old.results))

    body = block(program.body)
    return replace(program, values=tuple(values), body=body), forms


def _nothing_in_common(shape: tuple[int, ...]) -> ShardingRule:
    sizes = [n for n in shape if n > 1]
    ours: list[tuple[int, ...]] = []
    for n in shape:
        ours.append((sum(len(d) for d in ours),) if n > 1 else ())
    theirs = tuple(tuple(f + len(sizes) for f in d) for d in ours)
    return ShardingRule((*sizes, *sizes), (tuple(ours),), (theirs,))
