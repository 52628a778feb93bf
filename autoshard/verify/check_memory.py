"""What one device holds at every point of the program, simulated again.

Points in time are ops in execution order, counted from 1; bodies of loops run once. Walking backwards, every value
learns when it is read for the last time; values never written to memory pass that on to what they are computed from.
"""

from bisect import bisect_right
from dataclasses import dataclass, field
from math import ceil
from typing import Any

from autoshard.verify.check_flow import Flow
from autoshard.verify.check_layout import Holding
from autoshard.verify.check_program import PROGRAM_OP, Body, Findings, Graph, Node, element_bytes
from autoshard.verify.check_rules import Rule


@dataclass(frozen=True, slots=True)
class Block:
    """`bytes` on one device from point `start` up to `stop`, not included. priced: bytes that cost."""

    what: str
    start: int
    stop: int
    bytes: int
    priced: int


@dataclass
class Times:
    """begin and end of every op (its bodies included), and when values are first and last read; end of the program."""

    graph: Graph
    exists: set[int]
    begin: dict[int, int] = field(default_factory=dict)
    end: dict[int, int] = field(default_factory=dict)
    first: dict[int, int] = field(default_factory=dict)
    last: dict[int, int] = field(default_factory=dict)
    close: int = 0

    @staticmethod
    def of(graph: Graph, exists: set[int]) -> "Times":
        times = Times(graph, exists)
        times.close = times._count(graph.body, 1)
        times._read_backwards(graph.body, times.close)
        return times

    def _count(self, body: Body, now: int) -> int:
        for op in body.ops:
            self.begin[op.id] = now
            now += 1
            for r in op.inner:
                now = self._count(r, now)
            self.end[op.id] = now - 1
        return now

    def _read(self, value: int, first: int, last: int) -> None:
        if not self.graph.values[value].is_literal:
            self.first[value] = min(first, self.first.get(value, first))
            self.last[value] = max(last, self.last.get(value, last))

    def _read_backwards(self, body: Body, close: int) -> None:
        for v in body.results:
            self._read(v, close, close)
        for op in reversed(body.ops):
            for r in op.inner:
                self._read_backwards(r, self.end[op.id])
            # fused into its readers, the op itself reads its operands when they run
            until = max([self.end[op.id], *(self.last.get(r, 0) for r in op.results if r not in self.exists)])
            for k, v in enumerate(op.operands):
                self._read(v, self.begin[op.id], self.begin[op.id] if starts_carry(op, k) else until)

    def held(self) -> dict[int, tuple[int, int]]:
        """When the definitions of values in memory are held: inputs, and results of ops."""
        graph, spans = self.graph, {}
        for k, v in enumerate(graph.body.args):
            frees = k in graph.donated and v not in graph.body.results
            spans[v] = (0, self.last.get(v, 0) + 1 if frees else self.close + 1)
        for op in graph.nodes.values():
            for k, v in enumerate(op.results):
                if v in self.exists:
                    stacked = op.kind == "scan" and k >= op.attrs["num_carry"]
                    made = self.begin[op.id] if stacked or not op.inner else self.end[op.id]
                    spans[v] = (made, max(self.last.get(v, 0), self.end[op.id]) + 1)
        return spans


def starts_carry(op: Node, slot: int) -> bool:
    """Is this operand the first value of a loop's carry?"""
    if op.kind == "scan":
        return op.attrs["num_consts"] <= slot < op.attrs["num_consts"] + op.attrs["num_carry"]
    return op.kind == "while" and slot >= op.attrs["cond_nconsts"] + op.attrs["body_nconsts"]


