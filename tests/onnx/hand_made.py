"""Small annotated models, written by hand."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from autoshard.onnx.specs import (
    Configuration,
    NodeAnnotation,
    Part,
    ShardedDim,
    ShardingSpec,
    write_annotations,
    write_configurations,
)

PAIRS = {-1: (0, 1), -2: (2, 3)}
COLUMNS = {-1: (0, 2), -2: (1, 3)}
ALL = {-1: (0, 1, 2, 3)}


def spec(
    tensor: str, device: Sequence[int], dims: Mapping[int, int] | None = None, groups: Mapping[int, Sequence[int]] = {}
) -> ShardingSpec:
    """Dims: shards by axis."""
    cut = tuple(ShardedDim(axis, (Part(n),)) for axis, n in (dims or {}).items())
    return ShardingSpec(tensor, tuple(device), tuple((k, tuple(v)) for k, v in groups.items()), cut)


def whole(tensor: str, groups: Mapping[int, Sequence[int]] = ALL) -> ShardingSpec:
    return spec(tensor, [-1], {}, groups)


def graph_model(
    nodes: Sequence[Any],
    inputs: Mapping[str, Sequence[Any]],
    outputs: Sequence[str],
    weights: Mapping[str, Any] | None = None,
    *,
    devices: int = 4,
    opset: int = 22,
    **options: Any,
) -> onnx.ModelProto:
    """A float model with one configuration called ``mesh``. weights: arrays, or shapes."""
    tensors = []
    for name, value in (weights or {}).items():
        array = value if isinstance(value, np.ndarray) else np.zeros(value, np.float32)
        tensors.append(numpy_helper.from_array(array, name))
    graph = helper.make_graph(
        list(nodes),
        "g",
        [helper.make_tensor_value_info(n, 1, list(s)) for n, s in inputs.items()],
        [onnx.ValueInfoProto(name=n) for n in outputs],
        tensors,
    )
    model = helper.make_model(
        graph, ir_version=11, opset_imports=[helper.make_opsetid("", opset), helper.make_opsetid("own", 1)], **options
    )
    found = {o.name: o.type for o in onnx.shape_inference.infer_shapes(model).graph.output}
    for output in model.graph.output:
        output.type.CopyFrom(found[output.name])
        if not output.type.HasField("tensor_type"):
            output.type.tensor_type.elem_type = 1
    write_configurations(model, [Configuration("mesh", devices)])
    return model


def annotate(model: onnx.ModelProto, specs: Mapping[int, Sequence[ShardingSpec]]) -> onnx.ModelProto:
    """Put specs on nodes, by index."""
    for index, given in specs.items():
        write_annotations(model.graph.node[index], [NodeAnnotation("mesh", tuple(given))])
    return model


def one_op(op: str, shapes: Mapping[str, Sequence[Any]], specs: Sequence[ShardingSpec], **attributes: Any) -> Any:
    """A model of one node whose inputs have these shapes; its outputs are ``y`` and, where `outputs` says so, more."""
    opset = attributes.pop("opset", 22)
    outputs = attributes.pop("outputs", ["y"])
    weights = attributes.pop("weights", {})
    devices = attributes.pop("devices", 4)
    domain = attributes.pop("domain", "")
    node = helper.make_node(op, [*shapes, *weights], outputs, domain=domain, **attributes)
    model = graph_model([node], shapes, outputs, weights, opset=opset, devices=devices)
    return annotate(model, {0: specs})


def mlp(x: Any = None, w1: Any = None, w2: Any = None, more: Mapping[int, Sequence[Any]] | None = None) -> Any:
    """Gemm, Relu, Gemm on 2x2 devices: rows of x over pairs, columns of w1 and rows of w2 over columns."""
    nodes = [
        helper.make_node("Gemm", ["x", "w1", "b1"], ["u"], name="up"),
        helper.make_node("Relu", ["u"], ["r"], name="act"),
        helper.make_node("Gemm", ["r", "w2", "b2"], ["y"], name="down"),
    ]
    rng = np.random.default_rng(0)
    weights = {
        n: rng.standard_normal(s).astype(np.float32)
        for n, s in (("w1", (4, 16)), ("b1", (16,)), ("w2", (16, 4)), ("b2", (4,)))
    }
    model = graph_model(nodes, {"x": (8, 4)}, ["y"], weights)
    first = [
        x or spec("x", [-1, -2], {0: 2}, PAIRS),
        w1 or spec("w1", [-1, -2], {1: 2}, COLUMNS),
        spec("b1", [-1, -2], {0: 2}, COLUMNS),
    ]
    specs = {0: first, 2: [w2 or spec("w2", [-1, -2], {0: 2}, COLUMNS)]}
    for index, extra in (more or {}).items():
        specs[index] = [*specs.get(index, []), *extra]
    return annotate(model, specs)
