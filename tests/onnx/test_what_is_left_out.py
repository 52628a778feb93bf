"""Annotations and pins of a model: what a plan does not take is refused or told, never dropped in silence."""

import json
from pathlib import Path

import pytest
from faults import FAULTS
from hand_made import PAIRS, annotate, graph_model, mlp, spec, whole
from onnx import ModelProto, TensorProto, helper, save

from autoshard.api.onnx_export import export_plan
from autoshard.api.plans import Plan
from autoshard.api.session import plan_config
from autoshard.config.load import load_config
from autoshard.config.problem import build_problem
from autoshard.errors import InputError
from autoshard.onnx import load
from autoshard.onnx.check import check
from autoshard.onnx.specs import NodeAnnotation, read_annotations, write_annotations
from autoshard.onnx.structure import nodes_of_model

ROWS = {0: 2}


def stated(folder: Path, model: ModelProto, more: str = "") -> tuple[list[str], tuple[str, ...]]:
    """The patterns that a config with this model states, and what is told of annotations."""
    save(model, folder / "m.onnx")
    (folder / "c.yaml").write_text(f"model: m.onnx\nmesh: {{data: 2, model: 2}}\nhardware: tpu_v5e\n{more}\n")
    config = load_config(folder / "c.yaml")
    return [pin.pattern for pin in config.pins], config.annotation_notes


def with_bodies() -> ModelProto:
    """A MatMul, then an If whose branches are annotated, then a call of a function with an annotated body."""
    branches = {}
    for name, op in (("then_branch", "Relu"), ("else_branch", "Exp")):
        node = helper.make_node(op, ["u"], [f"{op}_v"])
        write_annotations(node, [NodeAnnotation("mesh", (spec(f"{op}_v", [-1, -2], ROWS, PAIRS),))])
        branches[name] = helper.make_graph([node], name, [], [helper.make_tensor_value_info(f"{op}_v", 1, [8, 16])])
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["u"], name="mm"),
        helper.make_node("If", ["c"], ["r"], name="choose", **branches),
        helper.make_node("Block", ["r"], ["y"], name="call", domain="own"),
    ]
    body = [helper.make_node("Neg", ["a"], ["b"])]
    write_annotations(body[0], [NodeAnnotation("mesh", (spec("b", [-1, -2], ROWS, PAIRS),))])
    function = helper.make_function("own", "Block", ["a"], ["b"], body, [helper.make_opsetid("", 22)])
    model = graph_model(nodes, {"x": (8, 4), "c": ()}, ["y"], {"w": (4, 16)}, functions=[function])
    model.graph.input[1].type.tensor_type.elem_type = TensorProto.BOOL
    return annotate(model, {0: [spec("x", [-1, -2], ROWS, PAIRS)]})


@pytest.mark.parametrize("how", ["pins", "hints"])
@pytest.mark.parametrize(
    "name", ["axis 99", "unknown tensor", "two specs for one tensor", "dim_value wrong", "unknown configuration"]
)
def test_malformed_annotations_are_refused(name: str, how: str, tmp_path: Path) -> None:
    model = mlp()
    FAULTS[name].plant(model)
    with pytest.raises(InputError, match=r"the annotations are malformed:\n  node '(up|act)' "):
        stated(tmp_path, model, f"annotations: {how}")
    assert stated(tmp_path, model, "annotations: ignore") == ([], ())


def test_specs_that_make_no_sense_together_are_told(tmp_path: Path) -> None:
    model = mlp(w2=spec("w2", [0, 1, 2, 3], {0: 4}))  # cut in 4, while r comes in 2 shards
    patterns, notes = stated(tmp_path, model, "annotations: pins")
    assert "weights/w2" in patterns
    (note,) = (n for n in notes if "make no sense together" in n)
    assert "the specs of 'down' (Gemm) make no sense together (autoshard check says why)" in note


def test_annotations_of_bodies_and_functions_are_told(tmp_path: Path) -> None:
    patterns, (note,) = stated(tmp_path, with_bodies(), "annotations: pins")
    assert patterns == ["inputs/x"]
    assert "not taken: 3, as they are inside of functions or of bodies of If, Loop and Scan: " in note


def test_pipeline_stages_are_told(tmp_path: Path) -> None:
    model = mlp()
    model.graph.node[0].device_configurations[0].pipeline_stage = 1
    _, notes = stated(tmp_path, model, "annotations: pins")
    assert "annotations of m.onnx: 1 state pipeline stages, which are not planned: all devices run every node" in notes


