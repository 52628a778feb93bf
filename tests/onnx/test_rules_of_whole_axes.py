"""Axes that no op may cut, shapes that change, and ops without a rule: by proposal 0007, and by rules of our own."""

import numpy as np
import pytest
from hand_made import PAIRS, annotate, graph_model, one_op, spec, whole
from onnx import defs, helper
from rule_cases import N_ARY, REDUCTIONS, ROWS, UNARY, codes, output

from autoshard.onnx import load
from autoshard.onnx.check import check
from autoshard.onnx.rules import SILENT_0007
from autoshard.onnx.rules.table import DESCRIBED, LISTED_0007

# -- S1.19: axes that must be whole ------------------------------------------------------------------------------------

WHOLE_AXES = [
    ("Softmax", {"x": (4, 6)}, {"axis": 1}, 1),
    ("LogSoftmax", {"x": (4, 6)}, {}, 1),
    ("ArgMax", {"x": (4, 6)}, {"axis": 1}, 1),
    ("Concat", {"x": (4, 6), "z": (4, 6)}, {"axis": 1}, 1),
    ("LpNormalization", {"x": (4, 6)}, {}, 1),
    ("CumSum", {"x": (4, 6)}, {"weights": {"axis": np.array(1, np.int64)}}, 1),
    ("TopK", {"x": (4, 6)}, {"weights": {"k": np.array([2], np.int64)}, "outputs": ["y", "i"]}, 1),
    ("Gather", {"x": (4, 6)}, {"axis": 1, "weights": {"i": np.array([0, 2], np.int64)}}, 1),
    ("Pad", {"x": (4, 6)}, {"weights": {"p": np.array([0, 1, 0, 1], np.int64)}}, 1),
    ("Slice", {"x": (4, 6)}, {"weights": {"s": np.array([1]), "e": np.array([3]), "a": np.array([1])}}, 1),
    ("Split", {"x": (4, 6)}, {"axis": 1, "outputs": ["y", "z"], "num_outputs": 2}, 1),
    ("RMSNormalization", {"x": (4, 6)}, {"weights": {"w": (6,)}, "opset": 23}, 1),
]  # fmt: skip


@pytest.mark.parametrize(("op", "shapes", "options", "axis"), WHOLE_AXES, ids=[c[0] for c in WHOLE_AXES])
def test_an_axis_that_is_no_parallel_loop_may_not_be_cut(op: str, shapes: dict, options: dict, axis: int) -> None:
    # S1.19, E32: ops in no list of the proposal have rules of our own
    others = [n for n in shapes if n != "x"]
    cut = [spec("x", [-1, -2], {axis: 2}, PAIRS), *(spec(n, [-1, -2], {axis: 2}, PAIRS) for n in others)]
    found = check(load(one_op(op, shapes, cut, **options))).findings
    assert {f.code for f in found} == {"whole-axis"}
    assert {f.severity for f in found} == ({"no rule"} if op in SILENT_0007 else {"error"})
    free = [spec("x", [-1, -2], {1 - axis: 2}, PAIRS), *(spec(n, [-1, -2], {1 - axis: 2}, PAIRS) for n in others)]
    model = one_op(op, shapes, free, **options)
    assert check(load(model)).ok
    assert " on {0,1} {2,3}" in output(model)


@pytest.mark.parametrize(("source", "target"), [((0, 4), (0, 7)), ((3, 0), (0, 5)), ((0, 4), (7, 2, 0))])
def test_a_tensor_without_elements_takes_any_shape_without_elements(source: tuple, target: tuple) -> None:
    shape = {"weights": {"shape": np.array(target, np.int64)}, "allowzero": 1}
    assert codes(one_op("Reshape", {"x": source}, [whole("x")], **shape)) == set()


def test_a_transposed_convolution_of_a_stated_size_needs_its_space_whole() -> None:
    options = {"output_shape": [6, 6], "weights": {"w": (3, 5, 1, 1)}}
    assert "shapes-disagree" not in codes(
        one_op("ConvTranspose", {"x": (2, 3, 4, 4)}, [spec("x", [-1, -2], {0: 2}, PAIRS)], **options)
    )
    given = [spec("x", [-1, -2], {2: 2}, PAIRS)]
    assert "whole-axis" in codes(one_op("ConvTranspose", {"x": (2, 3, 4, 4)}, given, **options))


def test_softmax_before_opset_13_looks_at_all_axes_from_its_own_on() -> None:
    given = [spec("x", [-1, -2], {2: 2}, PAIRS)]
    assert codes(one_op("Softmax", {"x": (2, 4, 6)}, given, axis=1, opset=11)) == {"whole-axis"}
    assert codes(one_op("Softmax", {"x": (2, 4, 6)}, given, axis=1, opset=13)) == set()


