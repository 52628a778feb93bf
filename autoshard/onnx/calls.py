"""Nodes as rules see them: types of tensors, attributes as Python values, numbers of constant inputs."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from autoshard.onnx.graph import UNKNOWN, ValueType
from autoshard.onnx.library import onnx_library
from autoshard.onnx.rules import Call

if TYPE_CHECKING:
    from onnx import NodeProto

MAX_NUMBERS = 1024
"""Constants with more elements are not read: they are no axes, steps or paddings."""

_INTEGERS = frozenset({"int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"})


class Constants:
    """Integer constants that are visible in a scope, read when they are asked for."""

    def __init__(self, outer: "Constants | None" = None) -> None:
        self.outer = outer
        self.sources: dict[str, Any] = {}
        self.known: dict[str, tuple[int, ...] | None] = {}

    def add_tensors(self, tensors: Sequence[Any]) -> None:
        """Enter initializers, by their names."""
        for tensor in tensors:
            self.sources[tensor.name] = tensor

    def add_node(self, node: "NodeProto") -> None:
        """Enter the output of a Constant node; other nodes are passed over."""
        if node.op_type == "Constant" and node.domain in ("", "ai.onnx") and node.output:
            self.sources[node.output[0]] = node

    def get(self, name: str) -> tuple[int, ...] | None:
        """The whole numbers of a constant, flattened; None where the name is no constant or holds none."""
        if name in self.sources:
            if name not in self.known:
                self.known[name] = _numbers(self.sources[name])
            return self.known[name]
        return None if self.outer is None else self.outer.get(name)


def _numbers(source: Any) -> tuple[int, ...] | None:
    onnx = onnx_library()
    if not isinstance(source, onnx.TensorProto):
        attributes = {a.name: a for a in source.attribute}
        if "value_int" in attributes:
            return (attributes["value_int"].i,)
        if "value_ints" in attributes:
            return tuple(attributes["value_ints"].ints)
        if "value" not in attributes:
            return None
        source = attributes["value"].t
    elements = 1
    for size in source.dims:
        elements *= size
    name = onnx.TensorProto.DataType.Name(source.data_type).lower()
    if elements > MAX_NUMBERS or name not in _INTEGERS or source.data_location == onnx.TensorProto.EXTERNAL:
        return None
    try:
        return tuple(int(n) for n in onnx.numpy_helper.to_array(source).reshape(-1))
    except (ValueError, TypeError):  # data that do not fill the shape
        return None


def call_of(node: "NodeProto", types: Mapping[str, ValueType], constants: Constants, opsets: Mapping[str, int]) -> Call:
    """The node with what is known of its tensors, as rules take it."""
    domain = "" if node.domain == "ai.onnx" else node.domain
    numbers = {}
    for index, name in enumerate(node.input):
        found = constants.get(name) if name else None
        if found is not None:
            numbers[index] = found
    return Call(
        node.op_type,
        tuple(types.get(name, UNKNOWN) if name else None for name in node.input),
        tuple(types.get(name, UNKNOWN) if name else None for name in node.output),
        tuple(node.input),
        {a.name: value for a in node.attribute if (value := attribute_value(a)) is not None},
        numbers,
        opsets.get(domain, 1),
    )


def attribute_value(attribute: Any) -> Any:
    """An attribute as a number, text or list of them; None for tensors, graphs and references to a function's own."""
    kind = onnx_library().AttributeProto
    if attribute.ref_attr_name:
        return None
    if attribute.type == kind.INT:
        return attribute.i
    if attribute.type == kind.FLOAT:
        return attribute.f
    if attribute.type == kind.STRING:
        return attribute.s
    if attribute.type == kind.INTS:
        return tuple(attribute.ints)
    if attribute.type == kind.FLOATS:
        return tuple(attribute.floats)
    return None
