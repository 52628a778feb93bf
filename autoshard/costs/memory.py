"""Peak memory of a schedule: what one device holds at every point of the program.

Definitions and shared copies are held as `liveness` says. A private reshard adds its result while the op that
wants it runs, and for operands of loops (which are read on every trip) for the whole loop; for outputs at the end.
"""

from dataclasses import dataclass
from math import ceil

import numpy as np

from autoshard.costs.liveness import Liveness
from autoshard.costs.price import used_value
from autoshard.program.program import Program
from autoshard.schedule import PROGRAM, Schedule, Use
from autoshard.sharding.layout import Layout


@dataclass(frozen=True, slots=True)
class Held:
    """`bytes` held on one device from time `start` up to, not including, `stop`."""

    what: str
    start: int
    stop: int
    bytes: int


@dataclass(frozen=True, slots=True)
class MemoryProfile:
    """peak_bytes, the time and the place (an op's label) of the peak, and what is held there, largest first."""

    peak_bytes: int
    time: int
    where: str
    held: tuple[Held, ...]


def simulate(program: Program, schedule: Schedule, liveness: Liveness) -> MemoryProfile:
    """Everything held, and its peak."""
    held = _holdings(program, schedule, liveness)
    delta = np.zeros(liveness.points + 2, np.int64)
    for item in held:
        delta[item.start] += item.bytes
        delta[item.stop] -= item.bytes
    live = np.cumsum(delta)
    time = int(np.argmax(live))
    where = "the start"
    for op, _ in program.walk():
        if liveness.time.get(op.id, time + 1) <= time:
            where = f"{op.kind}:{op.id} {op.source}".strip()
        else:
            break
    there = sorted((h for h in held if h.start <= time < h.stop and h.bytes), key=lambda h: (-h.bytes, h.what))
    return MemoryProfile(int(live[time]), time, where, tuple(there))


def _holdings(program: Program, schedule: Schedule, liveness: Liveness) -> list[Held]:
    out: list[Held] = []

    def size(value: int, layout: Layout) -> int:
        type_ = program.type_of(value)
        local = float(np.prod(layout.local_shape(type_.shape, schedule.mesh), dtype=float))
        return ceil(local * (type_.bytes / max(1, type_.elements)))

    def name(value: int) -> str:
        return program.values[value].name

    for value, (start, stop) in liveness.interval.items():
        if value in schedule.definitions and start < stop:
            out.append(Held(name(value), start, stop, size(value, schedule.definitions[value])))
    for op, _ in program.walk():
        if op.kind not in ("scan", "while"):
            continue
        start, last = liveness.span[op.id]
        body = op.regions[-1]
        skip = op.attrs["num_consts"] if op.kind == "scan" else op.attrs["body_nconsts"]
        carries = op.attrs["num_carry"] if op.kind == "scan" else len(op.results)
        kept = body.args[skip : skip + carries] if start + 1 < last else ()
        out += [
            Held(f"{op.kind}:{op.id} carry {name(arg)}", start + 1, last, size(arg, schedule.definitions[arg]))
            for arg in kept
        ]
    for value, reshard in schedule.shared.items():
        first, last = liveness.reads[value]
        out.append(Held(f"{name(value)}, resharded for all its uses", first, last + 1, size(value, reshard.target)))
    for use, reshard in schedule.uses.items():
        if reshard.steps:
            start, stop = _private(program, use, liveness)
            value = used_value(program, use)
            output = use.op == PROGRAM
            reader = f"output {program.output_names[use.slot]}" if output else f"{program.ops[use.op].kind}:{use.op}"
            out.append(Held(f"{name(value)}, resharded for {reader}", start, stop, size(value, reshard.target)))
    return out


def _private(program: Program, use: Use, liveness: Liveness) -> tuple[int, int]:
    if use.op == PROGRAM:  # outputs take their final form after the last op
        return liveness.points - 1, liveness.points
    op = program.ops[use.op]
    start, last = liveness.span[use.op]
    if use.region >= 0:
        return last, last + 1
    if op.regions:
        starts_carry = (op.kind == "scan" and 0 <= use.slot - op.attrs["num_consts"] < op.attrs["num_carry"]) or (
            op.kind == "while" and use.slot >= op.attrs["cond_nconsts"] + op.attrs["body_nconsts"]
        )
        return (start, start + 1) if starts_carry else (start, last + 1)
    return start, start + 1
