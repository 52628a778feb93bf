"""One node against the schema of its op: its attributes, and its inputs with their shapes.

Where a schema is broken, a mapping to JAX could still compute something: it takes an axis of 9 modulo the rank.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from autoshard.errors import InputError
from autoshard.onnx.ops.types import type_message

MOST_KNOWN = 1024
"""Known inputs with more elements decide no shapes; the schema is not shown their values."""
_ABOUT_TYPES = ("typestr", "inconsistent type", "same type", "bit-width")
"""Words of messages about element types, which are no fault: JAX has narrower ones than the model."""
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
    bodies = any(a.HasField("g") for a in node.attribute)  # they see values around them
    if schema.deprecated or sequences or bodies:
        return
    for widened in (False, True):
        fault = _fault(schema, node, inputs, opsets, widened)
        if not fault:
            return
    if not any(words in fault for words in _ABOUT_TYPES):
        raise InputError(f"{where} breaks the rules of its op in opset {version}: {fault}")


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
