"""Attributes of nodes as Python values, with the defaults of the schema."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from autoshard.onnx.ops.registry import normal


def attributes_of(node: Any, version: int, outer: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes of a node by name. outer: the attributes of the call, for a node in a function's body."""
    attributes = dict(_defaults(normal(node.domain), node.op_type, version))
    for attribute in node.attribute:
        if attribute.ref_attr_name:
            if attribute.ref_attr_name in outer:
                attributes[attribute.name] = outer[attribute.ref_attr_name]
            continue
        attributes[attribute.name] = value_of(attribute)
    return attributes


def value_of(attribute: Any) -> Any:
    """An attribute as a number, a text, a list of them, or a NumPy array for a tensor; a graph stays as it is."""
    from onnx import AttributeProto, helper, numpy_helper

    if attribute.type == AttributeProto.TENSOR:
        return numpy_helper.to_array(attribute.t)
    value = helper.get_attribute_value(attribute)
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, str | int | float) or not hasattr(value, "__iter__") or hasattr(value, "DESCRIPTOR"):
        return value
    return [v.decode(errors="replace") if isinstance(v, bytes) else v for v in value]


def as_proto(name: str, value: Any) -> Any:
    """The value as an attribute message again, for a node that is taken out of its model."""
    import numpy as np
    from onnx import helper, numpy_helper

    return helper.make_attribute(name, numpy_helper.from_array(value) if isinstance(value, np.ndarray) else value)


@lru_cache(maxsize=4096)
def _defaults(domain: str, op: str, version: int) -> tuple[tuple[str, Any], ...]:
    import onnx.defs

    try:
        schema = onnx.defs.get_schema(op, version, domain)
    except onnx.defs.SchemaError:
        return ()
    return tuple(
        (name, value_of(a.default_value)) for name, a in schema.attributes.items() if a.default_value.name
    )  # fmt: skip
