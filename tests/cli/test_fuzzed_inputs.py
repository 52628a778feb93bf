"""Faults that experiments/fuzz found: inputs that ended in a traceback, a hang, or words of Python instead of ours."""

import io
import json
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from autoshard.__main__ import run
from autoshard.cli import main
from autoshard.cli.common import json_text
from autoshard.errors import InputError, ShardingError, in_words
from autoshard.files import read_json, write_json
from autoshard.interop.hlo_text import parse_hlo_sharding
from autoshard.sharding.mesh import Mesh
from autoshard.verify.certificate.residual import Residual
from autoshard.verify.certificate.stream import CertificateFault

HUGE = "fsdp=64,tensor=10000000000000000000000000"
CRITICAL = ["critical-batch", "--model", "llama3_70b", "--strategy", "fsdp+tensor", "--hardware", "tpu_v5p"]
COLLECTIVE = ["collective", "--kind", "all-gather", "--bytes", "2e9", "--mesh", "x=8", "--axes", "x"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([*CRITICAL, "--mesh", HUGE], "devices; at most 16777216 can be placed"),
        ([*CRITICAL, "--mesh", "fsdp=²"], "--mesh: cannot read 'fsdp=²'"),
        ([*COLLECTIVE, "--hardware", "/dev/zero"], "hardware profile /dev/zero is larger than"),
        ([*COLLECTIVE, "--hardware", "/dev/null"], "must be a mapping, found nothing"),
        (["model", "/dev/zero"], "model card /dev/zero is larger than"),
    ],
)
def test_questions_that_hung_are_told(arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cost", *arguments]) == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize(
    ("card", "says"),
    [
        ("layers: 2", "there is no d_model; "),
        ("[1, 2]", "the card: should be a valid dictionary"),
        ("date: 2026-13-45", "is not YAML: month must be in 1..12"),
        ("[" * 1100, "is nested too deeply to be read"),
    ],
)
def test_faults_of_model_cards_are_in_words(
    card: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "card.yaml").write_text(card)
    assert main(["cost", "model", str(tmp_path / "card.yaml")]) == 2
    said = capsys.readouterr().err
    assert says in said
    assert "pydantic" not in said
    assert "validation error" not in said


def test_a_number_of_too_many_digits_is_told(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text("[" + "1" * 5000 + "]")
    with pytest.raises(InputError, match="the plan has a number of too many digits"):
        read_json(tmp_path / "plan.json", what="plan")


def test_a_device_without_end_is_not_read_to_its_end() -> None:
    with pytest.raises(InputError, match="larger than 67108864 bytes"):
        read_json("/dev/zero", what="plan")


@pytest.mark.parametrize(
    "text", ["{devices=[2,,4]<=[8]}", "{devices=[2,4]<=[9223372036854775808]}", "{devices=[2,4]<=[2,4]T(1,,)}"]
)
def test_malformed_hlo_shardings_are_told(text: str) -> None:
    with pytest.raises(InputError, match="HLO sharding"):
        parse_hlo_sharding(text, 2, 8)


NETWORK: dict[str, Any] = {
    "problem": {
        "name": "two",
        "nodes": {"intervals": [[0, 1], [0, 1]], "costs": [[1], [2]], "usages": [[1], [1]]},
        "edges": {"nodes": [[0, 1]], "costs": [[3]]},
        "usage_limit": 9,
    }
}


def changed(path: str, value: Any) -> dict[str, Any]:
    network = json.loads(json.dumps(NETWORK))
    place = network["problem"]
    *way, last = path.split(".")
    for key in way:
        place = place[key]
    place[last] = value
    return network


@pytest.mark.parametrize(
    ("network", "says"),
    [
        (changed("edges.nodes", [["0", 1]]), "expected [first, second], found ['0', 1]"),
        (changed("nodes", 3), "not a contest problem: a value has the wrong type"),
        ({"problem": {}}, "not a contest problem: there is no 'nodes'"),
    ],
)
@pytest.mark.parametrize("command", ["score", "check"])
def test_faults_of_contest_files_are_in_words(
    network: Any, says: str, command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "p.json").write_text(json.dumps(network))
    (tmp_path / "s.json").write_text("[0, 0]")
    certificate = ["--certificate", str(tmp_path / "s.json")] if command == "check" else []
    assert main(["network", command, str(tmp_path / "p.json"), str(tmp_path / "s.json"), *certificate]) == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize(
    ("pairs", "says"),
    [([{"0": 0, "1": 1}], "problem.edges.nodes[0]: expected [first, second], found {"), ({"0": [0, 1]}, "is no '0'")],
)
def test_pairs_of_a_contest_file_that_are_no_lists_are_told(
    pairs: Any, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "p.json").write_text(json.dumps(changed("edges.nodes", pairs)))
    assert main(["network", "solve", str(tmp_path / "p.json")]) == 2
    assert says in capsys.readouterr().err


def test_a_certificate_that_claims_nothing_proves_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "p.json").write_text(json.dumps(NETWORK))
    (tmp_path / "c").write_bytes(b'{"format": "autoshard-certificate-1"}\n')
    assert main(["network", "check", str(tmp_path / "p.json"), "--certificate", str(tmp_path / "c")]) == 1
    assert "does not say which bound it proves" in capsys.readouterr().out


