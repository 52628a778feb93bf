"""Collectives in StableHLO text, as ``jax.jit(f).lower(...).as_text()`` prints it."""

import re
from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np

from autoshard.errors import InputError
from autoshard.verify.runs.collectives import FoundCollective, FoundLoop

_KINDS = {
    "stablehlo.all_gather": "all_gather",
    "stablehlo.all_reduce": "all_reduce",
    "stablehlo.reduce_scatter": "reduce_scatter",
    "stablehlo.all_to_all": "all_to_all",
    "stablehlo.collective_permute": "permute",
}
_RAGGED = "ragged_all_to_all"
"""The target of a custom call that is an all-to-all of its first operand."""
_OTHERS = frozenset({"stablehlo.collective_broadcast", "stablehlo.send", "stablehlo.recv"})
_COMBINERS = {"stablehlo.add": "add", "stablehlo.maximum": "max", "stablehlo.minimum": "min"}
_COMBINERS |= {"stablehlo.or": "max", "stablehlo.and": "min"}  # on booleans they are the same


def stablehlo_collectives(text: str) -> list[FoundCollective]:
    """Every collective the module executes from its main function, in program order.

    A function called n times counts n times. Loops say how often they run where their condition compares a
    counter from 0 with a constant (as `scan` is written). Raises `InputError` for text that cannot be parsed.
    """
    from jax.extend.mlir import ir

    with _context():
        try:
            module = ir.Module.parse(text)
        except ir.MLIRError as error:
            raise InputError(f"cannot parse StableHLO text: {str(error)[:500]}") from None
        functions = {_symbol(op): op for op in module.body.operations if op.operation.name == "func.func"}
        main = functions.get("main")
        if main is None:
            raise InputError(f"the module has no function @main, only {sorted(functions)}")
        return list(_walk(main, functions, ()))


def _context() -> Any:
    from jax.extend.mlir import ir
    from jax.extend.mlir.dialects import chlo, sdy, stablehlo
    from jaxlib.mlir._mlir_libs import _jax_mlir_ext

    context, registry = ir.Context(), ir.DialectRegistry()
    _jax_mlir_ext.register_dialects(registry)
    context.append_dialect_registry(registry)
    context.load_all_available_dialects()
    context.allow_unregistered_dialects = True  # attributes of other dialects in the text do no harm
    for dialect in (sdy, stablehlo, chlo):
        dialect.register_dialect(context)
    return context


def _symbol(op: Any) -> str:
    from jax.extend.mlir import ir

    return ir.StringAttr(op.operation.attributes["sym_name"]).value


def _walk(op: Any, functions: dict[str, Any], loops: tuple[FoundLoop, ...]) -> Iterator[FoundCollective]:
    from jax.extend.mlir import ir

    name = op.operation.name
    if name in _OTHERS:
        raise InputError(f"found {name}, which no plan contains")
    if name in _KINDS:
        yield _collective(op.operation, _KINDS[name], loops)
        return
    if name == "stablehlo.custom_call" and ir.StringAttr(op.operation.attributes["call_target_name"]).value == _RAGGED:
        yield _ragged(op.operation, loops)
        return
    if name in ("func.call", "stablehlo.composite"):
        attribute = "callee" if name == "func.call" else "decomposition"
        callee = ir.FlatSymbolRefAttr(op.operation.attributes[attribute]).value
        yield from _walk(functions[callee], functions, loops)
        return
    for index, region in enumerate(op.operation.regions):
        inner = loops
        if name == "stablehlo.while":
            trips = _trips(op.operation)
            inner = (*loops, FoundLoop("loop", trips if index == 1 or trips is None else trips + 1))
        elif name in ("stablehlo.case", "stablehlo.if"):
            inner = (*loops, FoundLoop("branch", None))
        for block in region.blocks:
            for child in block.operations:
                yield from _walk(child, functions, inner)


def _collective(op: Any, kind: str, loops: tuple[FoundLoop, ...]) -> FoundCollective:
    from jax.extend.mlir import ir

    key = "source_target_pairs" if kind == "permute" else "replica_groups"
    groups = _groups(op, op.attributes[key])
    types = [ir.RankedTensorType(operand.type) for operand in op.operands]
    combiner = ""
    if kind in ("all_reduce", "reduce_scatter"):
        names = [child.operation.name for child in op.regions[0].blocks[0].operations]
        combiner = next((_COMBINERS[n] for n in names if n in _COMBINERS), names[0])
    return FoundCollective(
        kind=kind,
        groups=groups,
        elements=sum(prod(t.shape) for t in types),
        dtype=_dtype(str(types[0].element_type)),
        loops=loops,
        combiner=combiner,
    )


