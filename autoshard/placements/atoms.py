"""Which mesh axes are split into sub-axes for a program.

A factor of 8 kv heads does not divide an axis of 16, but its sub-axis of 8 does. An axis is split in
two at the greatest common divisor with the factor that asks for it most.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from math import gcd

from autoshard.program.program import Program
from autoshard.sharding.layout import AtomMesh
from autoshard.sharding.mesh import Mesh

_ASKING = frozenset({"dot_general", "conv_general_dilated", "ragged_dot", "ragged_dot_general"})
MAX_SPLIT_AXIS = 64
"""Axes with more devices than this are not split unasked; a mesh can always name the parts itself."""


def choose_atoms(
    program: Program,
    mesh: Mesh,
    splits: Mapping[str, Sequence[int]] | None = None,
    stated: Mapping[str, Sequence[int]] | None = None,
) -> AtomMesh:
    """The refined mesh for `program`: `splits` fixes the parts of some axes (S0.35), the rest is chosen here.

    An axis of size n is split into (g, n/g) where a shardable factor of a matmul or convolution has size f and
    ``g = gcd(n, f)`` is neither 1 nor n. Where no such factor needs it, a reshape may ask for a split if one of its
    dimensions ends with the factor (64 rows cut by 16 become 8 x 8 cut by 8 and 2). Axes that a `shard_map` of the user
    runs over stay whole. stated: the parts of axes that statements name, each split as an axis is.
    """
    chosen: dict[str, Sequence[int]] = dict(splits or {})
    sizes: Counter[int] = Counter()
    ending: Counter[int] = Counter()
    manual = {name for op, _ in program.walk() if op.kind == "shard_map" for name, _ in op.attrs["mesh_axes"]}
    for op, _ in program.walk():
        if op.kind in _ASKING and op.rule is not None:
            sizes.update({op.rule.factor_sizes[f] for f in op.rule.shardable})
        if op.kind == "reshape" and op.rule is not None:
            dims = [d for tensor in (*op.rule.operands, *op.rule.results) for d in tensor]
            ending.update({op.rule.factor_sizes[f] for d in dims for f in d[:-1] if f in op.rule.shardable})
    for axis, size in zip(mesh.axis_names, mesh.axis_sizes, strict=True):
        if axis not in chosen:
            parts = (stated or {}).get(axis, (size,))
            chosen[axis] = parts if axis in manual else [n for part in parts for n in _split(part, sizes, ending)]
    return AtomMesh.split(mesh, chosen)


def _split(size: int, sizes: Mapping[int, int], ending: Mapping[int, int]) -> tuple[int, ...]:
    """The parts into which an axis of this size, or a part of one, is split."""
    divisors = _divisors(size, sizes) or _divisors(size, ending)
    if size > MAX_SPLIT_AXIS or not divisors:
        return (size,)
    best = max(divisors, key=lambda d: (divisors[d], d))
    return best, size // best


def _divisors(size: int, factors: Mapping[int, int]) -> Counter[int]:
    """The proper divisors of an axis of this size that factors ask for, and how often."""
    counts: Counter[int] = Counter()
    for factor, count in factors.items():
        divisor = gcd(size, factor)
        if divisor not in (1, size):
            counts[divisor] += count
    return counts
