"""What the steps of a reshard carry, and what gathers hide behind, worked out again from the plan's program."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from math import inf

from autoshard.costmodels import Machine
from autoshard.costmodels.compiled import WorkKind
from autoshard.verify.plan.flow import Move
from autoshard.verify.plan.kinds import kinds_of_work
from autoshard.verify.plan.matmuls import MatmulOrder
from autoshard.verify.plan.placed import uncut
from autoshard.verify.plan.program import PROGRAM_OP, Body, Graph, Node, element_bytes, trips_of
from autoshard.verify.plan.rules import read_rule
from autoshard.verify.plan.work import computes_with, flop, is_matrix, writes

_MATRIX_UNIT = ("dot_general", "conv_general_dilated")


@dataclass
class Loads:
    """Shares of bytes and limits of hiding, by value and op (docs/costmodels.md); 1 and infinity on plain machines."""

    graph: Graph
    machine: Machine
    order: MatmulOrder
    _takers: dict[int, list[Node]] = field(default_factory=dict)
    _makers: dict[int, Node] = field(default_factory=dict)
    _kept: set[int] = field(default_factory=set)
    _defined: list[int] = field(default_factory=list)
    _led_s: dict[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        work = self.machine.profile.compiled_work
        self.narrows = work is not None and work.moved_as_used
        self.combines = work is not None and work.sums_combined
        self.limits = work is not None and work.hides_behind_uses
        self.tiled = work is not None and work.scatters_tiles
        if self.narrows or self.limits:
            self._read(self.graph.body)

    def _read(self, body: Body) -> None:
        self._kept.update(body.results)
        self._defined += body.args
        for op in body.ops:
            for v in set(op.operands):
                self._takers.setdefault(v, []).append(op)
            for v in op.results:
                self._makers[v] = op
            for inner in op.regions:
                self._read(inner)
            self._defined += op.results

    def _uses(self, value: int, op: int, as_used: bool) -> list[Node]:
        """The ops that take a value around an op, or all; `as_used`: those that convert it."""
        among = self.converts(value) if as_used else None
        takers = self._takers.get(value, [])
        return [taker for taker in takers if (op in (PROGRAM_OP, taker.id) if among is None else taker.id in among)]

    def converts(self, value: int) -> set[int]:
        """The ops that convert a value as they take it, where there are several and it is needed as it is, too."""
        takers, whole = self._takers.get(value, []), element_bytes(self.graph.values[value].dtype)
        found = {taker.id for taker in takers if self._taken_as(value, taker, True) < whole} if self.narrows else set()
        needed = value in self._kept or any(taker.id not in found for taker in takers)
        return found if needed and len(found) >= 2 else set()

    def carried(self, kind: str, value: int, op: int, as_used: bool = False) -> float:
        """The share of a value's bytes that a step of a kind carries around an op, or for all its uses; `as_used`: for
        the ops that convert it.
        """
        if not self.narrows:
            return 1.0
        maker = self._makers.get(value)
        if maker is not None and maker.kind == "broadcast_in_dim":
            if all(self.graph.values[v].is_literal for v in maker.operands):
                return 0.0
        whole = element_bytes(self.graph.values[value].dtype)
        handed = op == PROGRAM_OP and value in self._kept and not as_used
        if kind not in ("all_gather", "all_to_all") or not whole or handed:
            return 1.0
        taken = [self._taken_as(value, taker, True) for taker in self._uses(value, op, as_used)]
        return max(taken, default=whole) / whole

    def _taken_as(self, value: int, op: Node, further: bool) -> float:
        whole, first = element_bytes(self.graph.values[value].dtype), op.results[0] if op.results else -1
        if op.kind in _MATRIX_UNIT and self.graph.values[value].dtype == "float32":
            return whole if op.attrs.get("full_precision") else 2.0  # bfloat16
        if op.kind == "convert_element_type":
            return min(whole, element_bytes(self.graph.values[first].dtype))
        if further and op.kind == "gather" and value == op.operands[0] and first not in self._kept:
            return max([self._taken_as(first, taker, False) for taker in self._takers.get(first, [])], default=whole)
        return whole

    def latency(self, kind: str, value: int, op: int) -> float:
        """The share of a step's latency that counts: none of all-reduces of gradients that are combined."""
        if not self.combines or kind != "all_reduce" or value not in self.order.before:
            return 1.0
        leads = value in self.order.leading if op == PROGRAM_OP else op in self.order.leading_ops
        return 1.0 if leads else 0.0

    def sums_whole(self, value: int, move: Move) -> bool:
        """Whether a reduce-scatter runs as an all-reduce: its parts are no whole tiles (docs/costmodels.md)."""
        if not self.tiled:
            return False
        lengths = [run.length for run in move.after.runs]
        cut = next(d for d, run in enumerate(move.before.runs) if run != move.after.runs[d])
        if len(lengths) == 1:
            return lengths[0] % 1024 > 0
        from_last = len(lengths) - 1 - cut
        if from_last > 0:
            return from_last == 1 and lengths[cut] % 8 > 0
        if lengths[-1] % 128 > 0:
            return max(lengths[:-1]) < 128
        return lengths[-1] * element_bytes(self.graph.values[value].dtype) % 512 > 0

    def behind(
        self, kind: str, value: int, op: int, group: int, s_per_byte: float, as_used: bool = False
    ) -> float:  # fmt: skip
        """Seconds of the matmuls that use what is gathered, their rows cut over the group, over those of the gather; of
        the longest of them where it is gathered as they use it.
        """
        load = s_per_byte * self.carried(kind, value, op, as_used) if kind == "all_gather" and self.limits else 0.0
        size = self.graph.values[value].bytes
        if not load or not size:
            return inf
        if not self._led_s:
            for made in reversed(self._defined):  # what a value leads to is defined after it
                self._led_s[made] = sum(self._matmuls_s(made, taker) for taker in self._takers.get(made, []))
        each_s = [self._matmuls_s(value, taker) for taker in self._uses(value, op, as_used)]
        work_s = max(each_s, default=0.0) if as_used else sum(each_s)
        return (work_s / size + (self._beside_caches if work_s else 0.0)) / (group * load)

    @cached_property
    def _beside_caches(self) -> float:
        """Seconds of all attention to caches over the bytes of all weights that matmuls take."""
        kinds = kinds_of_work(self.graph, self.order)
        attending, weights = 0.0, 0.0
        for op, times in _with_times(self.graph.body, 1):
            kind = kinds.get(op.id)
            if kind is WorkKind.CACHED:
                work = flop(op, uncut(read_rule(op.rule)), self.graph)
                touched = sum(self.graph.values[v].bytes for v in (*op.operands, *op.results))
                dtype = computes_with(op, self.graph)
                attending += times * float(self.machine.work_s(kind, work, float(touched), dtype))
            if kind in (WorkKind.MATMUL, WorkKind.SLICED):
                weights += times * sum(self.graph.values[v].bytes for v in op.operands if v not in self.order.before)
        return attending / weights if weights else 0.0

    def _matmuls_s(self, value: int, op: Node) -> float:
        if op.kind == "shard_map":
            return 0.0
        if is_matrix(op):
            if op.rule is None:
                return 0.0
            work = flop(op, uncut(read_rule(op.rule)), self.graph)
            return float(self.machine.work_s(WorkKind.MATMUL, work, 0.0, computes_with(op, self.graph)))
        if op.regions:
            inside = [(inner, region) for outer, inner, region in _enters(op) if outer == value]
            return sum(self._led_s.get(inner, 0.0) * trips_of(op, region, 1) for inner, region in inside)
        rule = None if op.rule is None else read_rule(op.rule)
        same = len(op.results) == 1 and self._elements(op.results[0]) == self._elements(value)
        return self._led_s.get(op.results[0], 0.0) if same and not writes(op, rule) else 0.0

    def _elements(self, value: int) -> int:
        return self.graph.values[value].elements


def _with_times(body: Body, times: int) -> Iterator[tuple[Node, int]]:
    """Every op that is not in a user's `shard_map`, and how often it runs."""
    for op in body.ops:
        yield op, times
        for number, region in enumerate(() if op.is_manual else op.regions):
            yield from _with_times(region, times * trips_of(op, number, 1))


def _enters(op: Node) -> list[tuple[int, int, int]]:
    """(operand, argument of a region, which region) for what goes into the regions of an op."""
    if op.kind == "while":
        tested, carried = op.attrs["cond_nconsts"], op.attrs["body_nconsts"]
        start = op.operands[tested + carried :]
        into = ([*op.operands[:tested], *start], [*op.operands[tested : tested + carried], *start])
    else:
        into = ([*op.operands[op.kind == "cond" :]],) * len(op.regions)
    return [
        (outer, inner, k)
        for k, (outers, region) in enumerate(zip(into, op.regions, strict=True))
        for outer, inner in zip(outers, region.args, strict=False)
    ]
