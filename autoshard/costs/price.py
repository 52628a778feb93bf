"""The price of a schedule: every op and every step of it, one row each."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from math import inf

import numpy as np

from autoshard.costs.border import border_cuts, stored_layout
from autoshard.costs.fusion import Fusion
from autoshard.costs.host import KINDS, TO_DEVICE, TO_HOST, brought, output_layout, sent
from autoshard.costs.manual import body_trips, manual_collectives, manual_compute_s
from autoshard.costs.orders import order_permutes
from autoshard.costs.pricing import StepPrices, given_bytes, step_bytes
from autoshard.costs.roofline import op_seconds
from autoshard.program.program import Block, Program
from autoshard.program.schedule import PROGRAM, Schedule
from autoshard.program.types import dtype_bytes
from autoshard.sharding.layout import Layout
from autoshard.sharding.steps import Reshard, StepKind


class When(StrEnum):
    """When a row of the price happens, as `lowering` has it."""

    SHARED = "shared"  # before the first use of its value in the block that defines it
    BEFORE = "before"  # right before its op
    INSIDE = "inside"  # in the body of its op, a user's shard_map
    AFTER = "after"  # right after its op
    BODY = "body"  # when the body of its op hands back
    START = "start"  # when the program begins
    END = "end"  # when the program ends


@dataclass(frozen=True, slots=True)
class CommRow:
    """One step of a reshard (or one all-reduce inside an op), executed `times` per program step.

    where: for people; value: what moves; bytes: local bytes on the gathered side (what the price is
    proportional to); seconds: of one execution. region: whose body hands back, where `when` says so. behind: seconds of
    the matmuls that use what is gathered, over `seconds` (`Travel.behind`).
    """

    where: str
    value: int
    kind: str
    atoms: tuple[int, ...]
    dim: int
    to_dim: int
    bytes: float
    seconds: float
    times: float
    op: int
    when: When
    region: int = -1
    behind: float = inf

    @property
    def is_collective(self) -> bool:
        """Whether devices exchange data; False for slices, masks and copies from or to the host."""
        return self.kind not in (StepKind.SLICE, StepKind.MASK, *KINDS)


@dataclass(frozen=True, slots=True)
class PlanCost:
    """compute_s, communication_s and local_s of a whole program step; nothing overlaps.

    local_s: slices, masks, and copies from and to the host.
    """

    compute_s: float
    communication_s: float
    local_s: float
    rows: tuple[CommRow, ...]
    op_seconds: dict[int, float]  # op id -> seconds per step, its executions included

    @property
    def step_s(self) -> float:
        """Seconds of one program step where nothing overlaps."""
        return self.compute_s + self.communication_s + self.local_s


def multiplicities(program: Program, trips: int = 1) -> dict[int, float]:
    """op id -> executions per program step: the product of the trip counts around it."""
    out: dict[int, float] = {}

    def visit(block: Block, weight: float) -> None:
        for op in block.ops:
            out[op.id] = weight
            for index, region in enumerate(op.regions if op.kind != "shard_map" else ()):
                visit(region, weight * body_trips(op, index, trips))

    visit(program.body, 1.0)
    return out


def price(program: Program, schedule: Schedule, fusion: Fusion, prices: StepPrices, trips: int = 1) -> PlanCost:
    """Price a schedule by itself, without the network it came from."""
    times = multiplicities(program, trips)
    rows = list(_rows(program, schedule, prices, times, trips))
    compute: dict[int, float] = {}
    for op_id, placement in schedule.placements.items():
        op = program.ops[op_id]
        shards = np.array([[schedule.mesh.size(f) for f in placement.factors]], np.int64).reshape(1, -1)
        compute[op_id] = float(op_seconds(op, program, shards, fusion, prices)[0]) * times[op_id]
    for op, outer in program.walk():
        if op.kind == "shard_map" and not any(o.kind == "shard_map" for o in outer):
            compute[op.id] = manual_compute_s(op, program, fusion, prices, trips) * times[op.id]
    return PlanCost(
        sum(compute.values()),
        sum(r.seconds * r.times for r in rows if r.is_collective),
        sum(r.seconds * r.times for r in rows if not r.is_collective),
        tuple(rows),
        compute,
    )


def _rows(
    program: Program, schedule: Schedule, prices: StepPrices, times: dict[int, float], trips: int
) -> Iterator[CommRow]:
    owner, block_times = _block_times(program, trips)
    for value, reshard in schedule.shared.items():
        label = f"{program.values[value].name} for all its uses"
        yield from _steps(
            program, schedule, prices, value, reshard, label, block_times[owner[value]], PROGRAM, When.SHARED
        )
    for use, reshard in schedule.uses.items():
        value = use.value_in(program)
        if schedule.is_as_defined(value, reshard):
            continue
        if use.op == PROGRAM:
            label, weight = f"output {program.output_names[use.slot]}", 1.0
        else:
            op = program.ops[use.op]
            label = (
                f"{op.kind}:{op.id} operand {use.slot}"
                if use.region < 0
                else f"{op.kind}:{op.id} body result {use.slot}"
            )
            weight = times[use.op] * (body_trips(op, use.region, trips) if use.region >= 0 else 1)
        when = When.END if use.op == PROGRAM else When.BEFORE if use.region < 0 else When.BODY
        yield from _steps(program, schedule, prices, value, reshard, label, weight, use.op, when, use.region)
    for op, outer in program.walk():
        if op.kind == "shard_map" and not any(o.kind == "shard_map" for o in outer):
            for row in manual_collectives(op, program, prices, trips):
                label = f"{row.op.kind}:{row.op.id} of the program's own shard_map"
                weight = row.times * times[op.id]
                yield CommRow(
                    label, row.value, row.kind, row.atoms, -1, -1, row.bytes, row.seconds, weight, row.op.id,
                    When.INSIDE,
                )  # fmt: skip
    for value in brought(program):
        stored = stored_layout(program, schedule.mesh, value, schedule.definitions[value])
        size = _local_bytes(program, schedule, value, stored)
        label = f"{program.values[value].name} from the host"
        seconds = prices.machine.host_copy_s(size)
        yield CommRow(label, value, TO_DEVICE, (), -1, -1, size, seconds, 1.0, PROGRAM, When.START)
    for value, cut in border_cuts(program, schedule).items():
        label = f"{program.values[value].name}, its block"
        yield from _steps(program, schedule, prices, value, cut, label, 1.0, PROGRAM, When.START)
    for slot in sent(program):
        value = program.body.results[slot]
        size = _local_bytes(program, schedule, value, output_layout(schedule, slot))
        label = f"output {program.output_names[slot]} to the host"
        seconds = prices.machine.host_copy_s(size)
        yield CommRow(label, value, TO_HOST, (), -1, -1, size, seconds, 1.0, PROGRAM, When.END)
    for p in order_permutes(program, schedule.mesh, prices):
        weight = block_times[owner[p.value]] if p.order.where == "value" else 1.0
        when = {"input": When.START, "output": When.END}.get(p.order.where, When.SHARED)
        yield CommRow(p.label, p.value, "permute", p.atoms, -1, -1, p.bytes, p.seconds, weight, PROGRAM, when)
    for op_id, placement in schedule.placements.items():
        op = program.ops[op_id]
        assert op.rule is not None
        for exchange in placement.exchanges(op.rule, schedule.mesh):
            value = op.operands[exchange.operand]
            type_, layout = program.type_of(value), placement.operand(op.rule, exchange.operand)
            size = exchange.elements(layout.local_shape(type_.shape, schedule.mesh)) * dtype_bytes(type_.dtype)
            seconds = prices.step_s(StepKind.PERMUTE, exchange.atoms, size, size)
            what = "exchanges edges with neighbours" if exchange.shift else "moves what it keeps to where it belongs"
            label = f"{op.kind}:{op.id} {what}"
            yield CommRow(
                label, value, "permute", exchange.atoms, exchange.dim, -1, size, seconds, times[op_id], op_id,
                When.BEFORE,
            )  # fmt: skip
        atoms = placement.combine_atoms(op.rule)
        for k, result in enumerate(op.results) if atoms else ():
            held = _local_bytes(program, schedule, result, placement.result(op.rule, k))
            seconds = prices.step_s(StepKind.ALL_REDUCE, atoms, held, held)
            label = f"{op.kind}:{op.id} combines its result ({op.rule.combiner})"
            yield CommRow(
                label, result, "all_reduce", atoms, -1, -1, held, seconds, times[op_id], op_id, When.AFTER
            )  # fmt: skip


def _steps(
    program: Program,
    schedule: Schedule,
    prices: StepPrices,
    value: int,
    reshard: Reshard,
    label: str,
    weight: float,
    op: int,
    when: When,
    region: int = -1,
) -> Iterator[CommRow]:
    layout = reshard.source
    before = _local_bytes(program, schedule, value, layout)
    travel = prices.travel(value, op, program, when is When.SHARED and value in schedule.as_used)
    shape, mesh = program.type_of(value).shape, schedule.mesh
    for step in reshard.steps:
        ahead, layout = layout, step.apply(layout)
        after = _local_bytes(program, schedule, value, layout)
        if step.kind is StepKind.ALL_TO_ALL:
            split, piece = (form.local_shape(shape, mesh)[step.to_dim] for form in (ahead, layout))
            before = float(given_bytes(before, split, piece, mesh.size(step.atoms)))
        share = travel.share(step.kind)
        size = float(step_bytes(step.kind, before, after, schedule.mesh.size(step.atoms))) * share
        kind = prices.compiled(step, program.type_of(value), layout)
        seconds = prices.step_s(kind, step.atoms, before * share, after * share, travel.latency(kind))
        behind = travel.behind(step.kind, schedule.mesh.size(step.atoms), prices.constants(step.kind, step.atoms)[1])
        yield CommRow(
            label, value, step.kind.value, step.atoms, step.dim, step.to_dim,
            size, seconds, weight, op, when, region, behind,
        )  # fmt: skip
        before = after


def _local_bytes(program: Program, schedule: Schedule, value: int, layout: Layout) -> float:
    type_ = program.type_of(value)
    local = float(np.prod(layout.local_shape(type_.shape, schedule.mesh), dtype=float))
    return local * (type_.bytes / max(1, type_.elements))


def _block_times(program: Program, trips: int) -> tuple[dict[int, int], list[float]]:
    """For every value the index of the block that defines it, and how often each block runs."""
    owner: dict[int, int] = {}
    times: list[float] = []

    def visit(block: Block, weight: float) -> None:
        index = len(times)
        times.append(weight)
        owner.update(dict.fromkeys(block.args, index))
        for op in block.ops:
            owner.update(dict.fromkeys(op.results, index))
            for number, region in enumerate(op.regions if op.kind != "shard_map" else ()):
                visit(region, weight * body_trips(op, number, trips))

    visit(program.body, 1.0)
    return owner, times