def test_a_moment_beyond_64_bits_is_told_by_the_checker() -> None:
    with pytest.raises(CertificateFault, match="names a moment beyond"):
        Residual([np.zeros(2, np.int64)], [], [[(0, 10**30, np.ones(2, np.int64))]], 1)


def test_moments_beyond_64_bits_are_solved_or_refused_in_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    problem = changed("nodes.intervals", [[0, 10**30] for _ in NETWORK["problem"]["nodes"]["intervals"]])
    (tmp_path / "p.json").write_text(json.dumps(problem))
    assert main(["network", "solve", str(tmp_path / "p.json"), "-o", str(tmp_path / "s.json")]) in (0, 2)
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (KeyError("status"), "there is no 'status'"),
        (IndexError("list index out of range"), "a number leads past the end of a list"),
        (AttributeError("'str' object has no attribute 'values'"), "a value has the wrong type"),
        (ValueError("invalid literal for int() with base 10: '['"), "'[' is not a number"),
        (ValueError("not enough values to unpack (expected 2, got 1)"), "is not what it should be"),
        (OverflowError("int too big"), "a number is too large"),
        (InputError("the mesh has no axis 'x'"), "the mesh has no axis 'x'"),
    ],
)
def test_what_reading_a_damaged_file_raises_is_told_in_words(error: Exception, words: str) -> None:
    assert words in in_words(error)


def test_faults_of_onnx_models_are_in_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx = pytest.importorskip("onnx", reason="reading ONNX models needs the library onnx")
    text = '<ir_version: 11, opset_import: ["" : 22]> f (float[n] x) => (float[n] y) { y = Relu(x) }'
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    from autoshard.onnx.model import load

    with pytest.raises(InputError, match="dimension 'n' cannot have the size"):
        _ = load(tmp_path / "m.onnx", shapes={"n": 10**20}).inferred
    (tmp_path / "m.json").write_text('{"irVersion": "eleven", "graph": {}}')
    assert main(["check", str(tmp_path / "m.json")]) == 2
    assert "'eleven' is not a number" in capsys.readouterr().err


def test_a_size_that_is_a_shape_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx = pytest.importorskip("onnx", reason="reading ONNX models needs the library onnx")
    text = '<ir_version: 11, opset_import: ["" : 22]> f (float[n] x) => (float[n] y) { y = Relu(x) }'
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    (tmp_path / "c.yaml").write_text("model: m.onnx\nmesh: {x: 2}\nhardware: cpu_sim\nshapes: {n: [4, 2]}\n")
    assert main(["solve", str(tmp_path / "c.yaml"), "-o", str(tmp_path / "out"), "-q"]) == 2
    assert "shapes: the dimension 'n' has one size, found [4, 2]" in capsys.readouterr().err


