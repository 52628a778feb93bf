"""Reading the arguments of the Python API: limits with units, meshes and shardings of JAX.

An argument that cannot be read becomes an `InputError` that says what was asked, what was found and what to try.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from autoshard.constraints import MatchedPin, Pin
from autoshard.constraints.in_code import check_devices, on_other_mesh
from autoshard.constraints.other_mesh import by_name
from autoshard.constraints.patterns import Addresses
from autoshard.constraints.restrictions import MEMORY_KINDS
from autoshard.costmodels.machine import Machine
from autoshard.costs.memory import headroom, room
from autoshard.errors import InputError, ShardingError, UnsupportedError
from autoshard.program.program import Program
from autoshard.sharding.device_orders import Translated
from autoshard.sharding.mesh import Mesh
from autoshard.sharding.tensor_sharding import TensorSharding
from autoshard.units import NO_LIMIT, as_given, limit_amount, memory_amount
from autoshard.units import seconds as read_seconds

if TYPE_CHECKING:
    from autoshard.frontends.jax.function import TracedFunction


def limit_seconds(given: object) -> float | None:
    """A time limit in seconds: a positive number, or text with a unit (``10min``); None for no limit.

    >>> limit_seconds(90), limit_seconds("1.5 min"), limit_seconds(None)
    (90.0, 90.0, None)
    """
    try:
        return None if given is None else read_seconds(given)
    except InputError as error:
        raise InputError(f"time_limit: {error}") from None


@dataclass(frozen=True, slots=True)
class Limits:
    """Memory limits in bytes per device, None for no limit.

    of_device: True where no limit is stated, and `device` is the room that the device has.
    """

    device: int | None
    host: int | None = None
    of_device: bool = False


def limits_given(given: object, machine: Machine) -> Limits:
    """Limits on device memory and on host memory: one amount, or a mapping by kind of memory.

    An amount is a number of bytes, text with a unit (``14GiB``) or a share of the device's memory (``90%``). Without a
    stated limit, device memory is limited to what fits the machine: the largest peak that is within the usable bytes
    together with the headroom of compilers. ``none`` lifts that limit.
    """
    host = None
    if isinstance(given, Mapping):
        unknown = sorted(str(kind) for kind in given if kind not in MEMORY_KINDS)
        if unknown or not given:
            found = unknown[0] if unknown else "none"
            raise InputError(f"memory_limit: limits are for {' and '.join(MEMORY_KINDS)}, found {found!r}")
        host = _host_bytes(given.get("pinned_host"))
        given = given.get("device")
    if given is None:
        return Limits(room(machine.usable_bytes, headroom(machine)), host, of_device=True)
    try:
        amount = limit_amount(given)
    except InputError as error:
        raise InputError(
            f"memory_limit is {as_given(given)}; give a positive number of bytes per device, text such as '14GiB', "
            f"or 'none' ({error})"
        ) from None
    return Limits(None if amount == NO_LIMIT else amount.of(machine.hbm_bytes), host)


def _host_bytes(given: object) -> int | None:
    if given is None:
        return None
    try:
        amount = memory_amount(given)
    except InputError as error:
        found = as_given(given)
        raise InputError(f"memory_limit: pinned_host is {found}; give an amount such as 64GiB ({error})") from None
    if amount.bytes is None:
        raise InputError(f"memory_limit: pinned_host: give an amount such as 64GiB, found {given!r}")
    return amount.bytes


def limit_notes(limits: Limits, machine: Machine) -> tuple[str, ...]:
    """Notes on a stated limit: one where it allows more than the machine has."""
    usable = int(machine.usable_bytes)
    if limits.of_device or limits.device is None or limits.device <= usable:
        return ()
    return (
        f"the stated memory limit of {limits.device} bytes per device exceeds the {usable} bytes that "
        f"{machine.profile.name} leaves to programs",
    )


def mesh_given(mesh: Any) -> Mesh | Mapping[str, Any]:
    """A mesh in a form that the library reads: `jax.sharding.Mesh` and `AbstractMesh` become `Mesh`, others stay."""
    if isinstance(mesh, Mesh):
        return mesh
    if isinstance(mesh, Mapping):
        for name in mesh:
            if not isinstance(name, str):
                raise InputError(f"mesh: names of axes are text, found {name!r}; write {{'data': 2, 'model': 4}}")
        return mesh
    if hasattr(mesh, "axis_names") and hasattr(mesh, "shape"):
        from autoshard.interop.jax import mesh_from_jax

        return mesh_from_jax(mesh)
    raise InputError(f"mesh: give a Mesh or sizes by axis such as {{'data': 2, 'model': 4}}, found {mesh!r}")


def devices_given(mesh: Any) -> tuple[Any, ...] | None:
    """The devices of a `jax.sharding.Mesh`, in the order of their ids; None where a mesh names none."""
    if isinstance(mesh, Mesh | Mapping):
        return None
    from autoshard.interop.jax import devices_of_jax

    return devices_of_jax(mesh)


def check_axis_names(names: Iterable[str]) -> None:
    """`InputError` for axis names that the text form of shardings cannot hold."""
    for name in names:
        if not name.isprintable() or any(c in name for c in '":{}[]'):
            raise InputError(f"mesh: {name!r} is no name for an axis; leave out quotes, colons, braces and brackets")


def statements_given(constraints: Any, kinds: tuple[type, ...], names: str) -> tuple[Any, ...]:
    """The statements as a tuple; a single statement becomes a tuple of one.

    kinds: the classes that may occur. names: these classes as the message names them.
    """
    if isinstance(constraints, kinds):
        return (constraints,)
    if isinstance(constraints, str | Mapping) or not isinstance(constraints, Iterable):
        raise InputError(f"constraints takes a list of {names}, found {constraints!r}")
    statements = tuple(constraints)
    for statement in statements:
        if not isinstance(statement, kinds):
            raise InputError(f"constraints takes {names}, found {statement!r}")
    return statements


def argument_numbers(given: Any, option: str = "donate_argnums") -> tuple[int, ...] | None:
    """``donate_argnums`` as `jax.jit` takes it, a number or several, as a tuple; None stays None.

    >>> argument_numbers(0), argument_numbers([1, 2])
    ((0,), (1, 2))
    """
    if given is None:
        return None
    numbers = (given,) if isinstance(given, int) else given
    if isinstance(numbers, str) or not isinstance(numbers, Iterable):
        raise InputError(f"{option} is {given!r}; give positions of arguments, such as (0,)")
    numbers = tuple(numbers)
    for number in numbers:
        if isinstance(number, bool) or not hasattr(number, "__index__"):
            raise InputError(f"{option} holds {number!r}; give positions of arguments, such as (0,)")
    return tuple(int(number) for number in numbers)


def pins_of_specs(traced: TracedFunction, mesh: Mesh) -> tuple[MatchedPin, ...]:
    """A pin for each argument that is a `jax.ShapeDtypeStruct` with a `NamedSharding`: its array lies there.

    Axes are taken by name, as in constraints in the code; `UnsupportedError` for one that `mesh` lacks.
    """
    pins = []
    program = traced.program
    check_devices(_devices_of(traced, ()))
    for value, name, stated in zip(program.body.args, program.input_names, traced.in_stated, strict=False):
        if stated is None:
            continue
        where = f"argument {name}"
        other = on_other_mesh(stated.sharding, stated.mesh, mesh, where)
        if other is not None:
            pins.append(
                MatchedPin(
                    name, other.sharding, (value,), (), where, mesh=stated.mesh or "", stated=stated.sharding,
                    moves=other.moves,
                )
            )  # fmt: skip
            _check_fits(program, value, other.sharding, mesh, where)
            continue
        text, missing = by_name(stated.sharding, stated.axes, mesh)
        if missing:
            raise UnsupportedError(
                f"{where} comes with a sharding over mesh axes {missing}, which the planning mesh {mesh} does "
                "not have; give the plan a mesh with these axes, or the argument without a sharding"
            )
        sharding = TensorSharding.from_text(text, mesh)
        _check_fits(program, value, sharding, mesh, where)
        pins.append(MatchedPin(name, sharding, (value,), (), where))
    return tuple(pins)


def notes_of_specs(traced: TracedFunction, mesh: Mesh) -> tuple[str, ...]:
    """Notes on axes of arguments' shardings that are taken by name and have another size on the planning mesh."""
    sizes = dict(zip(mesh.axis_names, mesh.axis_sizes, strict=True))
    by_name_only = [s for s in traced.in_stated if s and (s.mesh is None or Mesh.from_text(s.mesh).size != mesh.size)]
    axes = dict.fromkeys(axis for stated in by_name_only for axis in stated.axes)
    return tuple(
        f"arguments come with shardings for {name}={size}; here the axis has size {sizes[name]}"
        for name, size in axes
        if sizes.get(name, size) != size
    )


