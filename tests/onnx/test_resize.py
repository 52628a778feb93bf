"""Resize: an axis passes where its scale is 1, not where its size is kept. Judged by the reference evaluator."""

from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from autoshard.onnx import load
from autoshard.onnx.calls import Constants, call_of
from autoshard.onnx.rules import rule_of

CROPPED = {"coordinate_transformation_mode": "tf_crop_and_resize"}


def resized(
    shape: tuple[int, ...], *, opset: int = 19, scales: Any = None, sizes: Any = None, roi: Any = None,
    op: str = "Resize", known: bool = True, **attributes: Any,
) -> ModelProto:  # fmt: skip
    """A model of one node; its scales, sizes and regions as initializers, or as inputs."""
    given = {"roi": (roi, np.float32), "scales": (scales, np.float32), "sizes": (sizes, np.int64)}
    names = ["scales"] if opset < 11 else ["roi", "scales", "sizes"]
    tensors = [
        numpy_helper.from_array(np.asarray(given[n][0], given[n][1]), n) for n in names if given[n][0] is not None
    ]
    inputs = [n if given[n][0] is not None else "" for n in names]
    if opset < 9:
        tensors, inputs = [], []
        attributes["scales"] = [float(s) for s in scales]
    elif opset == 11:  # roi and scales are not optional yet
        absent = [n for n in ("roi", "scales") if n not in inputs]
        tensors += [numpy_helper.from_array(np.zeros(0, np.float32), n) for n in absent]
        inputs[:2] = ["roi", "scales"]
    while inputs and not inputs[-1]:
        inputs.pop()
    taken = [] if known else [helper.make_tensor_value_info(t.name, t.data_type, t.dims) for t in tensors]
    graph = helper.make_graph(
        [helper.make_node(op, ["x", *inputs], ["y"], **attributes)],
        "resize",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape), *taken],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        tensors if known else [],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def passing(model: ModelProto) -> set[int]:
    """The axes that the rule lets pass."""
    loaded = load(model)
    constants = Constants()
    constants.add_tensors(loaded.graph.initializer)
    rule = rule_of(call_of(loaded.graph.node[0], loaded.types, constants, loaded.opsets))
    assert rule is not None and rule.inputs[0] is not None
    return {a for a, (factor,) in enumerate(rule.inputs[0]) if factor not in rule.whole}


def elementwise(model: ModelProto, shape: tuple[int, ...]) -> set[int]:
    """The axes of which a change at any place changes the result at that place only."""
    session = ReferenceEvaluator(model)
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    (before,) = session.run(None, {"x": x})
    out = set()
    for axis, size in enumerate(shape):
        if before.shape[axis] != size:
            continue
        moved = []
        for k in range(size):
            other = x.copy()
            np.moveaxis(other, axis, 0)[k] += 1
            (after,) = session.run(None, {"x": other})
            changed = np.moveaxis(np.abs(after - before) > 1e-6, axis, 0)
            moved.append(changed.reshape(size, -1).any(1))
        if np.array_equal(moved, np.eye(size, dtype=bool)):
            out.add(axis)
    return out


@pytest.mark.parametrize(
    ("given", "passes"),
    [
        ({"scales": [1, 1, 1.1, 2]}, {0, 1}),
        ({"scales": [1, 1, 1, 2]}, {0, 1, 2}),
        ({"scales": [1, 1, 1, 2], "known": False}, set()),
        ({"scales": [1.1, 1], "axes": [2, 3]}, {0, 1, 3}),
        ({"sizes": [2, 3, 5, 8]}, {0, 1, 2}),
        ({"sizes": [5, 8], "axes": [2, 3]}, {0, 1, 2}),
        ({"sizes": [5, 8], "axes": [2, 3], "keep_aspect_ratio_policy": "not_smaller"}, {0, 1}),
        ({"scales": [1, 1, 1.1, 2], "opset": 10}, {0, 1}),
        ({"scales": [1, 1, 1.1, 2], "opset": 7, "op": "Upsample"}, {0, 1}),
        ({"scales": [1, 1], "axes": [2, 3], "roi": [0, 0.5, 1, 0.5], **CROPPED}, {0, 1}),
    ],
)  # fmt: skip
def test_axes_pass_where_the_scale_is_1(given: dict, passes: set[int]) -> None:
    assert passing(resized((2, 3, 5, 6), **given)) == passes


def drawn(seed: int) -> tuple[ModelProto, tuple[int, ...]]:
    """A random case of two axes."""
    rng = np.random.default_rng(seed)

    def one(*choices: Any) -> Any:
        return choices[rng.integers(len(choices))]

    shape = (int(rng.integers(4, 9)), int(rng.integers(4, 9)))
    scales = [one(1.0, 0.5, 2.0, 0.95, 1.1), one(1.0, 1.1)]
    options: dict[str, Any] = {"mode": one("nearest", "linear", "cubic"), "opset": one(11, 13, 18, 19)}
    options["coordinate_transformation_mode"] = one(
        "half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "tf_crop_and_resize"
    )
    if options["mode"] == "nearest":
        options["nearest_mode"] = one("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
    if options["opset"] >= 18 and rng.random() < 0.5:
        options["axes"], scales = [1], scales[1:]
    if options["opset"] >= 18 and options["mode"] != "nearest":
        options["antialias"] = one(0, 1)
    cropped = options["coordinate_transformation_mode"] == "tf_crop_and_resize"
    roi = [*[0.25] * len(scales), *[0.75] * len(scales)] if cropped else None
    if rng.random() < 0.4:
        options["sizes"] = [int(n * s) for n, s in zip(shape[-len(scales) :], scales, strict=True)]
        if options["opset"] >= 18:
            options["keep_aspect_ratio_policy"] = one("stretch", "not_larger", "not_smaller")
    else:
        options["scales"] = scales
    return resized(shape, roi=roi, **options), shape


def test_what_passes_is_elementwise_in_random_cases() -> None:
    # and the other way round, but for nearest neighbours, which a scale near 1 may leave as they are
    found = 0
    for seed in range(150):
        model, shape = drawn(seed)
        rule, seen = passing(model), elementwise(model, shape)
        assert rule <= seen, (seed, model.graph.node[0])
        said = {a.name: helper.get_attribute_value(a) for a in model.graph.node[0].attribute}
        if said["mode"] != b"nearest" and said.get("keep_aspect_ratio_policy", b"stretch") == b"stretch":
            assert rule == seen, (seed, model.graph.node[0])
        found += len(rule)
    assert found > 80
