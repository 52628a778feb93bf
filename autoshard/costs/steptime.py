"""How long a step takes: a lower and an upper bound, an estimate between them, and how much of the machine it uses.

- lower: everything overlaps. The busiest of: matrix unit, vector unit, memory (each at its peak rate), and every link,
  whose collectives take turns (`Machine.link_seconds`). Latencies are left out.
- upper: nothing overlaps. The sum of all ops, copies and collectives; the solver minimises it.
- estimate: work and copies one after another, plus the share of each collective that is not hidden. The profile says
  what share of each kind overlaps with other work; a collective between two matmuls (`critical.py`) is waited for.
  An estimate is never below the lower bound. The objective *overlap* minimises the greater of this sum (`waited_s`) and
  of what each link works (`overlap_s`).
- likely: the estimate with matmuls at the shares of the peak that training runs reach on this machine, the same that
  `autoshard cost --model` takes: `matmul_efficiency`, and `attention_efficiency` for attention's (`is_batched_matmul`).
  On a machine without such shares it is the estimate, and where prices have shares already (`compiled_work`).

MFU is model FLOP / (peak * devices * seconds); HFU the same with the FLOP that the devices really execute in matmuls:
recomputation, padding and work that several devices repeat included (PaLM, arXiv 2204.02311, appendix B). The peak is
that of the type that most of the matmul work is done in.

The *arithmetic intensity* of a group of collectives is the matmul FLOP of one device in the whole step over the bytes
of the group (V of each, twice for all-reduces: two passes), as in MaxText's sharding guide. The machine's ratio is
peak times the links' seconds per byte; the step is compute bound for this group iff its own ratio is larger.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from autoshard.costmodels.machine import AxisPart, Machine
from autoshard.costs.copied import copied_bytes
from autoshard.costs.critical import Role, matmul_order
from autoshard.costs.exposure import hidden_share, link_work
from autoshard.costs.fusion import Fusion
from autoshard.costs.host import KINDS as HOST_KINDS
from autoshard.costs.manual import body_trips, devices_apart
from autoshard.costs.price import CommRow, PlanCost, multiplicities
from autoshard.costs.pricing import StepPrices
from autoshard.costs.roofline import local_bytes
from autoshard.costs.work import (
    dtype_of_work,
    is_batched_matmul,
    is_matmul,
    kernel_vector_flops,
    local_flops,
    local_sizes,
)
from autoshard.program.program import Block, Op, Origin, Program
from autoshard.program.schedule import Schedule
from autoshard.sharding.layout import AtomMesh
from autoshard.sharding.steps import StepKind

NO_LINKS = ("matrix unit", "vector unit", "memory", "host link")
"""Parts of the machine that no collective uses."""
PASSES = {"all_reduce": 2}
"""Passes of a kind of collective over the array; an all-reduce is a reduce-scatter and an all-gather."""


@dataclass(frozen=True, slots=True)
class Flip:
    """The size at which a group turns from communication bound to compute bound, to first order with the plan as it is.

    quantity: what to change. now: its size; None where the program does not say. at: the size at which both are equal.
    more_is_compute: whether the step is compute bound above that size. factor: at / now.
    """

    quantity: str
    now: float | None
    at: float | None
    factor: float
    more_is_compute: bool


@dataclass(frozen=True, slots=True)
class GroupIntensity:
    """All collectives of one kind over the same axes that move the same sort of value.

    bytes: V of all of them in a step, as seen inside one group. seconds: of all of them. hidden: the share of these
    seconds that overlaps with other work in the estimate. flops_per_byte: the arithmetic intensity (see the module).
    """

    kind: str
    axes: str
    moves: str
    times: float
    bytes: float
    seconds: float
    hidden: float
    flops_per_byte: float
    machine_flops_per_byte: float
    verdict: str  # "compute" or "communication"
    flip: Flip | None


@dataclass(frozen=True, slots=True)
class StepTime:
    """Seconds of a step and what they are made of.

    waited_s: seconds for which a device waits; what objective *overlap* counts, if no link works for longer.
    resources_s: seconds that each part of the machine is busy (``matrix unit``, ``vector unit``, ``memory``, links).
    bound: the busiest part. mfu, hfu: for the lower, estimated, upper and likely seconds.
    """

    lower_s: float
    estimate_s: float
    upper_s: float
    likely_s: float
    waited_s: float
    bound: str
    resources_s: dict[str, float]
    matmul_flop_per_device: float
    model_flop: float
    hardware_flop: float
    peak_dtype: str
    peak_flop_per_s: float
    mfu: dict[str, float]
    hfu: dict[str, float]
    groups: tuple[GroupIntensity, ...]

    @property
    def overlap_s(self) -> float:
        """Seconds of the step as objective *overlap* counts them."""
        return overlap_s(self.waited_s, self.resources_s)

    def to_dict(self) -> dict[str, Any]:
        """The figures as plain data for plan.json."""
        data = asdict(self)
        data["groups"] = [asdict(g) for g in self.groups]
        return data


def overlap_s(waited_s: float, resources_s: Mapping[str, float]) -> float:
    """What objective *overlap* counts: what a device waits for, or the busiest link where that works for longer."""
    return max(waited_s, *(seconds for name, seconds in resources_s.items() if name not in NO_LINKS), 0.0)


@dataclass(frozen=True, slots=True)
class _Work:
    """Totals of one device in one step."""

    matmul_flop: dict[str, float]  # by dtype
    vector_flop: float
    batched_flop: dict[str, float]  # of `matmul_flop`, that of attention
    moved_bytes: float
    program_flop: float  # matmul work of the whole program, counted once however many devices do it


def step_time(
    program: Program,
    schedule: Schedule,
    machine: Machine,
    cost: PlanCost,
    fusion: Fusion,
    *,
    trips: int = 1,
    model_flop: float | None = None,
    batch: float | None = None,
) -> StepTime:
    """Bounds, estimate, utilisation and intensities of a priced schedule.

    model_flop: useful FLOP of a step; by default that of the program's matmuls, so that recomputation counts as useful.
    batch: tokens (or rows) of a step, for the size at which a verdict flips.
    """
    mesh, profile = schedule.mesh, machine.profile
    work = _work(program, schedule, fusion, machine, trips)
    vector_rate = machine.flops_per_s("float32", "vector")
    copied = sum(2 * r.bytes * r.times for r in cost.rows if not r.is_collective and r.kind not in HOST_KINDS)
    hosted = sum(r.seconds * r.times for r in cost.rows if r.kind in HOST_KINDS)
    resources = {
        "matrix unit": sum(f / machine.flops_per_s(dtype) for dtype, f in work.matmul_flop.items()),
        "vector unit": work.vector_flop / vector_rate,
        "memory": (work.moved_bytes + copied) / profile.memory.bandwidth.value,
        **({"host link": hosted} if hosted else {}),
        **link_work(cost, StepPrices(machine, mesh)),
    }
    order = matmul_order(program)
    groups: dict[tuple[str, str, str], list[CommRow]] = {}
    exposed_s = 0.0
    for row in cost.rows:
        if not row.is_collective:
            continue
        role = order.role(row)
        exposed_s += row.seconds * row.times * (1 - hidden_share(machine, row.kind, role, row.behind))
        groups.setdefault((mesh.axes_text(row.atoms).replace('"', ""), row.kind, role.value), []).append(row)
    upper = cost.step_s
    bound = max(resources, key=lambda name: resources[name])
    lower = min(resources[bound], upper)
    waited = cost.compute_s + cost.local_s + exposed_s
    estimate = max(lower, waited)
    likely = estimate + _slower_s(machine, work)
    local = sum(work.matmul_flop.values())
    dtype = max(work.matmul_flop, key=lambda d: (work.matmul_flop[d], d), default="float32")
    peak = machine.flops_per_s(dtype)
    useful = float(work.program_flop if model_flop is None else model_flop)
    executed = local * machine.num_devices
    seconds = {"lower": lower, "estimate": estimate, "upper": upper, "likely": likely}
    return StepTime(
        lower,
        estimate,
        upper,
        likely,
        waited,
        bound,
        resources,
        local,
        useful,
        executed,
        dtype,
        peak,
        {name: _share(useful, peak * machine.num_devices * s) for name, s in seconds.items()},
        {name: _share(executed, peak * machine.num_devices * s) for name, s in seconds.items()},
        tuple(
            _group(machine, mesh, key, rows, local, peak, batch)
            for key, rows in sorted(groups.items(), key=lambda g: (-sum(r.seconds * r.times for r in g[1]), g[0]))
        ),
    )


def _slower_s(machine: Machine, work: "_Work") -> float:
    """Seconds that the profile's shares of the peak add to the matmuls."""
    matmuls, attention = machine.profile.matmul_efficiency, machine.profile.attention_efficiency
    if matmuls is None or machine.profile.compiled_work is not None:
        return 0.0
    seconds = 0.0
    for dtype, flop in work.matmul_flop.items():
        batched = work.batched_flop.get(dtype, 0.0)
        peak = machine.flops_per_s(dtype)
        seconds += (flop - batched) / peak * (1 / matmuls.value - 1)
        seconds += batched / peak * (1 / (attention or matmuls).value - 1)
    return seconds


