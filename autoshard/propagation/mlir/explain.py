"""Where the sharding of a value of an MLIR module came from, in the names and lines of the file (S2.50 to S2.52)."""

import re
from dataclasses import dataclass

from jaxlib.mlir import ir

from autoshard.errors import InputError
from autoshard.frontends.mlir.context import mlir_context, parse_module, run_passes
from autoshard.frontends.mlir.functions import check_functions
from autoshard.propagation.engine import Strategy, run_propagation
from autoshard.propagation.mlir.graph import ModuleGraph, build_module_graph
from autoshard.propagation.mlir.groups import open_conflicting_groups
from autoshard.propagation.mlir.module import needs_edges
from autoshard.propagation.mlir.ops import CONSTRAINT, EDGE, FUNC, MANUAL, NAMED, owning_op
from autoshard.propagation.mlir.passes import ADD_EDGES, import_passes
from autoshard.propagation.provenance import GROUP, OUTPUT, Step, chains
from autoshard.propagation.spec import axis_ref

_PLACE = re.compile(r'"[^"]*":(\d+):(\d+)')
_RESULT = re.compile(r"%([\w$.-]+)(?::(\d+))?")
"""One name of results, and of how many."""
_NAME = r"%[\w$.-]++(?::\d++)?+"
_NAMES = re.compile(rf"({_NAME}(?:\s*+,\s*+{_NAME})*+)(\s*+=\s*+)?+")
"""A list of names as a whole, which is read once however long it is, and what makes it the names before an op, ``%a,
%b:2 = ``; also what a loop's arguments begin with, ``(%i = %c, %j = %d)``.
"""
_BEFORE_OPERANDS = ("(", ",", "=")


@dataclass(frozen=True, slots=True)
class AxisOrigin:
    """Where one axis of a value came from.

    axis: in quotes, as in a sharding. dim: the dimension it cuts. source: the argument, result or op whose own sharding
    names the axis. path: the ops that the axis passed, from the value back to the source.
    """

    axis: str
    dim: int
    source: str
    path: tuple[str, ...]

    def __str__(self) -> str:
        way = "".join(f"\n    through {step}" for step in self.path)
        return f"dimension {self.dim}: {self.axis} from {self.source}{way}"


@dataclass(frozen=True, slots=True)
class Explained:
    """The sharding of one value after propagation, and the origin of each of its axes."""

    value: str
    sharding: str
    origins: tuple[AxisOrigin, ...]

    def __str__(self) -> str:
        return "\n".join([f"{self.value}: {self.sharding}", *(f"  {o}" for o in self.origins)])


def explain_mlir(
    text: str, value: str, *, strategy: Strategy | str | None = None, conservative: bool = False
) -> Explained:
    """Propagate over a module and tell where the axes of one value came from.

    value: its name in the text, ``%x`` or ``%r#1`` for a result of several; where several functions or bodies use the
        name, the first one counts. strategy: as for `propagate_mlir`. Raises `InputError` where there is no such value.
    """
    chosen = Strategy.USER_PRIORITY if strategy is None else Strategy.from_text(str(strategy))
    line, column, number = _definition(text, value)
    module = parse_module(text)
    stated = _stated_places(module)
    with mlir_context(), ir.Location.unknown():
        check_functions(module, inlines_calls=strategy is None)
        if strategy is None:
            run_passes(module, import_passes())
        elif needs_edges(module):
            run_passes(module, ADD_EDGES)
        groups = open_conflicting_groups(module)
        flag = str(conservative).lower()
        run_passes(module, f"func.func(sdy-populate-op-sharding-rules{{conservative-propagation={flag}}})")
        built = build_module_graph(module, groups)
        initial = list(built.graph.holders)
        run = run_propagation(built.graph, chosen, conservative=conservative, trace=True)
        holder = _holder_at(built, line, column, number)
        if holder is None:
            raise InputError(f"value {value} (line {line}) is no tensor with a sharding after the import passes")
        spec = built.graph.spec(holder)
        if spec is None:
            return Explained(value, "no sharding: nothing reached it", ())
        mesh = built.graph.meshes[spec.mesh]
        origins = []
        for ref, dim, steps in chains(built.graph, run, initial, holder):
            axis, first = str(axis_ref(ref, mesh)), steps[-1].source if steps else holder
            source = _constraint_on(built, first, axis, stated) or _describe(built, first)
            path = tuple(_step_text(built, s) for s in steps)
            origins.append(AxisOrigin(axis, dim, source, path))
        return Explained(value, built.text(holder) or "", tuple(origins))


