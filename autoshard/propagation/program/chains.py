"""Chains of sharding constraints: what follows takes the last one's result, as Shardy has it.

The same value is constrained twice or more, each constraint on the one before. Uses of that value behind the chain, in
the same block, then take it from the end of the chain. What the whole program hands back stays as it is.
"""

from collections import Counter
from collections.abc import Collection
from dataclasses import replace

from autoshard.program.program import Block, Op, Program
from autoshard.propagation.op_classes import CONSTRAINTS


def behind_chains(program: Program, stated: Collection[int]) -> tuple[Program, dict[int, int]]:
    """The program with such uses changed; the program itself where it has no chains.

    With it, for constants of while loops, what the body hands back in their place.
    stated: values with a sharding of their own, of which the results of constraints are some.
    """
    made_by: dict[int, Op] = {}
    uses: Counter[int] = Counter(program.body.results)
    binding: Counter[int] = Counter()
    for op, _ in program.walk():
        uses.update(op.operands)
        for region in op.regions:
            uses.update(region.results)
        if op.kind in CONSTRAINTS and op.results[0] in stated:
            made_by[op.results[0]] = op
        if op.kind in CONSTRAINTS or op.kind == "shard_map":
            binding.update(op.operands)
    if not any(op.operands[0] in made_by for op in made_by.values()):
        return program, {}
    handed_back: dict[int, int] = {}

    def source(op: Op) -> int | None:
        """What the chain that ends with `op` starts from; None where no chain ends there."""
        value, length = op.operands[0], 1
        while value in made_by and uses[value] == 1:
            value, length = made_by[value].operands[0], length + 1
        goes_on = uses[op.results[0]] == 1 and binding[op.results[0]] == 1
        return None if length == 1 or goes_on or binding[value] != 1 else value

    def changed(block: Block, is_whole: bool) -> Block:
        last: dict[int, int] = {}
        ops: list[Op] = []
        for op in block.ops:
            outer = 1 if op.kind == "cond" else len(op.operands)  # branches take the rest, not in this block
            operands = (*(last.get(v, v) for v in op.operands[:outer]), *op.operands[outer:])
            ops.append(replace(op, operands=operands, regions=tuple([changed(r, False) for r in op.regions])))
            start = source(op) if op.results and op.results[0] in made_by else None
            if start is not None:
                last[start] = op.results[0]
        handed_back.update((arg, last[arg]) for arg in block.args if arg in last)
        results = block.results if is_whole else tuple(last.get(v, v) for v in block.results)
        return Block(block.args, tuple(ops), results)

    return replace(program, body=changed(program.body, True)), handed_back
