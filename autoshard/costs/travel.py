"""What the steps of a reshard carry, and what gathers hide behind, where schedules of compilers say more than layouts.

A compiler converts an array before it moves it where every use of the moved array converts it (the rows that are looked
up in a table, too), and it makes a constant where it is needed; it combines all-reduces of gradients; and a gather
hides only as far as the matmuls that use it last, in decoding behind attention to caches, too. All of it follows from
the program, and counts on machines whose profile says so (`moved_as_used`, `sums_combined` and `hides_behind_uses` of
`CompiledWork`).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import Final

import numpy as np

from autoshard.costmodels.compiled import WorkKind
from autoshard.costmodels.machine import Machine
from autoshard.costs.conversions import Conversions
from autoshard.costs.critical import Role, entries_of, matmul_order
from autoshard.costs.fusion import is_root
from autoshard.costs.kinds import work_kinds
from autoshard.costs.trips import body_trips
from autoshard.costs.work import dtype_of_work, is_matmul, local_flops, local_sizes
from autoshard.program.program import Block, Op, Origin, Program
from autoshard.program.schedule import PROGRAM
from autoshard.sharding.steps import StepKind

_NARROWED: Final = (StepKind.ALL_GATHER, StepKind.ALL_TO_ALL)
"""Steps before which an array is converted; sums are made in the type that they have."""


@dataclass(frozen=True, slots=True)
class Travel:
    """What a step carries of a value around an op.

    narrowed, moved: the share of the value's bytes that `_NARROWED` steps and that all others carry. work_s_per_byte:
    seconds of the matmuls that use the value per byte of it, where one device does all of them, and of attention to
    caches per byte of all weights; infinite where the machine does not say so. combined: whether all-reduces are made
    together with others, so that latency counts once for all of them, which is next to nothing.
    """

    narrowed: float = 1.0
    moved: float = 1.0
    work_s_per_byte: float = inf
    combined: bool = False

    def share(self, kind: str) -> float:
        """The share of the bytes that a kind of step carries."""
        return self.narrowed if kind in _NARROWED else self.moved

    def latency(self, kind: str) -> float:
        """The share of a step's latency that counts."""
        return 0.0 if self.combined and kind == StepKind.ALL_REDUCE else 1.0

    def behind(self, kind: str, group: int, s_per_byte: float) -> float:
        """The matmuls' seconds over those of a gather: the rows of the former are cut over the devices of the latter.

        group: of devices. s_per_byte: seconds of the gather for a byte of its result.
        """
        if kind != StepKind.ALL_GATHER or self.work_s_per_byte == inf or not s_per_byte * self.narrowed:
            return inf
        return self.work_s_per_byte / (group * s_per_byte * self.narrowed)


PLAIN: Final = Travel()
"""Whole arrays, and gathers hide as much as the profile says."""