def whole_bytes(row: CommRow, mesh: AtomMesh) -> float:
    """V of one collective: the bytes that its price is proportional to, times the group for an all-to-all."""
    return row.bytes * (mesh.size(row.atoms) if row.kind == StepKind.ALL_TO_ALL else 1)


def axis_parts(mesh: AtomMesh, atoms: Sequence[int]) -> tuple[AxisPart, ...]:
    """The (sub-)axes that atoms stand for, as the cost models take them."""
    refs = [(mesh.atoms[a], mesh.sizes[a]) for a in sorted(atoms)]
    return tuple(AxisPart(ref.name, ref.pre_size or 1, size) for ref, size in refs)


def _share(flop: float, possible: float) -> float:
    return flop / possible if possible > 0 else 0.0


def _group(
    machine: Machine,
    mesh: AtomMesh,
    key: tuple[str, str, str],
    rows: Sequence[CommRow],
    local_flop: float,
    peak: float,
    batch: float | None,
) -> GroupIntensity:
    axes, kind, role = key
    passes = PASSES.get(kind, 1)
    amount = sum(whole_bytes(r, mesh) * r.times for r in rows)
    beta = machine.alpha_beta(kind, axis_parts(mesh, rows[0].atoms))[1]
    ratio = local_flop / (passes * amount) if amount else float("inf")
    needed = peak * beta / passes
    finite = np.isfinite(ratio) and ratio > 0
    return GroupIntensity(
        kind,
        axes,
        role,
        sum(r.times for r in rows),
        amount,
        sum(r.seconds * r.times for r in rows),
        _hidden(machine, rows, Role(role)),
        float(ratio) if finite else 0.0,
        needed,
        "compute" if ratio > needed else "communication",
        _flip(role, axes, mesh.size(rows[0].atoms), needed / ratio, batch) if finite and needed > 0 else None,
    )


