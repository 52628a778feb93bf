"""Missing specs, implied communication, hints spread through the graph, and plans written as annotations."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from device_judge import JudgeError, run_node
from hand_made import COLUMNS, PAIRS, annotate, graph_model, mlp, spec, whole
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from autoshard.errors import InputError, ShardingError, UnsupportedError
from autoshard.onnx import load, save
from autoshard.onnx.annotate import write_annotated
from autoshard.onnx.axes import sharding_of
from autoshard.onnx.placement import placement_of
from autoshard.onnx.specs import NodeAnnotation, read_annotations, write_annotations, write_spec
from autoshard.sharding.mesh import Mesh

MESH = Mesh.from_dict({"x": 2, "y": 2})


def specs(model: Any, index: int) -> dict[str, str]:
    """Specs of a node as text, by tensor."""
    found = [s for a in read_annotations(model.graph.node[index]) for s in a.specs]
    return {s.tensor or "": str(s).partition("[")[2] for s in found}


# -- S1.5 to S1.8 ------------------------------------------------------------------------------------------------------


def test_a_missing_input_spec_is_that_of_the_maker() -> None:
    # S1.5
    done = load(mlp()).infer()
    assert specs(done.proto, 1)["u"] == specs(done.proto, 0)["u"] == "0: 2 of 8, 1: 2 of 16] on 0 1 2 3"


def test_a_model_input_without_a_spec_is_whole_on_all_devices_and_that_is_told() -> None:
    # S1.6, E38; S1.8: model inputs themselves can carry no spec, so the uses do
    done = load(mlp()).infer()
    assert specs(done.proto, 2)["b2"] == "] on {0,1,2,3}"
    assert any("taken as replicated on all 4 devices" in note and "b2" in note for note in done.notes)


def test_a_missing_output_spec_follows_from_op_and_inputs() -> None:
    # S1.7
    assert specs(load(mlp()).infer().proto, 2)["y"] == "0: 2 of 8] on {0,1} {2,3}"


def test_nothing_else_in_the_model_changes_and_nothing_more_can_be_added() -> None:
    model = mlp()
    before = model.SerializeToString()
    done = load(model).infer()
    assert model.SerializeToString() == before
    again = load(done.proto).infer()
    assert (done.added, again.added) == (6, 0)
    for node in done.proto.graph.node:
        del node.device_configurations[:]
    for node in model.graph.node:
        del node.device_configurations[:]
    assert done.proto == model


def test_annotations_never_change_what_is_computed() -> None:
    # S1.2
    x = np.random.default_rng(1).standard_normal((8, 4)).astype(np.float32)
    done = load(mlp()).infer().proto
    bare = onnx.ModelProto()
    bare.CopyFrom(done)
    for node in bare.graph.node:
        del node.device_configurations[:]
    results = [ReferenceEvaluator(m).run(None, {"x": x})[0] for m in (done, bare)]
    assert np.array_equal(*results)


def test_contradictions_are_not_completed() -> None:
    with pytest.raises(InputError, match="annotations are malformed or contradict each other"):
        load(mlp(w1=spec("w1", [-1, -2], {1: 2}, PAIRS))).infer()
    with pytest.raises(InputError, match="no configuration 'other'"):
        load(mlp()).infer(configuration="other")


def test_where_nothing_follows_the_tensor_is_named() -> None:
    nodes = [helper.make_node("Mystery", ["x"], ["a"], domain="own", name="m"), helper.make_node("Relu", ["a"], ["y"])]
    model = annotate(graph_model(nodes, {"x": (4, 6)}, ["y"]), {0: [spec("x", [-1, -2], {0: 2}, PAIRS)]})
    assert load(model).infer().left == (("'m' (Mystery)", "a"), ("#1 (Relu)", "a"), ("#1 (Relu)", "y"))


def test_numbers_for_symbols_are_not_written() -> None:
    model = mlp()
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "batch"
    assert specs(load(model).infer().proto, 1)["u"] == "0: 2 of batch, 1: 2 of 16] on 0 1 2 3"
    assert specs(load(model, shapes={"batch": 8}).infer().proto, 1)["u"] == "0: 2, 1: 2 of 16] on 0 1 2 3"


def test_bodies_of_functions_are_completed_where_all_calls_agree() -> None:
    body = [helper.make_node("Exp", ["a"], ["b"], name="inside")]
    nodes = [helper.make_node("F", [n], [f"{n}y"], domain="own") for n in ("p", "q")]
    model = graph_model(nodes, {"p": (8, 4), "q": (8, 4)}, ["py", "qy"])
    model.functions.append(helper.make_function("own", "F", ["a"], ["b"], body, [helper.make_opsetid("", 22)]))
    annotate(model, {0: [spec("p", [-1, -2], {0: 2}, PAIRS)], 1: [spec("q", [-1, -2], {0: 2}, PAIRS)]})
    inner = load(model).infer().proto.functions[0].node[0]
    assert [s.tensor for a in read_annotations(inner) for s in a.specs] == ["a", "b"]
    annotate(model, {1: [whole("q")]})
    assert not load(model).infer().proto.functions[0].node[0].device_configurations


# -- S1.1, S1.3: implied communication ---------------------------------------------------------------------------------


def relu_chain(kept: Any, wanted: Any) -> list[tuple[str, float | None]]:
    """Communication between two Relus, the first of which leaves its output one way and the second wants it another."""
    nodes = [helper.make_node("Relu", ["x"], ["a"]), helper.make_node("Relu", ["a"], ["y"])]
    model = annotate(graph_model(nodes, {"x": (8, 8)}, ["y"]), {0: [kept("x"), kept("a")], 1: [wanted("a")]})
    return [(t.kind, t.bytes) for t in load(model).implied() if t.tensor == "a" and t.end == "in"]


def rows(name: str) -> Any:
    return spec(name, [0, 1, 2, 3], {0: 4})


def columns(name: str) -> Any:
    return spec(name, [0, 1, 2, 3], {1: 4})


MOVES = [  # 8x8 floats are 256 bytes
    (rows, rows, []),
    (rows, whole, [("all-gather", 4 * 192.0)]),
    (rows, columns, [("all-to-all", 4 * 48.0)]),
    (whole, rows, [("slice", 0.0)]),
    (rows, lambda n: spec(n, [1, 2, 3, 0], {0: 4}), [("permute", 256.0)]),
    (lambda n: spec(n, [0]), whole, [("broadcast", 3 * 256.0)]),
    (lambda n: spec(n, [0]), rows, [("scatter", 192.0)]),
    (rows, lambda n: spec(n, [-1, -2], {0: 2}, PAIRS), [("reshard", 4 * 64.0)]),
]


@pytest.mark.parametrize(("kept", "wanted", "moved"), MOVES)
def test_what_moves_between_two_nodes(kept: Any, wanted: Any, moved: list) -> None:
    # S1.1: inputs are brought to where the node wants them
    assert relu_chain(kept, wanted) == moved


def test_an_output_spec_that_differs_is_a_delivery() -> None:
    # S1.3: two halves summed, each device of a pair keeping a half of the sum: a reduce-scatter
    model = mlp(more={2: [spec("y", [0, 1, 2, 3], {0: 2, 1: 2})]})
    assert load(model).check().ok
    moved = [(t.kind, t.end, t.devices, t.bytes) for t in load(model).implied() if t.kind != "slice"]
    assert moved == [("reduce-scatter", "out", (0, 1, 2, 3), 4 * 0.5 * 64)]
    gathered = [(t.kind, t.bytes) for t in load(mlp(more={2: [whole("y")]})).implied() if t.kind != "slice"]
    assert gathered == [("all-reduce", 4 * 64.0), ("all-gather", 4 * 64.0)]


def test_bytes_of_unknown_shapes_are_unknown() -> None:
    model = mlp()
    for info in (model.graph.input[0], model.graph.output[0]):
        info.type.tensor_type.shape.dim[0].dim_param = "n"
    assert [t.bytes for t in load(model).implied() if t.kind == "all-reduce"] == [None]


@pytest.mark.parametrize("result", ["ik", "ki"])
def test_bytes_of_a_sum_are_those_of_each_block_whatever_the_order_of_the_axes(result: str) -> None:
    """Blocks of 3 and 2 rows by 2 and 1 columns; two parts of each, one block on twice as many devices as others."""
    blocks = [(i, j, k) for i in (0, 1) for j in (0, 1) for k in (0, 1)]
    devices, count = {}, 0
    for block in blocks:
        more = 2 if (block[0], block[2]) == (0, 1) else 1
        devices[block] = range(count, count + more)
        count += more
    left = {-1 - 2 * i - j: (*devices[i, j, 0], *devices[i, j, 1]) for i in (0, 1) for j in (0, 1)}
    right = {-1 - 2 * j - k: (*devices[0, j, k], *devices[1, j, k]) for j in (0, 1) for k in (0, 1)}
    node = helper.make_node("Einsum", ["x", "w"], ["y"], equation=f"ij,jk->{result}")
    model = graph_model([node], {"x": [5, 4], "w": [4, 3]}, ["y"], devices=count)
    annotate(model, {0: [spec("x", list(left), {0: 2, 1: 2}, left), spec("w", list(right), {0: 2, 1: 2}, right)]})
    elements = 2 * (3 * 2) + 4 * (3 * 1) + 2 * (2 * 2) + 2 * (2 * 1)  # devices of a block, times its size
    assert [t.bytes for t in load(model).implied() if t.kind == "all-reduce"] == [4 * elements]


# -- hints -------------------------------------------------------------------------------------------------------------


def test_hints_spread_in_both_directions() -> None:
    model = mlp()
    write_annotations(model.graph.node[0], [NodeAnnotation("mesh", (spec("x", [-1, -2], {0: 2}, PAIRS),))])
    done = load(model).infer(spread=True).proto
    assert load(done).check().findings == ()
    assert specs(done, 0)["w1"] == "1: 2 of 16] on {0,2} {1,3}"  # from w2, backward
    assert specs(done, 1)["u"] == "0: 2 of 8, 1: 2 of 16] on 0 1 2 3"
    assert "w1" not in specs(load(model).infer().proto, 2)
    assert specs(load(model).infer().proto, 0)["w1"] == "] on {0,1,2,3}"


def test_hints_are_read_over_the_axes_that_device_names_spell() -> None:
    model = mlp()
    model.configuration[0].device.extend([f"data={i},model={j}" for i in (0, 1) for j in (0, 1)])
    assert load(load(model).infer(spread=True).proto).check().ok


@pytest.mark.parametrize(("devices", "first"), [(12, 3), (192, 3), (768, 12)])
def test_hints_are_read_over_any_order_of_the_primes_of_the_devices(devices: int, first: int) -> None:
    model = graph_model([helper.make_node("Relu", ["x"], ["y"])], {"x": [devices, 64]}, ["y"], devices=devices)
    annotate(model, {0: [spec("x", range(devices), {0: first, 1: devices // first})]})
    assert load(model).infer(spread=True).added == 1


def test_names_of_devices_with_endless_numbers_spell_no_mesh() -> None:
    model = graph_model([helper.make_node("Relu", ["x"], ["y"])], {"x": [4, 64]}, ["y"], devices=1)
    model.configuration[0].device.append("data=" + "9" * 5000)
    assert load(model).infer(spread=True).added == 2


def test_spreading_says_what_it_needs() -> None:
    model = mlp()
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"
    with pytest.raises(UnsupportedError, match=r"give sizes of symbolic dimensions \(--shape DIM=N\)"):
        load(model).infer(spread=True)
    assert load(model, shapes={"n": 8}).infer(spread=True).left == ()
    model = annotate(mlp(), {0: [spec("x", [0, 1], {0: 2})], 2: []})
    with pytest.raises(InputError, match="no shardings over axes of a mesh"):
        load(model).infer(spread=True)


# -- plans as annotations ----------------------------------------------------------------------------------------------

PLACED = {"w1": '[{}, {"y"}]', "b1": '[{"y"}]', "u": '[{"x"}, {"y"}]', "r": '[{"x"}, {"y"}]', "w2": '[{"y"}, {}]'}
USES = {("up", "x"): '[{"x"}, {}]'}


def test_every_tensor_of_every_node_has_a_spec() -> None:
    done = load(mlp()).annotate(MESH, PLACED | {"y": '[{"x"}, {}]'}, USES)
    for node in done.proto.graph.node:
        assert [s.tensor for a in read_annotations(node) for s in a.specs] == [*node.input, *node.output]
    assert specs(done.proto, 2)["b2"] == "] on {0,1,2,3}"
    assert load(done.proto).check().findings == ()
    moved = [t for t in load(done.proto).implied() if t.kind != "slice"]
    assert [t.kind for t in moved] == ["all-reduce"]


def test_what_is_written_reads_back_as_the_shardings() -> None:
    # S1.45
    done = load(mlp()).annotate(MESH, PLACED, USES)
    for index, node in enumerate(done.proto.graph.node):
        for given in (s for a in read_annotations(node) for s in a.specs):
            rank = len(load(mlp()).types[given.tensor].dims)
            back = sharding_of(placement_of(given, load(mlp()).types[given.tensor].dims), MESH, rank)
            written = USES.get((node.name, given.tensor), PLACED.get(given.tensor))
            assert str(back) == (written or str(back)), index


def test_the_configuration_spells_the_mesh() -> None:
    done = load(mlp()).annotate({"data": 2, "model": 2}, {}, configuration="plan")
    assert [c.name for c in done.proto.configuration] == ["mesh", "plan"]
    assert list(done.proto.configuration[1].device) == [
        "data=0,model=0",
        "data=0,model=1",
        "data=1,model=0",
        "data=1,model=1",
    ]
    assert "row-major position i of the mesh" in done.proto.doc_string
    assert len(read_annotations(done.proto.graph.node[0])) == 2  # those for the other configuration stay


def test_old_files_get_the_version_that_annotations_need() -> None:
    model = mlp()
    model.ir_version = 8
    assert load(model).annotate(MESH, {}).proto.ir_version == 11


def test_what_cannot_be_said_is_listed() -> None:
    # S1.41
    done = load(mlp()).annotate(MESH, {"u": '[{"x"}, {}] unreduced={"y"}'})
    assert done.lost == {"u": ("pending partial sums",)}


@pytest.mark.parametrize(("placements", "uses", "error", "words"), [
    ({"ghost": "[{}]"}, {}, InputError, "has no value 'ghost'"),
    ({}, {("up", "r"): "[{}, {}]"}, InputError, "no node 'up' that reads input 'r'"),
    ({"u": "[{}]"}, {}, ShardingError, "has rank 2"),
    ({"u": '[{"z"}, {}]'}, {}, ShardingError, "does not have"),
])  # fmt: skip
def test_mistakes_are_told(placements: dict, uses: dict, error: type, words: str) -> None:
    with pytest.raises(error, match=words):
        load(mlp()).annotate(MESH, placements, uses)


def test_folded_nodes_and_stages() -> None:
    done = load(mlp()).annotate(MESH, {}, skip=["u"], stages={1: 0, "down": 1})
    assert [len(n.device_configurations) for n in done.proto.graph.node] == [0, 1, 1]
    assert [read_annotations(n)[0].stage for n in done.proto.graph.node[1:]] == [0, 1]  # S1.17


def test_weights_outside_of_the_file_stay_where_they_are(tmp_path: Path) -> None:
    model = mlp()
    tensor = model.graph.initializer[0]
    (tmp_path / "w.bin").write_bytes(tensor.raw_data)
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="w.bin")
    save(model, tmp_path / "m.onnx")
    loaded = load(tmp_path / "m.onnx")
    done = loaded.annotate(MESH, PLACED, USES).proto
    write_annotated(done, loaded, tmp_path / "plan.onnx")
    assert load(tmp_path / "plan.onnx").proto.graph.initializer[0].external_data[0].value == "w.bin"
    with pytest.raises(InputError, match="write the result to"):
        write_annotated(done, loaded, tmp_path / "elsewhere" / "plan.onnx")


# -- device by device (J3) ---------------------------------------------------------------------------------------------


def judged(model: onnx.ModelProto) -> None:
    """Every node of an annotated model on its blocks."""
    x = np.random.default_rng(1).standard_normal((8, 4)).astype(np.float32)
    names = [o for n in model.graph.node for o in n.output]
    traced = onnx.ModelProto()
    traced.CopyFrom(model)
    del traced.graph.output[:]
    traced.graph.output.extend(onnx.ValueInfoProto(name=n) for n in names)
    values = dict(zip(names, ReferenceEvaluator(traced).run(None, {"x": x}), strict=True)) | {"x": x}
    values |= {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer}
    for node in model.graph.node:
        given = {s.tensor_name: s for c in node.device_configurations for s in c.sharding_spec}
        run_node(node, model.opset_import, values, given, {o: values[o] for o in node.output})


def test_the_completed_worked_example_computes_what_the_model_does() -> None:
    judged(load(mlp()).infer().proto)
    judged(load(mlp()).infer(spread=True).proto)
    judged(load(mlp()).annotate(MESH, PLACED | {"y": '[{"x"}, {}]'}, USES).proto)


BAD = [
    {"w2": spec("w2", [-1, -2], {0: 2}, {-1: (1, 3), -2: (0, 2)})},
    {"w1": spec("w1", [-1, -2], {1: 2}, PAIRS)},
    {"x": spec("x", [-1, -2], {0: 2}, COLUMNS)},
    {"w2": spec("w2", [-1, -2], {0: 2}, {-1: (0, 1), -2: (2, 3)})},
]


@pytest.mark.parametrize("change", BAD)
def test_what_the_check_refuses_does_not_compute(change: dict) -> None:
    assert not load(mlp(**change)).check().ok
    good = load(mlp()).infer().proto
    for node in good.graph.node:
        for one in (s for c in node.device_configurations for s in c.sharding_spec):
            for name, given in change.items():
                if one.tensor_name == name:
                    one.Clear()
                    write_spec(one, given)
    with pytest.raises(JudgeError):
        judged(good)


def test_replicated_is_one_group_of_all_devices() -> None:
    first = read_annotations(load(mlp()).annotate(MESH, {}).proto.graph.node[0])[0].specs[0]
    assert (first.device, first.groups) == ((-1,), ((-1, (0, 1, 2, 3)),))