@pytest.mark.parametrize("dims", [[1], [4, 2], []])
def test_a_tensor_of_an_element_type_that_onnx_does_not_know_is_told(
    dims: list[int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    onnx = pytest.importorskip("onnx", reason="reading ONNX models needs the library onnx")
    text = '<ir_version: 11, opset_import: ["" : 22]> f (float[4,2] x) => (float[4,2] y) { y = Add(x, w) }'
    model = onnx.parser.parse_model(text)
    model.graph.initializer.append(onnx.TensorProto(name="w", data_type=-1, dims=dims))
    onnx.save(model, tmp_path / "m.onnx")
    (tmp_path / "c.yaml").write_text("model: m.onnx\nmesh: {x: 2}\nhardware: cpu_sim\n")
    assert main(["solve", str(tmp_path / "c.yaml"), "-o", str(tmp_path / "out"), "-q"]) == 2
    said = capsys.readouterr().err
    assert "-1" in said
    assert "element type" in said


def test_a_config_on_standard_input_that_is_no_text_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"mesh: {x: 2}\nmodel: \x8a\n"), encoding="utf-8"))
    assert main(["solve", "-"]) == 2
    assert "stdin:2: the config is not UTF-8 text" in capsys.readouterr().err


def test_a_name_of_a_file_with_a_nul_character_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "\0"]) == 2
    assert "names of files hold no NUL character" in capsys.readouterr().err


