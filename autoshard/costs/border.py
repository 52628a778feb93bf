"""Inputs that a plan cuts unevenly, at the border of the jitted function.

Arrays of JAX are cut evenly. Such an input lies without the axes that do not divide a dimension of it, for as long as
it is an argument; each device cuts its block out of that, which is a copy beside it from its first reader to its last.
"""

from autoshard.costs.host import read_on_device
from autoshard.program.program import Program
from autoshard.program.schedule import Schedule
from autoshard.sharding.layout import AtomMesh, Layout
from autoshard.sharding.steps import Reshard, sliced


def stored_layout(program: Program, mesh: AtomMesh, value: int, layout: Layout) -> Layout:
    """The layout that JAX has an input in which a plan defines in `layout`: the same, where that is even."""
    return layout.even_part(program.type_of(value).shape, mesh)


def border_cuts(program: Program, schedule: Schedule) -> dict[int, Reshard]:
    """Inputs that are cut unevenly and read (value ids), each with the slices from what JAX has to its block."""
    out = {}
    for value in read_on_device(program):
        layout = schedule.definitions[value]
        stored = stored_layout(program, schedule.mesh, value, layout)
        if stored != layout:
            out[value] = sliced(stored, layout)
    return out
