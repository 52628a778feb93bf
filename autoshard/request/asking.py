"""From a request to a planning problem: statements matched to the program, the mesh laid on the machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autoshard.constraints import (
    HostMemoryLimit,
    Kernel,
    Matched,
    MatchedPin,
    MemoryLimit,
    Pin,
    Restricting,
    SameSharding,
    Statement,
    in_memories,
    match_groups,
    match_pins,
    match_restrictions,
    registry,
)
from autoshard.constraints.carry import carried
from autoshard.constraints.in_code import groups_in_code, in_code_given, manual_statements, statements_in_code
from autoshard.constraints.kernels_of import match_kernels, with_kernels
from autoshard.constraints.orders import in_orders
from autoshard.costmodels import Machine, Profile, ProfileError, load_profile, place_mesh
from autoshard.errors import InputError, listing
from autoshard.planning import Problem, notes_on_parts
from autoshard.program.program import Program
from autoshard.request.arguments import (
    Limits,
    check_axis_names,
    limit_notes,
    limits_given,
    match_jax_pins,
    notes_of_specs,
    pins_of_specs,
    stated_devices,
    stated_order,
    statements_given,
)
from autoshard.request.mesh_sizes import MAX_DEVICES
from autoshard.request.request import Request
from autoshard.sharding.mesh import Mesh
from autoshard.sharding.tensor_sharding import TensorSharding
from autoshard.strategies.named import role_notes

if TYPE_CHECKING:
    from autoshard.frontends.jax.function import TracedFunction

Constraint = Statement
"""What `constraints` may hold."""


@dataclass(frozen=True)
class Asked:
    """The problem of a request, its statements as they stand in plan.json, and notes on shardings and kernels in the
    code.

    locals: what a device runs in the place of a kernel, by op, where the caller gave a function. devices: those of the
    mesh, in the order of their ids, where the caller named them.
    """

    problem: Problem
    statements: tuple[dict[str, Any], ...]
    notes: tuple[str, ...]
    locals: Mapping[int, Any] = field(default_factory=dict)
    devices: tuple[Any, ...] | None = None


def asked(request: Request) -> Asked:
    """The problem that a request states, with its statements matched."""
    traced = request.traced
    program, of_carry = carried(traced if isinstance(traced, Program) else traced.program, request.carry)
    program = replace(program, in_code=in_code_given(request.in_code))
    stated = (*statements_given(request.statements, registry.stated(), registry.stated_names()), *of_carry)
    kernels = match_kernels([c for c in stated if isinstance(c, Kernel)], program)
    program = with_kernels(program, kernels.statements)
    traced = program if isinstance(traced, Program) else replace(traced, program=program)
    logical, machine = placed(request.mesh, request.hardware)
    for axis in request.sub_axes or ():
        if axis not in logical.axis_names:
            raise InputError(f"sub_axes: the mesh has no axis {axis!r}; {listing(axis, logical.axis_names)}")
    of_jax = [c for c in stated if isinstance(c, Pin) and not isinstance(c.sharding, TensorSharding)]
    order = stated_order(traced, of_jax, logical.size)
    devices = stated_devices(traced, of_jax, logical.size, request.devices)
    if not isinstance(request.mesh, Mesh):
        logical = replace(logical, device_ids=order)
    pins, code_notes = _matched_pins(traced, program, logical, stated, of_jax)
    groups = match_groups([c for c in stated if isinstance(c, SameSharding)], program) + groups_in_code(program)
    restrictions = match_restrictions([c for c in stated if isinstance(c, Restricting)], program, logical)
    program = in_orders(in_memories(program, restrictions), pins, groups)
    if program.host_inputs or program.host_outputs:
        try:
            machine.host_copy_s(0.0)
        except ProfileError as error:
            raise InputError(str(error)) from error
    limits = limits_given(request.memory_limit, machine)
    problem = Problem.make(
        program, logical, machine, pins=pins, memory_limit=limits.device, sub_axes=request.sub_axes, groups=groups,
        restrictions=restrictions, host_limit=limits.host, share_repeats=request.share_repeats,
        device_limit=limits.of_device,
    ).minimising(request.objective).staged_by_name(bool(request.priorities))  # fmt: skip
    statements = (*pins, *groups, *restrictions, *_limits(limits), *manual_statements(program), *kernels.statements)
    notes = (
        *code_notes,
        *notes_on_parts(problem),
        *kernels.notes,
        *limit_notes(limits, machine),
        *role_notes(program, request.roles or {}),
    )
    return Asked(problem, tuple(s.to_dict() for s in statements), notes, kernels.locals, devices)


def _matched_pins(
    traced: TracedFunction | Program, program: Program, mesh: Mesh, stated: Sequence[Any], of_jax: Sequence[Pin]
) -> tuple[tuple[MatchedPin, ...], tuple[str, ...]]:
    """The pins of the caller, of arguments with shardings, and of the code; and notes on the last two."""
    in_specs = () if isinstance(traced, Program) else pins_of_specs(traced, mesh)
    in_code, notes = statements_in_code(program, mesh)
    notes = notes if isinstance(traced, Program) else (*notes_of_specs(traced, mesh), *notes)
    pins = [c for c in stated if isinstance(c, Pin) and isinstance(c.sharding, TensorSharding)]
    matched = (*match_pins(pins, program, mesh, compare=False), *match_jax_pins(of_jax, program, mesh))
    return (*matched, *in_specs, *in_code), notes


def placed(mesh: Mesh | Mapping[str, Any], hardware: str | Path | Profile | Machine) -> tuple[Mesh, Machine]:
    """The mesh, and the machine with the mesh axes on its links."""
    links: dict[str, str] = {}
    if isinstance(mesh, Mesh):
        logical = mesh
    else:
        sizes: dict[str, int] = {}
        for name, axis in mesh.items():
            if isinstance(axis, Mapping):
                unknown = sorted(set(axis) - {"size", "link"})
                if unknown or "size" not in axis:
                    raise InputError(f"mesh axis {name!r}: give size and perhaps link, found {dict(axis)}")
                sizes[name] = axis["size"]
                if axis.get("link") is not None:
                    links[name] = axis["link"]
            else:
                sizes[name] = axis
        logical = Mesh.from_dict(sizes)
    if not logical.axis_names:
        raise InputError("the mesh has no axes; give at least one, such as {'data': 8}")
    check_axis_names(logical.axis_names)
    if logical.size > MAX_DEVICES:
        raise InputError(f"the mesh has {logical.size} devices; at most {MAX_DEVICES} can be planned for")
    try:
        if isinstance(hardware, Machine):
            machine = hardware
            if dict(machine.axes) != dict(zip(logical.axis_names, logical.axis_sizes, strict=True)):
                raise InputError(f"the machine is placed for axes {dict(machine.axes)}, the mesh is {logical}")
            if links:
                raise InputError(
                    f"mesh: axis {next(iter(links))!r} is to lie on {next(iter(links.values()))}, and the machine is "
                    "placed already: leave out the link, or give the profile as hardware"
                )
        else:
            profile = hardware if isinstance(hardware, Profile) else load_profile(hardware)
            axes = dict(zip(logical.axis_names, logical.axis_sizes, strict=True))
            machine = place_mesh(profile, axes, links or None)
    except ProfileError as error:
        raise InputError(str(error)) from error
    return logical, machine


def _limits(limits: Limits) -> list[Matched]:
    """The stated limits, as statements."""
    out: list[Matched] = []
    if limits.device is not None and not limits.of_device:
        out.append(MemoryLimit(limits.device))
    if limits.host is not None:
        out.append(HostMemoryLimit(limits.host))
    return out
