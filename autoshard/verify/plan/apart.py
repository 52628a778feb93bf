"""Products that are written before the update that reads them: what the TPU compiler fuses badly (docs/lowering.md)."""

from collections.abc import Iterator, Mapping, Set
from typing import Any, Final

from autoshard.costmodels.compiled import WorkKind
from autoshard.costmodels.profile import Profile
from autoshard.verify.plan.flow import COLLECTIVES, Flow
from autoshard.verify.plan.kinds import kinds_of_work
from autoshard.verify.plan.matmuls import MatmulOrder
from autoshard.verify.plan.placed import Placed
from autoshard.verify.plan.program import Findings, Graph, Node, element_bytes

_TURNS: Final = ("transpose", "convert_element_type", "copy", "reduce_precision")
"""Ops that the compiler makes one with the matmul before."""


def spills(op: Node, placed: Placed, graph: Graph, profile: Profile) -> bool:
    """Whether both operands of a matmul, as a device reads them, are larger than what stays on the chip."""
    return len(op.operands) == 2 and all(_times_the_chip(op, placed, graph, profile, 1))


def exceeds_chip(op: Node, placed: Placed, graph: Graph, profile: Profile) -> bool:
    """Whether an operand of attention, as a device reads it, is more than three times what stays on the chip."""
    return any(_times_the_chip(op, placed, graph, profile, 3))


def _times_the_chip(op: Node, placed: Placed, graph: Graph, profile: Profile, times: int) -> Iterator[bool]:
    """By operand, whether a device reads more than so many times what stays on the chip."""
    for value, held in zip(op.operands, placed.operands, strict=True):
        type_ = graph.values[value]
        size = held.elements(type_.shape) * element_bytes(type_.dtype)
        yield size > times * profile.memory.on_chip_bytes(type_.dtype)


def products_apart(flow: Flow, profile: Profile) -> set[int]:
    """The products of a plan that are written before their update reads them, no partial sums among them."""
    graph = flow.graph
    if not profile.memory.on_chip:
        return set()
    kinds: Mapping[int, WorkKind] = kinds_of_work(graph, MatmulOrder.of(graph))
    return {
        op.results[0]
        for op in graph.nodes.values()
        if kinds.get(op.id) is WorkKind.UPDATED
        and op.id in flow.placed
        and not flow.defined[op.results[0]].partial
        and spills(op, flow.placed[op.id], graph, profile)
    }


def check_apart(plan: Any, flow: Flow, products: Set[int], findings: Findings) -> None:
    """Compare ``apart`` with the products that are to be written, each followed to what is last made one with it."""
    graph = flow.graph
    readers: dict[int, list[Node]] = {}
    for op in graph.nodes.values():
        for value in op.operands:
            readers.setdefault(value, []).append(op)
    ways = [*flow.shared.values(), *flow.uses.values()]
    sent = {way.value for way in ways if any(move.kind in COLLECTIVES for move in way.moves)}
    expected: set[int] = set()
    for value in products:
        at = value
        while at not in sent and at in readers:
            after = readers[at][0].results[0] if len(readers[at]) == 1 and readers[at][0].kind in _TURNS else None
            if after is None or element_bytes(graph.values[after].dtype) > element_bytes(graph.values[at].dtype):
                expected.add(at)
                break
            at = after
    told = plan.get("apart", [])
    for value in sorted(expected.difference(told)):
        findings.add("order", f"apart: {graph.values[value].name} is to be written before its update, and is not named")
    for value in sorted(set(told) - expected):
        known = value in range(len(graph.values))
        name = graph.values[value].name if known else f"value {value}"
        findings.add("order", f"apart names {name}, which no update is to be kept from")
