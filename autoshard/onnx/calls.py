"""Nodes as rules see them: types of tensors, attributes as Python values, numbers of constant inputs."""

from collections.abc import Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from autoshard.onnx.graph import UNKNOWN, ValueType, dtype_name
from autoshard.onnx.installed import onnx_library
from autoshard.onnx.rules import Call

if TYPE_CHECKING:
    from onnx import NodeProto

MAX_NUMBERS = 1024
"""Constants with more elements are not read: they are no axes, steps or paddings."""

_INTEGERS = frozenset({"int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"})
_REALS = frozenset({"float32", "float64", "float16", "bfloat16"})
_SHORT = {"value_int": "int64", "value_ints": "int64", "value_float": "float32", "value_floats": "float32"}
_TAKES_REALS = frozenset({"Resize", "Upsample"})
"""Operators whose rules depend on numbers that are no whole ones: their scales."""


class Constants:
    """Constants of numbers that are visible in a scope, read when they are asked for."""

    def __init__(self, outer: "Constants | None" = None) -> None:
        self.outer = outer
        self.sources: dict[str, Any] = {}
        self.known: dict[str, tuple[int, ...] | None] = {}
        self.known_reals: dict[str, tuple[float, ...] | None] = {}

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

    def reals(self, name: str) -> tuple[float, ...] | None:
        """A constant of floating point numbers."""
        if name in self.sources:
            if name not in self.known_reals:
                self.known_reals[name] = _reals(self.sources[name])
            return self.known_reals[name]
        return None if self.outer is None else self.outer.reals(name)


def _numbers(source: Any) -> tuple[int, ...] | None:
    """The whole numbers of a tensor or a Constant node."""
    held = _held(source, _INTEGERS)
    return None if held is None else tuple(int(n) for n in held)


def _reals(source: Any) -> tuple[float, ...] | None:
    """The floating point numbers of a tensor or a Constant node."""
    held = _held(source, _REALS)
    return None if held is None else tuple(float(n) for n in held)


def _held(source: Any, types: frozenset[str]) -> Sequence[Any] | None:
    onnx = onnx_library()
    if not isinstance(source, onnx.TensorProto):
        attributes = {a.name: a for a in source.attribute}
        for name, value in attributes.items():
            if name in _SHORT and _SHORT[name] in types:
                read = attribute_value(value)
                return read if isinstance(read, tuple) else (read,)
        if "value" not in attributes:
            return None
        source = attributes["value"].t
    name = dtype_name(source.data_type)
    if prod(source.dims) > MAX_NUMBERS or name not in types or source.data_location == onnx.TensorProto.EXTERNAL:
        return None
    try:
        return onnx.numpy_helper.to_array(source).reshape(-1)
    except (ValueError, TypeError):  # data that do not fill the shape
        return None


def call_of(node: "NodeProto", types: Mapping[str, ValueType], constants: Constants, opsets: Mapping[str, int]) -> Call:
    """The node with what is known of its tensors, as rules take it."""
    domain = "" if node.domain == "ai.onnx" else node.domain
    numbers, reals = {}, {}
    for index, name in enumerate(node.input):
        constant = constants.get(name) if name else None
        if constant is not None:
            numbers[index] = constant
        elif name and node.op_type in _TAKES_REALS and (known := constants.reals(name)) is not None:
            reals[index] = known
    return Call(
        node.op_type,
        tuple(types.get(name, UNKNOWN) if name else None for name in node.input),
        tuple(types.get(name, UNKNOWN) if name else None for name in node.output),
        tuple(node.input),
        {a.name: value for a in node.attribute if (value := attribute_value(a)) is not None},
        numbers,
        opsets.get(domain, 1),
        reals,
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
