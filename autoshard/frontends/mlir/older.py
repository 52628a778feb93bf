"""Shardings in the form of GSPMD (``mhlo.sharding``), or as HLO carries those of Shardy: nothing here reads them."""

from collections.abc import Iterator

from jaxlib.mlir import ir

from autoshard.frontends.mlir.context import parse_module

OLDER = "mhlo.sharding"
_CARRIED = "mhlo.frontend_attributes"
_SHARDY = "xla.sdy."


def older_shardings(text: str | bytes) -> bool:
    """Whether a sound module has any such sharding."""
    data = text.encode() if isinstance(text, str) else text
    if OLDER.encode() not in data and _SHARDY.encode() not in data:
        return False
    return any(has_older_sharding(op) for op in all_ops(parse_module(text).operation))


def all_ops(op: ir.Operation) -> Iterator[ir.Operation]:
    """An op and all ops inside of it, in the order of the text."""
    yield op
    for region in op.regions:
        for block in region.blocks:
            for inner in block.operations:
                yield from all_ops(inner.operation)


def has_older_sharding(op: ir.Operation) -> bool:
    """Whether an op, or an argument or a result of a function, has a sharding in one of these forms."""
    return any(_has(attributes) for attributes in _attributes(op))


def _attributes(op: ir.Operation) -> Iterator[dict[str, ir.Attribute]]:
    yield {name: op.attributes[name] for name in (OLDER, _CARRIED) if name in op.attributes}
    for name in ("arg_attrs", "res_attrs"):
        if op.name == "func.func" and name in op.attributes:
            yield from ({a.name: a.attr for a in ir.DictAttr(entry)} for entry in ir.ArrayAttr(op.attributes[name]))


def _has(attributes: dict[str, ir.Attribute]) -> bool:
    carried = attributes.get(_CARRIED)
    return OLDER in attributes or (
        carried is not None and any(entry.name.startswith(_SHARDY) for entry in ir.DictAttr(carried))
    )
