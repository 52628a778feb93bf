"""An ONNX model as a JAX function: which values are arguments, which are known, and what is refused (S1.46)."""

import jax
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from autoshard.errors import InputError, UnsupportedError
from autoshard.frontends.jax.function import trace
from autoshard.onnx.fold import can_fold
from autoshard.onnx.function import function
from autoshard.onnx.ops.registry import NeedsValueError, NotMappedError

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


def model(nodes, inputs, outputs, stored=(), opset=18, functions=()):
    def info(name, spec):
        return helper.make_tensor_value_info(name, *spec)

    graph = helper.make_graph(
        nodes, "g", [info(n, s) for n, s in inputs.items()], [info(n, s) for n, s in outputs.items()], list(stored)
    )
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("own", 1)]
    return helper.make_model(graph, opset_imports=imports, functions=list(functions))


def array(name, values, dtype=np.float32):
    return numpy_helper.from_array(np.asarray(values, dtype), name)


def node(op, inputs, outputs, **attributes):
    return helper.make_node(op, inputs, outputs, name=attributes.pop("called", f"{op} {outputs[0]}"), **attributes)


def traced(made):
    return trace(made.__call__, *made.args, argnames=("weights", "inputs")).program


def test_weights_inputs_and_outputs_have_their_onnx_names():
    made = function(
        model(
            [node("MatMul", ["x", "w"], ["u"]), node("Relu", ["u"], ["y"])],
            {"x": (FLOAT, ["n", 4])}, {"y": (FLOAT, ["n", 8])}, [array("w", np.ones((4, 8)))],
        ),
        {"n": 2},
    )  # fmt: skip
    program = traced(made)
    assert program.input_names == ("weights/w", "inputs/x")
    assert program.output_names == ("out/y",)
    assert {tag for value in program.values for tag in value.tags} == {"u", "y"}


def test_ops_of_a_node_are_in_a_scope_of_its_name():
    made = function(
        model([node("Relu", ["x"], ["y"], called="/layer.0/act")], {"x": (FLOAT, [4])}, {"y": (FLOAT, [4])})
    )
    assert [op.source.rsplit("[")[-1] for op in traced(made).body.ops] == ["layer.0/act]"]


@pytest.mark.parametrize(
    ("op", "inputs"),
    [
        ("LessOrEqual", [np.zeros((2**15, 1)), np.zeros((1, 2**15))]),
        ("Where", [np.zeros((2**9, 1), bool), np.zeros((1, 2**9)), np.zeros(())]),
        ("OneHot", [np.array([3]), np.array(2**30), np.array([0.0, 1.0])]),
    ],
)
def test_a_table_that_small_known_values_make_is_not_worked_out_where_it_is_large(op, inputs):
    assert not can_fold(op, 18, inputs)


@pytest.mark.parametrize(
    ("op", "inputs"),
    [
        ("LessOrEqual", [np.zeros((2**8, 1)), np.zeros((1, 2**8))]),
        ("OneHot", [np.array([3]), np.array(8), np.array([0.0, 1.0])]),
        ("Concat", [np.zeros(2**15), np.zeros(2**15)]),
    ],
)
def test_what_stays_small_is_worked_out(op, inputs):
    assert can_fold(op, 18, inputs)


def test_arithmetic_on_shapes_leaves_no_ops():
    nodes = [
        node("Shape", ["x"], ["s"]), node("Gather", ["s", "zero"], ["n"]), node("Unsqueeze", ["n", "first"], ["n1"]),
        node("Concat", ["n1", "rest"], ["shape"], axis=0), node("Reshape", ["x", "shape"], ["y"]),
    ]  # fmt: skip
    stored = [array("zero", 0, np.int64), array("first", [0], np.int64), array("rest", [-1], np.int64)]
    made = function(model(nodes, {"x": (FLOAT, [2, 3, 4])}, {"y": (FLOAT, [2, 12])}, stored))
    assert not made.weights
    assert [op.kind for op in traced(made).body.ops] == ["reshape"]


def test_a_large_constant_node_is_a_weight():
    held = node("Constant", [], ["w"], value=array("", np.full((4, 4), 2.0)))
    made = function(model([held, node("MatMul", ["x", "w"], ["y"])], {"x": (FLOAT, [2, 4])}, {"y": (FLOAT, [2, 4])}))
    assert list(made.weights) == ["w"]
    out = made({"w": np.full((4, 4), 3.0, np.float32)}, {"x": np.ones((2, 4), np.float32)})
    assert out["y"][0, 0] == 12


def test_weights_without_bytes_are_not_read():
    tensor = TensorProto(name="w", data_type=FLOAT, dims=[4, 8], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="missing.bin")
    made = function(
        model([node("MatMul", ["x", "w"], ["y"])], {"x": (FLOAT, [2, 4])}, {"y": (FLOAT, [2, 8])}, [tensor])
    )
    assert jax.eval_shape(made, *made.args)["y"].shape == (2, 8)


