"""Reshape: the common factors of two shapes, from both ends (S2.16, S2.17)."""

from collections.abc import Iterator
from math import gcd

from autoshard.program.rule import ShardingRule
from autoshard.rules.build import Call, Compound, Label
from autoshard.rules.registry import rule


@rule("reshape", local_care="the local new_sizes are the result's local shape")
def reshape(call: Call) -> ShardingRule:
    """Dimensions as products of factors shared by both shapes.

    Both shapes are read from the major end, cutting off greatest common divisors, until no common
    divisor is left; then from the minor end. What remains in between has no common factor and must
    be whole. Sharding a shared factor is a local reshape only while everything major to it in
    its dimension is fully sharded too, so of a compound dimension usually just the major factor
    can be used.

    ``8x4x5 -> 2x16x5`` is ``([ij, k, l])->([i, jk, l])``; ``6x4 -> 4x6`` is
    ``([ij, kl])->([im, nl])`` with i=2 shared, l=2 shared and j, k, m, n whole.
    """
    left, right, whole = factorise(call.operands[0].shape, call.results[0].shape)
    operands = [left, *([()] * (len(call.operands) - 1))]
    return call.build(operands, [right], need_replication=whole, linear=((0,),))


def factorise(
    source: tuple[int, ...], target: tuple[int, ...]
) -> tuple[list[Compound], list[Compound], list[Label]]:
    """Factors of both shapes of equal element count, and the labels that must be whole."""
    parts = {side: _Sides(shape) for side, shape in (("source", source), ("target", target))}
    a, b = parts["source"], parts["target"]
    label: Label
    if 0 in source or 0 in target:
        # Nothing to divide: equal leading dimensions pass, the rest is whole.
        whole: list[Label] = []
        same = next((d for d, (m, n) in enumerate(zip(source, target, strict=False)) if m != n), min(len(source), len(target)))
        for side, sides in parts.items():
            for d, n in enumerate(sides.shape):
                label = ("same", d) if d < same else (side, d)
                sides.major[d].append((label, n))
                whole += [label] if d >= same else []
        return a.compounds(), b.compounds(), whole
    count = 0
    for end in ("major", "minor"):
        for i, j in _walk(a, b, end):
            common = gcd(a.left[i], b.left[j])
            label = ("shared", count)
            count += 1
            a.cut(i, label, common, end)
            b.cut(j, label, common, end)
    whole = []
    for side, sides in parts.items():
        for d, n in enumerate(sides.left):
            if n > 1:
                label = (side, d)
                whole.append(label)
                sides.major[d].append((label, n))
    return a.compounds(), b.compounds(), whole


class _Sides:
    """One shape while factors are being cut off: what is left of each dimension, and the cuts so far."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape
        self.left = list(shape)
        self.major: list[list[tuple[Label, int]]] = [[] for _ in shape]
        self.minor: list[list[tuple[Label, int]]] = [[] for _ in shape]

    def cut(self, dim: int, label: Label, size: int, end: str) -> None:
        self.left[dim] //= size
        if end == "major":
            self.major[dim].append((label, size))
        else:
            self.minor[dim].insert(0, (label, size))

    def next(self, end: str) -> int | None:
        """The outermost dimension, seen from `end`, of which something is left."""
        dims = range(len(self.shape)) if end == "major" else reversed(range(len(self.shape)))
        return next((d for d in dims if self.left[d] > 1), None)

    def compounds(self) -> list[Compound]:
        return [Compound((*a, *b)) for a, b in zip(self.major, self.minor, strict=True)]


def _walk(a: _Sides, b: _Sides, end: str) -> Iterator[tuple[int, int]]:
    """Pairs of dimensions that still have a common divisor, outermost first, until one pair has none."""
    while True:
        i, j = a.next(end), b.next(end)
        if i is None or j is None or gcd(a.left[i], b.left[j]) == 1:
            return
        yield i, j
