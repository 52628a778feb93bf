"""Functions of a module: what would end the process in Shardy's passes is refused before they run."""

import re

from jaxlib.mlir import ir

from autoshard.errors import InputError, UnsupportedError

_LINE = re.compile(r'"[^"]*":(\d+):\d+')


def check_functions(module: ir.Module, *, inlines_calls: bool = True) -> None:
    """Refuse, with a typed error, modules that would end the process in Shardy's passes.

    There must be a main function (the only one, or the one called main). Where calls are inlined, they must lead to
    bodies and not in circles. Values must be tensors of static shape, not tuples.
    """
    functions = {
        ir.StringAttr(op.attributes["sym_name"]).value: op.operation
        for op in module.body.operations
        if op.operation.name == "func.func"
    }
    if len(functions) != 1 and "main" not in functions:
        if not functions:
            raise InputError("the module has no functions, so there is nothing to propagate")
        raise InputError(
            f"the module has {len(functions)} functions and none is called main: "
            f"{', '.join(list(functions)[:8])}; call one @main, or give a module with a single function"
        )
    calls: dict[str, list[str]] = {name: [] for name in functions}

    def visit(op: ir.Operation, function: str) -> None:
        if op.name == "func.call" and inlines_calls:
            callee = ir.FlatSymbolRefAttr(op.attributes["callee"]).value
            if callee not in functions or not list(functions[callee].regions[0].blocks):
                raise UnsupportedError(
                    f"{_line(op)}@{function} calls @{callee}, which has no body; give its body or use a custom call"
                )
            calls[function].append(callee)
        for result in op.results:
            kind = result.type
            if isinstance(kind, ir.TupleType):
                raise UnsupportedError(
                    f"{_line(op)}{op.name} in @{function} makes a tuple {kind}; propagation supports tensors only, so "
                    "let it have several results"
                )
            if isinstance(kind, ir.RankedTensorType) and not kind.has_static_shape:
                raise UnsupportedError(
                    f"{_line(op)}{op.name} in @{function} makes {kind}; propagation supports static shapes only, so "
                    "write the module with the sizes that it is run with"
                )
        for region in op.regions:
            for block in region.blocks:
                for inner in block.operations:
                    visit(inner.operation, function)

    for name, function in functions.items():
        visit(function, name)
    for name in functions:
        at, path = [name], {name}
        while at:
            for callee in calls[at.pop()]:
                if callee == name:
                    raise InputError(f"@{name} calls itself, directly or through others; recursion cannot be inlined")
                if callee not in path:
                    path.add(callee)
                    at.append(callee)


def _line(op: ir.Operation) -> str:
    match = _LINE.search(str(op.location))
    return f"line {match[1]}: " if match else ""
