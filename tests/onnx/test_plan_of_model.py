"""An ONNX file as the model of a config: planned, pinned by its names, run, verified, written back (S1.45-S1.48)."""

import json
from pathlib import Path

import jax
import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper
from onnx import save as save_proto

from autoshard.api.onnx_export import export_plan
from autoshard.api.plans import Plan
from autoshard.api.session import plan_config, verify_session
from autoshard.config.load import ConfigError, load_config
from autoshard.config.problem import build_problem
from autoshard.errors import InputError
from autoshard.onnx import load
from autoshard.onnx.check import check
from autoshard.onnx.specs import read_annotations

CONFIG = """\
model: mlp.onnx
shapes: {batch: 32}
mesh: {data: 2, model: 4}
hardware: tpu_v5e
baselines: []
"""
PINS = """pins: {u: '[{"data"}, {"model"}]', x: '[{"data"}, {}]', w2: '[{"model"}, {}]'}\n"""


def mlp():
    random = np.random.default_rng(0)
    sizes = {"w1": (64, 256), "b1": (256,), "w2": (256, 64)}
    stored = [numpy_helper.from_array(random.standard_normal(s).astype(np.float32), n) for n, s in sizes.items()]
    graph = helper.make_graph(
        [
            helper.make_node("Gemm", ["x", "w1", "b1"], ["u"], name="first"),
            helper.make_node("Relu", ["u"], ["a"], name="act"),
            helper.make_node("MatMul", ["a", "w2"], ["y"], name="second"),
        ],
        "mlp",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 64])],
        stored,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    where = tmp_path_factory.mktemp("onnx")
    save_proto(mlp(), where / "mlp.onnx")
    (where / "mlp.yaml").write_text(CONFIG + PINS)
    return where


def solved(config: Path) -> Plan:
    settings = load_config(config)
    return plan_config(settings, build_problem(settings))


@pytest.fixture(scope="module")
def plan(folder) -> Plan:
    made = solved(folder / "mlp.yaml")
    made.save(folder / "plan.json")
    return made


@pytest.fixture(scope="module")
def exported(folder, plan):
    return export_plan(plan, folder / "planned.onnx")


def test_pins_are_found_by_the_names_of_the_model(plan):
    assert [s["pattern"] for s in plan.statements] == ["@u", "inputs/x", "weights/w2"]
    assert plan["weights/w2"] == '[{"model"}, {}]'


def test_a_plan_answers_for_values_by_their_onnx_names(plan):
    assert plan["@u"] == '[{"data"}, {"model"}]'
    with pytest.raises(InputError, match="no value '@uu'; did you mean @u"):
        plan["@uu"]


def test_a_planned_model_computes_what_onnxruntime_computes(folder, plan):
    weights, inputs = build_problem(load_config(folder / "mlp.yaml")).arguments(0)
    found = plan.jit()(*jax.device_put(plan.place(weights, inputs)))
    want = onnxruntime.InferenceSession(str(folder / "mlp.onnx")).run(None, dict(inputs))[0]
    assert np.allclose(np.asarray(found["y"]), want, rtol=1e-5, atol=1e-4)


def test_the_plan_of_a_model_is_verified_from_its_file(folder, plan):
    report = verify_session(folder / "plan.json")
    assert report.ok, str(report)


def test_an_exported_plan_makes_sense_and_is_complete(folder, exported):
    again = load(folder / "planned.onnx")
    assert check(again).ok
    assert exported.unsaid == ()
    told = {n.name: {s.tensor for a in read_annotations(n) for s in a.specs} for n in again.graph.node}
    assert told == {"first": {"x", "w1", "b1", "u"}, "act": {"u", "a"}, "second": {"a", "w2", "y"}}


def test_annotations_change_no_result(folder, exported):
    feeds = {"x": np.random.default_rng(1).standard_normal((32, 64)).astype(np.float32)}
    before, after = (
        onnxruntime.InferenceSession(str(folder / name)).run(None, feeds)[0] for name in ("mlp.onnx", "planned.onnx")
    )
    assert before.tobytes() == after.tobytes()


def test_onnx_ir_reads_the_exported_annotations(folder, exported):
    ir = pytest.importorskip("onnx_ir")
    model = ir.load(folder / "planned.onnx")
    assert [c.name for c in model.device_configurations] == ["mesh"]
    assert ir.to_proto(model).graph.node[0].device_configurations == exported.proto.graph.node[0].device_configurations


def test_onnx_ir_s_check_finds_nothing_in_what_is_exported(folder, exported):
    ir = pytest.importorskip("onnx_ir")
    from onnx_ir._multi_device import _check_device_configurations as faults_of

    assert faults_of(ir.load(folder / "planned.onnx")) == []
    wrong = ModelProto()
    wrong.CopyFrom(exported.proto)
    wrong.graph.node[0].device_configurations[0].sharding_spec[0].sharded_dim[0].axis = 99
    assert faults_of(ir.from_proto(wrong)) != [], "the judge finds a fault that is there"


def test_a_model_of_64_bit_numbers_is_told_to_be_computed_in_32(tmp_path):
    table = numpy_helper.from_array(np.ones((16, 8), np.float32), "table")
    graph = helper.make_graph(
        [helper.make_node("Gather", ["table", "rows"], ["y"], name="look")],
        "lookup",
        [helper.make_tensor_value_info("rows", TensorProto.INT64, ["batch"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 8])],
        [table],
    )
    save_proto(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]), tmp_path / "mlp.onnx")
    (tmp_path / "c.yaml").write_text(CONFIG)
    notes = [n for n in solved(tmp_path / "c.yaml").notes if "int64" in n]
    assert notes == ["int64 of the model is computed in int32; set jax_enable_x64 for 64-bit types"]


