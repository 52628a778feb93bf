"""Statements on other meshes over the same devices, checked device by device.

A statement on another mesh says what each device holds. What each device holds under the plan follows from its layouts
and from the permutes to and from other orders of the devices; the two are compared.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

from autoshard.verify.plan.flow import Flow
from autoshard.verify.plan.layout import Atoms, Holding, cut
from autoshard.verify.plan.program import PROGRAM_OP, Findings, Graph
from autoshard.verify.plan.statements import read_pin

_MESH = re.compile(r"^<\[([^\[\]]*)\](?:, device_ids=\[([\d, ]*)\])?>$")
Target = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Permute:
    """All blocks of a value change devices, by `pairs` (source, target) of positions in the mesh (row-major).

    where, index: the input, output or value whose order it is. atoms: those along which blocks move.
    """

    label: str
    value: int
    held: Holding
    pairs: tuple[tuple[int, int], ...]
    atoms: tuple[int, ...]
    where: str
    index: int

    @property
    def inside(self) -> bool:
        """Whether it is of a value inside the program, not of an input or output."""
        return self.where == "value"


def permutes(flow: Flow) -> Iterator[Permute]:
    """Permutes of all values in other orders of devices: inputs come from them, outputs go there, others do both."""
    graph = flow.graph
    read = {v for op in graph.body.ops for v in op.operands} | set(graph.body.results)
    for order in graph.orders:
        where, index = order["where"], order["index"]
        value, held = _lies(flow, (where, index))
        if held is None or (where == "input" and value not in read):
            continue
        there = tuple(enumerate(order["moves"]))
        name = f"output {graph.output_names[index]}" if where == "output" else flow.name(value)
        atoms = _crossed(order["moves"], flow.mesh)
        if where != "input":
            yield Permute(f"{name} to its order of devices", value, held, there, atoms, where, index)
        if where != "output":
            back = tuple(sorted((target, source) for source, target in there))
            yield Permute(f"{name} from its order of devices", value, held, back, atoms, where, index)


def read_mesh(text: str) -> tuple[Atoms, list[int]]:
    """Axes and device ids of ``<["x"=2, "y"=4], device_ids=[...]>``; `ValueError` for other texts."""
    match = _MESH.match(text)
    if match is None:
        raise ValueError(f"{text!r} is no mesh")
    axes = {name: int(size) for name, size in re.findall(r'"([^"]+)"=(\d+)', match[1])}
    ids = list(range(prod(axes.values()))) if match[2] is None else [int(i) for i in match[2].split(",")]
    if sorted(ids) != list(range(prod(axes.values()))):
        raise ValueError(f"the devices of {text!r} are no permutation")
    return Atoms(tuple(axes), (1,) * len(axes), tuple(axes.values()), axes), ids


def is_own_mesh(text: str, plan: Any) -> bool:
    """Whether a mesh in text is the plan's: the same axes over the same devices in the same order."""
    atoms, ids = read_mesh(text)
    own = plan["mesh"]["device_ids"] or list(range(atoms.devices))
    return list(atoms.whole.items()) == list(plan["mesh"]["axes"].items()) and ids == list(own)


def check_orders(plan: Any, flow: Flow, findings: Findings) -> None:
    """Check the statements on other meshes, and that a statement or a donated input asks for each order of devices."""
    graph = flow.graph
    moves: dict[Target, Any] = {}
    for order in graph.orders:
        target = order["where"], order["index"]
        if target in moves:
            findings.add("program", f"{_name(flow, target)} is in two orders of the devices")
        moves[target] = order
    asked: set[Target] = set()
    for statement in plan["statements"]:
        if statement["kind"] != "pin" or "mesh" not in statement:
            continue
        source = f"{statement['source']}: " if statement["source"] else ""
        what = f"{source}pin {statement['pattern']}: {statement['stated']} on {statement['mesh']}"
        targets: list[Target] = [_target(graph, v) for v in statement["values"]]
        for target in [*targets, *(("output", slot) for slot in statement["outputs"])]:
            asked.add(target)
            order = moves.get(target)
            _compare(plan, flow, target, order, statement["mesh"], statement["stated"], what, findings)
    for target in moves.keys() - asked:
        tied = flow.ties.get(target[1]) if target[0] == "output" else None
        source = None if tied is None else moves.get(_target(graph, tied))
        if source is None or any(source[key] != moves[target][key] for key in ("moves", "mesh", "stated")):
            findings.add(
                "statements", f"{_name(flow, target)} is in an order of the devices that no statement asks for"
            )
    for target, order in moves.items():
        for slot, value in flow.ties.items():
            if _target(graph, value) == target and ("output", slot) not in moves and ("output", slot) not in asked:
                findings.add(
                    "ties",
                    f"output {graph.output_names[slot]} takes the place of the donated input {flow.name(value)}, which "
                    f"lies on {order['mesh']}, but is handed back in the plan's order of the devices",
                )


