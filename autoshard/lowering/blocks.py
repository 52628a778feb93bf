"""Which elements of a dimension a device holds: blocks, cut stage by stage.

A dimension of n elements cut by atoms of sizes s1, s2, ... (major to minor) is cut first into s1
blocks of ceil(n / s1), each of these into s2 blocks, and so on. The last length is
ceil(n / (s1 s2 ...)), as for a cut into s1 s2 ... blocks at once (S0.57). Where all sizes divide, the blocks are
the same too. Where they do not, cutting stage by stage keeps slices, gathers and all-to-alls over the minor atoms
within the block of the major ones. A cut at once does not: 5 elements over 2, then 2, give the blocks 0-1, 2, 3-4,
none; at once they would be 0-1, 2-3, 4, none, and the second device of the first half would miss element 3. The
padding of a block, behind its elements, holds undefined numbers.
"""

from collections.abc import Sequence
from math import prod

from autoshard.sharding.layout import AtomMesh, Layout
from autoshard.sharding.steps import Step, StepKind


def staged(n: int, sizes: Sequence[int]) -> list[int]:
    """Block lengths after 0, 1, 2, ... cuts: ``[n, ceil(n/s1), ceil(ceil(n/s1)/s2), ...]``.

    >>> staged(5, (2, 2))
    [5, 3, 2]
    """
    lengths = [n]
    for size in sizes:
        lengths.append(-(-lengths[-1] // size))
    return lengths


def is_regular(n: int, sizes: Sequence[int]) -> bool:
    """Whether the staged blocks are those of a cut at once, so that whole blocks can be permuted.

    >>> is_regular(7, (2, 2)), is_regular(5, (2, 2))
    (True, False)
    """
    lengths = staged(n, sizes)
    return all(lengths[k] == lengths[-1] * prod(sizes[k:]) for k in range(1, len(sizes)))


def ranges(n: int, sizes: Sequence[int]) -> list[tuple[int, int]]:
    """(start, count) of the elements in each block, blocks in row-major order of the atoms.

    >>> ranges(5, (2, 2))
    [(0, 2), (2, 1), (3, 2), (5, 0)]
    """
    blocks = [(0, n)]
    for length in staged(n, sizes)[1:]:
        size = sizes[0]
        sizes = sizes[1:]
        blocks = [
            (start + min(i * length, count), max(0, min(length, count - i * length)))
            for start, count in blocks
            for i in range(size)
        ]
    return blocks


def even_prefix(n: int, sizes: Sequence[int]) -> int:
    """How many of the leading atoms cut a dimension of n elements evenly.

    >>> even_prefix(12, (2, 4)), even_prefix(12, (8,))
    (1, 0)
    """
    count = len(sizes)
    while n % prod(sizes[:count]):
        count -= 1
    return count


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
