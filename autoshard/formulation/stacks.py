"""Which values are stacks of layers: what scans read and write slice by slice, and what is updated with it.

Moments of an optimizer are no operand of a scan, yet shaped like the parameters that are. To cut them along the stack
costs the same as to cut them elsewhere, as far as a price can tell, and leaves a state that is of no use to anybody who
looks at single layers. The minute price on held bytes therefore counts such inputs higher.
"""

from collections.abc import Mapping

from autoshard.program.program import Program

EXTRA_SHARE = 0.5
"""Part of its bytes that an input cut along its stack is priced on top; less than what any cut saves."""


def stacked_values(program: Program, ties: Mapping[int, int]) -> frozenset[int]:
    """Values of the outermost block that are operands or results of a scan by slices, or tied to such.

    Tied are operands and results of one shape of a pointwise op, and an output and the input it replaces (`ties`:
    output slot -> value).
    """
    group: dict[int, int] = {}

    def find(value: int) -> int:
        while group.setdefault(value, value) != value:
            group[value] = value = group[group[value]]
        return value

    stacks: set[int] = set()
    for op in program.body.ops:
        if op.kind == "scan":
            stacks.update(op.operands[op.attrs["num_consts"] + op.attrs["num_carry"] :])
            stacks.update(op.results[op.attrs["num_carry"] :])
        elif op.rule is not None and not op.rule.reduction and len(op.rule.results) == 1 and op.rule.results[0]:
            for value, dims in zip(op.operands, op.rule.operands, strict=True):
                if dims == op.rule.results[0]:
                    group[find(value)] = find(op.results[0])
    for slot, value in ties.items():
        group[find(program.body.results[slot])] = find(value)
    marked = {find(v) for v in stacks}
    return frozenset(v for v in [*group, *stacks] if find(v) in marked)