@pytest.mark.parametrize(("opset", "sum_of_all"), [(11, 1.0), (13, 2.0)])
def test_softmax_flattened_its_last_axes_before_opset_13(opset, sum_of_all):
    made = function(
        model([node("Softmax", ["x"], ["y"], axis=0)], {"x": (FLOAT, [3, 2])}, {"y": (FLOAT, [3, 2])}, opset=opset)
    )
    assert float(np.sum(made({}, {"x": np.ones((3, 2), np.float32)})["y"])) == pytest.approx(sum_of_all)


def test_functions_of_the_model_are_expanded_with_their_attributes():
    body = helper.make_function(
        "own", "Scaled", ["a"], ["b"],
        [
            helper.make_node("Constant", [], ["k"]), helper.make_node("Mul", ["a", "k"], ["b"]),
        ],
        [helper.make_opsetid("", 18)], ["factor"],
    )  # fmt: skip
    reference = body.node[0].attribute.add(name="value_float", ref_attr_name="factor")
    reference.type = 1
    call = helper.make_node("Scaled", ["x"], ["y"], domain="own", factor=3.0)
    made = function(model([call], {"x": (FLOAT, [2])}, {"y": (FLOAT, [2])}, functions=[body]))
    assert made({}, {"x": np.ones(2, np.float32)})["y"].tolist() == [3, 3]


def _branches():
    then = helper.make_graph([node("Neg", ["x"], ["a"])], "then", [], [helper.make_tensor_value_info("a", FLOAT, [2])])
    other = helper.make_graph([node("Abs", ["x"], ["b"])], "else", [], [helper.make_tensor_value_info("b", FLOAT, [2])])
    return {"then_branch": then, "else_branch": other}


def test_a_branch_on_data_is_a_cond():
    inputs = {"c": (TensorProto.BOOL, []), "x": (FLOAT, [2])}
    made = function(model([node("If", ["c"], ["y"], **_branches())], inputs, {"y": (FLOAT, [2])}))
    assert "cond" in {op.kind for op in traced(made).body.ops}
    assert made({}, {"c": np.asarray(True), "x": np.ones(2, np.float32)})["y"].tolist() == [-1, -1]


def test_a_branch_on_a_constant_is_taken_while_the_model_is_read():
    made = function(
        model(
            [node("If", ["c"], ["y"], **_branches())], {"x": (FLOAT, [2])}, {"y": (FLOAT, [2])},
            [array("c", False, np.bool_)],
        )
    )  # fmt: skip
    assert [op.kind for op in traced(made).body.ops] == ["abs"]


def _loop(trips):
    body = helper.make_graph(
        [node("Identity", ["go"], ["on"]), node("Add", ["s", "x"], ["t"])], "body",
        [helper.make_tensor_value_info("i", INT64, []), helper.make_tensor_value_info("go", TensorProto.BOOL, []),
         helper.make_tensor_value_info("s", FLOAT, [2])],
        [helper.make_tensor_value_info("on", TensorProto.BOOL, []), helper.make_tensor_value_info("t", FLOAT, [2])],
    )  # fmt: skip
    return node("Loop", ["trips", "", "x"], ["y"], body=body), [array("trips", trips, np.int64)]


@pytest.mark.parametrize(("trips", "kinds"), [(3, {"add"}), (40, {"scan"})])
def test_a_loop_with_a_known_count_is_unrolled_or_a_scan(trips, kinds):
    loop, stored = _loop(trips)
    made = function(model([loop], {"x": (FLOAT, [2])}, {"y": (FLOAT, [2])}, stored))
    assert {op.kind for op in traced(made).body.ops} == kinds
    assert made({}, {"x": np.ones(2, np.float32)})["y"].tolist() == [trips + 1, trips + 1]


def test_a_loop_that_depends_on_data_is_refused_by_its_name():
    loop, _ = _loop(3)
    bad = model([loop], {"trips": (INT64, []), "x": (FLOAT, [2])}, {"y": (FLOAT, [2])})
    with pytest.raises(NeedsValueError, match="Loop node 'Loop y': the trip count 'trips' depends on data"):
        jax.eval_shape(function(bad), *function(bad).args)


def test_a_shape_that_depends_on_data_is_refused_unless_it_is_given():
    bad = model([node("Reshape", ["x", "s"], ["y"])], {"x": (FLOAT, [6]), "s": (INT64, [2])}, {"y": (FLOAT, [2, 3])})
    with pytest.raises(NeedsValueError, match=r"Reshape node 'Reshape y': input 1 \('s'\)"):
        jax.eval_shape(function(bad), *function(bad).args)
    made = function(bad, constants={"s": [2, 3]})
    assert list(made.inputs) == ["x"]
    assert jax.eval_shape(made, *made.args)["y"].shape == (2, 3)


