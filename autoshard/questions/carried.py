"""What a plan tells of state that goes round: which outputs keep the layouts of inputs, and what others cost."""

from collections.abc import Iterator
from math import prod

from autoshard.costs.host import output_layout
from autoshard.costs.reshard import ReshardTables
from autoshard.program.program import Program
from autoshard.program.schedule import Schedule
from autoshard.program.ties import carried_state
from autoshard.report.amounts import seconds_text
from autoshard.sharding.layout import AtomMesh, Layout

_MOST = 4


def carry_notes(program: Program, schedule: Schedule, tables: ReshardTables) -> tuple[str, ...]:
    """One note on what is carried, and one on every pair that looks like it and has two layouts, the first few."""
    mesh = schedule.mesh
    notes, moved = [], []
    args = program.body.args
    alike = {slot: number for slot, number in program.carried if _ends(program, schedule, slot, args[number])[2]}
    if alike:
        pairs = dict.fromkeys(_stems(program, slot, number) for slot, number in alike.items())
        told = ", ".join(f"{output} as {given}" for output, given in list(pairs)[:_MOST])
        told += f" and {len(pairs) - _MOST} more" if len(pairs) > _MOST else ""
        notes.append(
            f"carried state: {len(alike)} outputs come back in the layouts of the inputs whose next values they are "
            f"({told}); carry=False lifts that"
        )
    for slot, value in _candidates(program):
        there, back, same = _ends(program, schedule, slot, value)
        if not same:
            type_ = program.type_of(value)
            table = tables.table(type_, (there, back))
            cost = float(table.seconds[table.index[back], table.index[there]])
            moved.append((slot, value, there, back, cost))
    for slot, value, there, back, cost in moved[:_MOST]:
        output, given = program.output_names[slot], program.values[value].name
        notes.append(
            f"{output} leaves as {back.text(mesh)}, {given} comes in as {there.text(mesh)}: where it is handed back, "
            f"moving it takes {seconds_text(cost)} of each call (JAX refuses it as it is); "
            f"carry={{{output!r}: {given!r}}} gives both one layout"
        )
    if len(moved) > _MOST:
        total = sum(cost for *_, cost in moved[_MOST:])
        notes.append(f"{len(moved) - _MOST} more outputs leave otherwise than such inputs come in, "
                     f"{seconds_text(total)} of each call")  # fmt: skip
    return tuple(notes)


def _candidates(program: Program) -> Iterator[tuple[int, int]]:
    """Outputs and the inputs whose next values they may be: by path and type; whole arrays by type alone."""
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
    """How an input comes in, how an output is handed back, and whether that is the same."""
    there = _at_boundary(program.type_of(value).shape, schedule.definitions[value], schedule.mesh)
    back = output_layout(schedule, slot) if program.type_of(value).rank else there
    return there, back, there == back


def _at_boundary(shape: tuple[int, ...], layout: Layout, mesh: AtomMesh) -> Layout:
    """Without the minor atoms that cut unevenly: arrays of JAX are even."""
    dims = []
    for n, dim in zip(shape, layout.dims, strict=True):
        count = len(dim)
        while n % prod(mesh.sizes[a] for a in dim[:count]):
            count -= 1
        dims.append(dim[:count])
    return Layout(tuple(dims), layout.unreduced)


def _stems(program: Program, slot: int, number: int) -> tuple[str, str]:
    """The trees that an output and an input are leaves of, at the same path."""
    output, given = program.output_names[slot], program.input_names[number]
    path = given[len(given.split("/", 1)[0]) :]
    return (f"{output[: len(output) - len(path)]}/**", f"{given.split('/', 1)[0]}/**") if path else (output, given)
