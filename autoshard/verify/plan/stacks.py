"""Values that are stacks of layers, by a flood from what scans take and give by slices."""

from autoshard.verify.plan.flow import Flow


def stacks(flow: Flow) -> set[int]:
    """Values outside of all regions that share their first dimension with a stack of a scan.

    They share it with values of their shape next to a pointwise op, and with the donated input whose place they take.
    """
    graph = flow.graph
    found: set[int] = set()
    near: dict[int, set[int]] = {}

    def tie(a: int, b: int) -> None:
        near.setdefault(a, set()).add(b)
        near.setdefault(b, set()).add(a)

    for op in graph.body.ops:
        if op.kind == "scan":
            found.update(op.operands[op.attrs["num_consts"] + op.attrs["num_carry"] :])
            found.update(op.results[op.attrs["num_carry"] :])
        elif op.id in flow.placed:
            rule = flow.placed[op.id].rule
            if rule.reduction or len(rule.results) != 1 or not rule.results[0]:
                continue
            for v, dims in zip(op.operands, rule.operands, strict=True):
                if dims == rule.results[0]:
                    tie(v, op.results[0])
    for slot, v in flow.ties.items():
        tie(graph.body.results[slot], v)
    todo = list(found)
    while todo:
        for v in near.get(todo.pop(), ()):
            if v not in found:
                found.add(v)
                todo.append(v)
    return found
