"""What each kind of operator allows, and where its outputs then lie: by proposal 0007, and by rules of our own."""

from typing import Any

import numpy as np
import pytest
from hand_made import ALL, COLUMNS, PAIRS, annotate, graph_model, mlp, one_op, spec, whole
from onnx import defs, helper

from autoshard.onnx import load
from autoshard.onnx.check import check
from autoshard.onnx.graph import ValueType
from autoshard.onnx.rules import SILENT_0007, Call, rule_of
from autoshard.onnx.rules.table import DESCRIBED, LISTED_0007
from autoshard.onnx.specs import ShardingSpec, read_annotations
from autoshard.onnx.walk import Walk

ROWS = ([-1, -2], {0: 2}, PAIRS)


def codes(model: Any, *, strict: bool = False) -> set[str]:
    return {f.code for f in check(load(model), strict=strict).findings if f.severity != "warning"}


def warned(model: Any) -> set[str]:
    return {f.code for f in check(load(model)).warnings}


def output(model: Any, index: int = 0, at: int = 0) -> str:
    """Where an output lies by inference, as text."""
    node = load(model).infer().proto.graph.node[index]
    name = node.output[at]
    return str(next(s for a in read_annotations(node) for s in a.specs if s.tensor == name))


# -- S1.19 to S1.21: unary ---------------------------------------------------------------------------------------------

_UNARY = """
    Abs Acos Acosh Asin Asinh Atan Atanh Cast Ceil Cos Cosh Dropout Erf Exp Floor Identity IsInf IsNaN Log Neg Not
    Reciprocal Round Sigmoid Sign Sin Sinh Tan Tanh BitwiseNot
"""
_N_ARY = "Add And BitShift BitwiseAnd BitwiseOr BitwiseXor Equal Greater Less Max Min Mod Mul Or Pow Sub Sum Where Xor"
UNARY, N_ARY = _UNARY.split(), _N_ARY.split()  # S1.21 with E28, E29, E31; S1.22 with E28 and E31


def typed(op: str, ins: list[str], shapes: list[tuple], specs: list[ShardingSpec], **attributes: Any) -> Any:
    """One node on inputs of an element type that it takes."""
    schema = defs.get_schema(op, 22)
    first = schema.inputs[0].types
    kind = next(
        (t for t in ("tensor(float)", "tensor(int64)", "tensor(uint8)", "tensor(bool)") if t in first), "tensor(float)"
    )
    number = {"tensor(float)": 1, "tensor(int64)": 7, "tensor(uint8)": 2, "tensor(bool)": 9}[kind]
    model = one_op(op, dict(zip(ins, shapes, strict=True)), specs, **attributes)
    for i, info in enumerate(model.graph.input):
        info.type.tensor_type.elem_type = 9 if op == "Where" and i == 0 else number
    return model


@pytest.mark.parametrize("op", UNARY)
def test_unary_ops_pass_every_cut(op: str) -> None:
    # S1.20, S1.21
    attributes = {"to": 10} if op == "Cast" else {"direction": "LEFT"} if op == "BitShift" else {}
    given = spec("x", [0, 1, 2, 3], {0: 2, 1: 2})
    model = typed(op, ["x"], [(4, 6)], [given], **attributes)
    assert codes(model) == set()
    assert output(model) == "y[0: 2 of 4, 1: 2 of 6] on 0 1 2 3"


def test_the_mask_of_dropout_is_cut_as_its_data() -> None:
    # E30
    model = one_op("Dropout", {"x": (4, 6)}, [spec("x", *ROWS)], outputs=["y", "mask"])
    assert output(model, at=1) == "mask[0: 2 of 4] on {0,1} {2,3}"


def test_constant_of_shape_is_free() -> None:
    # E29: rank and size of the output have nothing to do with the input
    node = helper.make_node("ConstantOfShape", ["shape"], ["y"])
    model = graph_model([node], {}, ["y"], {"shape": np.array([4, 6], np.int64)})
    annotate(model, {0: [whole("shape"), spec("y", *ROWS)]})
    assert codes(model) == set()


# -- S1.22 to S1.28: broadcasts ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("op", N_ARY)
def test_inputs_that_are_cut_otherwise_do_not_fit(op: str) -> None:
    # S1.23, S1.22: two 32x1024, one cut on axis 0, the other on axis 1
    names = ["c", "a", "b"] if op == "Where" else ["a", "b"]
    attributes = {"direction": "LEFT"} if op == "BitShift" else {}
    alike = [spec(n, [0, 1], {0: 2}) for n in names]
    model = typed(op, names, [(32, 1024)] * len(names), alike, devices=2, **attributes)
    assert codes(model) == set()
    assert output(model) == "y[0: 2 of 32] on 0 1"
    other = [*alike[:-1], spec(names[-1], [0, 1], {1: 2})]
    assert "nothing-meets" in codes(typed(op, names, [(32, 1024)] * len(names), other, devices=2, **attributes))


