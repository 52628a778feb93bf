"""Ops without a mapping to JAX: the list is complete, told on the page, and each has a reason and advice."""

import jax
import numpy as np
import onnx.defs
import onnxruntime
import pytest
from onnx import TensorProto, helper, save

from autoshard.cli import main
from autoshard.errors import UnsupportedError
from autoshard.onnx.function import OLDEST_OPSET, function
from autoshard.onnx.ops.families import find
from autoshard.onnx.ops.registry import full_name, normal
from autoshard.onnx.ops.unmapped import UNMAPPED
from autoshard.onnx.tracing import WITHOUT_ELEMENTS

TOLD = {op for entry in UNMAPPED for op in entry.ops}
EXPANDED_TO_SUCH = {"Bernoulli", "SequenceMap"}
"""Ops whose schema has a function, made of ops without a mapping."""


def live_schemas():
    """(schema, the first opset version that the product reads it in), of all that some model may use."""
    by_op: dict = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        by_op.setdefault((schema.domain, schema.name), []).append(schema)
    for schemas in by_op.values():
        schemas.sort(key=lambda s: s.since_version)
        for schema, later in zip(schemas, [*schemas[1:], None], strict=True):
            oldest = OLDEST_OPSET if schema.domain == "" else 1
            gone = later is not None and later.since_version <= oldest
            if not gone and not schema.deprecated:
                yield schema, max(schema.since_version, oldest)


def test_every_op_that_is_not_on_the_list_has_a_mapping_or_a_function_in_its_schema() -> None:
    without = set()
    for schema, version in live_schemas():
        domain = normal(schema.domain)
        expanded = schema.has_function or schema.has_context_dependent_function
        if not (find(domain, schema.name, version) or expanded or schema.name in WITHOUT_ELEMENTS):
            without.add(full_name(domain, schema.name))
    assert without | EXPANDED_TO_SUCH == TOLD


def test_the_page_names_every_op_on_the_list(repository) -> None:
    page = (repository / "docs" / "onnx.md").read_text(encoding="utf-8")
    assert [op for op in sorted(TOLD) if f"`{op.rpartition('::')[2]}`" not in page] == []


def one_node(op: str, shape: list, dtype: int = TensorProto.FLOAT, domain: str = "", **attributes):
    node = helper.make_node(op, ["x"], ["pixels"], name="first", domain=domain, **attributes)
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", dtype, shape)],
        [helper.make_empty_tensor_value_info("pixels")],
    )
    imports = [helper.make_opsetid("", 22), *([helper.make_opsetid(domain, 1)] if domain else [])]
    return helper.make_model(graph, opset_imports=imports, ir_version=11)


@pytest.mark.parametrize("op", sorted(op for op in TOLD if "::" not in op))
def test_each_is_refused_with_the_node_the_reason_and_what_to_try(op: str) -> None:
    made = function(one_node(op, [4]))
    with pytest.raises(UnsupportedError) as refused:
        jax.eval_shape(made, *made.args)
    said = str(refused.value)
    (entry,) = (e for e in UNMAPPED if op in e.ops)
    assert said.startswith(f"{op} node 'first' (opset 22) cannot be planned: {entry.why}; ")
    assert "{" not in said


def test_a_name_that_is_nearly_that_of_an_op_is_guessed() -> None:
    made = function(one_node("MatMull", [4]))
    with pytest.raises(UnsupportedError, match="no mapping to JAX; did you mean MatMul"):
        jax.eval_shape(made, *made.args)


def test_solving_a_model_that_decodes_images_says_that_sizes_depend_on_data(tmp_path, capsys) -> None:
    save(one_node("ImageDecoder", ["n"], TensorProto.UINT8), tmp_path / "m.onnx")
    config = tmp_path / "c.yaml"
    config.write_text("model: m.onnx\nshapes: {n: 64}\nmesh: {data: 2}\nhardware: tpu_v5e\n")
    assert main(["solve", str(config)]) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert said == (
        "error: ImageDecoder node 'first' (opset 22) cannot be planned: the size of its result depends on the data "
        "that it decodes, and a plan needs sizes before there is data; decode images before the model: cut the model "
        "behind it (onnx.utils.extract_model), so that 'pixels' becomes an input with a stated size"
    )


@pytest.mark.parametrize("scale", [1.0, 0.3])
def test_pooled_regions_are_those_of_onnxruntime(scale: float) -> None:
    random = np.random.default_rng(0)
    x = random.standard_normal((2, 3, 9, 11)).astype(np.float32)
    corners = np.sort(random.integers(-3, 16, (12, 2, 2)), axis=1).reshape(12, 4)
    rois = np.column_stack([random.integers(0, 2, 12), corners]).astype(np.float32)
    info = helper.make_tensor_value_info
    node = helper.make_node("MaxRoiPool", ["x", "rois"], ["y"], pooled_shape=[3, 2], spatial_scale=scale)
    inputs = [info("x", 1, x.shape), info("rois", 1, rois.shape)]
    graph = helper.make_graph([node], "g", inputs, [info("y", 1, [12, 3, 3, 2])])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    want = np.asarray(session.run(None, {"x": x, "rois": rois})[0])
    found = jax.jit(function(model))({}, {"x": x, "rois": rois})["y"]
    assert np.array_equal(np.asarray(found), want)
    assert (want == 0).any(), "a bin without pixels is among them"
