"""Shardings that the planned function states itself, as statements of the plan.

A front end keeps each as an op ``sharding_constraint``, whose result has the stated sharding. Uses of the value that do
not go through the op are free (S4.5), and uses of the result may reshard it again.
"""

from collections.abc import Iterable, Sequence

from autoshard.constraints.groups import MatchedGroup
from autoshard.constraints.other_mesh import by_name, on_other_mesh
from autoshard.constraints.patterns import line_of
from autoshard.constraints.pin import MatchedPin
from autoshard.constraints.shard_map import manual_statements
from autoshard.errors import InputError, ShardingError, UnsupportedError
from autoshard.program.program import ALIKE, BORDER, IN_CODE, Op, Program, alike_tag, is_alike_tag
from autoshard.sharding.mesh import Mesh
from autoshard.sharding.tensor_sharding import TensorSharding

KIND = "sharding_constraint"

__all__ = [
    "check_devices",
    "groups_in_code",
    "in_code_given",
    "manual_statements",
    "on_other_mesh",
    "statements_in_code",
]


def statements_in_code(program: Program, mesh: Mesh) -> tuple[tuple[MatchedPin, ...], tuple[str, ...]]:
    """The pins that the ops of a program state on the planning mesh, and notes on what they mean there.

    Where the mesh of a constraint has as many devices as the planning mesh, the constraint says which device holds
    what, whatever the axes are called. Otherwise axes are taken by name, with their sizes on the planning mesh. Raises
    `UnsupportedError` where a constraint names an axis that the planning mesh lacks, or meshes are over other devices,
    `ShardingError` where its sharding does not fit the value.
    """
    pins: list[MatchedPin] = []
    notes: dict[str, None] = {}
    if program.in_code != "hard":
        count = sum(op.kind == KIND for op, _ in program.walk())
        said = "hints, priced as the baseline 'in code'" if program.in_code == "hints" else "ignored"
        return (), (f"in_code={program.in_code!r}: {count} shardings in the code are {said}",) if count else ()
    check_devices((op.attrs.get("mesh"), op.attrs.get("devices", ()), line_of(op.source)) for op, _ in program.walk())
    for op, outer in program.walk():
        if op.kind != KIND or "sharding" not in op.attrs or any(o.kind == "shard_map" for o in outer):
            continue
        (value,) = op.results
        where = line_of(op.source)
        (name, values, outputs), type_ = _stated_on(op, program), program.type_of(value)
        other = on_other_mesh(op.attrs["sharding"], op.attrs.get("mesh"), mesh, where)
        if other is not None:
            faults = other.sharding.violations(mesh, type_.shape, what=str(type_))
            if faults:
                raise ShardingError(f"{where}: the sharding constraint in the code cannot hold: {'; '.join(faults)}")
            said = {"mesh": op.attrs["mesh"], "stated": op.attrs["sharding"], "moves": other.moves}
            if other.moves and BORDER in op.attrs:  # in another order at the border alone, in the plan's behind it
                values = tuple(v for v in values if v != value)
            pins.append(MatchedPin(name, other.sharding, values, outputs, where, **said))
            continue
        text = _by_name(op, mesh, where)
        try:
            sharding = TensorSharding.from_text(text, mesh)
            faults = sharding.violations(mesh, program.type_of(value).shape, what=str(program.type_of(value)))
        except ShardingError as error:
            faults = [str(error)]
        if faults:
            raise ShardingError(f"{where}: the sharding constraint in the code cannot hold: {'; '.join(faults)}")
        pins.append(MatchedPin(name, sharding, values, outputs, where))
        for name, size in op.attrs["mesh_axes"]:
            if name not in mesh.axis_names:
                continue
            planned = mesh.axis_sizes[mesh.axis_names.index(name)]
            if planned != size:
                notes[f"constraints in the code were written for {name}={size}; here the axis has size {planned}"] = (
                    None
                )
    return tuple(pins), tuple(notes)


def _stated_on(op: Op, program: Program) -> tuple[str, tuple[int, ...], tuple[int, ...]]:
    """A name, the values and the output slots that a constraint is on: its result, and what a `jit` around the whole
    program states it of."""
    (operand,), (result,) = op.operands, op.results
    if op.attrs.get(BORDER) == "in_shardings" and operand in program.body.args:
        return program.values[operand].name, (operand, result), ()
    slots = tuple(k for k, v in enumerate(program.body.results) if v == result)
    if op.attrs.get(BORDER) == "out_shardings" and slots:
        return program.output_names[slots[0]], (result,), slots
    return program.values[result].name, (result,), ()


def groups_in_code(program: Program) -> tuple[MatchedGroup, ...]:
    """The sharding groups that a program makes (`jax.experimental.shard_alike`).

    Members are results of its ops, and values whose result there nothing reads, which have a tag in its place.
    """
    if program.in_code != "hard":
        return ()
    members: dict[str, list[int]] = {}
    sources: dict[str, str] = {}
    for op, _ in program.walk():
        if op.kind == KIND and ALIKE in op.attrs:
            tag = alike_tag(op.attrs[ALIKE])
            members.setdefault(tag, []).append(op.results[0])
            sources.setdefault(tag, line_of(op.source))
    for value in program.values:
        for tag in filter(is_alike_tag, value.tags):
            members.setdefault(tag, []).append(value.id)
    return tuple(
        MatchedGroup(
            tuple(program.values[v].name for v in values), tuple(sorted(values)), (), sources.get(tag, "shard_alike")
        )
        for tag, values in members.items()
        if len(values) > 1  # other members are not in the program
    )


def in_code_given(choice: str | None) -> str:
    """The option ``in_code`` as given, checked: ``hard`` (also for None), ``hints`` or ``ignore``."""
    if choice is None:
        return "hard"
    if choice not in IN_CODE:
        raise InputError(
            f"in_code is {choice!r}; shardings in the code are 'hard' (they hold), 'hints' (they are priced and "
            "searched from) or to be ignored ('ignore')"
        )
    return choice


def check_devices(stated: Iterable[tuple[str | None, Sequence[int], str]]) -> None:
    """`UnsupportedError` where meshes of several devices are over different ones.

    stated: text of each mesh (None for those that name no devices), its device ids where not 0, 1, 2, ..., its place.
    """
    first: tuple[frozenset[int], str] | None = None
    for text, devices, where in stated:
        if text is None:
            continue
        ids = frozenset(devices or range(Mesh.from_text(text).size))
        if first is not None and ids != first[0]:
            raise UnsupportedError(
                f"{where} states a sharding over the devices {sorted(ids)[:16]}, {first[1]} one over "
                f"{sorted(first[0])[:16]}; one plan runs on one set of devices: state all on meshes over the same ones"
            )
        first = first or (ids, where)


def _by_name(op: Op, mesh: Mesh, where: str) -> str:
    text, missing = by_name(op.attrs["sharding"], op.attrs["mesh_axes"], mesh)
    if missing:
        raise UnsupportedError(
            f"{where}: a sharding constraint in the code uses mesh axes {missing}, which the planning mesh {mesh} does "
            "not have; give the plan a mesh with these axes, or take the constraint out"
        )
    return text
