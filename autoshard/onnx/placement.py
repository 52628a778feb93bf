"""Placements: what a spec means, as cuts of axes and the devices that hold every shard.

Device sets are whole numbers with a bit for every device: intersection is ``&``, union ``|``. Every legal spec has a
placement; shardings over the axes of a mesh are a special case (`axes.py`).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import prod

from autoshard.onnx.graph import Dim
from autoshard.onnx.specs import Part, ShardedDim, ShardingSpec

Cut = tuple[tuple[Dim, int], ...]
"""How an axis is cut: (size, shards) of its parts, major to minor; empty where it is whole. Block i of a part of size n
in m shards is ``[i * ceil(n / m), (i + 1) * ceil(n / m))``, as far as there are elements (S0.56).
"""

Intervals = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Placement:
    """Cuts of the axes (axes beyond the last are whole) and, for every shard, the devices that hold it.

    holders: one device set for each shard, axes in ascending order, the last axis fastest.
    """

    cuts: tuple[Cut, ...]
    holders: tuple[int, ...]

    def __post_init__(self) -> None:
        last = max((a + 1 for a, cut in enumerate(self.cuts) if cut), default=0)
        if last < len(self.cuts):  # equal placements are equal values
            object.__setattr__(self, "cuts", self.cuts[:last])

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """Number of shards of every axis."""
        return tuple(cut_shards(c) for c in self.cuts)

    @cached_property
    def devices(self) -> int:
        """Every device that holds a shard."""
        return union(self.holders)

    @property
    def is_whole(self) -> bool:
        """Whether no axis is cut."""
        return not any(self.cuts)

    def cut(self, axis: int) -> Cut:
        """The parts of an axis; of an axis that is not cut, none."""
        return self.cuts[axis] if axis < len(self.cuts) else ()

    def at(self, index: Sequence[int]) -> int:
        """The holders of the shard with this index on every axis."""
        flat = 0
        for count, i in zip(self.counts, index, strict=False):
            flat = flat * count + i
        return self.holders[flat]

    def indices(self) -> Iterable[tuple[int, ...]]:
        """The index of every shard, in the order of `holders`."""
        return product(*(range(n) for n in self.counts))


def cut_shards(cut: Cut) -> int:
    """Into how many shards parts divide an axis."""
    return prod(m for _, m in cut)


def union(sets: Iterable[int]) -> int:
    """All devices of several sets (bit masks)."""
    whole = 0
    for devices in sets:
        whole |= devices
    return whole


def device_set(devices: Iterable[int]) -> int:
    """The set of these devices.

    >>> bin(device_set([0, 3]))
    '0b1001'
    """
    bits = 0
    for device in devices:
        bits |= 1 << device
    return bits


def all_devices(count: int) -> int:
    """The set (a bit mask) of the first `count` devices."""
    return (1 << count) - 1


def members(devices: int) -> tuple[int, ...]:
    """The devices of a set (a bit mask), in ascending order."""
    return tuple(i for i, bit in enumerate(reversed(bin(devices)[2:])) if bit == "1")


def replicated(devices: int) -> Placement:
    """The placement in which every device of the set holds the whole tensor."""
    return Placement((), (devices,))


# -- cuts --------------------------------------------------------------------------------------------------------------


def canonical_cut(parts: Sequence[tuple[Dim, int]], size: Dim = None) -> Cut:
    """The shortest cut with the same blocks in the same order.

    A part that is split completely joins the evenly split part minor to it, an evenly split one a whole one:

    >>> canonical_cut([(2, 2), (4, 2)])
    ((8, 4),)
    >>> canonical_cut([(2, 1), (4, 2)])
    ((2, 1), (4, 2))
    """
    if all(m == 1 for _, m in parts):
        return ()
    if len(parts) == 1:
        return ((size if size is not None else parts[0][0], parts[0][1]),)
    out: list[tuple[Dim, int]] = []
    for n, m in parts:
        if n == 1 and m == 1:
            continue
        if out:
            outer, split = out[-1]
            if isinstance(outer, int) and isinstance(n, int):
                if m == 1 and outer % split == 0:
                    out[-1] = (outer * n, split)
                    continue
                if outer == split and n % m == 0:
                    out[-1] = (outer * n, split * m)
                    continue
        out.append((n, m))
    return tuple(out)


def cut_blocks(cut: Cut, size: int) -> list[Intervals]:
    """The elements of an axis of `size` that each shard has, as intervals; those of padding are empty.

    >>> cut_blocks(((5, 4),), 5)
    [((0, 2),), ((2, 4),), ((4, 5),), ()]
    >>> cut_blocks(((2, 1), (4, 2)), 8)
    [((0, 2), (4, 6)), ((2, 4), (6, 8))]
    """
    if not cut:
        return [((0, size),) if size else ()]
    parts = [(size, cut[0][1])] if len(cut) == 1 else [(n, m) for n, m in cut if isinstance(n, int)]
    blocks: list[list[tuple[int, int]]] = [[(0, 1)]]
    for n, m in parts:
        local = -(-n // m)
        split: list[list[tuple[int, int]]] = []
        for block in blocks:
            for i in range(m):
                low, high = min(i * local, n), min((i + 1) * local, n)
                split.append([(row * n + low, row * n + high) for a, b in block for row in range(a, b) if high > low])
        blocks = split
    return [_joined(b) for b in blocks]


def _joined(intervals: Sequence[tuple[int, int]]) -> Intervals:
    out: list[tuple[int, int]] = []
    for low, high in intervals:
        if out and out[-1][1] == low:
            out[-1] = (out[-1][0], high)
        else:
            out.append((low, high))
    return tuple(out)


def device_blocks(placement: Placement, shape: Sequence[int]) -> dict[int, list[tuple[Intervals, ...]]]:
    """For every device the blocks that it holds, each an entry of intervals for every axis (S1.12)."""
    per_axis = [cut_blocks(placement.cut(a), n) for a, n in enumerate(shape)]
    blocks: dict[int, list[tuple[Intervals, ...]]] = {}
    for index, holders in zip(placement.indices(), placement.holders, strict=True):
        padded = (*index, *(0,) * (len(shape) - len(index)))
        block = tuple(per_axis[a][i] for a, i in enumerate(padded))
        for device in members(holders):
            blocks.setdefault(device, []).append(block)
    return dict(sorted(blocks.items()))


# -- from and to specs -------------------------------------------------------------------------------------------------


def placement_of(spec: ShardingSpec, dims: Sequence[Dim]) -> Placement:
    """What a spec without faults means for a tensor of these dimensions (S1.10, S1.11).

    Without a cut axis, all devices that the spec lists hold the whole tensor.
    """
    groups = {key: device_set(devices) for key, devices in spec.groups}
    holders = [groups[d] if d in groups else 1 << d for d in spec.device]
    rank = len(dims)
    if not spec.dims:
        return replicated(union(holders))
    axes = [(d.axis or 0) % rank for d in spec.dims]
    cuts: list[Cut] = [()] * rank
    for axis, dim in zip(axes, spec.dims, strict=True):
        cuts[axis] = canonical_cut(_sized(dim.parts, dims[axis]), dims[axis])
    counts = [d.shards for d in spec.dims]
    strides = [prod(counts[i + 1 :]) for i in range(len(counts))]
    ascending = sorted(range(len(axes)), key=lambda i: axes[i])
    ordered = [
        holders[sum(i * strides[at] for i, at in zip(index, ascending, strict=True))]
        for index in product(*(range(counts[at]) for at in ascending))
    ]
    return Placement(tuple(cuts), tuple(ordered))


def _sized(parts: Sequence[Part], size: Dim) -> list[tuple[Dim, int]]:
    """The parts of a cut with their sizes; a size that is left out follows from the others."""
    known = [p.size for p in parts if isinstance(p.size, int)]
    missing = [i for i, p in enumerate(parts) if not isinstance(p.size, int)]
    sizes: list[tuple[Dim, int]] = [(p.size, p.shards or 1) for p in parts]
    if len(missing) == 1 and isinstance(size, int) and prod(known) and size % prod(known) == 0:
        sizes[missing[0]] = (size // prod(known), sizes[missing[0]][1])
    return sizes


def spec_of(placement: Placement, tensor: str, dims: Sequence[Dim] = ()) -> ShardingSpec:
    """The spec in its plainest form: axes ascending, groups -1, -2, ... in order of first use.

    dims: sizes to write; without them those that the cuts have.
    """
    keys: dict[int, int] = {}
    device = []
    for holders in placement.holders:
        if holders & (holders - 1):
            device.append(keys.setdefault(holders, -1 - len(keys)))
        else:
            device.append(holders.bit_length() - 1)
    cut_axes = []
    for axis, cut in enumerate(placement.cuts):
        if cut:
            parts = ((dims[axis] if axis < len(dims) else cut[0][0], cut[0][1]),) if len(cut) == 1 else cut
            cut_axes.append(ShardedDim(axis, tuple(Part(m, n) for n, m in parts)))
    groups = tuple((key, members(holders)) for holders, key in keys.items())
    return ShardingSpec(tensor, tuple(device), groups, tuple(cut_axes))
