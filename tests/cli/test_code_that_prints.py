"""Code that prints: where the answer is JSON, standard output holds the answer alone."""

import json
from pathlib import Path

import pytest

from autoshard.cli import main

MODULE = """\
print("imported")


def step(x):
    print("traced")
    return x + 1
"""
CONFIG = 'function: "printing_step:step"\nargs: {x: "float32[8]"}\nmesh: {d: 4}\nhardware: h100\n'


@pytest.fixture
def plan_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "printing_step.py").write_text(MODULE)
    (tmp_path / "config.yaml").write_text(CONFIG)
    assert main(["solve", "config.yaml", "-o", "out"]) == 0
    capsys.readouterr()
    return "out/plan.json"


COMMANDS = (
    "solve config.yaml", "compare config.yaml --strategies greedy", "verify PLAN", "run PLAN", "annotate PLAN",
    "lower PLAN --target constraints", "simulate PLAN --compiler own",
)  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS)
def test_json_stands_alone_on_standard_output(command: str, plan_file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command.replace("PLAN", plan_file).split(), "--json"]) == 0
    json.loads(capsys.readouterr().out)


def test_what_the_code_prints_beside_json_stands_on_standard_error(
    plan_file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["solve", "config.yaml", "--json"]) == 0
    assert "traced" in capsys.readouterr().err
