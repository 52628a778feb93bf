"""Which blocks (see `sharding.rows`) steps can move as they are, and the shapes that collectives take."""

from collections.abc import Sequence
from math import prod

from autoshard.sharding.layout import AtomMesh, Layout
from autoshard.sharding.rows import staged
from autoshard.sharding.steps import Step, StepKind


def is_regular(n: int, sizes: Sequence[int]) -> bool:
    """Whether the staged blocks are those of a cut at once, so that whole blocks can be permuted.

    >>> is_regular(7, (2, 2)), is_regular(5, (2, 2))
    (True, False)
    """
    lengths = staged(n, sizes)
    return all(lengths[k] == lengths[-1] * prod(sizes[k:]) for k in range(1, len(sizes)))


def operand_shape(step: Step, layout: Layout, shape: Sequence[int], mesh: AtomMesh) -> tuple[int, ...]:
    """Shape one device gives to the collective of `step`, padding included.

    layout: before the step. shape: of the whole tensor.
    """
    local = list(layout.local_shape(shape, mesh))
    target = {StepKind.REDUCE_SCATTER: step.dim, StepKind.ALL_TO_ALL: step.to_dim}.get(step.kind, -1)
    if target >= 0:  # split into one block for each device, all of the same length
        n = mesh.size(step.atoms)
        local[target] = n * -(-local[target] // n)
    return tuple(local)
