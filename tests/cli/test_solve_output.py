"""What ``solve`` and ``show`` print: the verdict last, tables when asked for, progress in one line of a terminal."""

import fcntl
import io
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

import autoshard
from autoshard.cli import main

CONFIG = """\
function: solve_output_program:f
args: {x: "float32[64,128]", w: "float32[128,256]"}
mesh: {a: 2, b: 4}
hardware: tpu_v5e
pins: {x: '[{"a"}, {?}]'}
verify: false
"""
VERDICT = ["plan", "step", "memory", "proof", "next"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "solve_output_program.py").write_text(
        "import jax.numpy as jnp\ndef f(x, w):\n    return jnp.tanh(x @ w).sum(0)\n"
    )
    (tmp_path / "c.yaml").write_text(CONFIG)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def words(text: str) -> list[str]:
    return [line.split()[0] for line in text.splitlines() if line.strip()]


def test_solve_ends_with_the_verdict_alone(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["solve", "c.yaml", "-o", "out"]) == 0
    assert words(capsys.readouterr().out) == VERDICT


def test_verbose_has_all_tables_before_the_verdict(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["solve", "c.yaml", "-o", "out", "-v"]) == 0
    told = capsys.readouterr().out
    assert words(told)[-5:] == VERDICT
    assert all(word in told for word in ("inputs", "collectives per step", "held at the peak"))


def test_quiet_prints_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["solve", "c.yaml", "-o", "out", "-q"]) == 0
    assert capsys.readouterr() == ("", "")
    assert (folder / "out" / "plan.json").exists()


def test_a_config_comes_through_a_pipe_and_is_changed(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(CONFIG))
    assert main(["solve", "-", "memory_limit=1GiB", "--mesh", "a=2,b=2", "--hardware", "h100", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["mesh"]["axes"] == {"a": 2, "b": 2}
    assert (plan["hardware"]["name"], plan["memory_limit"]["bytes"]) == ("h100", 2**30)
    assert (folder / "out" / "stdin" / "plan.json").exists()


def test_show_has_one_table_or_all_of_them(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["solve", "c.yaml", "-o", "out", "-q"]) == 0
    assert main(["show", "out/plan.json", "inputs"]) == 0
    inputs = capsys.readouterr().out
    assert words(inputs)[0] == "inputs" and "collectives" not in inputs
    assert main(["show", "out/plan.json"]) == 0
    assert words(capsys.readouterr().out)[-4:] == VERDICT[:-1]
    assert main(["show", "out/plan.json", "baselines"]) == 0
    assert capsys.readouterr().out == "baselines: none\n"


def test_show_names_the_sections_there_are(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "plan.json", "input"]) == 2
    assert "did you mean 'inputs'?" in capsys.readouterr().err


@pytest.mark.parametrize("columns", [80, pytest.param(120, marks=pytest.mark.slow)])
def test_a_terminal_shows_progress_in_one_line_and_nothing_is_wider(folder: Path, columns: int) -> None:
    told = in_a_terminal(["solve", "c.yaml", "-o", "out"], columns)
    lines = [re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", line) for line in re.split(r"[\r\n]+", told)]
    assert max(map(len, lines)) <= columns
    assert any(re.search(r"\d s  (tracing|solving)", line) for line in lines)
    assert "Progress(" not in told
    assert words("\n".join(lines))[-5:] == VERDICT


def in_a_terminal(arguments: list[str], columns: int) -> str:
    """Everything that a command writes to a terminal of this width."""
    main_end, command_end = pty.openpty()
    fcntl.ioctl(command_end, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environment = {**os.environ, "PYTHONPATH": str(Path(autoshard.__file__).parent.parent), "TERM": "xterm"}
    environment.pop("COLUMNS", None)
    command = subprocess.Popen(
        [sys.executable, "-m", "autoshard", *arguments], stdin=command_end, stdout=command_end, stderr=command_end,
        env=environment,
    )  # fmt: skip
    os.close(command_end)
    told = b""
    try:
        while part := os.read(main_end, 65536):
            told += part
    except OSError:  # how Linux tells the end of a terminal
        pass
    finally:
        os.close(main_end)
    assert command.wait(timeout=120) == 0, told.decode(errors="replace")
    return told.decode()


@pytest.mark.parametrize(
    ("changes", "checked"),
    [(["verify=false", "run=null"], 0), pytest.param(["run.steps=2"], 1, marks=pytest.mark.slow)],
)
def test_the_quickstart_fits_a_small_terminal(
    changes: list[str], checked: int, repository: Path, folder: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("COLUMNS", "80")
    config = str(repository / "configs" / "quickstart.yaml")
    assert main(["solve", config, "model.layers=1", "model.seq=8", *changes, "-o", "out"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert words("\n".join(lines)).count("checked") == checked
    assert set(VERDICT) <= set(words("\n".join(lines)))
    assert len(lines) + (1 - checked) < 24  # with a line about the checks, and that of the prompt
    assert max(map(len, lines)) <= 80