def blocks(flow: Flow, exists: set[int], rules: dict[int, Rule]) -> list[Block]:
    """Everything that is held under the plan's layouts."""
    graph, times = flow.graph, Times.of(flow.graph, exists)
    values, out = graph.values, []

    def add(what: str, span: tuple[int, int], value: int, held: Holding | None, priced: float = 1.0) -> None:
        if held is None or span[0] >= span[1]:
            return
        size = held.elements(values[value].shape) * element_bytes(values[value].dtype)
        out.append(Block(what, *span, ceil(size), ceil(size * priced)))

    spans = times.held()
    _reuse(graph, rules, spans, times)
    for v, span in spans.items():
        add(values[v].name, span, v, flow.defined.get(v))
    for op in graph.nodes.values():
        begin, end = times.begin[op.id], times.end[op.id]
        if op.kind in ("scan", "while"):
            body, carries = op.regions[-1], op.attrs["num_carry"] if op.kind == "scan" else len(op.results)
            skip = op.attrs["num_consts"] if op.kind == "scan" else op.attrs["body_nconsts"]
            for v in body.args[skip : skip + carries]:
                add(f"{op.label} carry {values[v].name}", (begin + 1, end), v, flow.defined.get(v))
    for v, way in flow.shared.items():
        add(
            f"{values[v].name}, resharded for all its uses",
            (times.first.get(v, 0), times.last.get(v, 0) + 1),
            v,
            way.end,
        )
    for (number, slot, region), way in flow.uses.items():
        if not way.moves:
            continue
        if number == PROGRAM_OP:  # the result in its final form, beside what it is made from
            name = f"{values[way.value].name}, resharded for output {graph.output_names[slot]}"
            add(name, (times.close, times.close + 1), way.value, way.end, 0.0)
            continue
        op = graph.nodes[number]
        begin, end = times.begin[number], times.end[number]
        priced = 0.0
        if region >= 0:
            span = (end, end + 1)
        elif not op.inner or starts_carry(op, slot):
            # an operand of a user's shard_map is read by an op of one point in time
            span = (begin, begin + 1)
        else:
            span, priced = (begin, end + 1), 0.0 if op.kind == "cond" and slot == 0 else 1.0
        add(f"{values[way.value].name}, resharded for {op.label}", span, way.value, way.end, priced)
    return out


def _reuse(graph: Graph, rules: dict[int, Rule], spans: dict[int, tuple[int, int]], times: Times) -> None:
    """A pointwise result is written in place of the first operand of its size that dies with the op."""
    for op in graph.nodes.values():
        rule = rules.get(op.id)
        if op.regions or rule is None or len(op.results) != 1 or op.results[0] not in spans or not rule.is_pointwise:
            continue
        now, size = times.begin[op.id], graph.values[op.results[0]].bytes
        for v in op.operands:
            start, stop = spans.get(v, (0, 0))
            if stop == now + 1 and start < now and graph.values[v].bytes == size:
                spans[v] = (start, now)
                break


def check_memory(plan: Any, flow: Flow, held: list[Block], exists: set[int], findings: Findings) -> int:
    """Compare peak, place and content with the plan's; returns the peak in bytes."""
    graph, times = flow.graph, Times.of(flow.graph, exists)
    changes: dict[int, int] = {}
    for block in held:
        changes[block.start] = changes.get(block.start, 0) + block.bytes
        changes[block.stop] = changes.get(block.stop, 0) - block.bytes
    peak, at, live = 0, 0, 0
    for point in sorted(changes):
        live += changes[point]
        if live > peak:
            peak, at = live, point
    running = sorted((begin, op) for op, begin in times.begin.items())
    index = bisect_right(running, (at, 10**18)) - 1
    node = graph.nodes[running[index][1]] if index >= 0 else None
    where = f"{node.label} {node.source}".strip() if node is not None else "the start"
    memory = plan["memory"]
    for key, found in (("peak_bytes", peak), ("time", at), ("where", where)):
        if memory[key] != found:
            findings.add("memory", f"memory.{key} is {memory[key]!r} in the plan, the simulation gives {found!r}")
    ours = sorted((b.what, b.bytes, b.start, b.stop) for b in held if b.start <= at < b.stop and b.bytes)
    theirs = sorted((h["what"], h["bytes"], h["start"], h["stop"]) for h in memory["held"])
    if ours != theirs and memory["time"] == at:
        missing = [b for b in ours if b not in theirs]
        extra = [b for b in theirs if b not in ours]
        for what, items in (("does not list", missing), ("lists", extra)):
            for name, size, start, stop in items[:3]:
                findings.add("memory", f"memory.held {what} {name}, {size} bytes from {start} to {stop}")
    return peak
