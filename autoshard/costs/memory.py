"""Peak memory of a schedule: what one device holds at every point of the program.

Definitions, copies shared by all uses and copies for one use are held as `liveness` says; inputs as JAX has them, and
beside uneven ones the blocks that are cut out of them (`border`). On machines whose memory is tiled, arrays take whole
tiles.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import ceil, prod
from typing import Any, Final

import numpy as np

from autoshard.costmodels.machine import Machine
from autoshard.costs.border import stored_layout
from autoshard.costs.conversions import narrowed_bytes, share_of_form
from autoshard.costs.host import held_on_host, output_layout
from autoshard.costs.liveness import Liveness, analyse
from autoshard.costs.loop_orders import turned_arrays
from autoshard.costs.padding import Tile, image_dims, padded_elements
from autoshard.program.program import Origin, OtherOrder, Program
from autoshard.program.schedule import PROGRAM, Schedule, Use
from autoshard.program.ties import reused_inputs
from autoshard.sharding.layout import AtomMesh, Layout


@dataclass(frozen=True, slots=True)
class Held:
    """`bytes` held on one device from time `start` up to, not including, `stop`.

    value: its id; copy: whether it is a copy that a reshard makes, not the definition.
    """

    what: str
    start: int
    stop: int
    bytes: int
    value: int
    copy: bool


HEADROOM = 0.15
"""Share of the predicted peak that is kept free for the compiler: holes in its heap, and errors of the prediction.

