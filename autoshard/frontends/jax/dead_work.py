"""A warning about work that feeds no output: mostly it means that the user forgot to return a result."""

from collections.abc import Iterator
from math import prod

from autoshard.frontends.draft import DraftBlock, DraftOp

_TOLD_FROM = 0.55
"""Share of the matmul FLOP above which removed work is reported.

Derivatives leave less than that behind: a forward pass whose value is not used, or a recomputation of the results of a
rematerialised block.
"""


FORGOTTEN = "of the matmul FLOP feed no output"
"""What the warning is known by."""


class LiveWork:
    """Matmul FLOP of a draft, counted before `prune` removes ops, to be compared afterwards."""

    def __init__(self, block: DraftBlock) -> None:
        self.before = list(_matmuls(block, 1.0))

    def note(self, block: DraftBlock) -> str | None:
        """A warning about the removed work; None where it is little."""
        total = sum(flop for _, flop in self.before)
        kept = {id(op) for op, _ in _matmuls(block, 1.0)}
        gone = [(op, flop) for op, flop in self.before if id(op) not in kept]
        dead = sum(flop for _, flop in gone)
        if not dead or dead < _TOLD_FROM * total:  # matmuls of empty arrays are no work
            return None
        largest, _ = max(gone, key=lambda item: item[1])
        where = f", the most at {largest.source}" if largest.source else ""
        return (
            f"{dead / total:.0%} of the matmul FLOP feed no output{where}: is the state returned? What feeds no output "
            "is neither planned nor run; what it changes in dictionaries and objects has to be among its results"
        )


def _matmuls(block: DraftBlock, times: float) -> Iterator[tuple[DraftOp, float]]:
    """Every matrix multiplication and convolution with its FLOP in one call."""
    for op in block.ops:
        if op.kind == "dot_general":
            (contracted, _), _ = op.origin.params["dimension_numbers"]
            inner = prod(op.operands[0].type.shape[d] for d in contracted)
            yield op, 2.0 * times * op.results[0].type.elements * inner
        elif op.kind == "conv_general_dilated":
            kernel, out = op.operands[1].type, op.origin.params["dimension_numbers"].rhs_spec[0]
            yield op, 2.0 * times * op.results[0].type.elements * kernel.elements / max(1, kernel.shape[out])
        for region in op.regions:
            yield from _matmuls(region, times * _times(op))


def _times(op: DraftOp) -> float:
    """How often a region runs; 1 where that is not known."""
    if op.kind == "scan":
        return float(op.attrs["length"])
    known = op.attrs.get("trips")
    return 1.0 if known is None else float(known)