@pytest.mark.parametrize(("source", "target", "dims", "expected"), [
    ((8, 6), (2, 4, 6), {0: 2}, "y[0: 2 of 2] on {0,1} {2,3}"),
    ((8, 6), (48,), {0: 2}, "y[0: 2 of 48] on {0,1} {2,3}"),
    ((2, 4, 6), (8, 6), {1: 2}, "y[0: 1 of 2 * 2 of 4] on {0,1} {2,3}"),
    ((6,), (2, 3), {0: 3}, "not-blocks"),
    ((6, 4), (4, 6), {1: 2}, "whole-axis"),
    ((8, "n"), (8, "n"), {1: 2}, "y[1: 2] on {0,1} {2,3}"),
])  # fmt: skip
def test_reshapes_pass_blocks_that_both_shapes_have(source: tuple, target: tuple, dims: dict, expected: str) -> None:
    numbers = np.array([n if isinstance(n, int) else -1 for n in target], np.int64)
    count = next(iter(dims.values()))
    devices = [-1, -2] if count == 2 else [0, 1, 2]
    given = spec("x", devices, dims, PAIRS if count == 2 else {})
    model = one_op("Reshape", {"x": source}, [given], weights={"s": numbers})
    if " on " in expected:
        assert output(model) == expected
    else:
        assert codes(model) == {expected}


def test_a_reshape_that_merges_a_minor_cut_gives_a_fused_axis() -> None:
    # S1.15: rows of 8, each cut in 2: strided blocks, written as a fused axis
    model = one_op("Reshape", {"x": (8, 6)}, [spec("x", [-1, -2], {1: 2}, PAIRS)], weights={"s": np.array([48])})
    assert output(model) == "y[0: 1 of 8 * 2 of 6] on {0,1} {2,3}"


def test_a_transpose_moves_the_cut() -> None:
    model = one_op("Transpose", {"x": (4, 6)}, [spec("x", *ROWS)], perm=[1, 0])
    assert output(model) == "y[1: 2 of 4] on {0,1} {2,3}"


# -- S1.40 and ops without a rule --------------------------------------------------------------------------------------


def test_convolutions_have_a_rule_of_ours_and_the_answer_is_no_rule() -> None:
    # S1.40: never "invalid"
    shapes = {"x": (4, 8, 10, 10), "w": (6, 8, 3, 3)}
    fits = check(load(one_op("Conv", shapes, [spec("x", *ROWS), whole("w")])))
    assert [(f.severity, f.code) for f in fits.findings] == [("no rule", "no-rule")]
    assert fits.ok
    cut = check(load(one_op("Conv", shapes, [spec("x", [-1, -2], {2: 2}, PAIRS), whole("w")])))
    assert [(f.severity, f.code) for f in cut.findings] == [("no rule", "whole-axis")]
    assert cut.ok
    channels = [spec("x", [0, 1], {1: 2}), spec("w", [0, 1], {1: 2})]
    assert output(one_op("Conv", shapes, channels)) == "y[] on {0,1}"


@pytest.mark.parametrize("op", ["LSTM", "SequenceEmpty", "DFT", "GRU"])
def test_ops_that_nobody_described_have_no_rule(op: str) -> None:
    # S1.4: "makes no sense" and "not supported" are different answers
    found = check(load(one_op(op, {"x": (4, 6, 8)}, [spec("x", *ROWS)], opset=22)))
    assert [f.severity for f in found.findings] == ["no rule"]


def test_an_op_of_another_domain_has_no_rule() -> None:
    model = one_op("Add", {"x": (4, 6)}, [spec("x", *ROWS)], domain="own")
    assert [f.code for f in check(load(model)).no_rule] == ["no-rule"]


def test_an_op_without_a_rule_may_run_on_whole_tensors() -> None:
    node = [helper.make_node("Mystery", ["x"], ["a"], domain="own"), helper.make_node("Relu", ["a"], ["y"])]
    model = graph_model(node, {"x": (4, 6)}, ["y"])
    model.graph.value_info.append(helper.make_tensor_value_info("a", 1, [4, 6]))
    annotate(model, {1: [spec("y", *ROWS)]})
    assert check(load(model)).findings == ()


def test_every_listed_op_is_described() -> None:
    # S1.21, S1.22, S1.29, S1.34
    assert LISTED_0007 <= DESCRIBED
    assert {*UNARY, *N_ARY, *REDUCTIONS, "MatMul", "Gemm", "MatMulInteger", "QLinearMatMul", "Einsum"} <= DESCRIBED
    assert not set(UNARY) & SILENT_0007


def test_described_ops_exist() -> None:
    known = {s.name for s in defs.get_all_schemas_with_history() if not s.domain}
    assert known >= DESCRIBED
    assert known >= SILENT_0007