def _ragged(op: Any, loops: tuple[FoundLoop, ...]) -> FoundCollective:
    from jax.extend.mlir import ir

    given = ir.RankedTensorType(op.operands[0].type)
    groups = _groups(op, ir.DictAttr(op.attributes["backend_config"])["replica_groups"])
    return FoundCollective("all_to_all", groups, prod(given.shape), _dtype(str(given.element_type)), loops)


def _groups(op: Any, attribute: Any) -> tuple[tuple[int, ...], ...]:
    """Device groups or pairs: written out, or as axes of one of the module's meshes (JAX 0.12 and newer)."""
    from jax.extend.mlir import ir

    if isinstance(attribute, ir.DenseIntElementsAttr):
        return tuple(tuple(int(d) for d in group) for group in np.array(ir.DenseIntElementsAttr(attribute)))
    text = str(attribute)
    named = re.search(r"replica_group_mesh_axes<mesh = @([^,>]+), axes = \[(.*)\]>", text)
    if named is None or "sub_axis_info" in text:
        raise InputError(f"cannot read the device groups of {op.name}: {text}")
    mesh = _mesh(op, named[1])
    wanted = re.findall(r'axis_ref<name = "([^"]*)"', named[2])
    sizes = [int(size) for _, size in re.findall(r'"([^"]*)"=(\d+)', mesh)]
    names = [name for name, _ in re.findall(r'"([^"]*)"=(\d+)', mesh)]
    ids = re.search(r"device_ids=\[([\d, ]*)\]", mesh)
    devices = np.arange(prod(sizes)) if ids is None else np.array([int(d) for d in ids[1].split(",")])
    inner = [names.index(name) for name in wanted]
    outer = [k for k in range(len(names)) if k not in inner]
    table = devices.reshape(sizes).transpose(*outer, *inner).reshape(-1, prod(sizes[k] for k in inner))
    return tuple(tuple(int(d) for d in group) for group in table)


def _mesh(op: Any, name: str) -> str:
    """The text of a mesh of the module that `op` is in."""
    top = op
    while top.parent is not None:
        top = top.parent
    for other in top.regions[0].blocks[0].operations:
        if other.operation.name == "sdy.mesh" and _symbol(other) == name:
            return str(other.operation.attributes["mesh"])
    raise InputError(f"{op.name} names the mesh @{name}, which the module does not have")


def _dtype(name: str) -> str:
    """``f32`` -> ``float32``, ``ui8`` -> ``uint8``, ``i1`` -> ``bool``, ``complex<f32>`` -> ``complex64``."""
    if name == "i1":
        return "bool"
    if name.startswith("complex<f"):
        return f"complex{2 * int(name[9:-1])}"
    for short, full in (("bf", "bfloat"), ("ui", "uint"), ("f8", "float8_"), ("f", "float"), ("i", "int")):
        if name.startswith(short):
            return full + name[len(short) :].lower()
    return name


def _trips(op: Any) -> int | None:
    """Trip count of a while whose condition is ``counter < constant``, counting up from a constant by another one."""
    from jax.extend.mlir import ir

    condition = op.regions[0].blocks[0]
    *_, last = condition.operations
    compare = last.operation.operands[0].owner
    if getattr(compare, "name", "") != "stablehlo.compare" or "LT" not in str(
        compare.attributes["comparison_direction"]
    ):
        return None
    counter, bound = compare.operands
    if not isinstance(counter, ir.BlockArgument):
        return None
    start, limit, by = _constant(op.operands[counter.arg_number]), _constant(bound), _step(op, counter.arg_number)
    if start is None or limit is None or by is None or by < 1:
        return None
    return max(0, -((start - limit) // by))


def _step(op: Any, number: int) -> int | None:
    """What the body of a while adds to one of its arguments; None where it does something else with it."""
    body = op.regions[1].blocks[0]
    *_, last = body.operations
    made = last.operation.operands[number].owner
    if getattr(made, "name", "") != "stablehlo.add":
        return None
    terms = list(made.operands)
    others = [term for term in terms if term != body.arguments[number]]
    return _constant(others[0]) if len(others) == 1 else None


def _constant(value: Any) -> int | None:
    from jax.extend.mlir import ir

    owner = value.owner
    if getattr(owner, "name", "") != "stablehlo.constant":
        return None
    attribute = owner.attributes["value"]
    if not isinstance(attribute, ir.DenseIntElementsAttr):
        return None
    numbers = np.array(ir.DenseIntElementsAttr(attribute))
    return int(numbers) if numbers.shape == () else None
