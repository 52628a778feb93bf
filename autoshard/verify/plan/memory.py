"""What one device holds at every point of the program, simulated again; `lives` says from when until when."""

from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass
from math import ceil
from typing import Any

from autoshard.verify.plan.border import arguments, cuts
from autoshard.verify.plan.flow import Flow
from autoshard.verify.plan.layout import Holding
from autoshard.verify.plan.lives import Lives, Sizes, starts_carry
from autoshard.verify.plan.loop_orders import turned_copies
from autoshard.verify.plan.orders import Permute, permutes
from autoshard.verify.plan.program import PROGRAM_OP, Findings, carries
from autoshard.verify.plan.stacks import stacks
from autoshard.verify.plan.ties import written_over


def allocated(peak: int, rules: str | None) -> int:
    """What a compiler may allocate for a peak, by the rules of memory of the machine (docs/memory.md)."""
    return ceil(peak * (1.15 if rules is None else 1.25))


def room(usable_bytes: float, rules: str | None) -> int:
    """The largest peak that leaves room for what a compiler may allocate beyond it."""
    peak = int(usable_bytes)
    low = 0
    while low < peak:
        middle = (low + peak + 1) // 2
        low, peak = (middle, peak) if allocated(middle, rules) <= usable_bytes else (low, middle - 1)
    return peak


@dataclass(frozen=True, slots=True)
class Block:
    """`bytes` held on one device from point `start` up to point `stop`, not included."""

    what: str
    start: int
    stop: int
    bytes: int


def blocks(lives: Lives) -> list[Block]:
    """Everything that is held under the plan's layouts."""
    flow, out = lives.flow, []
    graph, values = flow.graph, flow.graph.values

    def add(what: str, span: tuple[int, int], value: int, held: Holding | None) -> None:
        if held is not None and span[0] < span[1]:
            out.append(Block(what, *span, lives.size(value, held)))

    lies = flow.defined | arguments(flow)
    for v, span in lives.defined.items():
        add(values[v].name, span, v, lies.get(v))
    for v, span in lives.cut.items():
        add(f"{values[v].name}, its block", span, v, flow.defined[v])
    for v, span in lives.shared.items():
        if span[0] < span[1]:
            held = lives.form_bytes(v, flow.shared[v].end)
            out.append(Block(f"{values[v].name}, resharded for all its uses", *span, held))
    for use, span in lives.private.items():
        way = flow.uses[use]
        output = use[0] == PROGRAM_OP
        reader = f"output {graph.output_names[use[1]]}" if output else graph.nodes[use[0]].label
        add(f"{values[way.value].name}, resharded for {reader}", span, way.value, way.end)
    for slot, v in _copied_outputs(lives):
        span = (lives.close, lives.close + 1)
        add(
            f"{values[v].name}, copied for output {graph.output_names[slot]}",
            span,
            v,
            flow.uses[PROGRAM_OP, slot, -1].end,
        )
    for copy in turned_copies(lives):
        add(copy.what, copy.span, copy.value, flow.defined[copy.value])
    for permute in permutes(flow):
        span = _during(lives, permute)
        if span is not None:
            way = "from" if permute.where == "input" else "in"
            label = permute.label.removesuffix(" to its order of devices").removesuffix(" from its order of devices")
            add(f"{label}, {way} its order of devices", span, permute.value, permute.held)
    return out


def _copied_outputs(lives: Lives) -> list[tuple[int, int]]:
    """Outputs, and their values, whose array stays where it is: inputs that are not donated, and what an earlier output
    returns. XLA returns copies of those that do not move.
    """
    flow, out, earlier = lives.flow, [], set[int]()
    graph = flow.graph
    elsewhere = {permute.index for permute in permutes(flow) if permute.where == "output"} | {*graph.host_outputs}
    staying = {v for k, v in enumerate(graph.body.args) if k not in graph.donated and k not in graph.host_inputs}
    for slot, v in enumerate(graph.body.results):
        if slot in elsewhere or graph.values[v].is_literal:
            continue
        moved = (PROGRAM_OP, slot, -1) in lives.private or (v not in earlier and v in lives.shared)
        if v in (staying | earlier) and not moved:
            out.append((slot, v))
        earlier.add(v)
    return out


