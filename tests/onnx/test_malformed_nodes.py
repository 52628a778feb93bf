"""Nodes, bodies and calls that make no sense are refused, whatever JAX could make of them (S1.46)."""

import jax
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from autoshard.errors import InputError, UnsupportedError
from autoshard.onnx import load
from autoshard.onnx.function import function

FLOAT, INT32, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT32, TensorProto.INT64, TensorProto.BOOL
X = {"x": (FLOAT, [4, 4])}


def info(name, kind, shape=None):
    return helper.make_tensor_value_info(name, kind, shape)


def model(nodes, inputs, stored=(), opset=18, functions=()):
    graph = helper.make_graph(
        nodes, "g", [info(n, *s) for n, s in inputs.items()], [info("y", FLOAT)],
        [numpy_helper.from_array(np.asarray(v), n) for n, v in dict(stored).items()],
    )  # fmt: skip
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("own", 1)]
    return helper.make_model(graph, opset_imports=imports, functions=list(functions))


def traced(proto):
    made = function(load(proto))
    return made, jax.eval_shape(made, *made.args)["y"]


def refusal(proto, kind=InputError):
    with pytest.raises(kind) as caught:
        traced(proto)
    return str(caught.value)


@pytest.mark.parametrize("op", ["Add", "Concat", "MatMul", "Equal"])
def test_operands_of_different_types_are_refused(op):
    attributes = {"axis": 0} if op == "Concat" else {}
    said = refusal(model([helper.make_node(op, ["x", "k"], ["y"], **attributes)], {**X, "k": (INT32, [4, 4])}))
    assert "input 0 ('x') is float32, and input 1 ('k') is int32; both must have one type (Cast converts)" in said


@pytest.mark.parametrize(("op", "kind"), [("Relu", "bool"), ("Sqrt", "int32"), ("Not", "float32")])
def test_a_type_that_an_op_does_not_take_is_refused(op, kind):
    number = {"bool": BOOL, "int32": INT32, "float32": FLOAT}[kind]
    said = refusal(model([helper.make_node(op, ["x"], ["y"])], {"x": (number, [4])}))
    assert f"input 0 ('x') is {kind}, which is no type that it takes there" in said


def test_numbers_of_32_and_64_bits_are_not_told_apart():
    nodes = [helper.make_node("Shape", ["x"], ["s"]), helper.make_node("Mul", ["i", "s"], ["y"])]
    assert traced(model(nodes, {**X, "i": (INT64, [2])}))[1].dtype == np.int32


def test_an_output_of_another_type_than_declared_is_noted():
    made, _ = traced(model([helper.make_node("Shape", ["x"], ["y"])], X))
    assert "output 'y' is declared as float32 and is int32" in made.notes


@pytest.mark.parametrize(
    ("op", "inputs", "word"),
    [
        ("Resize", ["x", "", "scales"], {"mode": "foo"}),
        ("Pad", ["x", "pads"], {"mode": "foo"}),
        ("ScatterElements", ["x", "at", "x"], {"reduction": "foo"}),
        ("MaxPool", ["x4"], {"auto_pad": "foo", "kernel_shape": [2, 2]}),
    ],
)
def test_a_word_that_an_attribute_may_not_be_is_refused_with_those_that_it_may(op, inputs, word):
    stored = {"scales": np.float32([2, 2]), "pads": np.int64([1, 1, 1, 1]), "at": np.zeros((4, 4), np.int64)}
    used = {n: v for n, v in stored.items() if n in inputs}
    proto = model([helper.make_node(op, inputs, ["y"], **word)], {**X, "x4": (FLOAT, [1, 1, 4, 4])}, used)
    assert f"attribute '{next(iter(word))}' is 'foo'; it may be " in refusal(proto)


@pytest.mark.parametrize("op", ["Gather", "GatherElements", "GatherND", "ScatterElements", "ScatterND"])
def test_a_known_index_outside_of_its_axis_is_refused(op):
    at = np.array([[0], [9]], np.int64)
    more = ["u"] if op.startswith("Scatter") else []
    shape = [2, 4] if op == "ScatterND" else [2, 1]
    proto = model([helper.make_node(op, ["x", "at", *more], ["y"])], {**X, **({"u": (FLOAT, shape)} if more else {})},
                  {"at": at})  # fmt: skip
    assert "indices from 0 to 9 are outside of an axis of 4 (from -4 to 3)" in refusal(proto)


def test_the_kernel_shape_is_that_of_the_weights():
    conv = helper.make_node("Conv", ["x", "w"], ["y"], kernel_shape=[5, 5])
    said = refusal(model([conv], {"x": (FLOAT, [1, 3, 8, 8])}, {"w": np.ones((4, 3, 3, 3), np.float32)}))
    assert "kernel_shape is [5, 5], and its weights are [4, 3, 3, 3]" in said


def test_pads_take_away_no_more_than_there_is():
    pad = helper.make_node("Pad", ["x", "p"], ["y"])
    assert "take away more than [4, 4] has" in refusal(model([pad], X, {"p": np.int64([-3, 0, -3, 0])}))


def test_a_split_has_as_many_outputs_as_it_says():
    split = helper.make_node("Split", ["x"], ["y", "z"], num_outputs=3)
    assert "num_outputs is 3, and it has 2 outputs" in refusal(model([split], X))


def test_statistics_of_single_positions_are_refused():
    norm = helper.make_node("BatchNormalization", ["x", *"ssss"], ["y"], spatial=0)
    proto = model([norm], {"x": (FLOAT, [2, 1, 3, 3])}, {"s": np.ones((1, 3, 3), np.float32)}, opset=7)
    assert "spatial=0" in refusal(proto, UnsupportedError)