def test_an_op_without_mapping_is_refused_by_name():
    bad = model([node("RandomUniformLike", ["x"], ["y"])], {"x": (FLOAT, [6])}, {"y": (FLOAT, [6])})
    with pytest.raises(NotMappedError, match="RandomUniformLike node 'RandomUniformLike y'"):
        jax.eval_shape(function(bad), *function(bad).args)


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (node("Softmax", ["x"], ["y"], axis=9), r"'axis' must be in \[-2 , 1\]"),
        (node("Concat", ["x", "x"], ["y"]), "Required attribute 'axis' is missing"),
        (node("Relu", ["x"], ["y"], alpha=0.5), "Unrecognized attribute: alpha"),
        (node("Relu", ["x", "x"], ["y"]), "input size 2 not in range"),
        (node("Transpose", ["x"], ["y"], perm=[0, 0]), "perm for Transpose has repeated value"),
        (node("Gather", ["x", "x"], ["y"], axis=-3), "axis must be in"),
    ],
)
def test_a_node_that_breaks_the_schema_of_its_op_is_refused(broken, message):
    bad = model([broken], {"x": (FLOAT, [4, 8])}, {"y": (FLOAT, None)})
    with pytest.raises(InputError, match=f"breaks the rules of its op in opset 18: .*{message}"):
        jax.eval_shape(function(bad), *function(bad).args)


def test_narrowed_types_break_no_schema():
    nodes = [node("Cast", ["x"], ["at"], to=INT64), node("TopK", ["at", "k"], ["y", "places"])]
    made = function(model(nodes, {"x": (FLOAT, [8])}, {"y": (INT64, [3])}, [array("k", [3], np.int64)]))
    assert jax.eval_shape(made, *made.args)["y"].dtype == np.int32


def test_an_output_that_is_not_as_declared_is_noted():
    made = function(model([node("Relu", ["x"], ["y"])], {"x": (FLOAT, ["n", 4])}, {"y": (FLOAT, ["n", 5])}), {"n": 2})
    jax.eval_shape(made, *made.args)
    assert made.notes == {"output 'y' is declared as [n, 5] and is [2, 4]"}


def test_a_model_that_computes_nothing_is_refused():
    with pytest.raises(InputError, match="the model has no outputs"):
        function(model([node("Relu", ["x"], ["y"])], {"x": (FLOAT, [2])}, {}))


def test_an_unknown_element_type_is_refused():
    with pytest.raises(InputError, match="input 'x': 77 is the number of no element type"):
        function(model([node("Relu", ["x"], ["y"])], {"x": (77, [2])}, {"y": (FLOAT, [2])}))


def test_strings_are_refused():
    with pytest.raises(UnsupportedError, match="input 'x' holds strings"):
        function(model([node("Identity", ["x"], ["y"])], {"x": (TensorProto.STRING, [2])}, {"y": (8, [2])}))


def test_whole_numbers_beyond_32_bits_are_refused():
    far = array("far", 2**40, np.int64)
    bad = model([node("Add", ["x", "far"], ["y"])], {"x": (INT64, [2])}, {"y": (INT64, [2])}, [far])
    with pytest.raises(UnsupportedError, match="do not fit into int32; set jax_enable_x64"):
        jax.eval_shape(function(bad), *function(bad).args)


def test_that_64_bit_numbers_become_32_bit_ones_is_noted():
    made = function(
        model([node("Add", ["x", "one"], ["y"])], {"x": (INT64, [2])}, {"y": (INT64, [2])}, [array("one", 1, np.int64)])
    )
    jax.eval_shape(made, *made.args)
    assert made.notes == {"int64 of the model is computed in int32; set jax_enable_x64 for 64-bit types"}


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({}, r"input 'x' is \[n, 4\]: the size of dimension 'n' is open"),
        ({"m": 3, "n": 2}, "no symbolic dimension and no input 'm'; its dimensions are n"),
        ({"x": [2, 5]}, r"input 'x' is \[n, 4\], found \[2, 5\]"),
    ],
)
def test_shapes_must_fit_the_model(shapes, message):
    with pytest.raises(InputError, match=message):
        function(model([node("Relu", ["x"], ["y"])], {"x": (FLOAT, ["n", 4])}, {"y": (FLOAT, ["n", 4])}), shapes)


def test_old_opsets_are_refused():
    bad = model([node("Relu", ["x"], ["y"])], {"x": (FLOAT, [2])}, {"y": (FLOAT, [2])}, opset=6)
    with pytest.raises(UnsupportedError, match="opset 6; opsets 7 to"):
        function(bad)