def _during(lives: Lives, permute: Permute) -> tuple[int, int] | None:
    """When the result of a permute to or from another order of the devices is held beside its source; None: never.

    Of a pair of permutes only the result of the first one is: that of the second takes over from the source of both.
    """
    if permute.where == "output":
        return lives.close, lives.close + 1
    read = lives.read(permute.value)
    if read is None or (permute.inside and permute.label.endswith(" from its order of devices")):
        return None
    graph = lives.flow.graph
    if permute.inside and permute.value not in lives.flow.shared:  # as soon as it is made
        made = lives.defined.get(permute.value, read)[0]
        return made, made + 1
    kept = permute.where == "input" and not (
        permute.index in graph.host_inputs
        or permute.value in lives.shared
        or (permute.index in written_over(graph) and permute.value not in graph.body.results)
    )
    return read[0], (read[1] if kept else read[0]) + 1


def priced_bytes(flow: Flow, kept: set[int], size: Sizes) -> int:
    """Bytes that the objective prices: definitions in memory, shared copies, and copies that regions work on."""
    graph = flow.graph
    own = [*graph.body.args]
    for op in graph.nodes.values():
        own += [*op.results, *carries(op)]
    lies = flow.defined | arguments(flow)
    total = sum(size(v, lies[v]) for v in own if v in kept and v in lies)
    total += sum(size(v, way.end) for v, way in cuts(flow).items())
    # inputs that are cut along a stack of layers count one and a half times: ties are settled against such cuts
    stacked = stacks(flow)
    along = [v for v in graph.body.args if v in flow.defined and v in stacked and flow.defined[v].runs[0].strides]
    total += sum(ceil(size(v, flow.defined[v]) / 2) for v in along)
    total += sum(size(v, way.end) for v, way in flow.shared.items() if way.moves)
    for (number, slot, region), way in flow.uses.items():
        op = graph.nodes.get(number)
        if way.moves and op is not None and op.inner and region < 0 and not starts_carry(op, slot):
            total += 0 if op.kind == "cond" and slot == 0 else size(way.value, way.end)
    return total


def check_memory(plan: Any, lives: Lives, findings: Findings) -> int:
    """Compare the peak, where it is and what is held there with the plan; returns the peak in bytes."""
    graph, held = lives.flow.graph, blocks(lives)
    changes: dict[int, int] = {}
    for block in held:
        changes[block.start] = changes.get(block.start, 0) + block.bytes
        changes[block.stop] = changes.get(block.stop, 0) - block.bytes
    peak, at, live = 0, 0, 0
    for point in sorted(changes):
        live += changes[point]
        if live > peak:
            peak, at = live, point
    running = sorted((begin, op) for op, begin in lives.begin.items())
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
        missing = list((Counter(ours) - Counter(theirs)).elements())
        extra = list((Counter(theirs) - Counter(ours)).elements())
        for what, items in (("does not list", missing), ("lists", extra)):
            for name, size, start, stop in items[:3]:
                findings.add("memory", f"memory.held {what} {name}, {size} bytes from {start} to {stop}")
    if memory.keys() & {"device_bytes", "usable_bytes", "allocation_bytes", "fits"}:  # earlier versions do not say
        _check_verdict(plan, peak, findings)
    return peak


def _check_verdict(plan: Any, peak: int, findings: Findings) -> None:
    """Check what the plan says of the device: its bytes, what a compiler may allocate, and whether it fits."""
    memory, own = plan["memory"], plan["hardware"]["machine"]["profile"]["memory"]
    device = int(own["bytes"]["value"])
    usable = int(own["usable"]["value"]) if "usable" in own else device
    allocation = allocated(peak, plan["hardware"]["machine"]["profile"].get("memory_rules"))
    expected = {
        "device_bytes": device, "usable_bytes": usable, "allocation_bytes": allocation, "fits": allocation <= usable,
    }  # fmt: skip
    for key, due in expected.items():
        if memory.get(key) != due:
            findings.add("memory", f"memory.{key} is {memory.get(key)!r} in the plan; it follows as {due!r}")
