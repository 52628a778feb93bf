"""Cases of ops that ONNX's own suite does not have, judged by its reference evaluator or by onnxruntime (S1.46)."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from autoshard.onnx.function import function

FLOAT = TensorProto.FLOAT


def one_node(node, x, stored, opset):
    graph = helper.make_graph(
        [node], "g", [helper.make_tensor_value_info("x", FLOAT, x.shape)],
        [helper.make_tensor_value_info(name, FLOAT, None) for name in node.output],
        [numpy_helper.from_array(value, name) for name, value in stored.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def ours(model, x):
    made = function(model)
    weights = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer if t.name in made.weights}
    return {name: np.asarray(value) for name, value in made(weights, {"x": x}).items()}


@pytest.mark.parametrize("corners", [0, 1])
@pytest.mark.parametrize("size", [(1, 2, 3, 4), (2, 2, 3, 4), (1, 2, 3, 2, 4)])
def test_an_affine_grid_of_any_batch_is_as_of_the_reference(size, corners):
    space = len(size) - 2
    theta = np.random.default_rng(0).standard_normal((size[0], space, space + 1)).astype(np.float32)
    node = helper.make_node("AffineGrid", ["x", "size"], ["y"], align_corners=corners)
    model = one_node(node, theta, {"size": np.asarray(size, np.int64)}, 20)
    (expected,) = ReferenceEvaluator(model).run(None, {"x": theta})
    np.testing.assert_allclose(ours(model, theta)["y"], expected, atol=1e-5)


@pytest.mark.parametrize("reverse", [0, 1])
def test_an_exclusive_sum_along_an_axis_without_elements_is_as_of_the_reference(reverse):
    x = np.zeros((0, 3), np.float32)
    node = helper.make_node("CumSum", ["x", "axis"], ["y"], exclusive=1, reverse=reverse)
    model = one_node(node, x, {"axis": np.asarray(0, np.int64)}, 20)
    (expected,) = ReferenceEvaluator(model).run(None, {"x": x})
    assert ours(model, x)["y"].shape == expected.shape == (0, 3)


def test_tf_half_pixel_for_nn_of_opset_11_lies_half_a_pixel_further():
    x = np.arange(4, dtype=np.float32).reshape(1, 1, 4)
    node = helper.make_node(
        "Resize", ["x", "roi", "scales"], ["y"], mode="nearest", nearest_mode="floor",
        coordinate_transformation_mode="tf_half_pixel_for_nn",
    )  # fmt: skip
    stored = {"roi": np.zeros(0, np.float32), "scales": np.float32([1, 1, 0.5])}
    assert ours(one_node(node, x, stored, 11), x)["y"].ravel().tolist() == [1, 3]  # (0 + 1/2) / 0.5, (1 + 1/2) / 0.5


@pytest.mark.parametrize(("opset", "kind"), [(7, np.float32), (10, np.bool_)])
def test_the_mask_of_a_dropout_has_the_type_of_its_opset(opset, kind):
    node = helper.make_node("Dropout", ["x"], ["y", "mask"])
    assert ours(one_node(node, np.ones(3, np.float32), {}, opset), np.ones(3, np.float32))["mask"].dtype == kind