def _compare(
    plan: Any, flow: Flow, target: Target, order: Any, mesh: str, stated: str, what: str, findings: Findings
) -> None:
    """Compare what each device holds of a value with what a sharding on another mesh gives it."""
    try:
        other, other_ids = read_mesh(mesh)
    except ValueError as error:
        findings.add("statements", f"{what}: {error}")
        return
    if other.devices != flow.mesh.devices:
        findings.add("statements", f"{what}: the mesh has {other.devices} devices, the plan's {flow.mesh.devices}")
        return
    value, held = _lies(flow, target)
    if held is None:
        return
    pin = read_pin(stated, other)
    shape = flow.graph.values[value].shape
    if len(pin.dims) != len(shape):
        findings.add("statements", f"{what} has {len(pin.dims)} dimensions, {_name(flow, target)} {len(shape)}")
        return
    wanted = [cut(n, atoms, other) for n, (atoms, _) in zip(shape, pin.dims, strict=True)]
    own_ids = plan["mesh"]["device_ids"] or range(flow.mesh.devices)
    holder = {moved: at for at, moved in enumerate(order["moves"])} if order is not None else {}
    for position, device in enumerate(own_ids):
        has = _digits(holder.get(position, position), flow.mesh)
        wants = _digits(other_ids.index(device), other)
        for d, (run, asked, (_, is_open)) in enumerate(zip(held.runs, wanted, pin.dims, strict=True)):
            holds, meant = run.held(has), asked.held(wants)
            inside = set(holds) <= set(meant) if is_open else holds == meant or not (holds or meant)
            if not inside:
                findings.add(
                    "statements",
                    f"{what} is broken: device {device} holds {_span(holds)} of dimension {d} of "
                    f"{_name(flow, target)}, it should hold {_span(meant)}",
                )
                return


def _lies(flow: Flow, target: Target) -> tuple[int, Holding | None]:
    """The value of a target, and what devices hold of it: inputs as they come in, outputs as they are returned, other
    values in the form that their uses share.
    """
    where, index = target
    if where == "output":
        way = flow.uses.get((PROGRAM_OP, index, -1))
        return flow.graph.body.results[index], None if way is None else way.end
    if where == "input":
        value = flow.graph.body.args[index]
        return value, flow.defined.get(value)
    return index, flow.form(index)


def _target(graph: Graph, value: int) -> Target:
    return ("input", graph.body.args.index(value)) if value in graph.body.args else ("value", value)


def _name(flow: Flow, target: Target) -> str:
    where, index = target
    return f"output {flow.graph.output_names[index]}" if where == "output" else flow.name(_lies(flow, target)[0])


def _digits(position: int, mesh: Atoms) -> list[int]:
    digits = []
    for size in reversed(mesh.sizes):
        digits.append(position % size)
        position //= size
    return digits[::-1]


def _crossed(moves: list[int], mesh: Atoms) -> tuple[int, ...]:
    """Atoms along which some block changes devices."""
    crossed: set[int] = set()
    for source, target in enumerate(moves):
        pairs = zip(_digits(source, mesh), _digits(target, mesh), strict=True)
        crossed |= {a for a, (x, y) in enumerate(pairs) if x != y}
    return tuple(sorted(crossed))


def _span(elements: range) -> str:
    return f"{elements.start}..{elements.stop - 1}" if elements else "nothing"
