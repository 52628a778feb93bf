"""Values that are stacks of layers: what scans take and return in slices, and whatever is tied to that."""

from autoshard.verify.plan.flow import Flow


def stacks(flow: Flow) -> set[int]:
    """Values outside of all regions that share their first dimension with a stack of a scan.

    The first dimension is shared with values of the same shape across a pointwise op, and between a donated input and
    the output that takes its place.
    """
    graph = flow.graph
    stacked: set[int] = set()
    near: dict[int, set[int]] = {}

    def tie(a: int, b: int) -> None:
        near.setdefault(a, set()).add(b)
        near.setdefault(b, set()).add(a)

    for op in graph.body.ops:
        if op.kind == "scan":
            stacked.update(op.operands[op.attrs["num_consts"] + op.attrs["num_carry"] :])
            stacked.update(op.results[op.attrs["num_carry"] :])
        elif op.id in flow.placed:
            rule = flow.placed[op.id].rule
            if rule.reduction or len(rule.results) != 1 or not rule.results[0]:
                continue
            for v, dims in zip(op.operands, rule.operands, strict=True):
                if dims == rule.results[0]:
                    tie(v, op.results[0])
    for slot, v in flow.ties.items():
        tie(graph.body.results[slot], v)
    todo = list(stacked)
    while todo:
        for v in near.get(todo.pop(), ()):
            if v not in stacked:
                stacked.add(v)
                todo.append(v)
    return stacked
