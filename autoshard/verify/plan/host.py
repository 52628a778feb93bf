"""Host memory of a plan: which values live there, what is copied over the link, and how much is held for a device."""

from collections.abc import Iterator
from typing import Any

from autoshard.verify.plan.border import outside, read_on_device
from autoshard.verify.plan.flow import Flow
from autoshard.verify.plan.layout import Holding
from autoshard.verify.plan.program import PROGRAM_OP, Findings, Graph, element_bytes
from autoshard.verify.plan.restrictions import part_of

TO_DEVICE, TO_HOST = "to_device", "to_host"


def fetched(graph: Graph) -> list[int]:
    """Inputs on the host that ops, or outputs on the device, read."""
    read = read_on_device(graph)
    return [graph.body.args[k] for k in sorted(graph.host_inputs) if graph.body.args[k] in read]


def stored(graph: Graph) -> list[int]:
    """Slots of outputs that are copied to the host; inputs that lie there and are returned need no copy."""
    there = {graph.body.args[k] for k in graph.host_inputs}
    return [
        k
        for k in sorted(graph.host_outputs)
        if graph.body.results[k] not in there and not graph.values[graph.body.results[k]].is_literal
    ]


def copies(flow: Flow) -> Iterator[tuple[str, str, int, Holding]]:
    """(kind, where, value, what devices hold of it) of everything that is copied over the host's link in a step."""
    graph = flow.graph
    for v in fetched(graph):
        if v in flow.defined:
            yield TO_DEVICE, f"{flow.name(v)} from the host", v, outside(flow.defined[v], flow.mesh)
    for k in stored(graph):
        way = flow.uses.get((PROGRAM_OP, k, -1))
        if way is not None:
            yield TO_HOST, f"output {graph.output_names[k]} to the host", graph.body.results[k], way.end


def bytes_on_host(flow: Flow) -> int:
    """Bytes that the host holds for a device: inputs, and outputs that do not take the place of such an input."""
    graph = flow.graph
    there = {graph.body.args[k] for k in graph.host_inputs}

    def size(v: int, held: Holding) -> int:
        amount = held.elements(graph.values[v].shape) * element_bytes(graph.values[v].dtype)
        return int(-(-amount // 1))

    total = sum(size(v, outside(flow.defined[v], flow.mesh)) for v in sorted(there) if v in flow.defined)
    for k in stored(graph):
        way = flow.uses.get((PROGRAM_OP, k, -1))
        if way is not None and flow.replaced.get(k) not in there:
            total += size(graph.body.results[k], way.end)
    return total


def check_host(plan: Any, flow: Flow, findings: Findings) -> None:
    """Check the statements about memories, and the bytes on the host."""
    graph = flow.graph
    wanted_in: dict[int, bool] = {}
    wanted_out: dict[int, bool] = {}
    for statement in plan["statements"]:
        if statement["kind"] != "memory_kind":
            continue
        part = part_of(statement["patterns"], flow)
        on_host: bool = statement["direction"] == "pinned_host"
        for v in part.values:
            if v not in graph.body.args:
                findings.add("statements", f"{statement['text']}: {flow.name(v)} is no input or output")
                continue
            wanted_in[graph.body.args.index(v)] = on_host
        for slot in part.slots:
            wanted_out[slot] = on_host
    for slot, value in flow.ties.items():
        wanted_out.setdefault(slot, wanted_in.get(graph.body.args.index(value), False))
    for what, names, wanted, told_of_program in (
        ("input", graph.input_names, wanted_in, graph.host_inputs),
        ("output", graph.output_names, wanted_out, graph.host_outputs),
    ):
        stated = {k for k, on_host in wanted.items() if on_host}
        for k in sorted(stated ^ set(told_of_program)):
            where = "on the host" if k in stated else "on the device"
            findings.add("statements", f"{what} {names[k]} is stated to live {where}, the program says otherwise")
    held = bytes_on_host(flow)
    told = plan["memory"].get("host_bytes", 0)
    if told != held:
        findings.add("memory", f"memory.host_bytes is {told!r} in the plan, the layouts give {held}")
    for statement in plan["statements"]:
        if statement["kind"] == "host_memory_limit" and held > statement["bytes"]:
            findings.add(
                "statements", f"limit of {statement['bytes']} bytes of pinned_host: the host holds {held} per device"
            )
    asked = (plan["config"] or {}).get("settings", {}).get("memory_limit")
    if isinstance(asked, dict) and asked.get("pinned_host") is not None:
        if not any(s["kind"] == "host_memory_limit" for s in plan["statements"]):
            findings.add("statements", "the config limits pinned_host, the plan has no such statement")