def _check_fits(program: Program, value: int, sharding: TensorSharding, mesh: Mesh, where: str) -> None:
    faults = sharding.violations(mesh, program.type_of(value).shape, what=str(program.type_of(value)))
    if faults:
        raise ShardingError(f"{where}: the sharding it comes with cannot hold: {'; '.join(faults)}")


def match_jax_pins(pins: Sequence[Pin], program: Program, mesh: Mesh) -> tuple[MatchedPin, ...]:
    """The pins whose shardings are objects of JAX (`autoshard.constraints.pin.OF_JAX`), matched to values.

    Raises what `match_pins` raises, and `ShardingError` for a pattern that matches values of different ranks.
    """
    found: list[MatchedPin] = []
    addresses = Addresses(program)
    translated: dict[object, Translated | None] = {}  # a state has many leaves and few shardings
    for pin in pins:
        match = addresses.find(pin.pattern)
        values = [*match.values, *(program.body.results[k] for k in match.outputs)]
        ranks = sorted({program.type_of(v).rank for v in values}) or [0]
        if len(ranks) > 1:
            raise ShardingError(
                f"{pin.where} matches values of ranks {', '.join(map(str, ranks))}; write one pin for each rank"
            )
        text, stated, _ = _read_of_jax(pin.sharding, ranks[0] if values else len(_spec_of(pin.sharding)), mesh, pin)
        if (text, stated) not in translated:
            translated[text, stated] = on_other_mesh(text, stated, mesh, pin.where)
        other = translated[text, stated]
        sharding = TensorSharding.from_text(text) if other is None else other.sharding
        matched = replace(replace(pin, sharding=sharding).match(addresses, mesh), written=pin.written)
        if other is not None:
            matched = replace(matched, mesh=stated or "", stated=text, moves=other.moves)
        found.append(matched)
    return tuple(found)


