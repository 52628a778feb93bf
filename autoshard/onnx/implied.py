"""The communication that annotations imply (S1.1): inputs are brought where a node wants them, partial results are
combined, and outputs are brought where they are kept.

Bytes are those that all devices together receive: for a reshard exactly what devices lack; for reductions the volume of
a ring, 2 (n - 1) times the block for an all-reduce among n, (n - 1) times for a reduce-scatter.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from autoshard.onnx.check import chosen_configurations, require_sound
from autoshard.onnx.files import ModelFile
from autoshard.onnx.graph import ValueType
from autoshard.onnx.placement import Intervals, Placement, cut_blocks, members, union
from autoshard.onnx.walk import Use, Visit, Walk
from autoshard.program.types import dtype_bytes

SLICE = "slice"
"""Every device has what it needs already, and more."""


@dataclass(frozen=True, slots=True)
class Transfer:
    """One communication. end: ``in`` or ``out`` of the node. combine: how the partial results of a reduction combine.

    bytes: what all devices together receive; None where shape or element type is not known.
    """

    configuration: str
    scope: str
    node: str
    end: str
    tensor: str
    kind: str
    devices: tuple[int, ...]
    bytes: float | None
    combine: str = ""


def implied(model: ModelFile, *, configuration: str | None = None) -> tuple[Transfer, ...]:
    """The communication at both ends of every node, in the order of execution; `InputError` for faulty annotations."""
    require_sound(model, configuration)
    transfers: list[Transfer] = []
    for each in chosen_configurations(model, configuration):
        for visit in Walk(model, each).run():
            for use in visit.inputs:
                transfers += _moved(visit, use, "in", each.name or "")
            for at, use in enumerate(visit.outputs):
                reduced = _combined(visit, use, each.name or "") if at == 0 else []
                transfers += reduced
                if not any(t.kind == "reduce-scatter" for t in reduced):
                    transfers += _moved(visit, use, "out", each.name or "")
    return tuple(transfers)


def _moved(visit: Visit, use: Use, end: str, configuration: str) -> list[Transfer]:
    if use.kept is None or use.placed is None or use.kept == use.placed:
        return []
    kind = visit.type(use.tensor)
    elements = missing_elements(use.kept, use.placed, kind)
    devices = members(use.kept.devices | use.placed.devices)
    size = None if elements is None or kind.dtype == "?" else elements * dtype_bytes(kind.dtype)
    name = kind_of(use.kept, use.placed) if elements is None or elements else SLICE
    return [Transfer(configuration, visit.scope, visit.name, end, use.tensor, name, devices, size)]


def _combined(visit: Visit, use: Use, configuration: str) -> list[Transfer]:
    """The all-reduce or reduce-scatter of a node whose reduced axes are cut."""
    terms, rule = visit.outcome.terms, visit.rule
    if rule is None or use.kept is None or all(len(set(sets)) == 1 for sets in terms):
        return []
    kind = visit.type(use.tensor)
    scattered = use.placed is not None and _is_finer(use.kept, use.placed)
    total: float | None = 0.0
    for index, sets in zip(use.kept.indices(), terms, strict=True):
        block = _block_elements(use.kept, index, kind)
        if block is None or kind.dtype == "?" or total is None:
            total = None
            continue
        share = union(sets).bit_count() * (len(sets) - 1) / len(sets)
        total += (1 if scattered else 2) * share * block * dtype_bytes(kind.dtype)
    name = "reduce-scatter" if scattered else "all-reduce"
    devices = members(union(d for sets in terms for d in sets))
    return [Transfer(configuration, visit.scope, visit.name, "out", use.tensor, name, devices, total, rule.combine)]


def _is_finer(kept: Placement, placed: Placement) -> bool:
    """Whether every device keeps a part of its own block, so that the sum can be reduce-scattered."""
    if placed.devices & ~kept.devices or len(placed.holders) <= len(kept.holders):
        return False
    for axis, cut in enumerate(kept.cuts):
        if cut and placed.counts[axis] % kept.counts[axis]:
            return False
    ratio = [placed.counts[a] // kept.counts[a] if a < len(kept.counts) else n for a, n in enumerate(placed.counts)]
    return all(
        not holders & ~kept.at([i // r for i, r in zip(index, ratio, strict=True)])
        for index, holders in zip(placed.indices(), placed.holders, strict=True)
    )


def kind_of(kept: Placement, placed: Placement) -> str:
    """The kind of collective that changes one placement into another."""
    axes = range(max(len(kept.cuts), len(placed.cuts)))
    dropped = [a for a in axes if kept.cut(a) and not placed.cut(a)]
    gained = [a for a in axes if placed.cut(a) and not kept.cut(a)]
    changed = [a for a in axes if kept.cut(a) and placed.cut(a) and kept.cut(a) != placed.cut(a)]
    if dropped and gained:
        return "all-to-all"
    if changed or (dropped and placed.devices & ~kept.devices):
        return "reshard"
    if dropped:
        return "all-gather"
    if gained:
        return "scatter"
    more = all(not old & ~new for old, new in zip(kept.holders, placed.holders, strict=True))
    return "broadcast" if more else "permute"


def missing_elements(kept: Placement, placed: Placement, kind: ValueType) -> int | None:
    """How many elements devices lack for the second placement when they have the first; None for unknown sizes."""
    shape = kind.shape
    if shape is None:
        return None
    old, new = _blocks(kept, shape), _blocks(placed, shape)
    has: dict[int, list[int]] = {}
    for at, holders in enumerate(kept.holders):
        for device in members(holders & placed.devices):
            has.setdefault(device, []).append(at)
    common: dict[tuple[int, int], int] = {}
    total = 0
    for at, holders in enumerate(placed.holders):
        size = prod(_length(axis) for axis in new[at])
        for device in members(holders):
            for have in has.get(device, ()):
                if (at, have) not in common:
                    common[at, have] = prod(_overlap(a, b) for a, b in zip(new[at], old[have], strict=True))
            total += size - sum(common[at, have] for have in has.get(device, ()))
    return total


def _blocks(placement: Placement, shape: Sequence[int]) -> list[tuple[Intervals, ...]]:
    per_axis = [cut_blocks(placement.cut(a), n) for a, n in enumerate(shape)]
    blocks = []
    for index in placement.indices():
        padded = (*index, *(0,) * (len(shape) - len(index)))
        blocks.append(tuple(per_axis[a][i] for a, i in enumerate(padded)))
    return blocks


def _block_elements(placement: Placement, index: Sequence[int], kind: ValueType) -> int | None:
    shape = kind.shape
    if shape is None:
        return None
    return prod(
        _length(cut_blocks(placement.cut(a), n)[index[a] if a < len(index) else 0]) for a, n in enumerate(shape)
    )


def _length(intervals: Intervals) -> int:
    return sum(high - low for low, high in intervals)


def _overlap(a: Intervals, b: Intervals) -> int:
    total = i = j = 0
    while i < len(a) and j < len(b):
        total += max(0, min(a[i][1], b[j][1]) - max(a[i][0], b[j][0]))
        if a[i][1] < b[j][1]:
            i += 1
        else:
            j += 1
    return total