class Travels:
    """The `Travel` of every value of a program around every op, on one machine."""

    def __init__(self, program: Program, machine: Machine) -> None:
        compiled = machine.profile.compiled_work
        self.program, self.machine = program, machine
        self.as_used = compiled is not None and compiled.moved_as_used
        self.behind_uses = compiled is not None and compiled.hides_behind_uses
        self.order = matmul_order(program) if compiled is not None and compiled.sums_combined else None
        self._made: dict[int, Op] = {}
        self._work_s: dict[int, float] = {}
        self._known: dict[tuple[int, int, bool], Travel] = {}
        self._converting: dict[int, frozenset[int]] = {}
        self._plain = not (self.as_used or self.behind_uses or self.order is not None)
        if not self._plain:
            self._conversions = Conversions(program)
            self._readers, self._handed = self._conversions.readers, self._conversions.handed
            self._enter(program.body)

    def _enter(self, block: Block) -> None:
        for op in block.ops:
            self._made.update(dict.fromkeys(op.results, op))
            for region in op.regions:
                self._enter(region)

    def of(self, value: int, op: int, as_used: bool = False) -> Travel:
        """What moves of a value around an op (the op's id), or for all its uses (`PROGRAM`); `as_used`: for those alone
        that are `converting`.
        """
        if self._plain:
            return PLAIN
        key = (value, op, as_used)
        if key not in self._known:
            those = self.converting(value) if as_used else ()
            uses = [o for o in self._readers.get(value, ()) if (o.id in those if as_used else op in (PROGRAM, o.id))]
            all_of_it = as_used or op != PROGRAM or value not in self._handed
            self._known[key] = Travel(
                *(self._shares(value, uses if all_of_it else []) if self.as_used else (1.0, 1.0)),
                self._per_byte(value, uses, most=as_used) if self.behind_uses else inf,
                self.order is not None and self.order.role_of(value, op) is Role.GRADIENTS,
            )
        return self._known[key]

    def converting(self, value: int) -> frozenset[int]:
        """`Conversions.converting`, on machines whose compiler gathers so."""
        if not self.as_used:
            return frozenset()
        if value not in self._converting:
            self._converting[value] = self._conversions.converting(value)
        return self._converting[value]

    def _shares(self, value: int, uses: list[Op]) -> tuple[float, float]:
        made = self._made.get(value)
        if made is not None and made.kind == "broadcast_in_dim" and self._is_of_literals(made):
            return 0.0, 0.0
        return self._conversions.share(value, uses), 1.0

    def _is_of_literals(self, op: Op) -> bool:
        return all(self.program.values[v].origin is Origin.LITERAL for v in op.operands)

    def _per_byte(self, value: int, uses: list[Op], most: bool) -> float:
        """Seconds of all uses, or of the one that takes most: some may take what was gathered, some what it was."""
        size = self.program.type_of(value).bytes
        if not size:
            return inf
        self._find(v for op in uses for v, _ in self._passed_on(value, op))
        seconds = [self._seconds(value, op) for op in uses]
        found = (max(seconds, default=0.0) if most else sum(seconds)) / size
        return found + self._caches_s_per_byte if found else 0.0

    @cached_property
    def _caches_s_per_byte(self) -> float:
        """Seconds of the attention of few queries per byte of what matmuls take that no matmul made: while the one is
        worked out, the other is gathered.
        """
        kinds = work_kinds(self.program)
        if WorkKind.CACHED not in kinds.values():
            return 0.0
        before = matmul_order(self.program).before
        seconds, weights = 0.0, 0.0
        waiting = [(self.program.body, 1)]
        while waiting:
            block, times = waiting.pop()
            for op in block.ops:
                if op.kind != "shard_map":
                    waiting += [(region, times * body_trips(op, k, 1)) for k, region in enumerate(op.regions)]
                if kinds.get(op.id) is WorkKind.CACHED:
                    seconds += times * self._attention_s(op)
                elif kinds.get(op.id) in (WorkKind.MATMUL, WorkKind.SLICED):
                    weights += times * sum(self.program.type_of(v).bytes for v in op.operands if v not in before)
        return seconds / weights if weights else 0.0

    def _attention_s(self, op: Op) -> float:
        """Seconds of an attention of few queries on one device alone, which reads and writes all of its arrays once."""
        assert op.rule is not None
        sizes = local_sizes(op.rule, np.ones((1, len(op.rule.factor_sizes)), np.int64))
        flop = float(local_flops(op, self.program, sizes)[0])
        size = float(sum(self.program.type_of(v).bytes for v in (*op.operands, *op.results)))
        return float(self.machine.work_s(WorkKind.CACHED, flop, size, dtype_of_work(op, self.program)))

    def _find(self, values: Iterable[int]) -> None:
        """Work out the seconds of these values, what they are made into first; no recursion, chains may be long."""
        waiting = list(values)
        while waiting:
            value = waiting[-1]
            readers = self._readers.get(value, ())
            before = () if value in self._work_s else (v for op in readers for v, _ in self._passed_on(value, op))
            if needed := [v for v in before if v not in self._work_s]:
                waiting += needed
                continue
            if value not in self._work_s:
                self._work_s[value] = sum(self._seconds(value, op) for op in readers)
            waiting.pop()

    def _seconds(self, value: int, op: Op) -> float:
        """Seconds of the matmuls that an op is, holds or leads a value to, on one device alone."""
        if not is_matmul(op):
            return sum(self._work_s[v] * times for v, times in self._passed_on(value, op))
        if op.rule is None or op.kind == "shard_map":
            return 0.0
        sizes = local_sizes(op.rule, np.ones((1, len(op.rule.factor_sizes)), np.int64))
        flop = float(local_flops(op, self.program, sizes)[0])
        return float(self.machine.work_s(WorkKind.MATMUL, flop, 0.0, dtype_of_work(op, self.program)))

    def _passed_on(self, value: int, op: Op) -> list[tuple[int, int]]:
        """What an op makes of a value whose matmuls count as the value's, and how often: arguments of its bodies, or
        its result where it is pointwise.
        """
        if is_matmul(op) or op.kind == "shard_map":
            return []
        if op.regions:
            inside = {inner: k for k, region in enumerate(op.regions) for inner in region.args}
            return [(inner, body_trips(op, inside[inner], 1)) for outer, inner in entries_of(op) if outer == value]
        if is_root(op) or len(op.results) != 1:
            return []
        return [(r, 1) for r in op.results if self._elements(r) == self._elements(value)]

    def _elements(self, value: int) -> int:
        return self.program.type_of(value).elements


__all__ = ["PLAIN", "Travel", "Travels"]