In the programs of docs/memory.md the TPU compiler allocates at most 12% more than the peak.
"""
_HEADROOMS: Final[Mapping[str | None, float]] = {None: HEADROOM, "gpu": 0.25}
"""By the rules of memory. XLA for GPUs took at most 24% more in 42 programs, ragged matmuls apart."""


def headroom(machine: Machine) -> float:
    """The share of a predicted peak that is kept free on a machine."""
    return _HEADROOMS[machine.profile.memory_rules]


@dataclass(frozen=True, slots=True)
class MemoryProfile:
    """The peak of one device: its bytes, its time and place (an op's label), and what is held then, largest first.

    host_bytes: bytes that the host holds for one device, between calls and during them. headroom: the share of the peak
    that is kept free for the compiler.
    """

    peak_bytes: int
    time: int
    where: str
    held: tuple[Held, ...]
    host_bytes: int = 0
    headroom: float = HEADROOM

    @property
    def allocation_bytes(self) -> int:
        """Bytes that a device should have for the plan: the peak with the headroom."""
        return ceil(self.peak_bytes * (1 + self.headroom))

    def fits(self, memory_bytes: float) -> bool:
        """Whether so many bytes have room for the peak with the headroom."""
        return self.allocation_bytes <= memory_bytes


MOST_ON_GPUS = 2.3
"""So many times the peak by the TPU compiler's rules did XLA for GPUs hold at most, of 28 programs."""
MOST_WITH_RAGGED = 1.6
"""So many times the peak by its own rules where matmuls are ragged: it makes a copy of the rows for every expert."""
_OTHER_COMPILERS = frozenset({"nvidia", "amd"})


def room(usable_bytes: float, headroom: float = HEADROOM) -> int:
    """The largest peak that fits so many usable bytes with its headroom.

    >>> room(115), room(114), room(115, 0.25)
    (100, 99, 92)
    """
    peak = int(usable_bytes / (1 + headroom)) + 1
    while ceil(peak * (1 + headroom)) > usable_bytes:
        peak -= 1
    return peak


def doubts(program: Program, memory: MemoryProfile, machine: Machine, limit: int | None) -> tuple[str, ...]:
    """A note where a plan may hold more than it says, and that may matter. limit: the plan's bytes; None: lifted."""
    profile, most = machine.profile, machine.usable_bytes if limit is None else limit
    if profile.memory_rules is not None:
        ragged = any(op.kind.startswith("ragged_dot") for op, _ in program.walk())
        times = MOST_WITH_RAGGED if ragged else 1 + headroom(machine)
        told = f"XLA for GPUs holds it; it held up to {times - 1:.0%} more{' with ragged matmuls' if ragged else ''}"
    elif profile.vendor in _OTHER_COMPILERS:
        times = MOST_ON_GPUS
        told = f"the TPU compiler holds it; XLA for GPUs held up to {times:g} times as much"
    else:
        return ()
    if memory.peak_bytes * times <= most:
        return ()
    return (
        f"memory is counted as {told} (docs/memory.md#on-gpus): `autoshard simulate` says what the compiled program of "
        "this plan holds",
    )


def verdict(memory: MemoryProfile, device_bytes: float, usable_bytes: float) -> dict[str, Any]:
    """Whether a plan fits a device, as plain data.

    device_bytes: of the device. usable_bytes: those that the runtime leaves to programs. allocation_bytes: those that
    the compiler may allocate. fits: whether the usable bytes have room for these.
    """
    return {
        "device_bytes": int(device_bytes),
        "usable_bytes": int(usable_bytes),
        "allocation_bytes": memory.allocation_bytes,
        "fits": memory.fits(usable_bytes),
    }


def simulate(program: Program, schedule: Schedule, liveness: Liveness, tile: Tile | None = None) -> MemoryProfile:
    """Everything held, and its peak. liveness: of the program under any schedule; tile: of the machine's memory."""
    held = holdings(program, schedule, liveness, tile)
    total = live_bytes(held, liveness)
    time = int(np.argmax(total))
    where = place_of(program, liveness, time)
    there = sorted((h for h in held if h.start <= time < h.stop and h.bytes), key=lambda h: (-h.bytes, h.what))
    share = _HEADROOMS[None if liveness.fusion.calls is None else "gpu"]
    return MemoryProfile(int(total[time]), time, where, tuple(there), host_bytes(program, schedule), share)


def live_bytes(held: Iterable[Held], liveness: Liveness) -> np.ndarray:
    """Bytes that one device holds at every moment."""
    delta = np.zeros(liveness.points + 2, np.int64)
    for item in held:
        delta[item.start] += item.bytes
        delta[item.stop] -= item.bytes
    return np.cumsum(delta)


def place_of(program: Program, liveness: Liveness, time: int) -> str:
    """The op that runs at a moment, with its source, for people."""
    running = max((op for op, at in liveness.time.items() if at <= time), key=liveness.time.__getitem__, default=None)
    if running is None:
        return "the start"
    op = program.ops[running]
    return f"{op.kind}:{op.id} {op.source}".strip()


def host_bytes(program: Program, schedule: Schedule) -> int:
    """Bytes in host memory for one device; see `autoshard.costs.host`."""
    if not (program.host_inputs or program.host_outputs):
        return 0
    size = sizes(program, schedule.mesh)
    inputs, slots = held_on_host(program)
    stored = (stored_layout(program, schedule.mesh, v, schedule.definitions[v]) for v in inputs)
    return sum(size(v, layout) for v, layout in zip(inputs, stored, strict=True)) + sum(
        size(program.body.results[k], output_layout(schedule, k)) for k in slots
    )


def sizes(
    program: Program, mesh: AtomMesh, tile: Tile | None = None, twice: frozenset[int] = frozenset()
) -> Callable[[int, Layout], int]:
    """(value, layout) -> bytes that one device's block takes. twice: values held in two orders."""
    known: dict[tuple[int, Layout], int] = {}
    images = {} if tile is None else image_dims(program)

    def size(value: int, layout: Layout) -> int:
        size_bytes = known.get((value, layout))
        if size_bytes is None:
            type_ = program.type_of(value)
            local = layout.local_shape(type_.shape, mesh)
            elements = (
                prod(local) if tile is None or value not in images else padded_elements(local, images[value], tile)
            )
            size_bytes = ceil(elements * (type_.bytes / max(1, type_.elements))) * (2 if value in twice else 1)
            known[value, layout] = size_bytes
        return size_bytes

    return size


def holdings(program: Program, schedule: Schedule, liveness: Liveness, tile: Tile | None = None) -> list[Held]:
    """Everything that one device holds at some time; liveness: of the program under any schedule."""
    size = sizes(program, schedule.mesh, tile, liveness.fusion.twice)
    live = analyse(program, liveness.fusion, schedule, size)
    out: list[Held] = []

    def add(
        what: str, span: tuple[int, int], value: int, layout: Layout, copy: bool = True, share: float = 1.0
    ) -> None:
        if span[0] < span[1]:
            out.append(Held(what, *span, narrowed_bytes(size(value, layout), share), value, copy))

    inputs = frozenset(program.body.args)
    for value, span in live.interval.items():
        if value in schedule.definitions:
            layout = schedule.definitions[value]
            held = stored_layout(program, schedule.mesh, value, layout) if value in inputs else layout
            add(program.values[value].name, span, value, held, copy=False)
    for value, span in live.cut.items():
        add(f"{program.values[value].name}, its block", span, value, schedule.definitions[value])
    for value, span in live.shared.items():
        share = share_of_form(schedule, value, liveness.fusion.narrowed)
        label = f"{program.values[value].name}, resharded for all its uses"
        add(label, span, value, schedule.shared[value].target, share=share)
    for use, span in live.private.items():
        value = use.value_in(program)
        output = use.op == PROGRAM
        reader = f"output {program.output_names[use.slot]}" if output else f"{program.ops[use.op].kind}:{use.op}"
        add(f"{program.values[value].name}, resharded for {reader}", span, value, schedule.uses[use].target)
    for slot, is_input in returned_again(program):
        value, use = program.body.results[slot], Use(PROGRAM, slot)
        if use not in live.private and not (is_input and value in live.shared):
            span, reshard = (live.points - 1, live.points), schedule.uses.get(use)
            form = schedule.definitions[value] if reshard is None else reshard.target
            label = f"{program.values[value].name}, copied for output {program.output_names[slot]}"
            add(label, span, value, form)
    for order in program.orders:
        _add_order(program, schedule, live, order, add)
    for turned in turned_arrays(program, liveness.fusion):
        layout = schedule.definitions[turned.value]
        moved = turned.use in live.private or turned.value in live.shared
        if not moved and turned.is_turned(layout, schedule.mesh):
            add(turned.name(program), turned.span(live.points, live.span), turned.value, layout)
    return out


def returned_again(program: Program) -> list[tuple[int, bool]]:
    """Output slots whose array stays all the same, so that a compiler returns a copy, and whether it is an input's.

    The caller keeps an input that is not donated; what several outputs return is theirs once. Outputs on the host and
    in another order of the devices are copies anyway, and so are those that move.
    """
    apart = {*program.host_outputs, *(o.index for o in program.orders if o.where == "output")}
    free = {*program.donated, *program.host_inputs}
    inputs = {value for k, value in enumerate(program.body.args) if k not in free}
    returned: set[int] = set()
    out: list[tuple[int, bool]] = []
    for slot, value in enumerate(program.body.results):
        if slot in apart or program.values[value].origin is Origin.LITERAL:
            continue
        if value in inputs or value in returned:
            out.append((slot, value not in returned))
        returned.add(value)
    return out


def _add_order(
    program: Program, schedule: Schedule, live: Liveness, order: OtherOrder, add: Callable[..., None]
) -> None:
    """The copy that a permute to or from another order of the devices makes.

    Inside of the program the copy lasts until the value is back. An input that the caller keeps is held beside its
    copy, until the copy has its last reader or moves on; a donated input is freed. An output's copy is held at the end.
    """
    if order.where == "output":
        value, end = program.body.results[order.index], live.points - 1
        name = f"output {program.output_names[order.index]}"
        add(f"{name}, in its order of devices", (end, end + 1), value, output_layout(schedule, order.index))
        return
    value = program.body.args[order.index] if order.where == "input" else order.index
    if value not in live.reads:
        return
    first, last = live.reads[value]
    name = program.values[value].name
    if order.where == "value":
        if value in schedule.shared:
            at, form = first, schedule.shared[value].target
        else:  # the copy is made at once
            at, form = live.interval.get(value, (first, last))[0], schedule.definitions[value]
        add(f"{name}, in its order of devices", (at, at + 1), value, form)
        return
    freed = order.index in reused_inputs(program) and value not in program.body.results
    brief = freed or order.index in program.host_inputs or value in live.shared
    stop = first + 1 if brief else last + 1
    add(f"{name}, from its order of devices", (first, stop), value, schedule.definitions[value])