def test_one_cut_and_one_whole_is_a_slice_and_by_the_text_an_error() -> None:
    # E37
    model = one_op("Add", {"a": (8, 8), "b": (8, 8)}, [spec("a", *ROWS), whole("b")])
    assert warned(model) == {"needs-slice"}
    assert codes(model) == set()
    assert codes(model, strict=True) == {"needs-slice"}


BROADCAST = {"a": ("M", 1), "b": (1, "N")}


def test_broadcast_axes_compose() -> None:
    # S1.25, S1.27
    model = one_op("Add", BROADCAST, [spec("a", *ROWS), spec("b", [-1, -2], {1: 2}, COLUMNS)])
    assert codes(model, strict=True) == set()
    assert output(model) == "y[0: 2 of M, 1: 2 of N] on 0 1 2 3"


def test_broadcast_axes_whose_devices_do_not_meet_are_incompatible() -> None:
    # S1.27, the variant: shard (0, 1) needs {0,1} and {2,3}
    model = one_op("Add", BROADCAST, [spec("a", *ROWS), spec("b", [-1, -2], {1: 2}, PAIRS)])
    found = check(load(model)).errors
    assert [f.code for f in found] == ["nothing-meets"]
    assert "{0,1}" in found[0].message and "{2,3}" in found[0].message


def test_three_broadcast_axes_compose() -> None:
    # S1.28
    cubes = {
        "a": {-1: (0, 1, 2, 3), -2: (4, 5, 6, 7)},
        "b": {-1: (0, 1, 4, 5), -2: (2, 3, 6, 7)},
        "c": {-1: (0, 2, 4, 6), -2: (1, 3, 5, 7)},
    }
    shapes = {"a": (2, 1, 1), "b": (1, 2, 1), "c": (1, 1, 2)}
    specs = [spec(n, [-1, -2], {axis: 2}, cubes[n]) for axis, n in enumerate("abc")]
    model = one_op("Sum", shapes, specs, devices=8)
    assert codes(model) == set()
    assert output(model) == "y[0: 2 of 2, 1: 2 of 2, 2: 2 of 2] on 0 1 2 3 4 5 6 7"


def test_a_broadcast_axis_follows_the_input_that_is_not_1() -> None:
    # S1.26
    model = one_op("Mul", {"a": (8, 1), "b": (1, 6)}, [whole("a"), spec("b", [-1, -2], {1: 2}, COLUMNS)])
    assert output(model) == "y[1: 2 of 6] on {0,2} {1,3}"
    ones = one_op("Mul", {"a": (8, 1), "b": (8, 1)}, [spec("a", *ROWS), spec("b", *ROWS)])
    assert output(ones) == "y[0: 2 of 8] on {0,1} {2,3}"


def test_before_opset_7_the_second_input_is_aligned_at_an_axis() -> None:
    given = [spec("x", [-1, -2], {1: 2}, PAIRS), spec("s", [-1, -2], {0: 2}, PAIRS)]
    shapes = {"x": (4, 6, 8), "s": (6,)}
    for op, options in (("PRelu", {}), ("Add", {"broadcast": 1, "axis": 1})):
        model = one_op(op, shapes, given, opset=6, **options)
        assert check(load(model)).findings == ()
        assert output(model) == "y[1: 2 of 6] on {0,1} {2,3}"


def test_by_the_text_a_broadcast_axis_is_on_every_device() -> None:
    # S1.24: only an empty intersection is an error, all else by the text alone
    model = one_op("Add", {"a": (8, 1), "b": (8, 6)}, [spec("a", *ROWS), spec("b", [0, 2], {0: 2})])
    assert codes(model) == set()
    assert warned(model) == {"idle-devices"}
    model = one_op("Add", {"a": (8, 1), "b": (8, 6)}, [spec("a", [0, 2], {0: 2}), spec("b", *ROWS)])
    assert "broadcast-replicated" in codes(model, strict=True)


# -- S1.29 to S1.33: reductions ----------------------------------------------------------------------------------------

REDUCTIONS = ["ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin",
              "ReduceProd", "ReduceSum", "ReduceSumSquare"]  # fmt: skip
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


