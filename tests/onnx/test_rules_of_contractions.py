"""What reductions and products allow, where their outputs then lie and what is sent, by proposal 0007."""

from typing import Any

import numpy as np
import pytest
from hand_made import ALL, COLUMNS, PAIRS, annotate, graph_model, mlp, one_op, spec, whole
from onnx import helper
from rule_cases import REDUCTIONS, ROWS, codes, output, warned

from autoshard.onnx import load
from autoshard.onnx.check import check
from autoshard.onnx.specs import ShardingSpec

# -- S1.29 to S1.33: reductions ----------------------------------------------------------------------------------------

AXES = {"axes": np.array([1], np.int64)}


@pytest.mark.parametrize("op", REDUCTIONS)
def test_kept_axes_pass_a_reduction(op: str) -> None:
    # S1.29, S1.30, S1.32
    given = spec("x", [0, 1, 2, 3], {0: 2, 1: 2})
    assert output(one_op(op, {"x": (4, 6)}, [given], weights=AXES)) == "y[0: 2 of 4] on {0,1} {2,3}"
    dropped = one_op(op, {"x": (4, 6, 8)}, [spec("x", [0, 1, 2, 3], {1: 2, 2: 2})], weights=AXES, keepdims=0)
    assert output(dropped) == "y[1: 2 of 8] on {0,2} {1,3}"


def test_what_is_cut_on_reduced_axes_alone_lies_on_all_that_took_part() -> None:
    # S1.31
    model = one_op("ReduceSum", {"x": (4, 6)}, [spec("x", [1, 3], {1: 2})], weights=AXES)
    assert output(model) == "y[] on {1,3}"
    alone = one_op("ReduceSum", {"x": (4, 6)}, [spec("x", [0, 1], {0: 2})], keepdims=0)
    assert output(alone) == "y[] on {0,1}"


@pytest.mark.parametrize(("op", "combine"), [("ReduceMax", "max"), ("ReduceMean", "mean"), ("ReduceProd", "mul"),
                                             ("ReduceL2", "l2"), ("ReduceLogSumExp", "logsumexp")])  # fmt: skip
def test_the_collective_is_that_of_the_reduction(op: str, combine: str) -> None:
    # S1.33
    model = one_op(op, {"x": (4, 6)}, [spec("x", [0, 1, 2, 3], {1: 4})], weights=AXES)
    assert [(t.kind, t.combine) for t in load(model).implied() if t.end == "out"] == [("all-reduce", combine)]


# -- S1.34 to S1.39: products ------------------------------------------------------------------------------------------


def matmul(a: ShardingSpec, b: ShardingSpec) -> Any:
    return one_op("MatMul", {"a": (8, 4), "b": (4, 6)}, [a, b])


def test_rows_follow_the_first_input_and_columns_the_second() -> None:
    # S1.34, S1.35, S1.38
    model = matmul(spec("a", *ROWS), spec("b", [-1, -2], {1: 2}, COLUMNS))
    assert output(model) == "y[0: 2 of 8, 1: 2 of 6] on 0 1 2 3"
    assert [t for t in load(model).implied() if t.kind != "slice"] == []


def test_a_cut_inner_axis_is_one_all_reduce() -> None:
    # S1.38, S1.37
    model = matmul(spec("a", [0, 1], {1: 2}), spec("b", [0, 1], {0: 2}))
    assert output(model) == "y[] on {0,1}"
    moved = [t for t in load(model).implied() if t.kind != "slice"]
    assert [(t.kind, t.devices, t.bytes) for t in moved] == [("all-reduce", (0, 1), 2 * 8 * 6 * 4)]


@pytest.mark.parametrize(("b", "code"), [
    (spec("b", [0, 1, 2, 3], {0: 4}), "cut-differently"),
    (spec("b", [1, 0], {0: 2}), "nothing-meets"),
])  # fmt: skip
def test_inner_axes_are_cut_alike_and_meet(b: ShardingSpec, code: str) -> None:
    # S1.36, S1.37
    assert codes(matmul(spec("a", [0, 1], {1: 2}), b)) == {code}


def test_gemm_s_transposes_swap_the_roles_of_axes() -> None:
    # S1.39
    given = [spec("a", [-1, -2], {1: 2}, PAIRS), spec("b", [-1, -2], {0: 2}, COLUMNS)]
    model = one_op("Gemm", {"a": (4, 8), "b": (6, 4)}, given, transA=1, transB=1)
    assert output(model) == "y[0: 2 of 8, 1: 2 of 6] on 0 1 2 3"


@pytest.mark.parametrize(("c", "fits"), [([-1], True), ([0], False)])
def test_the_bias_is_there_for_every_part_of_the_sum(c: list[int], fits: bool) -> None:
    # S1.39
    given = [spec("a", [0, 1], {1: 2}), spec("b", [0, 1], {0: 2}), spec("c", c, {}, ALL if fits else {})]
    assert check(load(one_op("Gemm", {"a": (8, 4), "b": (4, 6), "c": (6,)}, given))).ok is fits


def test_the_worked_example_and_its_three_variants() -> None:
    model = mlp()
    assert output(model, 0) == "u[0: 2 of 8, 1: 2 of 16] on 0 1 2 3"
    assert output(model, 2) == "y[0: 2 of 8] on {0,1} {2,3}"
    assert codes(mlp(w2=spec("w2", [-1, -2], {0: 2}, {-1: (1, 3), -2: (0, 2)}))) == {"nothing-meets"}
    assert codes(mlp(w1=spec("w1", [-1, -2], {1: 2}, PAIRS))) == {"nothing-meets"}
    assert warned(mlp(w2=whole("w2"))) == {"needs-slice"}


def test_one_spec_serves_a_tensor_that_is_read_twice() -> None:
    model = graph_model([helper.make_node("Mul", ["x", "x"], ["y"])], {"x": (8, 4)}, ["y"])
    assert output(annotate(model, {0: [spec("x", *ROWS)]})) == "y[0: 2 of 8] on {0,1} {2,3}"


def test_optional_inputs_that_are_left_out_are_skipped() -> None:
    model = graph_model([helper.make_node("Clip", ["x", "", "hi"], ["y"])], {"x": (8, 4), "hi": ()}, ["y"])
    assert codes(annotate(model, {0: [spec("x", *ROWS)]})) == set()
