"""Do the custom kernels of a plan have the rules and the work that its statements give them?"""

from typing import Any

from autoshard.verify.plan.flow import Flow
from autoshard.verify.plan.program import Findings, Node, manual_ops


def check_kernel(statement: Any, flow: Flow, findings: Findings) -> None:
    """Check that the op which a statement speaks of is that kernel, with that rule and that work."""
    node, inside = _kernels(flow).get(statement["op"], (None, False))
    what = f"{statement['source']}: {statement['text']}" if statement["source"] else str(statement["text"])
    if node is None:
        findings.add("statements", f"{what} speaks of op {statement['op']}, which is no kernel")
        return
    if node.attrs["kernel"]["name"] != statement["name"]:
        findings.add("statements", f"{what} speaks of {node.label}, which is {node.attrs['kernel']['name']}")
    wanted = None if inside else node.rule["text"]
    if statement["rule"] != wanted:
        findings.add("statements", f"{what} is broken: {node.label} has the rule {wanted}")
    if not inside and any(node.rule.get(key) for key in ("linear", "accumulators", "halos", "cutouts")):
        findings.add("statements", f"{what}: {node.label} is said to be linear, or to exchange edges")
    for key in ("work", "local"):
        if node.attrs.get(key) != statement[key]:
            findings.add("statements", f"{what} is broken: {node.label} has the {key} {node.attrs.get(key)}")


def check_all_kernels(plan: Any, flow: Flow, findings: Findings) -> None:
    """Check that one statement speaks of each kernel: none is cut, or priced, in silence."""
    told = [s["op"] for s in plan["statements"] if s["kind"] == "kernel"]
    for number, (node, _) in _kernels(flow).items():
        if told.count(number) != 1:
            name = node.attrs["kernel"]["name"]
            findings.add("statements", f"{told.count(number)} statements speak of {node.label}, the kernel {name}")


def _kernels(flow: Flow) -> dict[int, tuple[Node, bool]]:
    """The kernels of a program by op, and whether they lie inside of a shard_map."""
    found: dict[int, tuple[Node, bool]] = {}
    for node in flow.graph.nodes.values():
        if "kernel" in node.attrs:
            found[node.id] = (node, False)
        for inner, _ in manual_ops(node, 1) if node.is_manual else ():
            if "kernel" in inner.attrs:
                found[inner.id] = (inner, True)
    return found