def test_an_interrupt_before_a_command_begins_leaves_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(info: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("typer.main.get_command", interrupted)
    assert main(["show", "plan.json"]) == 130
    assert capsys.readouterr().err == "interrupted\n"


def test_an_interrupt_while_the_commands_are_imported_leaves_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupted(ModuleType):
        def __getattr__(self, name: str) -> Any:
            raise KeyboardInterrupt

    monkeypatch.setitem(sys.modules, "autoshard.cli", Interrupted("autoshard.cli"))
    assert run() == 130


def test_a_plan_whose_program_has_no_name_is_told(
    plan_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = json.loads(plan_file.read_text())
    del plan["program"]["name"]
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    assert main(["verify", str(tmp_path / "plan.json")]) == 1
    assert "there is no 'name'" in capsys.readouterr().out


def test_a_machine_of_a_plan_that_is_none_is_told_in_words(
    plan_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = json.loads(plan_file.read_text())
    plan["hardware"]["machine"]["axes"] = [3]
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    assert main(["show", str(tmp_path / "plan.json")]) == 2
    assert "not a machine written by Machine.to_dict: a value has the wrong type" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["show", "specs", "verify", "report", "run"])
@pytest.mark.parametrize(
    ("key", "value", "says"),
    [("schedule", {}, "schedule has no |there is no"), ("program", 3, "program is 3, expected|has the wrong type")],
)
def test_a_damaged_plan_is_told_in_words(
    command: str, key: str, value: Any, says: str, plan_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damaged = tmp_path / "plan.json"
    shutil.copy(plan_file, damaged)
    damaged.write_text(json.dumps({**json.loads(damaged.read_text()), key: value}))
    code = main([command, str(damaged)])
    said = capsys.readouterr()
    assert code == (1 if command == "verify" else 2)
    assert any(words in said.out + said.err for words in says.split("|"))


def test_a_statement_of_a_plan_that_cannot_be_put_into_words_is_told(
    plan_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = json.loads(plan_file.read_text())
    plan["statements"].append(
        {"kind": "same_sharding", "patterns": ["x", 2.5], "values": [0], "outputs": [], "source": ""}
    )
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    assert main(["diff", str(tmp_path / "plan.json"), str(plan_file)]) == 2
    assert "cannot be read" in capsys.readouterr().err


def test_a_mesh_of_more_devices_than_it_lists_is_told() -> None:
    with pytest.raises(ShardingError, match="the device list must be a permutation"):
        Mesh.from_text('<["x"=9223372036854775808], device_ids=[8, 0]>')


def test_numbers_without_end_are_null_in_json() -> None:
    assert json.loads(json_text({"a": [float("inf"), 1.5], "b": float("nan")})) == {"a": [None, 1.5], "b": None}


def test_a_mesh_of_a_plan_without_a_name_is_told(
    plan_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = json.loads(plan_file.read_text())
    del plan["mesh"]["name"]
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    assert main(["verify", str(tmp_path / "plan.json")]) == 1
    assert "there is no 'name'" in capsys.readouterr().out


def test_a_copy_of_the_process_whose_parent_is_gone_ends_in_silence() -> None:
    script = (
        "import os\n"
        "from autoshard.cli.guarded import _in_child\n"
        "mine, other = os.pipe()\n"
        "_in_child(lambda: b'x' * 2**20, (), {}, mine, other)\n"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (1, "")


@pytest.mark.parametrize("command", [["specs"], ["annotate", "--no-check"], ["lower", "--no-report"], ["report"]])
def test_a_plan_is_not_overwritten_by_what_is_made_of_it(
    plan_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    copy = tmp_path / "plan.json"
    copy.write_bytes(plan_file.read_bytes())
    assert main([command[0], str(copy), *command[1:], "--output", str(copy)]) == 2
    assert "give" in capsys.readouterr().err
    assert copy.read_bytes() == plan_file.read_bytes()


def test_of_many_faults_of_a_profile_ten_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.yaml").write_text(f"name: mine\nlevels: {[0] * 500}\n")
    assert main(["hardware", str(tmp_path / "mine.yaml")]) == 2
    said = capsys.readouterr().err
    assert "levels.0: must be a mapping of keys and values (found 0)" in said
    assert "more faults" in said
    assert len(said) < 1500


@pytest.mark.parametrize("number", ["0", 99, -1, True, 0.0, None, [0]])
def test_a_donated_input_that_there_is_not_is_told(
    plan_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], number: object
) -> None:
    plan = json.loads(plan_file.read_text())
    plan["program"]["donated"] = [number]
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    assert main(["explain", str(tmp_path / "plan.json"), "x"]) == 2
    said = capsys.readouterr().err
    assert "donated are inputs" in said or "program.donated.0 is" in said


@pytest.mark.parametrize(
    ("text", "told"), [('hardware: "mine\\0.yaml"', "texts hold"), ("hardware: mine.yaml", "names of files hold")]
)
def test_a_profile_whose_name_has_a_nul_character_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, told: str
) -> None:
    (tmp_path / "mine.yaml").write_text('base: "a\\0.yaml"\nname: mine\n')
    (tmp_path / "c.yaml").write_text(f"model: {{name: mlp, layers: 1}}\nmesh: {{x: 2}}\n{text}\n")
    assert main(["solve", str(tmp_path / "c.yaml"), "-q"]) == 2
    assert f"{told} no NUL character" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["run", "verify", "show", "report", "specs"])
@pytest.mark.parametrize("name", ["a\0b", "\ud800"])
def test_a_plan_with_a_text_that_names_no_file_is_told(
    plan_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str, name: str
) -> None:
    plan = json.loads(plan_file.read_text())
    plan["config"]["file"] = name
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    assert main([command, str(tmp_path / "plan.json")]) == 2
    assert "texts in the plan hold no NUL character and no half" in capsys.readouterr().err


def test_bytes_of_a_name_that_is_no_text_are_read_as_they_were_written(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"file": "caf\udce9", "\U0001f600": ["é"]})
    assert read_json(tmp_path / "a.json") == {"file": "caf\udce9", "\U0001f600": ["é"]}


@pytest.mark.parametrize("text", ['"\\ud800": 1', 'hardware: "\\udfff"', 'model: ["a\\ud8001"]'])
def test_half_of_a_surrogate_pair_in_a_config_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    (tmp_path / "c.yaml").write_text(text)
    assert main(["solve", str(tmp_path / "c.yaml"), "-q"]) == 2
    assert "half of a surrogate pair is no character" in capsys.readouterr().err
