"""Values in host memory: which of them cross the host link in a step, and which the host holds for each device.

An input on the host is copied to the device when it is first read, and held there until its last read. An output is
copied to the host when it is made. Copies in both directions take turns with all other work.
"""

from autoshard.program.program import Origin, Program
from autoshard.program.schedule import PROGRAM, Schedule, Use
from autoshard.program.ties import donated_ties
from autoshard.sharding.layout import Layout

TO_DEVICE, TO_HOST = "to_device", "to_host"
KINDS = (TO_DEVICE, TO_HOST)
"""Kinds of rows in a plan's cost."""


def read_on_device(program: Program) -> tuple[int, ...]:
    """Inputs and constants that something on the device reads (value ids)."""
    read = {v for op in program.body.ops for v in op.operands}
    read |= {v for k, v in enumerate(program.body.results) if k not in program.host_outputs}
    return tuple(v for v in program.body.args if v in read)


def brought(program: Program) -> tuple[int, ...]:
    """Inputs on the host that something on the device reads, so that they are copied (value ids)."""
    there = {program.body.args[k] for k in program.host_inputs}
    return tuple(v for v in read_on_device(program) if v in there)


def sent(program: Program) -> tuple[int, ...]:
    """Slots of outputs that are copied to the host; outputs that hand back an input on the host are not."""
    there = {program.body.args[k] for k in program.host_inputs}
    results = program.body.results
    return tuple(
        k
        for k in sorted(program.host_outputs)
        if results[k] not in there and program.values[results[k]].origin is not Origin.LITERAL
    )


def held_on_host(program: Program) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(inputs, output slots) that the host holds at the same time; outputs that replace donated inputs share their
    memory.
    """
    args, results = program.body.args, program.body.results
    inputs = {args[k] for k in program.host_inputs}
    ties = donated_ties(program)
    slots = (k for k in sent(program) if ties.get(k) not in inputs)
    return tuple(args[k] for k in sorted(program.host_inputs)), tuple(k for k in slots if results[k] not in inputs)


def output_layout(schedule: Schedule, slot: int) -> Layout:
    """The layout in which an output is handed back."""
    return schedule.uses[Use(PROGRAM, slot)].target
