"""One node against the schema of its op: its attributes, and its inputs with their types and shapes.

Where a schema is broken, a mapping to JAX could still compute something: it takes an axis of 9 modulo the rank, and
adds whole numbers to others.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from autoshard.errors import InputError
from autoshard.onnx.choices import choice_fault
from autoshard.onnx.ops.types import type_message

MOST_KNOWN = 1024
"""Known inputs with more elements decide no shapes; the schema is not shown their values."""
_ABOUT_TYPES = ("typestr", "inconsistent type", "same type", "bit-width")
"""Words of messages about element types, which need not be a fault: JAX has narrower ones than the model."""
_NARROWER = {"double": "float", "int64": "int32", "uint64": "uint32", "complex128": "complex64"}
"""Element types that JAX computes in others (as ONNX calls them); they are not told apart here."""
_WIDER = {"int32": "int64", "uint32": "uint64", "float32": "float64"}


def check_schema(
    node: Any, domain: str, version: int, inputs: Sequence[Any], opsets: Mapping[str, int], where: str
) -> None:
    """`InputError` where a node breaks the schema of its op.

    node: without references to attributes of functions. inputs: its values, NumPy arrays where they are known.
    """
    import onnx.defs

    try:
        schema: Any = onnx.defs.get_schema(node.op_type, version, domain)
    except onnx.defs.SchemaError:
        return
    sequences = any(isinstance(x, list | tuple) for x in inputs)
    if schema.deprecated or sequences:
        return
    bodies = any(a.HasField("g") for a in node.attribute)  # they see values around them
    fault = (
        _attribute_fault(schema, node)
        or ("" if bodies else _inference_fault(schema, node, inputs, opsets))
        or _type_fault(schema, node, inputs)
    )
    if fault:
        raise InputError(f"{where} breaks the rules of its op in opset {version}: {fault}")


def _inference_fault(schema: Any, node: Any, inputs: Sequence[Any], opsets: Mapping[str, int]) -> str:
    """What ONNX's own inference finds wrong with both the narrower and the wider types; empty where that is nothing."""
    fault = ""
    for widened in (False, True):
        fault = _fault(schema, node, inputs, opsets, widened)
        if not fault:
            return ""
    return "" if any(words in fault for words in _ABOUT_TYPES) else fault


def _attribute_fault(schema: Any, node: Any) -> str:
    """What is wrong with the attributes that a node has or lacks; empty where that is nothing."""
    stated = {a.name for a in node.attribute}
    missing = next((name for name, a in schema.attributes.items() if a.required and name not in stated), None)
    if missing is not None:
        return f"Required attribute '{missing}' is missing."
    return next((f for a in node.attribute if (f := choice_fault(node.op_type, a))), "")


def _type_fault(schema: Any, node: Any, inputs: Sequence[Any]) -> str:
    """Where inputs have types that the op does not take, or different ones where it wants one; else empty."""
    allowed = {c.type_param_str: frozenset(map(_narrow, c.allowed_type_strs)) for c in schema.type_constraints}
    bound: dict[str, tuple[int, str]] = {}
    formal = None
    for index, x in enumerate(inputs):
        formal = schema.inputs[index] if index < len(schema.inputs) else formal
        if formal is None or x is None:
            continue
        found, wanted = _type_name(x), formal.type_str
        told = f"input {index} ({node.input[index]!r}) is {_shown(found)}"
        if found not in allowed.get(wanted, {_narrow(wanted)}):
            return f"{told}, which is no type that it takes there"
        if wanted not in allowed or not formal.is_homogeneous:
            continue
        first, other = bound.setdefault(wanted, (index, found))
        if found != other:
            before = f"input {first} ({node.input[first]!r}) is {_shown(other)}"
            return f"{before}, and {told}; both must have one type (Cast converts)"
    return ""


def _type_name(x: Any) -> str:
    """The type of a value as schemas call it, in the form that JAX computes in."""
    from onnx import TensorProto, helper

    return _narrow(f"tensor({TensorProto.DataType.Name(helper.np_dtype_to_tensor_dtype(np.dtype(x.dtype))).lower()})")


def _narrow(name: str) -> str:
    kind = name.removeprefix("tensor(").removesuffix(")")
    return f"tensor({_NARROWER.get(kind, kind)})" if name.startswith("tensor(") else name


def _shown(name: str) -> str:
    kind = name.removeprefix("tensor(").removesuffix(")")
    return "float32" if kind == "float" else kind


def _fault(schema: Any, node: Any, inputs: Sequence[Any], opsets: Mapping[str, int], widened: bool) -> str:
    """What ONNX's own inference finds wrong; empty where that is nothing. widened: with 64-bit types of inputs."""
    import onnx
    from onnx import helper, numpy_helper
    from onnx.checker import ValidationError
    from onnx.shape_inference import InferenceError, infer_node_outputs

    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    copy.input[:] = [name if x is not None else "" for name, x in zip(node.input, inputs, strict=True)]
    present = {name: x for name, x in zip(copy.input, inputs, strict=True) if name}
    known = {
        name: numpy_helper.from_array(x, name)
        for name, x in present.items()
        if isinstance(x, np.ndarray) and x.size <= MOST_KNOWN and x.dtype.kind not in "OUS"
    }
    types = {name: type_message(_wide(x) if widened else x) for name, x in present.items()}
    imports = [helper.make_opsetid(name, number) for name, number in opsets.items()]
    try:
        infer_node_outputs(schema, copy, types, known, opset_imports=imports)
    except (InferenceError, ValidationError) as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        return lines[0].removeprefix("[ShapeInferenceError] ").removeprefix("[TypeInferenceError] ")
    return ""


def _wide(x: Any) -> Any:
    """The shape and type of a value before JAX made it a narrower one."""
    name = np.dtype(x.dtype).name
    return np.broadcast_to(np.zeros((), _WIDER[name]), x.shape) if name in _WIDER else x