def _definition(text: str, value: str) -> tuple[int, int, int]:
    """(line, column of the defining op or of the argument, result number) of a value's definition in the text."""
    match = re.fullmatch(r"%?([\w$.-]+)(?:#(\d{1,9}))?", value.strip())
    if match is None:
        raise InputError(f"{value!r} is no value name; write %name or %name#1")
    name, asked = match[1], int(match[2] or 0)
    argument = re.compile(rf"%{re.escape(name)}\s*:\s*(?!\d)|(?<=[(,])\s*%{re.escape(name)}\s*=")
    for number, line in enumerate(text.splitlines(), 1):
        code = line.split("//")[0]
        for results in _NAMES.finditer(code):
            if results[2] is None or _last(code, results.start()) in _BEFORE_OPERANDS:
                continue
            first = 0
            for result, count in _RESULT.findall(results[1]):
                if result == name and asked < int(count or 1):
                    return number, results.end() + 1, first + asked
                first += int(count or 1)
        place = argument.search(code)
        if place is not None and not asked:
            return number, place.start() + place[0].index("%") + 1, 0
    parse_module(text)  # a text that is no module is told as such
    raise InputError(f"no value %{value.strip().removeprefix('%')} is defined in the module")


def _last(text: str, end: int) -> str:
    """The last character before `end` that is no space; empty where there is none."""
    while end and text[end - 1].isspace():
        end -= 1
    return text[end - 1 : end]


def _place(location: ir.Location) -> tuple[int, int] | None:
    match = _PLACE.search(str(location))
    return (int(match[1]), int(match[2])) if match else None


def _holder_at(built: ModuleGraph, line: int, column: int, number: int) -> int | None:
    fallback: int | None = None
    for value, holder in built.held():
        if isinstance(value, ir.BlockArgument):
            if _place(value.location) == (line, column):
                return holder
            continue
        place = _place(value.location)
        if place is None or place[0] != line or value.owner.name == "sdy.data_flow_edge":  # pyright: ignore[reportAttributeAccessIssue]
            continue
        if ir.OpResult(value).result_number == number:
            if place[1] == column:
                return holder
            fallback = holder if fallback is None else fallback
    return fallback


def _stated_places(module: ir.Module) -> frozenset[tuple[int, int] | None]:
    """Places of the arguments and ops that have a sharding in the text."""
    found: set[tuple[int, int] | None] = set()

    def visit(op: ir.Operation) -> ir.WalkResult:
        if "sdy.sharding" in op.attributes:
            found.add(_place(op.location))
        if op.name == FUNC and "arg_attrs" in op.attributes and len(op.regions[0].blocks):
            arguments = zip(op.regions[0].blocks[0].arguments, ir.ArrayAttr(op.attributes["arg_attrs"]), strict=True)
            found.update(
                _place(argument.location) for argument, attrs in arguments if "sdy.sharding" in ir.DictAttr(attrs)
            )
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    return frozenset(found)


def _constraint_on(built: ModuleGraph, holder: int, axis: str, stated: frozenset[tuple[int, int] | None]) -> str | None:
    """The constraint that a value has its sharding of: the import passes copy it to what it constrains."""
    value = built.holder_values.get(holder)
    if value is None or _place(value.location) in stated:
        return None
    for use in value.uses:
        if use.owner.name == CONSTRAINT and axis in str(use.owner.attributes["sharding"]):
            place = _place(use.owner.location)
            return CONSTRAINT + (f" (line {place[0]})" if place else "")
    return None


def _describe(built: ModuleGraph, holder: int) -> str:
    if holder in built.result_slots:
        function, number = built.result_slots[holder]
        return f"result {number} of @{function}"
    value = built.holder_values[holder]
    op = owning_op(value)
    is_edge = op.name == EDGE
    if is_edge:
        value = op.operands[0]  # the value that the edge belongs to
        op = owning_op(value)
    place = _place(op.location) if is_edge else _place(value.location)
    where = f" (line {place[0]})" if place else ""
    if isinstance(value, ir.BlockArgument):
        if op.name in (MANUAL, NAMED):
            return f"in-sharding {value.arg_number} of {op.name}{where}"
        return f"argument {value.arg_number} {value.get_name()}{where}"
    number = ir.OpResult(value).result_number
    if op.name in (MANUAL, NAMED):
        return f"out-sharding {number} of {op.name}{where}"
    return f"result {number} of {op.name}{where}" if len(op.results) > 1 else f"{op.name}{where}"


def _step_text(built: ModuleGraph, step: Step) -> str:
    if step.node == OUTPUT:
        return "the output of the function"
    if step.node == GROUP:
        return "a sharding group"
    op, name = built.operations[step.node], built.operations[step.node].name
    if name == EDGE:
        op = owning_op(op.operands[0])
        name = f"the border of {op.name}"
    place = _place(op.location)
    return name + (f" (line {place[0]})" if place else "")
