"""What is asked of the rules of operators: what a check finds, where outputs lie, and which ops the lists name."""

from typing import Any

from hand_made import PAIRS

from autoshard.onnx import load
from autoshard.onnx.check import check
from autoshard.onnx.specs import read_annotations

ROWS = ([-1, -2], {0: 2}, PAIRS)

_UNARY = """
    Abs Acos Acosh Asin Asinh Atan Atanh Cast Ceil Cos Cosh Dropout Erf Exp Floor Identity IsInf IsNaN Log Neg Not
    Reciprocal Round Sigmoid Sign Sin Sinh Tan Tanh BitwiseNot
"""
_N_ARY = "Add And BitShift BitwiseAnd BitwiseOr BitwiseXor Equal Greater Less Max Min Mod Mul Or Pow Sub Sum Where Xor"
UNARY, N_ARY = _UNARY.split(), _N_ARY.split()  # S1.21 with E28, E29, E31; S1.22 with E28 and E31
REDUCTIONS = ["ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin",
              "ReduceProd", "ReduceSum", "ReduceSumSquare"]  # fmt: skip


def codes(model: Any, *, strict: bool = False) -> set[str]:
    return {f.code for f in check(load(model), strict=strict).findings if f.severity != "warning"}


def warned(model: Any) -> set[str]:
    return {f.code for f in check(load(model)).warnings}


def output(model: Any, index: int = 0, at: int = 0) -> str:
    """Where an output lies by inference, as text."""
    node = load(model).infer().proto.graph.node[index]
    name = node.output[at]
    return str(next(s for a in read_annotations(node) for s in a.specs if s.tensor == name))
