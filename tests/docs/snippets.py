"""Runs the snippets of a page in their order, as a reader would: in one folder, in one Python session.

A block of Python runs; with ``title="train.py"`` it is written to that file first, as a block of YAML is. Lines of a
block of shell that begin with ``autoshard`` run, and end with the exit code of their comment (``# exit code 3``), else
with 0. A block of text is what the block before it printed: its lines are found in this order in what was printed,
where ``...`` stands for lines and for ends of lines. Numbers may differ, since costs change with the cost models.
"""

import contextlib
import io
import re
import shlex
from pathlib import Path
from typing import Any, NamedTuple

from autoshard.cli import main

_BLOCK = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.M | re.S)
_EXIT_CODE = re.compile(r"# exit code (\d+)")
_NUMBER = re.compile(r"[-+]?\d[\d,]*(\.\d+)?(e[-+]?\d+)?")
_SPACE = re.compile(r"\s+")


class Block(NamedTuple):
    """One fenced block of a page: its language, the file it is shown as, its text and its line."""

    language: str
    title: str
    text: str
    line: int


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [
        Block(found[1], found[2] or "", found[3], text[: found.start()].count("\n") + 2)
        for found in _BLOCK.finditer(text)
    ]


def run_page(page: Path, folder: Path) -> dict[str, Any]:
    """Run a page in a folder, which is the current one; the names that its Python defines."""
    names: dict[str, Any] = {"__name__": page.stem}
    said = ""
    for block in blocks(page):
        where = f"{page.name}:{block.line}"
        if block.title:
            (folder / block.title).write_text(block.text, encoding="utf-8")
        if block.language == "text":
            assert_printed(block.text, said, where)
            continue
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            if block.language == "python":
                exec(compile("\n" * (block.line - 1) + block.text, str(page), "exec"), names)
            elif block.language == "sh":
                run_shell(block.text, where, out)
        said = out.getvalue()
    return names


def run_shell(text: str, where: str, out: io.StringIO) -> None:
    for line in text.splitlines():
        if not line.startswith("autoshard "):
            continue
        expected = int(found[1]) if (found := _EXIT_CODE.search(line)) else 0
        code = main(shlex.split(line, comments=True)[1:])
        assert code == expected, f"{where}: {line}: exit code {code}\n{out.getvalue()}"


def assert_printed(shown: str, said: str, where: str) -> None:
    """What a page shows was printed, up to numbers."""
    lines = [_plain(line) for line in said.splitlines()]
    at = 0
    for line in map(_plain, shown.splitlines()):
        if line in ("", "..."):
            continue
        start, dots, _ = line.partition("...")
        fits = [k for k in range(at, len(lines)) if (lines[k].startswith(start.rstrip()) if dots else lines[k] == line)]
        assert fits, f"{where}: {line!r} is not in what was printed:\n{said}"
        at = fits[0] + 1


def _plain(line: str) -> str:
    return _SPACE.sub(" ", _NUMBER.sub("0", line)).strip()