@pytest.mark.parametrize(
    ("attributes", "words"),
    [
        ({"hidden_size": 2, "direction": "bidirectional"}, "W is [1, 8, 4]; with direction bidirectional"),
        ({"hidden_size": 5}, "a hidden size of 5 and X of [3, 2, 4] it is [1, 20, 4]"),
        ({"hidden_size": 2, "activations": ["Foo", "Tanh", "Tanh"]}, "activations are Foo, Tanh, Tanh; it needs 3 of"),
        ({"hidden_size": 2, "activations": ["Tanh"]}, "activations are Tanh; it needs 3 of"),
    ],
)
def test_a_recurrent_layer_whose_weights_do_not_fit_its_attributes_is_refused(attributes, words):
    stored = {"w": np.ones((1, 8, 4), np.float32), "r": np.ones((1, 8, 2), np.float32)}
    layer = helper.make_node("LSTM", ["x", "w", "r"], ["y"], **attributes)
    assert words in refusal(model([layer], {"x": (FLOAT, [3, 2, 4])}, stored))


def _body(inputs, outputs, nodes=()):
    kinds = {"turn": INT64, "go": BOOL, "on": BOOL}
    return helper.make_graph(
        list(nodes),
        "b",
        [info(n, kinds.get(n, FLOAT)) for n in inputs],
        [info(n, kinds.get(n, FLOAT)) for n in outputs],
    )


def _turns(*inputs):
    nodes = [helper.make_node("Identity", ["go"], ["on"]), helper.make_node("Neg", ["s"], ["t"])]
    return helper.make_node("Loop", list(inputs), ["y"], body=_body(["turn", "go", "s"], ["on", "t"], nodes))


@pytest.mark.parametrize("go", ["", "true"])
def test_a_loop_that_never_ends_is_refused(go):
    proto = model([_turns("", go, "x")], X, {"true": np.asarray(True)} if go else {})
    assert "it never ends: it has no trip count, and its condition stays true" in refusal(proto)


def test_a_loop_whose_body_makes_its_condition_true_is_a_scan_too():
    made_true = helper.make_node("Constant", [], ["on"], value=numpy_helper.from_array(np.asarray(True)))
    body = _body(["turn", "go", "s"], ["on", "t"], [made_true, helper.make_node("Neg", ["s"], ["t"])])
    proto = model([helper.make_node("Loop", ["n", "", "x"], ["y"], body=body)], X, {"n": np.int64(40)})
    made, _ = traced(proto)
    assert "scan" in str(jax.make_jaxpr(made)(*made.args))


@pytest.mark.parametrize(
    ("node", "words"),
    [
        (helper.make_node("If", ["c"], ["y"], then_branch=_body([], ["x"])), "Required attribute 'else_branch'"),
        (helper.make_node("If", ["c"], ["y"], then_branch=_body([], ["x"]), else_branch=_body([], ["x", "c"])),
         "its results are 1 in number, those of else_branch 2"),
        (helper.make_node("Loop", ["n", "", "x"], ["y"], body=_body([], ["x"])), "its body takes 0 values"),
        (helper.make_node("Loop", ["n", "", "x"], ["y"], body=_body(["turn", "go", "s"], ["go"])),
         "its body makes 1 values"),
        (helper.make_node("Scan", ["x"], ["y"], body=_body(["s"], ["s"]), num_scan_inputs=7), "num_scan_inputs is 7"),
    ],
)  # fmt: skip
def test_bodies_that_do_not_fit_their_node_are_refused(node, words):
    assert words in refusal(model([node], {**X, "c": (BOOL, [])}, {"n": np.int64(3)}))


def _function(outputs=("b",)):
    body = [helper.make_node("Relu", ["a"], ["b"])]
    return helper.make_function("own", "F", ["a"], list(outputs), body, [helper.make_opsetid("", 18)])


@pytest.mark.parametrize(("inputs", "outputs", "what"), [(["x", "x"], ["y"], "input"), (["x"], ["y", "z"], "output")])
def test_a_call_with_more_values_than_its_function_has_is_refused(inputs, outputs, what):
    call = helper.make_node("F", inputs, outputs, domain="own")
    said = refusal(model([call], X, functions=[_function()]))
    assert f"has 2 {what}s, and the function that it calls 1" in said


def test_an_output_that_a_function_does_not_make_is_told():
    call = helper.make_node("F", ["x"], ["y"], domain="own")
    assert "function F: nothing makes the output 'c'" in refusal(model([call], X, functions=[_function(["c"])]))


def test_a_tensor_that_holds_too_few_numbers_is_told():
    proto = model([helper.make_node("Add", ["x", "w"], ["y"])], X)
    proto.graph.initializer.add(name="w", data_type=FLOAT, dims=[4, 4]).float_data.extend([1.0] * 3)
    assert "tensor 'w' is float32[4, 4], which takes 16 numbers; it holds 3" in refusal(proto)


def test_a_tensor_outside_of_the_file_that_decides_shapes_is_told_as_such():
    proto = model([helper.make_node("Reshape", ["x", "s"], ["y"])], X)
    stored = proto.graph.initializer.add(name="s", data_type=INT64, dims=[2], data_location=TensorProto.EXTERNAL)
    stored.external_data.add(key="location", value="weights.bin")
    assert "input 1 ('s') is a weight whose numbers lie outside of the model's file" in refusal(proto, UnsupportedError)
