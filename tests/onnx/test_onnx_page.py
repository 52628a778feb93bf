"""docs/onnx.md: every block of code runs, every command prints what the page says."""

import re
import shlex
from pathlib import Path

import pytest

from autoshard.cli import main

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.M | re.S)


def test_the_page_runs(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    said = ""
    compared = 0
    for kind, text in BLOCK.findall((repository / "docs" / "onnx.md").read_text(encoding="utf-8")):
        if kind == "python":
            exec(compile(text, "docs/onnx.md", "exec"), names)
            capsys.readouterr()
        elif kind == "sh":
            for line in text.splitlines():
                if line.startswith("autoshard"):
                    code = main(shlex.split(line)[1:])
                    assert code == (2 if "crossed" in line else 0), line
            said = capsys.readouterr().out
        elif kind == "text":
            assert said == text
            compared += 1
    assert compared == 8
