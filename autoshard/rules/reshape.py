"""Reshape: the common factors of two shapes, from both ends (S2.16, S2.17)."""

from math import gcd

from autoshard.program.rule import ShardingRule
from autoshard.rules.build import Call, Compound, Label
from autoshard.rules.registry import rule


@rule("reshape", local_care="the local new_sizes are the result's local shape")
def reshape(call: Call) -> ShardingRule:
    """Dimensions as products of factors shared by both shapes.

    ``8x4x5 -> 2x16x5`` is ``([ij, k, l])->([i, jk, l])``. ``6x4 -> 4x6`` is ``([ij, kl])->([im, nl])``: only
    the major factor i=2 is common to both shapes as blocks, the others must be whole.

    A factor is a block of its dimension only while everything major to it there is fully sharded, so usually only the
    major factor of a compound dimension can be used. With the parameter `dimensions` (as in gradients of grouped
    convolutions) the operand is transposed first.
    """
    shape = call.operands[0].shape
    order = call.params.get("dimensions") or range(len(shape))
    left, right, whole = factorise(tuple(shape[d] for d in order), call.results[0].shape)
    operand = [left[list(order).index(d)] for d in range(len(shape))]
    return call.build([operand], [right], need_replication=whole, linear=((0,),))


def factorise(source: tuple[int, ...], target: tuple[int, ...]) -> tuple[list[Compound], list[Compound], list[Label]]:
    """Factors of two shapes of equal element count, and the labels that must be whole.

    Both shapes are read from the major end: greatest common divisors are cut off the outermost dimensions that are not
    used up, until these have no common divisor. Then the same is done from the minor end. The remainders in between,
    and the factors minor to them in the same dimension, must be whole.
    """
    a, b = _Shape("source", source), _Shape("target", target)
    for end in ("major", "minor") if 0 not in source else ():
        while (i := a.outermost(end)) is not None and (j := b.outermost(end)) is not None:
            common = gcd(a.left[i], b.left[j])
            if common == 1:
                break
            label = (end, i, j)  # one step exhausts the common divisors of a pair of dimensions
            a.cut(i, label, common, end)
            b.cut(j, label, common, end)
    whole = a.close() + b.close()
    return a.compounds(), b.compounds(), whole


class _Shape:
    """One shape while factors are cut off: the remainder of each dimension, and the cuts so far."""

    def __init__(self, side: str, shape: tuple[int, ...]) -> None:
        self.side = side
        self.left = list(shape)
        self.major: list[list[tuple[Label, int]]] = [[] for _ in shape]
        self.minor: list[list[tuple[Label, int]]] = [[] for _ in shape]

    def outermost(self, end: str) -> int | None:
        """The first dimension, seen from `end`, of which something is left."""
        dims = range(len(self.left)) if end == "major" else reversed(range(len(self.left)))
        return next((d for d in dims if self.left[d] > 1), None)

    def cut(self, dim: int, label: Label, size: int, end: str) -> None:
        self.left[dim] //= size
        if end == "major":
            self.major[dim].append((label, size))
        else:
            self.minor[dim].insert(0, (label, size))

    def close(self) -> list[Label]:
        """Make a factor of every remainder; the labels that must be whole."""
        whole: list[Label] = []
        for d, n in enumerate(self.left):
            if n != 1:
                self.major[d].append(((self.side, d), n))
                whole += [(self.side, d), *(label for label, _ in self.minor[d])]
        return whole

    def compounds(self) -> list[Compound]:
        return [Compound((*a, *b)) for a, b in zip(self.major, self.minor, strict=True)]
