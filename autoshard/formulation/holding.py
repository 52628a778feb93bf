"""What the network knows of memory: when the array of a decision is held, and its bytes in every state.

A copy ends the life of the array that it is made from (see costs/liveness.py), and which copies a plan makes is not
known yet. So a definition that may be copied is held for one point of time. The hub behind it holds the rest: the
definition itself where uses share it, otherwise the copy. Where that depends on more than the hub's own state, the
smaller amount counts: the network never holds more than the simulation of the plan.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from autoshard.formulation.model import Node, Port
from autoshard.sharding.layout import Layout

if TYPE_CHECKING:
    from autoshard.formulation.collect import Collector

NodeUsage = tuple[int, int, np.ndarray]


def holds(collector: "Collector", node: Node, value: int, layouts: Sequence[Layout]) -> None:
    """Note on the node that its array is where `value` is kept; `layouts`: of the value in each state."""
    if value in collector.fusion.held:
        amounts = collector.bytes(value, layouts)
        node.priced = node.priced + amounts
        node.usages += _definition(collector, value, layouts, amounts)


def _definition(collector: "Collector", value: int, layouts: Sequence[Layout], amounts: np.ndarray) -> list[NodeUsage]:
    """How long a definition is surely held: until a copy may replace it, and not while an operand may lie there.

    A partial sum with one use may be reduced at once and in place, at most to the part of one device. Where that use
    crosses into a region, or out of one, the boundary holds what it becomes, from the first read on.
    """
    if value not in collector.liveness.interval:
        return []
    start, stop = collector.liveness.interval[value]
    first = start + 1 if value in collector.liveness.in_place else start
    if collector.has_hub(value):
        stop = min(start + 1, stop)
    if first >= stop:
        return []
    partial = [bool(layout.unreduced) for layout in layouts]
    if not any(partial):
        return [(first, stop, amounts)]
    whole = collector.program.type_of(value).bytes
    least = np.where(partial, np.minimum(amounts, np.ceil(whole / collector.mesh.mesh.size)), amounts)
    if value not in collector.crossing:
        return [(first, stop, least)]
    read = min(stop, collector.liveness.reads[value][0])
    usages = [(first, read, least), (max(first, read), stop, np.where(partial, 0.0, amounts))]
    return [(start, end, held) for start, end, held in usages if start < end]


def keep_operand(collector: "Collector", value: int, port: Port, start: int, last: int) -> None:
    """Note on the boundary of a region that the array in which `value` is defined is held while the region runs, from
    `start` to `last`, where the region reads it and no copy.

    That it is held until then its own node knows. Where something else reads it too, nothing is noted.
    """
    node = collector.out.nodes[port.node]
    if node.copies is None or collector.has_hub(value) or value not in collector.liveness.interval:
        return
    if value in collector.inputs or start >= last:
        return
    amounts = collector.bytes(value, port.layouts)
    node.usages.append((start + 1, last + 1, np.where(node.copies, 0.0, amounts)))


def shared_form(
    collector: "Collector", value: int, amounts: np.ndarray, copies: np.ndarray, defined: np.ndarray, beside: np.ndarray
) -> list[NodeUsage]:
    """When the form that uses share is held; `defined`: bytes in the layouts that the value may be defined in.
    `beside`: per state, those of the definition where it stays beside a form that is gathered as it is used, else none.

    A copy is made when it is first read, or at once if it is not larger than the definition; until then the definition
    is held, if it is in memory at all. Inputs stay where they are, so only their copies count.
    """
    live = collector.liveness
    first, last = live.reads.get(value, (0, 0))
    end = last + 1
    copied = np.where(copies, amounts, 0.0)
    real = value in live.interval and value not in collector.inputs
    partial = value in live.made and value not in collector.fusion.held and collector.reach.get(value)
    if not real and not partial:
        return [(first, end, copied)] if first < end else []
    made = live.interval[value][0] if real else live.made[value]
    usages = [(max(first, made + 1), end, copied)]
    if real:
        usages.append((made + 1, min(first, end), np.where(beside > 0, 0.0, np.minimum(copied, defined.min()))))
        usages.append((made + 1, live.interval[value][1], np.where(copies, beside, amounts)))
    return [u for u in usages if u[0] < u[1]]
