"""The pages of docs/: snippets of tutorials run, links lead somewhere, and the reference is what the code says."""

import ast
import os
import re
import shlex
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml
from snippets import Block, assert_printed, blocks, run_page

from autoshard.cli import main

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
TUTORIALS = sorted((DOCS / "tutorials").glob("*.md"))
NEEDED = {"linen": "flax", "nnx": "flax", "equinox": "equinox", "keras": "keras"}
"""Packages of tutorials that are not among the test dependencies."""

CONSOLE = [block for block in blocks(DOCS / "costmodels.md") if block.language == "console"]

_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#{1,6} (.+)$", re.M)
_FENCE = re.compile(r"^```.*?^```$", re.M | re.S)
_CODE = re.compile(r"`[^`\n]*`")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty current folder, with modules, trusted plans and the search path as before afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("AUTOSHARD_TRUSTED", "")
    path, modules = list(sys.path), set(sys.modules)
    yield tmp_path
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if str(getattr(sys.modules[name], "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]
    sys.path_importer_cache.clear()


@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
def test_a_tutorial_runs_as_it_stands(page: Path, folder: Path) -> None:
    package = NEEDED.get(page.stem)
    if package is not None and find_spec(package) is None:  # keras is not imported before the page chooses its backend
        pytest.skip(f"the page plans a train step of {package}, which is not installed")
    assert any(block.language == "python" for block in blocks(page))
    run_page(page, folder)


@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
def test_a_tutorial_is_short(page: Path) -> None:
    assert 60 <= page.read_text().count("\n") <= 150


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as Python-Markdown and GitHub both make them."""
    text = _FENCE.sub("", page.read_text())
    headings = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading) for heading in _HEADING.findall(text))
    return {re.sub(r"[\s]+", "-", re.sub(r"[^\w\s-]", "", heading.lower()).strip()) for heading in headings}


def broken_links(page: Path) -> list[str]:
    """Links of a page to files or headings that are not there."""
    text = _CODE.sub("", _FENCE.sub("", page.read_text()))
    broken = []
    for link in _LINK.findall(text):
        if re.match(r"[a-z]+:", link):
            continue
        file, _, anchor = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            broken.append(link)
    return broken


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    assert broken_links(page) == []


def test_a_link_to_nowhere_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# One heading\n\n[a](#one-heading) [b](#two) [c](other.md) [d](https://x.org) `[e](f.md)`\n")
    assert broken_links(page) == ["#two", "other.md"]


def test_every_page_is_in_the_navigation_once() -> None:
    def pages(entry: object) -> Iterator[str]:
        if isinstance(entry, str):
            yield entry
        elif isinstance(entry, dict):
            for below in entry.values():
                yield from pages(below)
        elif isinstance(entry, list):
            for below in entry:
                yield from pages(below)

    listed = list(pages(yaml.safe_load((DOCS.parent / "mkdocs.yml").read_text())["nav"]))
    assert sorted(listed) == [str(page.relative_to(DOCS)) for page in PAGES]


def test_the_reference_is_what_the_code_says() -> None:
    sys.path.insert(0, str(DOCS))
    try:
        import make_reference
    finally:
        sys.path.pop(0)
    stale = [name for name, text in make_reference.pages().items() if (DOCS / "reference" / name).read_text() != text]
    assert stale == [], "run: python docs/make_reference.py"


def messages() -> list[str]:
    """All texts of the code, with NUL where a value is put in."""
    found = []
    for file in (DOCS.parent / "autoshard").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                parts = (part.value if isinstance(part, ast.Constant) else "\0" for part in node.values)
                found.append("".join(map(str, parts)))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
    return found


def unknown(shown: list[str], known: list[str]) -> list[str]:
    """Those of the messages on a page that no text of the code can be; ``...`` stands for what is put in."""
    patterns = (".*".join(re.escape(part.strip()) for part in one.strip().split("...")) for one in shown)
    return [p for p in patterns if not any(re.search(p.replace("\\ ", " "), text, re.S) for text in known)]


def test_messages_on_the_pages_are_those_of_the_code() -> None:
    known = messages()
    symptoms = [block.text for block in blocks(DOCS / "symptoms.md") if block.language == "text"]
    assert len(symptoms) > 10
    assert unknown(symptoms, known) == []
    rows = [line.split(" | ", 1)[1] for line in (DOCS / "limits.md").read_text().splitlines() if line.startswith("| ")]
    limits = [text for row in rows for text in re.findall(r"`([^`]{20,})`", row)]
    assert len(limits) > 15
    assert unknown(limits, known) == []
    assert unknown(["nobody says this ..."], known) != []


def test_the_pictures_are_those_that_the_script_draws() -> None:
    sys.path.insert(0, str(DOCS))
    try:
        import make_pictures
    finally:
        sys.path.pop(0)
    drawn = make_pictures.pictures()
    assert {file.name: file.read_text() for file in (DOCS / "pictures").glob("*.svg")} == drawn


def test_the_first_page_runs(folder: Path) -> None:
    names: dict[str, object] = {}
    code = [block.text for block in blocks(DOCS / "index.md") if block.language == "python"]
    for text in code:
        exec(compile(text, "docs/index.md", "exec"), names)
    assert code and callable(names["run"])


@pytest.mark.parametrize("block", CONSOLE, ids=lambda block: f"line {block.line}")
def test_cost_models_are_shown_with_the_figures_that_they_print(
    block: Block, capsys: pytest.CaptureFixture[str]
) -> None:
    command, *shown = (line for line in block.text.splitlines() if line != "...")
    assert main(shlex.split(command.removeprefix("$ autoshard "))) == 0
    assert [line for line in capsys.readouterr().out.splitlines() if line in shown] == shown


def test_a_snippet_that_prints_something_else_is_found() -> None:
    assert_printed("a 1\n...\nd 4.5 ...", "a 2\nb\nc\nd 7 and more", "page")
    with pytest.raises(AssertionError, match="page: 'e' is not in what was printed"):
        assert_printed("a\ne", "a\nb", "page")


def test_blocks_are_read_with_their_titles_and_lines(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text('text\n\n```yaml title="a.yaml"\nkey: 1\n```\n\n```sh\nautoshard solve a.yaml\n```\n')
    assert blocks(page) == [Block("yaml", "a.yaml", "key: 1\n", 4), Block("sh", "", "autoshard solve a.yaml\n", 8)]
    assert os.environ["AUTOSHARD_PLANS"] == ""  # plans of autoshard.jit in the pages are not kept
