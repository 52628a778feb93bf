"""Which elements of a dimension a device holds (blocks, cut stage by stage), and which change devices in a slice.

A dimension of n elements cut by atoms of sizes s1, s2, ... (major to minor) is cut first into s1
blocks of ceil(n / s1), each of these into s2 blocks, and so on. The last length is
ceil(n / (s1 s2 ...)), as for a cut into s1 s2 ... blocks at once (S0.57). Where all sizes divide, the blocks are
the same too. Where they do not, cutting stage by stage keeps slices, gathers and all-to-alls over the minor atoms
within the block of the major ones. A cut at once does not: 5 elements over 2, then 2, give the blocks 0-1, 2, 3-4,
none; at once they would be 0-1, 2-3, 4, none, and the second device of the first half would miss element 3. The
padding of a block, behind its elements, holds undefined numbers.

Where element r of a result is element ``start + r`` of an operand and both are cut by the same atoms, every device
keeps what it holds and gets the rest, in as few permutes as there can be. Elements of the result that the operand lacks
(the padding of a `pad`) come from nowhere.
"""

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import NamedTuple


def staged(n: int, sizes: Sequence[int]) -> list[int]:
    """Block lengths after 0, 1, 2, ... cuts: ``[n, ceil(n/s1), ceil(ceil(n/s1)/s2), ...]``.

    >>> staged(5, (2, 2))
    [5, 3, 2]
    """
    lengths = [n]
    for size in sizes:
        lengths.append(-(-lengths[-1] // size))
    return lengths


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


class Piece(NamedTuple):
    """Elements that the block `target` of the result takes from the block `source` of the operand.

    begin: the first of them in the block of the operand; at: where it goes in the block of the result.
    """

    source: int
    target: int
    begin: int
    at: int
    count: int


Rounds = tuple[tuple[Piece, ...], ...]


@lru_cache(maxsize=4096)
def pieces(operand: int, result: int, start: int, sizes: tuple[int, ...], wraps: bool = False) -> tuple[Piece, ...]:
    """What the blocks of a result of so many elements take from the blocks of an operand, both cut by `sizes`.

    wraps: behind the operand's last element is its first (a roll); blocks are even then.

    >>> pieces(8, 4, 4, (2,))
    (Piece(source=1, target=0, begin=0, at=0, count=2), Piece(source=1, target=1, begin=2, at=0, count=2))
    >>> [(p.source, p.target, p.count) for p in pieces(4, 4, 3, (2,), wraps=True)]
    [(1, 0, 1), (0, 0, 1), (0, 1, 1), (1, 1, 1)]
    """
    if wraps:
        return _rolled(operand, start, prod(sizes))
    out = []
    have = ranges(operand, sizes)
    first = 0
    for target, (to, wanted) in enumerate(ranges(result, sizes)):
        low, high = to + start, to + start + wanted  # in elements of the operand
        while first < len(have) and sum(have[first]) <= low:
            first += 1
        for source in range(first, len(have)):
            begin, count = have[source]
            if begin >= high:
                break
            top, bottom = max(low, begin), min(high, begin + count)
            if top < bottom:
                out.append(Piece(source, target, top - begin, top - low, bottom - top))
    return tuple(out)


def _rolled(n: int, start: int, parts: int) -> tuple[Piece, ...]:
    """What `parts` even blocks of a roll take from those of its operand: element r is element ``(r + start) mod n``."""
    length = n // parts
    blocks, rest = divmod(start % n, length)
    out = []
    for target in range(parts):
        out.append(Piece((target + blocks) % parts, target, rest, 0, length - rest))
        if rest:
            out.append(Piece((target + blocks + 1) % parts, target, 0, length - rest, rest))
    return tuple(out)


@lru_cache(maxsize=4096)
def rounds(operand: int, result: int, start: int, sizes: tuple[int, ...], wraps: bool = False) -> Rounds:
    """The pieces that change devices, in rounds: in each, a device sends at most one piece and gets at most one.

    As many rounds as the busiest device has pieces to send or to get. The pieces of one device follow each other
    (blocks are in order on both sides), so dealing them out in turn never gives it two of one round.

    >>> [[(p.source, p.target) for p in r] for r in rounds(8, 4, 4, (4,))]
    [[(2, 0), (3, 2)], [(2, 1)]]
    """
    moved = [p for p in pieces(operand, result, start, sizes, wraps) if p.source != p.target]
    if not moved:
        return ()
    busy = max(*Counter(p.source for p in moved).values(), *Counter(p.target for p in moved).values())
    return tuple(tuple(moved[k::busy]) for k in range(busy))
