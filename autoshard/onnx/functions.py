"""Functions that a model defines itself: their bodies, with the types and attributes of one call filled in."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from autoshard.onnx.graph import UNKNOWN, ValueType, value_types
from autoshard.onnx.installed import onnx_library

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto


@dataclass(frozen=True)
class Body:
    """The nodes of a function with the attributes of one call filled in, and what is known of their values."""

    nodes: tuple["NodeProto", ...]
    types: Mapping[str, ValueType]


@dataclass(frozen=True)
class Function:
    """A function that a model defines."""

    proto: Any
    known: dict[tuple, Body] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Domain and name, ``domain::name``."""
        return f"{self.proto.domain}::{self.proto.name}"

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of its inputs."""
        return tuple(self.proto.input)

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of its outputs."""
        return tuple(self.proto.output)

    @property
    def opsets(self) -> dict[str, int]:
        """Opset versions by domain; "" is ai.onnx."""
        return {("" if o.domain == "ai.onnx" else o.domain): o.version for o in self.proto.opset_import}

    def attributes_key(self, node: "NodeProto") -> tuple[bytes, ...]:
        """The attributes of a call as a value that can be compared and hashed."""
        return tuple(sorted(a.SerializeToString(deterministic=True) for a in node.attribute))

    def body(self, kinds: tuple[ValueType, ...], node: "NodeProto", model: "ModelProto") -> Body:
        """The body for a call with inputs of these types."""
        key = (kinds, self.attributes_key(node))
        if key not in self.known:
            nodes = self._nodes(node)
            self.known[key] = Body(nodes, self._types(kinds, nodes, model))
        return self.known[key]

    def _nodes(self, call: "NodeProto") -> tuple["NodeProto", ...]:
        defaults = {a.name: a for a in self.proto.attribute_proto}
        attributes = defaults | {a.name: a for a in call.attribute}
        return tuple(
            _with_attributes(node, attributes) if any(a.ref_attr_name for a in node.attribute) else node
            for node in self.proto.node
        )

    def _types(
        self, kinds: tuple[ValueType, ...], nodes: tuple["NodeProto", ...], model: "ModelProto"
    ) -> dict[str, ValueType]:
        """The types that shape inference finds for the body, taken as a graph of its own."""
        onnx = onnx_library()
        inputs = [
            onnx.helper.make_tensor_value_info(name, _element_type(kind), kind.dims)
            for name, kind in zip(self.inputs, kinds, strict=False)
            if kind.dtype != "?"
        ]
        outputs = [onnx.helper.make_empty_tensor_value_info(name) for name in self.outputs]
        graph = onnx.helper.make_graph(list(nodes), self.proto.name or "function", inputs, outputs)
        whole = onnx.ModelProto(ir_version=model.ir_version, graph=graph)
        whole.opset_import.extend(self.proto.opset_import)
        whole.functions.extend(model.functions)
        known = {info.name: info for info in self.proto.value_info}
        stated = value_types(onnx.GraphProto(value_info=list(known.values())))
        try:
            inferred = value_types(onnx.shape_inference.infer_shapes(whole, data_prop=True).graph)
        except Exception:  # a body alone can lack what inference wants; what the model states is left
            inferred = {}
        return {n: k for n, k in stated.items() if k != UNKNOWN} | {n: k for n, k in inferred.items() if k != UNKNOWN}


def function_key(node: Any) -> tuple[str, str, str]:
    """The key (domain, name, overload) of the function that a node calls."""
    return node.domain, node.op_type, getattr(node, "overload", "")


def functions_of(model: "ModelProto") -> dict[tuple[str, str, str], Function]:
    """The local functions of a model, by (domain, name, overload)."""
    return {(f.domain, f.name, getattr(f, "overload", "")): Function(f) for f in model.functions}


def _element_type(kind: ValueType) -> int:
    name = {"float32": "FLOAT", "float64": "DOUBLE"}.get(kind.dtype, kind.dtype.upper())
    return onnx_library().TensorProto.DataType.Value(name)


def _with_attributes(node: "NodeProto", attributes: Mapping[str, Any]) -> "NodeProto":
    """A copy in which references to the function's attributes have the call's values, or are gone where it has none."""
    copy = onnx_library().NodeProto()
    copy.CopyFrom(node)
    del copy.attribute[:]
    for attribute in node.attribute:
        if not attribute.ref_attr_name:
            copy.attribute.add().CopyFrom(attribute)
        elif attribute.ref_attr_name in attributes:
            added = copy.attribute.add()
            added.CopyFrom(attributes[attribute.ref_attr_name])
            added.name = attribute.name
    return copy
