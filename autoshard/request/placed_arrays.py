"""Arrays that come with a sharding: a plan takes none of it as a statement, and says where it decided otherwise."""

from collections.abc import Mapping, Sequence
from typing import Any

from autoshard.constraints.other_mesh import on_other_mesh
from autoshard.errors import AutoshardError
from autoshard.frontends.jax.function import StatedSharding, TracedFunction
from autoshard.program.schedule import Schedule
from autoshard.sharding.mesh import Mesh

_NAMED = 3
"""So many of the arrays are named in a note."""


def notes_on_arrays(
    traced: TracedFunction, schedule: Schedule, statements: Sequence[Mapping[str, Any]]
) -> tuple[str, ...]:
    """A note on arguments that are arrays on as many devices as the mesh has, and lie otherwise than planned; those
    that are pinned are where their pin says."""
    mesh, program = schedule.mesh, traced.program
    pinned = {value for one in statements if one["kind"] == "pin" for value in one["values"]}
    others = []
    for value, name, lies in zip(program.body.args, program.input_names, traced.in_lies, strict=False):
        if lies is None or lies.mesh is None or value in pinned or Mesh.from_text(lies.mesh).size != mesh.mesh.size:
            continue
        planned = schedule.definitions[value].text(mesh)
        if _text(lies, mesh.mesh, name) != planned:
            others.append(f"{name} ({lies.sharding}, planned {planned})")
    if not others:
        return ()
    more = f" and {len(others) - _NAMED} more" if len(others) > _NAMED else ""
    return (
        f"arrays that lie otherwise than planned: {'; '.join(others[:_NAMED])}{more}. Where an array lies is not taken "
        "as a statement: the plan decides, plan.place(...) moves it, and autoshard.jit does at each call. To keep it "
        "there pass "
        "jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding) in its place, or state a Pin",
    )


def _text(lies: StatedSharding, mesh: Mesh, name: str) -> str:
    """The sharding of an array on the planning mesh; empty where its axes cut the devices otherwise."""
    try:
        other = on_other_mesh(lies.sharding, lies.mesh, mesh, name)
    except AutoshardError:
        return ""
    if other is None:
        return lies.sharding
    return "" if other.moves else str(other.sharding)
