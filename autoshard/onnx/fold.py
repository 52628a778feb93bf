"""Constant folding while a model is read: arithmetic on shapes, axes and other known values.

Known values are NumPy arrays; ONNX's own reference implementation computes with them.
"""

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

MOST_ELEMENTS = 2**16
"""Results with more elements are not folded: they become ops of the program."""
_NEVER = frozenset(
    ("If", "Loop", "Scan", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli",
     "Multinomial", "Dropout", "SequenceMap")
)  # fmt: skip
_BROADCAST = frozenset(
    ("Add", "Sub", "Mul", "Div", "Mod", "Pow", "Max", "Min", "Sum", "Mean", "Where", "Equal", "Greater", "Less",
     "GreaterOrEqual", "LessOrEqual", "And", "Or", "Xor", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitShift")
)  # fmt: skip
"""Ops whose result may be larger than all inputs together: a row and a column make a table."""
_NEWER_ONLY = {"Softmax": 13, "LogSoftmax": 13, "Hardmax": 13}
"""Op -> the opset as of which the reference computes it, whatever the model's opset is."""


def can_fold(op_type: str, version: int, inputs: Sequence[Any]) -> bool:
    """Whether all inputs are known, and the result is known to be small."""
    if (
        op_type in _NEVER
        or version < _NEWER_ONLY.get(op_type, 0)
        or not all(x is None or isinstance(x, np.ndarray) for x in inputs)
    ):
        return False
    if op_type == "ConstantOfShape":
        return prod(int(n) for n in inputs[0]) <= MOST_ELEMENTS
    if op_type in ("Expand", "Tile"):
        sizes = [int(n) for n in inputs[1]]
        return prod(sizes) * (inputs[0].size if op_type == "Tile" else 1) <= MOST_ELEMENTS
    if op_type == "Range":
        start, limit, delta = (float(np.asarray(x).reshape(())) for x in inputs)
        return delta != 0 and (limit - start) / delta <= MOST_ELEMENTS
    if op_type == "EyeLike":
        return inputs[0].size <= MOST_ELEMENTS
    given = [x for x in inputs if x is not None]
    if op_type in _BROADCAST and not _table_is_small(given):
        return False
    if (
        op_type == "OneHot"
        and len(given) == 3
        and inputs[0].size * max(0, int(inputs[1].reshape(-1)[0])) > MOST_ELEMENTS
    ):
        return False
    return sum(x.size for x in given) <= MOST_ELEMENTS


def _table_is_small(inputs: Sequence[np.ndarray]) -> bool:
    try:
        return prod(np.broadcast_shapes(*(x.shape for x in inputs))) <= MOST_ELEMENTS
    except ValueError:  # the op says what is wrong
        return False


def folded(node: Any, version: int, inputs: Sequence[np.ndarray | None]) -> list[np.ndarray] | None:
    """The results of a node, whose references to attributes of functions are resolved; None where they are unknown."""
    from onnx import helper
    from onnx.reference import ReferenceEvaluator

    names = [name for name, x in zip(node.input, inputs) if name and x is not None]
    feeds = {name: x for name, x in zip(node.input, inputs) if name and x is not None}
    graph = helper.make_graph(
        [node],
        "folded",
        [helper.make_tensor_value_info(n, _number(feeds[n]), feeds[n].shape) for n in dict.fromkeys(names)],
        [helper.make_empty_tensor_value_info(n) for n in node.output if n],
    )
    imports = [helper.make_opsetid(node.domain, version)]
    if node.domain not in ("", "ai.onnx"):
        imports.append(helper.make_opsetid("", 17))
    model = helper.make_model(graph, opset_imports=imports)
    try:
        with np.errstate(all="ignore"):
            results = ReferenceEvaluator(model).run(None, feeds)
    except Exception:  # ops and types that the reference cannot do; the op's own function is asked then
        return None
    left = iter(results if isinstance(results, list | tuple) else [results])
    out = [np.asarray(next(left)) if name else None for name in node.output]
    if any(x is not None and x.size > MOST_ELEMENTS for x in out):
        return None
    return out  # type: ignore[return-value]


def _number(x: np.ndarray) -> int:
    from onnx import helper

    return helper.np_dtype_to_tensor_dtype(x.dtype)
