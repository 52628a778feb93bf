"""How arrays come in from JAX: where they lie otherwise than planned, and where JAX holds more of them."""

from collections.abc import Mapping, Sequence
from math import ceil, prod
from typing import Any

from autoshard.constraints.other_mesh import on_other_mesh
from autoshard.costs.border import stored_layout
from autoshard.errors import AutoshardError
from autoshard.frontends.jax.function import StatedSharding, TracedFunction
from autoshard.program.program import Program
from autoshard.program.schedule import Schedule
from autoshard.sharding.mesh import Mesh

_NAMED = 3
"""So many of the arrays are named in a note."""


def notes_on_inputs(
    traced: TracedFunction, schedule: Schedule, statements: Sequence[Mapping[str, Any]]
) -> tuple[str, ...]:
    """Notes on arguments that lie otherwise than planned, and on those that JAX cannot store as planned."""
    return (
        *_notes_on_unread(traced),
        *_notes_on_arrays(traced, schedule, statements),
        *notes_on_uneven(traced.program, schedule),
    )


def _notes_on_unread(traced: TracedFunction) -> tuple[str, ...]:
    """A note on arguments whose shardings are of other kinds than those that name axes of a mesh."""
    names = traced.in_unread
    if not names:
        return ()
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return (
        f"arguments that come with shardings other than a NamedSharding, which state nothing: "
        f"{', '.join(names[:_NAMED])}{more}; the plan decides where they lie",
    )


def _notes_on_arrays(
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


def notes_on_uneven(program: Program, schedule: Schedule) -> tuple[str, ...]:
    """A note on inputs in device memory that a pin cuts unevenly: how much a device holds of them beside its block."""
    mesh, told, more = schedule.mesh, [], 0
    for index, (value, name) in enumerate(zip(program.body.args, program.input_names, strict=False)):
        type_, layout = program.type_of(value), schedule.definitions[value]
        stored = stored_layout(program, mesh, value, layout)
        if stored == layout or index in program.host_inputs:
            continue
        more += ceil(prod(stored.local_shape(type_.shape, mesh)) * type_.bytes / max(1, type_.elements))
        told.append(f"{name} ({layout.text(mesh)}, stored as {stored.text(mesh)})")
    if not told:
        return ()
    rest = f" and {len(told) - _NAMED} more" if len(told) > _NAMED else ""
    return (
        f"inputs that pins cut unevenly, which JAX cannot store so: {'; '.join(told[:_NAMED])}{rest}. A device holds "
        f"{more} bytes of them for as long as they are arguments, and cuts its blocks out of these: to hold less, pin "
        "axes that divide the dimension, or pad it",
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
