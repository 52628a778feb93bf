"""Model files: three forms, and every way in which a file can be none."""

import os
from pathlib import Path

import numpy as np
import onnx
import pytest
from hand_made import graph_model, mlp
from onnx import TensorProto, helper

from autoshard.errors import InputError, UnsupportedError
from autoshard.onnx import load, save


@pytest.mark.parametrize("suffix", ["onnx", "json", "textproto"])
def test_a_model_comes_back_from_every_form_as_it_was(suffix: str, tmp_path: Path) -> None:
    # S1.47: annotations round-trip exactly
    model = mlp()
    save(model, tmp_path / f"m.{suffix}")
    assert load(tmp_path / f"m.{suffix}").proto == model


def test_the_text_syntax_is_refused_as_it_drops_annotations(tmp_path: Path) -> None:
    assert "device_configurations" not in onnx.printer.to_text(mlp())  # S1.47
    (tmp_path / "m.onnxtxt").write_text(onnx.printer.to_text(mlp()))
    with pytest.raises(UnsupportedError, match=r"save the model as \.onnx"):
        load(tmp_path / "m.onnxtxt")


def test_symbolic_dimensions_take_numbers_and_the_message_stays_as_it_was() -> None:
    model = graph_model([helper.make_node("Relu", ["x"], ["y"])], {"x": ["n", 8]}, ["y"])
    loaded = load(model, shapes={"n": 16})
    assert loaded.types["y"].dims == (16, 8)
    assert load(model).types["y"].dims == ("n", 8)
    assert loaded.proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "n"


def test_a_symbol_that_is_not_there_is_told() -> None:
    model = graph_model([helper.make_node("Relu", ["x"], ["y"])], {"x": ["batch", 8]}, ["y"])
    with pytest.raises(InputError, match="did you mean batch"):
        load(model, shapes={"bach": 16})


def written(tmp_path: Path, data: bytes, name: str = "m.onnx") -> Path:
    (tmp_path / name).write_bytes(data)
    return tmp_path / name


def passes(file: Path) -> bool:
    try:
        return load(file).check().ok
    except InputError:
        return False


def test_no_truncated_file_passes(tmp_path: Path) -> None:
    data = mlp().SerializeToString()
    ends = [*range(60), *range(60, len(data) - 120, 11), *range(len(data) - 120, len(data))]
    assert [end for end in ends if passes(written(tmp_path, data[:end]))] == []
    assert passes(written(tmp_path, data))


@pytest.mark.parametrize("data", [b"", b"hello", b"\x00" * 100, b"{}", os.urandom(0)])
def test_what_is_no_model_is_told(data: bytes, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is no ONNX model"):
        load(written(tmp_path, data))


@pytest.mark.parametrize(
    ("name", "text"), [("m.json", '{"graph": 3}'), ("m.json", "[" * 5000), ("m.textproto", "graph {")]
)
def test_broken_text_is_told(name: str, text: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"is no ONNX model|nested too deeply"):
        load(written(tmp_path, text.encode(), name))


def test_a_file_above_the_limit_is_refused_before_it_is_read(tmp_path: Path) -> None:
    file = tmp_path / "big.onnx"
    with file.open("wb") as stream:
        stream.truncate(2**31 + 5)
    with pytest.raises(InputError, match="keep weights outside"):
        load(file)


def test_a_missing_file_names_a_near_one(tmp_path: Path) -> None:
    written(tmp_path, b"", "model.onnx")
    with pytest.raises(InputError, match=r"did you mean .*model\.onnx"):
        load(tmp_path / "modle.onnx")


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"ir_version": 999}, UnsupportedError, "install a newer onnx"),
        ({"ir_version": 0}, InputError, "versions start at 1"),
    ],
)
def test_unknown_versions_are_told(change: dict, error: type, words: str) -> None:
    model = mlp()
    model.ir_version = change["ir_version"]
    with pytest.raises(error, match=words):
        load(model)


@pytest.mark.parametrize(("version", "error"), [(999, UnsupportedError), (0, InputError)])
def test_unknown_opsets_are_told(version: int, error: type) -> None:
    model = mlp()
    model.opset_import[0].version = version
    with pytest.raises(error, match="opset"):
        load(model)


def external(location: str) -> onnx.ModelProto:
    model = mlp()
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=location)
    return model


def test_weights_beside_the_file_are_not_read(tmp_path: Path) -> None:
    save(external("nowhere.bin"), tmp_path / "m.onnx")
    loaded = load(tmp_path / "m.onnx")
    assert loaded.initializers["w1"].dims == (4, 16)
    assert loaded.types["u"].dims == (8, 16)


def test_weights_beside_the_file_are_read_where_that_is_asked_for(tmp_path: Path) -> None:
    array = np.arange(64, dtype=np.float32)
    (tmp_path / "w.bin").write_bytes(array.tobytes())
    save(external("w.bin"), tmp_path / "m.onnx")
    tensor = load(tmp_path / "m.onnx", external_data=True).graph.initializer[0]
    assert np.array_equal(onnx.numpy_helper.to_array(tensor).reshape(-1), array)
    save(external("gone.bin"), tmp_path / "m.onnx")
    with pytest.raises(InputError, match="cannot be read"):
        load(tmp_path / "m.onnx", external_data=True)