def test_a_model_of_32_bit_numbers_has_no_such_note(plan):
    assert not [n for n in plan.notes if "is computed in" in n]


def test_a_plan_read_back_from_its_annotations_costs_the_same(folder, plan, exported):
    (folder / "again.yaml").write_text(CONFIG.replace("mlp.onnx", "planned.onnx") + "annotations: pins\n")
    again = solved(folder / "again.yaml")
    assert again.objective_s == pytest.approx(plan.objective_s, rel=1e-6)
    assert again["@u"] == plan["@u"]


def test_annotations_as_hints_give_way_to_pins(folder, plan, exported):
    text = CONFIG.replace("mlp.onnx", "planned.onnx") + "annotations: hints\npins: {w2: '[{}, {}]'}\n"
    (folder / "hints.yaml").write_text(text)
    hinted = solved(folder / "hints.yaml")
    assert hinted["weights/w2"] == "[{}, {}]"
    assert {s.get("priority", 0) for s in hinted.statements} == {0, 1}
    (note,) = (n for n in hinted.notes if n.startswith("annotations of "))
    assert note.startswith("annotations of planned.onnx (hints, open and of priority 1): 6 placements taken")
    assert "1, as the config pins them: w2" in note


def test_annotations_for_another_number_of_devices_are_refused(folder, exported):
    text = CONFIG.replace("mlp.onnx", "planned.onnx").replace("model: 4", "model: 2") + "annotations: pins\n"
    (folder / "other.yaml").write_text(text)
    with pytest.raises(InputError, match=r"configuration 'mesh' has 8 devices, the mesh .* has 4"):
        solved(folder / "other.yaml")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("function: a:b", "key 'function' does not go with an ONNX model"),
        ("annotations: maybe", "annotations: expected 'pins', 'hints' or 'ignore', found 'maybe'"),
    ],
)
def test_what_a_config_cannot_say_of_a_model_is_told(folder, line, message):
    (folder / "wrong.yaml").write_text(CONFIG + line + "\n")
    with pytest.raises(ConfigError, match=message):
        load_config(folder / "wrong.yaml")


def test_keys_of_onnx_models_go_with_them_only(folder):
    (folder / "wrong.yaml").write_text("model: mlp\nshapes: {n: 2}\nmesh: {data: 2}\nhardware: tpu_v5e\n")
    with pytest.raises(ConfigError, match="key 'shapes' goes with an ONNX model only"):
        load_config(folder / "wrong.yaml")


def test_a_missing_model_is_told_with_its_place_in_the_config(folder):
    (folder / "wrong.yaml").write_text(CONFIG.replace("mlp.onnx", "gone.onnx"))
    with pytest.raises(InputError, match=r"wrong\.yaml:1:8: model: ONNX model .*gone\.onnx does not exist"):
        solved(folder / "wrong.yaml")


def test_plans_of_functions_have_no_model_to_write(folder, plan):
    data = json.loads((folder / "plan.json").read_text())
    other = Plan.from_dict({**data, "config": None})
    with pytest.raises(InputError, match="is not of an ONNX model"):
        export_plan(other, folder / "none.onnx")


def test_where_an_argument_arrives_otherwise_than_nodes_take_it_is_told(tmp_path):
    save_proto(mlp(), tmp_path / "mlp.onnx")
    (tmp_path / "mlp.yaml").write_text(CONFIG + """pins: {x: '[{}, {"model"}]', u: '[{"data"}, {}]'}\n""")
    made = export_plan(solved(tmp_path / "mlp.yaml"), tmp_path / "planned.onnx")
    assert """arguments that arrive otherwise than nodes take them: 'x' as [{}, {"model"}]""" in made.unsaid


def test_where_an_output_is_handed_back_otherwise_than_nodes_have_it_is_told(tmp_path):
    proto = mlp()
    proto.graph.output.add().CopyFrom(helper.make_tensor_value_info("a", TensorProto.FLOAT, ["batch", 256]))
    save_proto(proto, tmp_path / "mlp.onnx")
    pins = """pins: {"@a": '[{"data"}, {"model"}]', "out/a": '[{"model"}, {"data"}]'}\n"""
    (tmp_path / "mlp.yaml").write_text(CONFIG + pins)
    made = export_plan(solved(tmp_path / "mlp.yaml"), tmp_path / "planned.onnx")
    told = """outputs that are handed back otherwise than nodes make them: 'a' as [{"model"}, {"data"}]"""
    assert told in made.unsaid


def test_of_two_placements_in_which_a_node_takes_a_value_the_one_that_makes_sense_is_written(tmp_path):
    nodes = [helper.make_node("Tanh", ["x"], ["u"]), helper.make_node("Softmax", ["u"], ["y"], axis=1)]
    ends = [[helper.make_tensor_value_info(name, TensorProto.FLOAT, [8, 32])] for name in ("x", "y")]
    imports = [helper.make_opsetid("", 20)]
    save_proto(helper.make_model(helper.make_graph(nodes, "g", *ends), opset_imports=imports), tmp_path / "mlp.onnx")
    config = CONFIG.replace("shapes: {batch: 32}\n", "").replace("tpu_v5e", "cpu_sim")
    pins = """pins: {u: '[{}, {"data"}]', y: '[{"model"}, {"data"}]'}\n"""
    (tmp_path / "mlp.yaml").write_text(config + pins)
    made = export_plan(solved(tmp_path / "mlp.yaml"), tmp_path / "planned.onnx")
    assert """takes 'u' in several placements: [{"model"}, {"data"}] and [{"model"}, {}]""" in made.unsaid[0]
    assert check(load(tmp_path / "planned.onnx")).errors == ()
