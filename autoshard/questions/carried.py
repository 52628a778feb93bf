"""Notes on carried state: which outputs return in the layouts of the inputs they replace, and what the others cost."""

from collections.abc import Iterator

from autoshard.costs.host import output_layout
from autoshard.costs.reshard import ReshardTables
from autoshard.program.program import Program
from autoshard.program.schedule import Schedule
from autoshard.program.ties import carried_state
from autoshard.report.amounts import seconds_text
from autoshard.sharding.layout import Layout

_MOST = 4
"""Pairs that notes name, of each kind."""


def carry_notes(program: Program, schedule: Schedule, tables: ReshardTables) -> tuple[str, ...]:
    """A note on the carried state, and one on each of the first pairs that could be carried but differ in layout."""
    mesh = schedule.mesh
    notes, moved = [], []
    args = program.body.args
    kept = {slot: number for slot, number in program.carried if _ends(program, schedule, slot, args[number])[2]}
    if kept:
        pairs = dict.fromkeys(_stems(program, slot, number) for slot, number in kept.items())
        named = ", ".join(f"{output} as {input_name}" for output, input_name in list(pairs)[:_MOST])
        named += f" and {len(pairs) - _MOST} more" if len(pairs) > _MOST else ""
        notes.append(
            f"carried state: {len(kept)} outputs come back in the layouts of the inputs whose next values they are "
            f"({named}); carry=False lifts that"
        )
    for slot, value in _candidates(program):
        there, back, same = _ends(program, schedule, slot, value)
        if not same:
            type_ = program.type_of(value)
            table = tables.table(type_, (there, back))
            cost = float(table.seconds[table.index[back], table.index[there]])
            moved.append((slot, value, there, back, cost))
    for slot, value, there, back, cost in moved[:_MOST]:
        output, input_name = program.output_names[slot], program.values[value].name
        notes.append(
            f"{output} leaves as {back.text(mesh)}, {input_name} comes in as {there.text(mesh)}: "
            f"where it is handed back, moving it takes {seconds_text(cost)} of each call (JAX refuses it as it is); "
            f"carry={{{output!r}: {input_name!r}}} gives both one layout"
        )
    if len(moved) > _MOST:
        total = sum(cost for *_, cost in moved[_MOST:])
        notes.append(f"{len(moved) - _MOST} more outputs leave otherwise than such inputs come in, "
                     f"{seconds_text(total)} of each call")  # fmt: skip
    return tuple(notes)


def returned_otherwise(program: Program, schedule: Schedule) -> tuple[str, ...]:
    """The outputs that are the next values of inputs by path or place, and leave otherwise than these come in."""
    pairs = carried_state(program).items()
    return tuple(program.output_names[k] for k, value in pairs if not _ends(program, schedule, k, value)[2])


def _candidates(program: Program) -> Iterator[tuple[int, int]]:
    """(output slot, input value) where the output may be the input's next value.

    Leaves of trees are paired by path and type, arguments that are a single array by type alone.
    """
    pairs = carried_state(program)
    yield from pairs.items()
    taken, args = set(pairs.values()), program.body.args
    whole = [args[k] for k, name in enumerate(program.input_names) if "/" not in name and args[k] not in taken]
    for slot, name in enumerate(program.output_names):
        if slot in pairs or name.count("/") > 1:
            continue
        type_ = program.type_of(program.body.results[slot])
        value = next((v for v in whole if program.type_of(v) == type_ and type_.rank), None)
        if value is not None:
            whole.remove(value)
            yield slot, value


def _ends(program: Program, schedule: Schedule, slot: int, value: int) -> tuple[Layout, Layout, bool]:
    """The layout in which an input comes in, that in which an output is returned, and whether they are equal."""
    there = schedule.definitions[value].even_part(program.type_of(value).shape, schedule.mesh)
    back = output_layout(schedule, slot) if program.type_of(value).rank else there
    return there, back, there == back


def _stems(program: Program, slot: int, number: int) -> tuple[str, str]:
    """The trees that an output and an input are leaves of, at the same path."""
    output, input_name = program.output_names[slot], program.input_names[number]
    path = input_name[len(input_name.split("/", 1)[0]) :]
    return (
        (f"{output[: len(output) - len(path)]}/**", f"{input_name.split('/', 1)[0]}/**")
        if path
        else (output, input_name)
    )