@pytest.mark.parametrize("location", ["/etc/passwd", "../secret", "a/../../b", "C:\\x", "\\\\host\\x", ""])
def test_paths_that_leave_the_folder_are_refused(location: str, tmp_path: Path) -> None:
    save(external(location), tmp_path / "m.onnx")
    with pytest.raises(InputError, match=r"within|does not say where"):
        load(tmp_path / "m.onnx")


def test_a_link_that_leaves_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "outside").write_bytes(b"x")
    home = tmp_path / "home"
    home.mkdir()
    (home / "link").symlink_to(tmp_path / "outside")
    save(external("link"), home / "m.onnx")
    with pytest.raises(InputError, match="a link that leaves"):
        load(home / "m.onnx")


def relus(*edges: tuple[str, str]) -> onnx.ModelProto:
    nodes = [helper.make_node("Relu", [a], [b], name=f"{a}{b}") for a, b in edges]
    return graph_model(nodes, {"x": (4,)}, [edges[-1][1]])


@pytest.mark.parametrize(
    ("edges", "words"),
    [
        ([("x", "a"), ("c", "b"), ("b", "c"), ("a", "y")], "has a cycle: 'cb'.* -> 'bc'.* -> 'cb'"),
        ([("y", "y")], "has a cycle"),
        ([("b", "y"), ("x", "b")], "not in topological order"),
        ([("ghost", "y")], "which nothing makes"),
        ([("x", "y"), ("x", "y")], "two nodes make the value 'y'"),
        ([("x", "x"), ("x", "y")], "node 'xx' .* makes the value 'x', which is an input or weight"),
    ],
)
def test_graphs_that_cannot_run_are_told(edges: list, words: str) -> None:
    with pytest.raises(InputError, match=words):
        load(relus(*edges))


def test_an_output_that_nothing_makes_is_told() -> None:
    model = relus(("x", "y"))
    model.graph.output[0].name = "z"
    with pytest.raises(InputError, match="nothing makes the output 'z'"):
        load(model)


@pytest.mark.parametrize("shape", [[-1, 4], [2**40, 2**40]])
def test_impossible_shapes_are_told(shape: list[int]) -> None:
    model = relus(("x", "y"))
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = shape[0]
    model.graph.input[0].type.tensor_type.shape.dim.add(dim_value=shape[1])
    with pytest.raises(InputError, match="has the shape"):
        load(model)


@pytest.mark.parametrize("data", [b"abc", b"\x00" * 260])
def test_tensors_with_too_few_or_too_many_bytes_are_told(data: bytes) -> None:
    model = mlp()
    model.graph.initializer[0].raw_data = data
    with pytest.raises(InputError, match=rf"tensor 'w1' is float32\[4, 16\], which takes 256 bytes; .* {len(data)}"):
        load(model)


def test_shapes_that_contradict_each_other_are_told() -> None:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    model = graph_model(nodes, {"x": (2, 3)}, ["y"], {"w": (4, 5)})
    model.graph.value_info.extend([helper.make_tensor_value_info("x2", 1, [3])])
    checked = load(model).check()
    assert checked.annotated == 0  # inference passes over it; nothing is annotated


def test_a_function_that_calls_itself_is_told() -> None:
    model = relus(("x", "y"))
    opsets = [helper.make_opsetid("", 22), helper.make_opsetid("own", 1)]
    for name, calls in (("f", "g"), ("g", "f")):
        node = helper.make_node(calls, ["a"], ["b"], domain="own")
        model.functions.append(helper.make_function("own", name, ["a"], ["b"], [node], opsets))
    with pytest.raises(InputError, match="calls itself"):
        load(model)


def test_many_nodes_are_read_in_one_pass() -> None:
    count = 5_000
    loaded = load(relus(*[(f"v{i}" if i else "x", f"v{i + 1}") for i in range(count)]))
    assert len(loaded.types) == count + 1


def test_a_writer_leaves_the_old_file_where_it_cannot_write(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot write"):
        save(mlp(), tmp_path)


def test_without_the_library_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    from autoshard.onnx import installed

    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(installed, "import_module", missing)
    with pytest.raises(UnsupportedError, match=r"pip install 'autoshard\[onnx\]'"):
        load("m.onnx")
    monkeypatch.setattr(installed, "import_module", lambda name: type("old", (), {"__version__": "1.17.0"}))
    with pytest.raises(UnsupportedError, match=r"came with 1\.18"):
        load("m.onnx")


def test_a_name_that_is_no_text_is_told(tmp_path):
    rows = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["batch", 4]) for name in ("x", "y")]
    graph = onnx.helper.make_graph([onnx.helper.make_node("Relu", ["x"], ["y"])], "g", rows[:1], rows[1:])
    data = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)]).SerializeToString()
    (tmp_path / "m.onnx").write_bytes(data.replace(b"batch", b"b\xfftch"))
    with pytest.raises(InputError, match=r"m\.onnx: .*dim_param b'b\\xfftch' is no UTF-8 text"):
        load(tmp_path / "m.onnx", shapes={"batch": 32})
