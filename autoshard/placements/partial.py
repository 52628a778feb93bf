"""Which values can be partial sums, over which atoms: a fixed point over the program.

It keeps linear ops from offering to pass partial sums that can never arrive.
"""

import re

from autoshard.placements.space import PartialSums
from autoshard.program.program import Block, Op, Program
from autoshard.sharding.layout import AtomMesh

_NUMERIC = re.compile(r"^(bfloat|float|complex|int|uint)\d+")


class PartialReach:
    """The atoms over which each value of a program can be unreduced (`may_be`, by value id).

    Reduction factors are the sources (their atoms must divide the factor). Linear ops pass a partial sum on if all
    operands of one linear set can have it; an all-zero result can be one over any atoms. A partial sum enters a loop
    only through a carry (whose initial value may be one, or be masked into one), and leaves as a carry or a stacked
    result.
    """

    def __init__(self, program: Program, mesh: AtomMesh) -> None:
        self._program = program
        self._mesh = mesh
        self._all = frozenset(range(len(mesh.atoms)))
        self.may_be: dict[int, frozenset[int]] = {}
        while self._sweep(program.body):
            pass

    def get(self, value: int) -> frozenset[int]:
        """The atoms over which a value can be unreduced."""
        return self.may_be.get(value, frozenset())

    def of(self, op: Op) -> PartialSums:
        """The partial sums that may pass through an op which has a rule."""
        assert op.rule is not None
        passes = []
        for operands in op.rule.linear:
            reach = self._all
            for k in operands:
                reach &= self.get(op.operands[k])
            passes.append(tuple(sorted(reach if operands else frozenset())))
        zeros = self._all if op.attrs.get("zero") and self._can_sum(op.results[0]) else frozenset()
        return PartialSums(tuple(passes), tuple(sorted(zeros)))

    def _can_sum(self, value: int) -> bool:
        return _NUMERIC.match(self._program.type_of(value).dtype) is not None

    def _add(self, value: int, atoms: frozenset[int]) -> bool:
        old = self.get(value)
        if atoms <= old or not self._can_sum(value):
            return False
        self.may_be[value] = old | atoms
        return True

    def _sweep(self, block: Block) -> bool:
        changed = False
        for op in block.ops:
            if op.rule is not None:
                out = frozenset(self.of(op).zeros).union(*map(frozenset, self.of(op).passes))
                if op.rule.combiner == "add":
                    for f in op.rule.reduction & set(op.rule.shardable):
                        size = op.rule.factor_sizes[f]
                        out |= {a for a in self._all if size % self._mesh.sizes[a] == 0}
                for result in op.results:
                    changed |= self._add(result, out)
            elif op.kind == "scan":
                changed |= self._scan(op)
            else:
                for region in op.regions:
                    if op.kind != "shard_map":
                        changed |= self._sweep(region)
        return changed

    def _scan(self, op: Op) -> bool:
        body = op.regions[0]
        consts, carries = op.attrs["num_consts"], op.attrs["num_carry"]
        changed = False
        for k in range(carries):
            # A carry is worth keeping unreduced when what it accumulates is: the start can be masked.
            reach = self.get(body.results[k])
            changed |= self._add(body.args[consts + k], reach)
            changed |= self._add(op.results[k], self.get(body.args[consts + k]))
        changed |= self._sweep(body)
        # The first sweep sees a carry as whole; assume it partial where adding to it would keep it so.
        for k in range(carries):
            arg = body.args[consts + k]
            if self._accumulates(body, arg, body.results[k]):
                changed |= self._add(arg, self._sources(body, body.results[k], arg))
        for k in range(carries, len(body.results)):
            changed |= self._add(op.results[k], self.get(body.results[k]))
        return changed

    def _accumulates(self, body: Block, arg: int, result: int) -> bool:
        return self._terms(body, arg, result) is not None

    def _terms(self, body: Block, arg: int, result: int) -> list[int] | None:
        """If `result` is `arg` plus other terms through additions only, those terms."""
        producer = {r: op for op in body.ops for r in op.results}
        terms: list[int] = []
        has_arg = False
        stack = [result]
        while stack:
            value = stack.pop()
            op = producer.get(value)
            if value == arg:
                has_arg = True
            elif op is not None and op.kind in ("add", "add_any"):
                stack.extend(op.operands)
            else:
                terms.append(value)
        return terms if has_arg and terms else None

    def _sources(self, body: Block, result: int, arg: int) -> frozenset[int]:
        reach = self._all
        for term in self._terms(body, arg, result) or ():
            reach &= self.get(term)
        return reach