def _hidden(machine: Machine, rows: Sequence[CommRow], role: Role) -> float:
    """The share of the seconds of rows that overlaps with other work."""
    shares = [hidden_share(machine, r.kind, role, r.behind) for r in rows]
    seconds = [r.seconds * r.times for r in rows]
    if len(set(shares)) == 1 or not sum(seconds):
        return shares[0]
    return sum(share * s for share, s in zip(shares, seconds, strict=True)) / sum(seconds)


def _flip(role: str, axes: str, devices: int, factor: float, batch: float | None) -> Flip:
    """factor: the machine's ratio over that of the step.

    Work grows with the batch; the bytes of weights and gradients do not. The bytes of activations grow with it too, and
    their ratio falls with the number of devices that share a layer: M / |x| of tensor parallelism.
    """
    if role == Role.ACTIVATIONS:
        return Flip(f"devices on {axes}", float(devices), devices / factor, 1 / factor, False)
    return Flip("batch", batch, None if batch is None else batch * factor, factor, True)


def _work(program: Program, schedule: Schedule, fusion: Fusion, machine: Machine, trips: int) -> _Work:
    times = multiplicities(program, trips)
    prices, compiled = StepPrices(machine, schedule.mesh), machine.profile.compiled_work
    matmul: dict[str, float] = {}
    batched: dict[str, float] = {}
    totals = {"vector": 0.0, "bytes": 0.0, "program": 0.0}

    def add(op: Op, shards: np.ndarray, written: Fusion, weight: float, devices: int = 1) -> None:
        assert op.rule is not None
        sizes = local_sizes(op.rule, shards)
        flop = float(local_flops(op, program, sizes)[0]) * weight
        crossing = 1.0 if compiled is None else compiled.traffic(prices.kind_of(op, program))
        totals["bytes"] += float(local_bytes(op, program, sizes, written)[0]) * weight * crossing
        if copies := prices.copied(program).get(op.id):
            totals["bytes"] += float(copied_bytes(op, program, sizes, copies)[0]) * weight
        totals["vector"] += float(kernel_vector_flops(op, sizes)[0]) * weight
        if is_matmul(op):
            dtype = dtype_of_work(op, program)
            matmul[dtype] = matmul.get(dtype, 0.0) + flop
            if is_batched_matmul(op.rule):
                batched[dtype] = batched.get(dtype, 0.0) + flop
            whole = local_sizes(op.rule, np.ones_like(shards))
            totals["program"] += float(local_flops(op, program, whole)[0]) * weight * devices
        else:
            totals["vector"] += flop

    for op_id, placement in schedule.placements.items():
        shards = np.array([[schedule.mesh.size(f) for f in placement.factors]], np.int64).reshape(1, -1)
        add(program.ops[op_id], shards, fusion, times[op_id])
    for op, outer in program.walk():
        if op.kind != "shard_map" or any(o.kind == "shard_map" for o in outer):
            continue
        # The body of a user's shard_map is local already; every one of its tensors counts as held in memory.
        inner = list(_inside(op.regions[0], times[op.id], trips))
        tensors = {v for o, _ in inner for v in (*o.operands, *o.results)}
        devices = devices_apart(op)
        written = Fusion(fusion.materialised | {v for v in tensors if program.values[v].origin is not Origin.LITERAL})
        for body_op, weight in inner:
            if body_op.rule is not None and "collective" not in body_op.attrs:
                shards = np.ones((1, len(body_op.rule.factor_sizes)), np.int64)
                add(body_op, shards, written, weight, devices)
    return _Work(matmul, totals["vector"], batched, totals["bytes"], totals["program"])


def _inside(block: Block, weight: float, trips: int) -> Iterator[tuple[Op, float]]:
    for op in block.ops:
        yield op, weight
        for index, region in enumerate(op.regions):
            yield from _inside(region, weight * body_trips(op, index, trips), trips)