def _spec_of(sharding: Any) -> Any:
    return getattr(sharding, "spec", sharding)


def _read_of_jax(sharding: Any, rank: int, mesh: Mesh, pin: Pin) -> tuple[str, str | None, tuple[int, ...]]:
    """Text of the sharding, text of its mesh where it names devices, and the numbers of these devices."""
    from autoshard.frontends.jax.placement import constraint_attrs
    from autoshard.interop.jax import spec_from_jax

    try:
        attrs = constraint_attrs(sharding, rank, (), pin.where)
        if attrs is None:
            return str(spec_from_jax(sharding, rank, mesh)), None, ()
        return attrs["sharding"], attrs.get("mesh"), attrs.get("devices", ())
    except ShardingError as error:
        raise ShardingError(f"{pin.where}: {error}") from None


_Devices = tuple[str | None, Sequence[int], str]


def _devices_of(traced: TracedFunction | Program, pins: Sequence[Pin]) -> list[_Devices]:
    """(text, devices, place) of every mesh that arguments, code and pins name."""
    program = traced if isinstance(traced, Program) else traced.program
    meshes: list[_Devices] = []
    if not isinstance(traced, Program):
        named = zip(traced.in_stated, program.input_names, strict=False)
        meshes += [(s.mesh, s.devices, f"argument {name}") for s, name in named if s is not None]
    for op, _ in program.walk() if program.in_code == "hard" else ():
        if op.attrs.get("mesh") is not None:
            meshes.append((op.attrs["mesh"], op.attrs.get("devices", ()), op.source))
    for pin in pins:
        if hasattr(pin.sharding, "mesh"):
            rank = len(_spec_of(pin.sharding))
            _, mesh, devices = _read_of_jax(pin.sharding, rank, Mesh.from_dict({}), pin)
            meshes.append((mesh, devices, pin.where))
    return meshes


def stated_order(traced: TracedFunction | Program, pins: Sequence[Pin], size: int) -> tuple[int, ...] | None:
    """The order of devices for a mesh of `size` that was given without devices.

    Arguments, code and pins may name meshes over as many devices; where these agree on one order, it is the answer.
    Otherwise None, the order of the devices' numbers. `UnsupportedError` where the meshes are over different devices.
    """
    named = _devices_of(traced, pins)
    check_devices(named)
    meshes = [Mesh.from_text(text) for text, _, _ in named if text is not None]
    orders = {m.device_ids for m in meshes if m.size == size}
    return orders.pop() if len(orders) == 1 else None


def stated_devices(
    traced: TracedFunction | Program, pins: Sequence[Pin], size: int, given: Sequence[Any] | None = None
) -> tuple[Any, ...] | None:
    """The devices of a mesh of `size`, in the order of their ids, where it was `given` with them or where meshes of
    this size in arguments, code or pins are not over the first devices; None for those of JAX.

    `UnsupportedError` where the mesh was given with others than the statements name.
    """
    named = [one for one in _devices_of(traced, pins) if one[0] is not None and Mesh.from_text(one[0]).size == size]
    check_devices(named)
    numbers = next((numbers for _, numbers, _ in named if numbers), ())
    if given is None and not numbers:
        return None
    from autoshard.interop.jax import numbered_devices

    stated = numbered_devices(numbers or range(size)) if named else None
    if given is None or stated is None or set(given) == set(stated):
        return stated if given is None else tuple(given)
    raise UnsupportedError(
        f"the mesh is over the devices {sorted(d.id for d in given)[:16]}, {named[0][2]} states a sharding over "
        f"{sorted(d.id for d in stated)[:16]}; one plan runs on one set of devices: state all on meshes over the same "
        "ones"
    )