def test_annotations_are_told_where_a_config_does_not_say_what_they_mean(tmp_path: Path) -> None:
    assert stated(tmp_path, mlp()) == (
        [],
        ("m.onnx: 2 nodes are annotated, which this plan ignores; annotations: pins, or hints, takes what they say",),
    )


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("uu", "pin 'uu' is no value of .*m.onnx; did you mean 'u'"),
        ("Relu_v", "pin 'Relu_v' is inside of a function or of a body; pin what the node around it takes or makes"),
        ("b", "pin 'b' is inside of a function"),
    ],
)
def test_pins_of_names_that_are_no_values_of_the_main_graph(name: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=rf"c\.yaml:4:8: {message}"):
        stated(tmp_path, with_bodies(), f"pins: {{{name}: '[{{\"data\"}}, {{}}]'}}")


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Plan]:
    """A plan of a model with bodies for eight devices, where its annotations are for four."""
    folder = tmp_path_factory.mktemp("bodies")
    model = with_bodies()
    model.graph.node[0].device_configurations[0].pipeline_stage = 1
    save(model, folder / "m.onnx")
    text = "model: m.onnx\nmesh: {data: 2, model: 4}\nhardware: tpu_v5e\nbaselines: []\n"
    (folder / "c.yaml").write_text(text)
    config = load_config(folder / "c.yaml")
    return folder, plan_config(config, build_problem(config))


def test_no_annotation_for_other_devices_is_left_in_what_is_written(planned: tuple[Path, Plan]) -> None:
    folder, plan = planned
    export = export_plan(plan, folder / "planned.onnx")
    assert [path for path, _, _, node in nodes_of_model(export.proto) if path and node.device_configurations] == []
    assert check(load(folder / "planned.onnx")).ok
    assert any("3 annotations of functions and bodies for configuration 'mesh'" in line for line in export.unsaid)
    assert "node 'choose' (If): what is inside of its bodies" in export.unsaid


def test_pipeline_stages_stay_in_what_is_written(planned: tuple[Path, Plan]) -> None:
    folder, plan = planned
    nodes = export_plan(plan, folder / "planned.onnx").proto.graph.node
    assert [a.stage for n in nodes for a in read_annotations(n)] == [1, None, None]


def test_a_plan_is_not_written_into_the_model_it_was_made_of(planned: tuple[Path, Plan]) -> None:
    folder, plan = planned
    before = (folder / "m.onnx").read_bytes()
    with pytest.raises(InputError, match="is the model of the plan, which is never changed"):
        export_plan(plan, folder / ".." / folder.name / "m.onnx")
    assert (folder / "m.onnx").read_bytes() == before


@pytest.mark.parametrize(
    ("weights", "message"),
    [({"v": (4, 16)}, "has no value 'w', which the plan places"), ({"w": (4, 32)}, r"w is \[4, 16\] in the plan and")],
)
def test_a_plan_is_not_written_into_another_model(
    weights: dict, message: str, planned: tuple[Path, Plan], tmp_path: Path
) -> None:
    nodes = [
        helper.make_node("MatMul", ["x", *weights], ["u"]),
        helper.make_node("Relu", ["u"], ["r"]),
        helper.make_node("Where", ["c", "r", "u"], ["y"]),
    ]
    other = graph_model(nodes, {"x": (8, 4), "c": ()}, ["y"], weights)
    save(other, tmp_path / "m.onnx")
    moved = json.loads(json.dumps(planned[1].to_dict()))
    moved["config"]["file"] = str(tmp_path / "c.yaml")
    with pytest.raises(InputError, match=message):
        export_plan(Plan.from_dict(moved), tmp_path / "planned.onnx")


def test_whole_inputs_are_no_pins_of_results(tmp_path: Path) -> None:
    patterns, (note,) = stated(tmp_path, mlp(more={1: [whole("u")]}), "annotations: pins")
    assert "@u" not in patterns
    assert "not taken: 1, as they say how a node takes what another one makes: u" in note


def test_a_plan_answers_for_every_named_value(planned: tuple[Path, Plan]) -> None:
    _, plan = planned
    names = ["inputs/x", "inputs/c", "weights/w", "out/y", "@u", "@r", "@y"]
    assert all(plan[name].startswith("[") for name in names)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ("[-8, 4]", r"c.yaml:4:14: shapes\.x\[0\]: should be .* 1, found -8"),
        ("a", r"shapes\.x: expected a whole number"),
    ],
)
def test_wrong_sizes_are_told_with_their_place(shape: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        stated(tmp_path, mlp(), f"shapes: {{x: {shape}}}")
