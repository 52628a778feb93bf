"""States that other tools leave behind (S1.49, S1.50), made by the tools themselves, and what the check says."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir
import pytest
from hand_made import annotate, graph_model, mlp, spec, whole
from onnx import helper, inliner, version_converter

from autoshard.onnx import load, save
from autoshard.onnx.check import check
from autoshard.onnx.specs import (
    NodeAnnotation,
    read_annotations,
    read_configurations,
    write_annotations,
    write_configurations,
)


def all_annotations(model: onnx.ModelProto) -> list:
    return [read_annotations(n) for n in model.graph.node]


def codes(model: onnx.ModelProto) -> set[str]:
    return {f.code for f in check(load(model)).findings}


def test_shape_inference_keeps_annotations() -> None:
    found = onnx.shape_inference.infer_shapes(mlp())
    assert all_annotations(found) == all_annotations(mlp())
    assert check(load(found)).ok


def repaired(model: onnx.ModelProto, names: dict[str, str] | None = None) -> onnx.ModelProto:
    """A copy with what the tool left out or made stale put right: configurations, and names of tensors."""
    fixed = onnx.ModelProto()
    fixed.CopyFrom(model)
    if not fixed.configuration:
        write_configurations(fixed, read_configurations(mlp()))
    for node in fixed.graph.node:
        for annotation in node.device_configurations:
            for written in annotation.sharding_spec:
                written.tensor_name = (names or {}).get(written.tensor_name, written.tensor_name)
    return fixed


def is_right(model: onnx.ModelProto) -> bool:
    checked = check(load(model))
    return checked.findings == () and checked.annotated > 0


def test_version_conversion_drops_them() -> None:
    converted = version_converter.convert_version(mlp(), 23)
    assert not any(all_annotations(converted))
    assert check(load(converted)).annotated == 0
    twin = repaired(converted)
    for node, annotations in zip(twin.graph.node, all_annotations(mlp()), strict=True):
        write_annotations(node, annotations)
    assert is_right(twin)


def test_a_prefix_leaves_stale_names() -> None:
    prefixed = onnx.compose.add_prefix(mlp(), "enc_")
    assert codes(prefixed) == {"unknown-tensor"}
    advice = check(load(prefixed)).errors[0].advice
    assert "did you mean enc_x" in advice
    assert "tools that rename values" in advice
    assert is_right(repaired(prefixed, {name: f"enc_{name}" for name in ("x", "w1", "b1", "w2")}))


def test_extraction_drops_the_configurations() -> None:
    extracted = onnx.utils.Extractor(onnx.shape_inference.infer_shapes(mlp())).extract_model(["x"], ["u"])
    assert codes(extracted) == {"unknown-configuration"}
    assert "extracting or merging models drops them" in check(load(extracted)).errors[0].message
    assert is_right(repaired(extracted))


def test_merging_drops_the_configurations() -> None:
    second = graph_model([helper.make_node("Exp", ["z"], ["e"])], {"z": (8, 4)}, ["e"])
    merged = onnx.compose.merge_models(mlp(), second, io_map=[("y", "z")])
    assert codes(merged) == {"unknown-configuration"}
    assert is_right(repaired(merged))


def test_inlining_loses_the_call_and_leaves_stale_names() -> None:
    body = [helper.make_node("Exp", ["a"], ["t"]), helper.make_node("Relu", ["t"], ["b"])]
    model = graph_model([helper.make_node("F", ["x"], ["y"], domain="own")], {"x": (8, 4)}, ["y"])
    model.functions.append(helper.make_function("own", "F", ["a"], ["b"], body, [helper.make_opsetid("", 22)]))
    write_annotations(model.graph.node[0], [NodeAnnotation("mesh", (whole("x"),))])
    write_annotations(model.functions[0].node[0], [NodeAnnotation("mesh", (whole("a"), whole("t")))])
    assert check(load(model)).ok
    inlined = inliner.inline_local_functions(model)
    assert check(load(inlined)).annotated == 1
    assert codes(inlined) == {"unknown-tensor"}
    assert is_right(repaired(inlined, dict(zip("at", [*inlined.graph.node[0].input, *inlined.graph.node[0].output]))))


def test_onnx_ir_keeps_everything_group_keys_included() -> None:
    # S1.50
    model = mlp(more={1: [spec("u", [-7, 5], {1: 2}, {-7: (0, 1), 5: (2, 3)})]})
    back = onnx_ir.to_proto(onnx_ir.from_proto(model))
    assert all_annotations(back) == all_annotations(model)
    assert read_configurations(back) == read_configurations(model)


def test_what_we_write_has_no_fault_for_onnx_ir(tmp_path: Path) -> None:
    done = load(mlp()).infer().proto
    save(done, tmp_path / "m.onnx")
    read = onnx_ir.load(tmp_path / "m.onnx")
    assert all_annotations(onnx_ir.to_proto(read)) == all_annotations(done)


def session(model: onnx.ModelProto, saved: Path | None = None, level: str = "BASIC") -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    if saved is not None:
        options.optimized_model_filepath = str(saved)
        options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, f"ORT_ENABLE_{level}")
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def test_onnxruntime_computes_the_same_with_and_without() -> None:
    # S1.2, S1.50: bit by bit
    x = np.random.default_rng(0).standard_normal((8, 4)).astype(np.float32)
    placed = load(mlp()).annotate({"x": 2, "y": 2}, {"u": '[{"x"}, {"y"}]'}).proto
    assert np.array_equal(session(mlp()).run(None, {"x": x})[0], session(placed).run(None, {"x": x})[0])


@pytest.mark.parametrize(("level", "kept"), [("BASIC", {"Sin": True, "Gemm": True, "Relu": True}), ("EXTENDED", None)])
def test_onnxruntime_loses_those_of_nodes_that_it_fuses(level: str, kept: dict | None, tmp_path: Path) -> None:
    # S1.50
    nodes = [helper.make_node("Sin", ["x"], ["s"]), helper.make_node("Gemm", ["s", "w"], ["u"])]
    nodes.append(helper.make_node("Relu", ["u"], ["y"]))
    model = annotate(graph_model(nodes, {"x": (8, 4)}, ["y"], {"w": (4, 6)}), {0: [whole("x")]})
    session(load(model).infer().proto, tmp_path / "o.onnx", level)
    saved = onnx.load(tmp_path / "o.onnx")
    kinds = {n.op_type: bool(n.device_configurations) for n in saved.graph.node}
    assert kinds == kept if kept else kinds["FusedGemm"] is False
    assert [c.name for c in read_configurations(saved)] == ["mesh"]
    assert check(load(saved)).ok
