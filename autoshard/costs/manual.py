"""The cost of the body of a user's `shard_map`: its ops on local types, and the user's own collectives (S2.11)."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

import numpy as np

from autoshard.costs.fusion import Fusion
from autoshard.costs.pricing import StepPrices
from autoshard.costs.roofline import op_seconds
from autoshard.costs.trips import body_trips
from autoshard.program.program import Block, Op, Origin, Program
from autoshard.sharding.axis import AxisRef


@dataclass(frozen=True, slots=True)
class ManualCollective:
    """One collective of the user; it runs `times` per execution of the shard_map."""

    op: Op
    value: int
    kind: str
    atoms: tuple[int, ...]
    bytes: float
    seconds: float
    times: float


def _ops(block: Block, times: float, trips: int) -> Iterator[tuple[Op, float]]:
    for op in block.ops:
        yield op, times
        for index, region in enumerate(op.regions):
            yield from _ops(region, times * body_trips(op, index, trips), trips)


def ops_in_body(op: Op) -> list[Op]:
    """The ops in the body of a shard_map, those in its loops too: the ones that its rows in the price name."""
    return [inner for inner, _ in _ops(op.regions[0], 1.0, 1)]


def devices_apart(op: Op) -> int:
    """How many devices do work of their own in the body of a shard_map: those along the axes that its specs cut by, or
    that its collectives are over. Along other axes devices repeat what they do.
    """
    sides = (*op.attrs["in_names"], *op.attrs["out_names"])
    named = {name for tensor in sides for dim in tensor for name in dim}
    named.update(name for inner in ops_in_body(op) for name in inner.attrs.get("axes", ()))
    return prod(size for name, size in op.attrs["mesh_axes"] if name in named)


def manual_collectives(op: Op, program: Program, prices: StepPrices, trips: int = 1) -> list[ManualCollective]:
    """The collectives in the body of a shard_map, priced on its local types.

    A ragged all-to-all counts as an even one of the smaller one of its operand and its result: how much each device
    sends is known when it runs, and either may be a buffer for the worst case.
    """
    out = []
    for inner, times in _ops(op.regions[0], 1.0, trips):
        kind = inner.attrs.get("collective")
        if kind is None:
            continue
        atoms = tuple(a for name in inner.attrs["axes"] for a in prices.mesh.atoms_for(AxisRef(name)))
        for before, after in zip(inner.sent, inner.results, strict=True):
            held = [program.type_of(v).bytes for v in (before, after)]
            if inner.attrs.get("ragged"):
                held = [min(held)] * 2
            size = held[1] if kind == "all_gather" else held[0]
            seconds = prices.step_s(kind, atoms, *held)
            out.append(ManualCollective(inner, before, kind, atoms, size, seconds, times))
    return out


def manual_compute_s(op: Op, program: Program, fusion: Fusion, prices: StepPrices, trips: int = 1) -> float:
    """Seconds of the ops in the body of a shard_map; its tensors count as materialised."""
    return prices.of_body(op, trips, lambda: _compute_s(op, program, fusion, prices, trips))


def _compute_s(op: Op, program: Program, fusion: Fusion, prices: StepPrices, trips: int) -> float:
    tensors = {v for inner, _ in _ops(op.regions[0], 1.0, trips) for v in (*inner.operands, *inner.results)}
    inside = Fusion(fusion.materialised | {v for v in tensors if program.values[v].origin is not Origin.LITERAL})
    total = 0.0
    for inner, times in _ops(op.regions[0], 1.0, trips):
        if inner.rule is not None and "collective" not in inner.attrs:
            shards = np.ones((1, len(inner.rule.factor_sizes)), np.int64)
            total += float(op_seconds(inner, program, shards, inside, prices)[0]) * times
    return total


__all__ = ["ManualCollective", "body_trips", "devices_apart", "manual_collectives", "manual_compute_s", "ops_in_body"]
