"""Which values are stacks of layers: those that scans read or write slice by slice, and those updated with them.

Moments of an optimizer are no operands of a scan, yet have the shape of the parameters that are. Cutting them along the
stack costs the same seconds as cutting them elsewhere, but leaves a state that is of no use to anybody who looks at
single layers. The minute price on held bytes therefore counts such inputs higher.
"""

from collections.abc import Mapping

from autoshard.program.program import Program

EXTRA_SHARE = 0.5
"""Share of its bytes that an input cut along its stack is priced in addition; less than any cut saves."""


def stacked_values(program: Program, ties: Mapping[int, int]) -> frozenset[int]:
    """Values of the outermost block that are operands or results of a scan by slices, or are tied to such values.

    Operands and results of one shape of a pointwise op are tied, and so are an output and the input that it replaces
    (`ties`: output slot -> value).
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
