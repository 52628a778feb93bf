"""Values that are stated to lie on a mesh with the devices in another order than the plan's."""

from collections.abc import Sequence
from dataclasses import replace

from autoshard.constraints.groups import MatchedGroup
from autoshard.constraints.pin import MatchedPin
from autoshard.errors import InfeasibleError, UnsupportedError
from autoshard.program.program import Origin, OtherOrder, Program
from autoshard.program.ties import layout_ties
from autoshard.sharding.mesh import Mesh
from autoshard.sharding.tensor_sharding import TensorSharding

_Target = tuple[str, int]


def in_orders(program: Program, pins: Sequence[MatchedPin], groups: Sequence[MatchedGroup] = ()) -> Program:
    """The program with the orders of devices that pins state.

    Outputs that are carried or replace donated inputs have the orders of these inputs. Raises `InfeasibleError` where a
    value would have to lie in two orders, `UnsupportedError` for constants, values that are tied to others, and inputs
    that are cut unevenly.
    """
    if not any(pin.moves for pin in pins):
        return program
    pin_of: dict[_Target, MatchedPin] = {}
    for pin in pins:
        for target in _targets(program, pin):
            first = pin_of.setdefault(target, pin)
            if first.moves != pin.moves and all(_says_something(p) for p in (first, pin)):
                raise InfeasibleError(
                    f"two statements want {_name(program, target)} on devices in different orders\n"
                    f"  {first.cited}{_on(first)}\n  {pin.cited}{_on(pin)}\ndrop or change one of them",
                    conflict=[first.cited, pin.cited],
                )
            if pin.moves:
                pin_of[target] = pin
    pin_of = {target: pin for target, pin in pin_of.items() if pin.moves}
    for slot, value in layout_ties(program).items():
        there = pin_of.get(("input", program.body.args.index(value)))
        if there is not None:
            pin_of.setdefault(("output", slot), there)
    for group in groups:
        members = [t for v in group.values for t in [_target(program, v)] if t in pin_of]
        members += [("output", k) for k in group.outputs if ("output", k) in pin_of]
        if members:
            raise UnsupportedError(
                f"{group.cited}: {_name(program, members[0])} is stated on devices in another order than the plan's; "
                "state the shardings of these values one by one"
            )
    orders = (
        OtherOrder(where, index, str(pin.sharding), pin.moves, pin.mesh, pin.stated)
        for (where, index), pin in sorted(pin_of.items())
    )
    return replace(program, orders=tuple(orders))


def _targets(program: Program, pin: MatchedPin) -> list[_Target]:
    targets = [_target(program, value) for value in pin.values] + [("output", slot) for slot in pin.outputs]
    constant = next((k for where, k in targets if where == "input" and k >= len(program.input_names)), None)
    if pin.moves and constant is not None:
        raise UnsupportedError(
            f"{pin.cited}{_on(pin)}: {program.values[program.body.args[constant]].name} is a constant of the program, "
            "which lies in the order of the plan's mesh; pass it as an argument"
        )
    for where, index in targets if pin.moves else ():
        value = index if where == "value" else (program.body.args if where == "input" else program.body.results)[index]
        if where == "value" and program.values[value].origin is Origin.ARG:
            raise UnsupportedError(
                f"{pin.cited}{_on(pin)}: {program.values[value].name} is an argument of a loop or branch, which "
                "lies in the order of the plan's mesh; state it of a value computed in its body"
            )
        shape, mesh = program.type_of(value).shape, Mesh.from_text(pin.mesh)
        parts = TensorSharding.from_text(pin.stated, mesh).shard_counts(mesh)
        if where == "input" and any(n % count for n, count in zip(shape, parts, strict=True)):
            raise UnsupportedError(
                f"{pin.cited}{_on(pin)}: JAX has no array {program.type_of(value)} that is cut so, and axes can be "
                f"left off in the order of the plan's mesh only; state {program.values[value].name} by axes that "
                "divide its dimensions"
            )
    return targets


def _target(program: Program, value: int) -> _Target:
    return ("input", program.body.args.index(value)) if value in program.body.args else ("value", value)


def _name(program: Program, target: _Target) -> str:
    where, index = target
    if where == "output":
        return f"output {program.output_names[index]}"
    return program.values[program.body.args[index] if where == "input" else index].name


def _says_something(pin: MatchedPin) -> bool:
    return bool(pin.moves) or any(d.axes or not d.is_open for d in pin.sharding.dims)


def _on(pin: MatchedPin) -> str:
    return f" (stated as {pin.stated} on {pin.mesh})" if pin.mesh else ""
