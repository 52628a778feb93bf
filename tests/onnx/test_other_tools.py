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
from autoshard.onnx.specs import NodeAnnotation, read_annotations, read_configurations, write_annotations


def all_annotations(model: onnx.ModelProto) -> list:
    return [read_annotations(n) for n in model.graph.node]


def codes(model: onnx.ModelProto) -> set[str]:
    return {f.code for f in check(load(model)).findings}


def test_shape_inference_keeps_annotations() -> None:
    found = onnx.shape_inference.infer_shapes(mlp())
    assert all_annotations(found) == all_annotations(mlp())
    assert check(load(found)).ok


def test_version_conversion_drops_them() -> None:
    found = version_converter.convert_version(mlp(), 23)
    assert not any(all_annotations(found))
    assert check(load(found)).annotated == 0


def test_a_prefix_leaves_stale_names() -> None:
    found = onnx.compose.add_prefix(mlp(), "enc_")
    assert codes(found) == {"unknown-tensor"}
    advice = check(load(found)).errors[0].advice
    assert "did you mean enc_x" in advice
    assert "tools that rename values" in advice


def test_extraction_drops_the_configurations() -> None:
    found = onnx.utils.Extractor(onnx.shape_inference.infer_shapes(mlp())).extract_model(["x"], ["u"])
    assert codes(found) == {"unknown-configuration"}
    assert "extracting or merging models drops them" in check(load(found)).errors[0].message


def test_merging_drops_the_configurations() -> None:
    second = graph_model([helper.make_node("Exp", ["z"], ["e"])], {"z": (8, 4)}, ["e"])
    found = onnx.compose.merge_models(mlp(), second, io_map=[("y", "z")])
    assert codes(found) == {"unknown-configuration"}


def test_inlining_loses_the_call_and_leaves_stale_names() -> None:
    body = [helper.make_node("Exp", ["a"], ["t"]), helper.make_node("Relu", ["t"], ["b"])]
    model = graph_model([helper.make_node("F", ["x"], ["y"], domain="own")], {"x": (8, 4)}, ["y"])
    model.functions.append(helper.make_function("own", "F", ["a"], ["b"], body, [helper.make_opsetid("", 22)]))
    write_annotations(model.graph.node[0], [NodeAnnotation("mesh", (whole("x"),))])
    write_annotations(model.functions[0].node[0], [NodeAnnotation("mesh", (whole("a"), whole("t")))])
    assert check(load(model)).ok
    found = inliner.inline_local_functions(model)
    assert check(load(found)).annotated == 1
    assert codes(found) == {"unknown-tensor"}


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
    found = onnx.load(tmp_path / "o.onnx")
    kinds = {n.op_type: bool(n.device_configurations) for n in found.graph.node}
    assert kinds == kept if kept else kinds["FusedGemm"] is False
    assert [c.name for c in read_configurations(found)] == ["mesh"]
    assert check(load(found)).ok
