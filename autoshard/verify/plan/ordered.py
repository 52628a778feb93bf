"""What a plan says lowering keeps in order: that there are such copies, loops, values and outputs.

Whether more had to be kept is not worked out again: it depends on what compilers may do, and costs the step nothing.
"""

from collections.abc import Iterator
from typing import Any

from autoshard.verify.plan.flow import Way
from autoshard.verify.plan.lives import Lives
from autoshard.verify.plan.program import Findings


def check_order(plan: Any, lives: Lives, peak: int, findings: Findings) -> None:
    """Compare ``order`` with the program and its reshards."""
    if "order" not in plan:
        return
    order = plan["order"]
    if not (order["again"] or order["finished"] or order["over"]):
        findings.add("order", "the plan says that lowering keeps something in order, and not what")
    if order["could_hold_bytes"] < peak:
        findings.add("order", f"order.could_hold_bytes is {order['could_hold_bytes']}, less than the peak of {peak}")
    for text in (*_again(order, lives), *_finished(order, lives), *_over(order, lives)):
        findings.add("order", text)


def _bytes(lives: Lives, way: Way) -> int:
    return lives.size(way.value, way.end)


def _again(order: Any, lives: Lives) -> Iterator[str]:
    uses = lives.flow.uses
    for told in order["again"]:
        use = told["op"], told["slot"], told["region"]
        way = uses.get(use)
        if way is None or not way.moves:
            yield f"order.again names {use}, for which nothing is moved"
        elif _bytes(lives, way) <= lives.size(way.value, way.moves[0].before):
            yield f"order.again names {lives.flow.use_name(use)}, whose copy is no larger than what it is made of"
        elif not any(w == way and other[0] != use[0] for other, w in uses.items()):
            yield f"order.again names {lives.flow.use_name(use)}, whose copy no other op has"


def _finished(order: Any, lives: Lives) -> Iterator[str]:
    graph = lives.flow.graph
    for told in order["finished"]:
        node = graph.nodes.get(told["op"])
        if node is None or node.kind not in ("scan", "while"):
            yield f"order.finished names op {told['op']}, which is no loop"
            continue
        for value in told["values"]:
            makers = [op.id for op in graph.nodes.values() if value in op.results]
            if not makers or lives.begin[makers[0]] >= lives.begin[node.id]:
                yield f"order.finished names value {value}, which is not made before {node.label}"


def _over(order: Any, lives: Lives) -> Iterator[str]:
    for slot in order["over"]:
        way = lives.flow.uses.get((-1, slot, -1))
        if slot not in lives.flow.replaced:
            yield f"order.over names output {slot}, which takes the place of no donated input"
        elif way is None or not way.moves or _bytes(lives, way) <= lives.size(way.value, way.moves[0].before):
            yield f"order.over names output {lives.flow.graph.output_names[slot]}, which is not gathered"