@pytest.mark.parametrize(
    ("op", "domain", "source", "target", "expected"),
    [
        ("TfIdfVectorizer", "", (4, 12), (4, 7), "([i, j])->([i, k]) whole={j, k}"),
        ("TfIdfVectorizer", "", (12,), (7,), "([i])->([j]) whole={i, j}"),
        ("TreeEnsemble", "ai.onnx.ml", (4, 3), (4, 2), "([i, j])->([i, k]) whole={j, k}"),
    ],
)
def test_rows_are_turned_into_other_rows(op: str, domain: str, source: tuple, target: tuple, expected: str) -> None:
    call = Call(op, (ValueType("float32", source),), (ValueType("float32", target),))
    rule = rule_of(call, domain)
    assert rule is not None
    assert rule.text() == expected


def test_an_op_of_one_domain_has_no_rule_in_another() -> None:
    call = Call("TreeEnsemble", (ValueType("float32", (4, 3)),), (ValueType("float32", (4, 2)),))
    assert rule_of(call, "") is None


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


# -- scopes ------------------------------------------------------------------------------------------------------------


def with_function(inner: list[ShardingSpec], outer: list[ShardingSpec]) -> Any:
    """A function of two ops, called once."""
    body = [
        helper.make_node("MatMul", ["a", "b"], ["c"], name="inside"),
        helper.make_node("Softmax", ["c"], ["d"], name="last"),
    ]
    opsets = [helper.make_opsetid("", 22)]
    model = graph_model([helper.make_node("Block", ["x", "w"], ["y"], domain="own", name="call")],
                        {"x": (8, 4)}, ["y"], {"w": (4, 6)})  # fmt: skip
    function = helper.make_function("own", "Block", ["a", "b"], ["d"], body, opsets)
    model.functions.append(function)
    annotate(model, {0: outer})
    from autoshard.onnx.specs import NodeAnnotation, write_annotations

    if inner:
        write_annotations(model.functions[0].node[0], [NodeAnnotation("mesh", tuple(inner))])
    return model


def test_the_specs_of_a_call_bind_the_inputs_of_the_function() -> None:
    assert codes(with_function([], [spec("x", *ROWS)])) == set()
    assert output(with_function([], [spec("x", *ROWS)])) == "y[0: 2 of 8] on {0,1} {2,3}"
    found = check(load(with_function([], [spec("w", [-1, -2], {1: 2}, COLUMNS)]))).errors
    assert [(f.scope, f.node, f.code) for f in found] == [("function own::Block", "'last' (Softmax)", "whole-axis")]


def test_the_specs_in_a_function_bind_its_inside_in_its_own_names() -> None:
    found = check(load(with_function([spec("x", *ROWS)], []))).errors
    assert [(f.scope, f.code) for f in found] == [("function own::Block", "unknown-tensor")]
    assert check(load(with_function([spec("a", *ROWS)], []))).ok
    assert [f.code for f in check(load(with_function([spec("c", *ROWS), spec("a", [0, 1], {5: 2})], []))).errors] == [
        "axis-range"
    ]


def test_bodies_of_if_are_scopes_that_see_what_is_around_them() -> None:
    branch = helper.make_graph(
        [helper.make_node("Softmax", ["x"], ["t"], name="soft")],
        "then",
        [],
        [helper.make_tensor_value_info("t", 1, [8, 4])],
    )
    other = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["e"])], "else", [], [helper.make_tensor_value_info("e", 1, [8, 4])]
    )
    nodes = [
        helper.make_node("Exp", ["z"], ["x"]),
        helper.make_node("If", ["flag"], ["y"], then_branch=branch, else_branch=other, name="if"),
    ]
    model = graph_model(nodes, {"z": (8, 4)}, ["y"], {"flag": np.array(True)})
    annotate(model, {0: [spec("z", [-1, -2], {1: 2}, PAIRS)]})
    found = check(load(model)).errors
    assert [(f.scope, f.node, f.code) for f in found] == [
        ("node 'if' (If).then_branch", "'soft' (Softmax)", "whole-axis")
    ]
    annotate(model, {0: [spec("z", *ROWS)]})
    assert check(load(model)).ok
    done = load(model).infer().proto
    inner = next(a.g.node[0] for a in done.graph.node[1].attribute if a.name == "then_branch")
    assert [str(s) for a in read_annotations(inner) for s in a.specs] == [
        "x[0: 2 of 8] on {0,1} {2,3}",
        "t[0: 2 of 8] on {0,1} {2,3}",
    ]
    assert output(model, 1) == "y[0: 2 of 8] on {0,1} {2,3}"


def test_a_walk_visits_every_node_once() -> None:
    loaded = load(mlp())
    from autoshard.onnx.structure import sound_configurations

    visits = Walk(loaded, sound_configurations(loaded.proto)[0]).run()
    assert [v.name for v in visits] == ["'up' (Gemm)", "'act' (Relu)", "'down' (Gemm)"]
