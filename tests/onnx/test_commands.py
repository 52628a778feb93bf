"""`check` and `propagate` on ONNX models: lines, exit codes, files."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hand_made import PAIRS, mlp, one_op, spec, whole

from autoshard.cli import main
from autoshard.onnx import load, save

CROSSED = {"w2": spec("w2", [-1, -2], {0: 2}, {-1: (1, 3), -2: (0, 2)})}


@pytest.fixture
def good(tmp_path: Path) -> str:
    save(mlp(), tmp_path / "good.onnx")
    return str(tmp_path / "good.onnx")


@pytest.fixture
def bad(tmp_path: Path) -> str:
    save(mlp(**CROSSED), tmp_path / "bad.onnx")
    return str(tmp_path / "bad.onnx")


def test_a_sound_model_is_0_and_a_senseless_one_2(good: str, bad: str, capsys: pytest.CaptureFixture[str]) -> None:
    # S1.4
    assert main(["check", good]) == 0
    assert "1 file: 0 errors, 0 warnings" in capsys.readouterr().out
    assert main(["check", good, bad]) == 2
    lines = capsys.readouterr().out.splitlines()
    assert [
        x
        for x in lines
        if x.startswith(f"{bad}: node 'down' (Gemm): no device holds all that one part of the op needs")
    ]
    assert lines[-1] == "2 files: 1 error, 0 warnings"


def test_warnings_are_errors_with_strict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save(mlp(w2=whole("w2")), tmp_path / "m.onnx")
    assert main(["check", str(tmp_path / "m.onnx")]) == 0
    assert ": warning: node 'down' (Gemm), 'w2' axis 0: 'r' is cut in 2" in capsys.readouterr().out
    assert main(["check", str(tmp_path / "m.onnx"), "--strict"]) == 2


def test_ops_without_a_rule_are_one_line_and_no_fault(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shapes = {"x": (4, 8, 10, 10), "w": (6, 8, 3, 3)}
    save(one_op("Conv", shapes, [spec("x", [-1, -2], {0: 2}, PAIRS), whole("w")]), tmp_path / "m.onnx")
    assert main(["check", str(tmp_path / "m.onnx")]) == 0
    out = capsys.readouterr().out
    assert "m.onnx: no rule: #0 (Conv): the proposal has no rule for Conv; by autoshard's own it fits" in out
    assert "1 file: 0 errors, 0 warnings, 1 without rule" in out


def test_json_has_the_place_of_each_finding(bad: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", bad, "--json"]) == 2
    (answer,) = json.loads(capsys.readouterr().out)
    assert answer["ok"] is False
    assert (answer["findings"][0]["code"], answer["findings"][0]["node"]) == ("nothing-meets", "'down' (Gemm)")
    assert answer["notes"]


def test_propagate_writes_the_completed_model(good: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = str(tmp_path / "full.onnx")
    assert main(["propagate", good, "--output", target]) == 0
    assert capsys.readouterr().out == f"{good}: 6 specs added, written to {target}\n"
    assert load(target).proto == load(good).infer().proto


def test_propagate_prints_the_implied_communication(good: str, capsys: pytest.CaptureFixture[str]) -> None:
    # S1.1
    assert main(["propagate", good, "--implied"]) == 0
    assert capsys.readouterr().out == (
        "after node 'down' (Gemm): all-reduce of 'y' on {0,1,2,3}: 256 B\n"
        "1 communication, 256 B received by all devices together; 4 slices without communication\n"
    )


def test_propagate_spreads_hints_on_request(good: str, tmp_path: Path) -> None:
    target = str(tmp_path / "spread.json")
    assert main(["propagate", good, "--spread", "--output", target]) == 0
    assert load(target).proto == load(good).infer(spread=True).proto


def test_propagate_leaves_no_file_where_annotations_contradict(
    bad: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "full.onnx"
    assert main(["propagate", bad, "--output", str(target)]) == 2
    assert "contradict each other" in capsys.readouterr().err
    assert not target.exists()


@pytest.mark.parametrize(("arguments", "words"), [
    (["check", "{good}", "--configuration", "nope"], "no configuration 'nope'; it declares: mesh"),
    (["check", "{good}", "--shape", "batch"], "--shape: cannot read 'batch'"),
    (["check", "{good}", "--shape", "batch=0"], "--shape: cannot read 'batch=0'"),
    (["check", "{good}", "--shape", "batch=" + "9" * 5000], "--shape: cannot read 'batch=999"),
    (["check", "{good}", "--shape", "batch=4"], "no symbolic dimension 'batch'"),
    (["check", "{good}", "--shape", "b=4", "--shape", "b=5"], "b is given twice"),
    (["check", "a.mlir", "--configuration", "mesh"], "--configuration is for ONNX models; a.mlir is none"),
    (["propagate", "a.mlir", "--spread"], "--spread is for ONNX models"),
    (["propagate", "{good}"], "give --output FILE"),
    (["propagate", "{good}", "--strategy", "basic"], "--strategy and --conservative are for MLIR modules"),
    (["propagate", "{good}", "--output", "{tmp}"], "is the model itself"),
    (["check", "{tmp}/none.onnx"], "does not exist"),
    (["check", "{tmp}/m.onnxtxt"], "has no sharding annotations"),
])  # fmt: skip
def test_what_is_asked_wrongly_is_told_in_a_line(
    arguments: list[str], words: str, good: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "m.onnxtxt").write_text("")
    shown = [a.replace("{good}", good).replace("{tmp}", str(tmp_path)) for a in arguments]
    assert main(shown) == 2
    captured = capsys.readouterr()
    assert words in captured.err
    assert "Traceback" not in captured.err


def test_the_library_is_not_imported_before_a_model_is_read() -> None:
    code = "import sys, autoshard.cli, autoshard.onnx; sys.exit('onnx' in sys.modules or 'jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
