"""The examples of docs/programs.md and docs/loops.md run as they stand."""

import re
from pathlib import Path

import pytest

import autoshard

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("page", ["programs", "loops"])
def test_every_snippet_runs(page: str):
    names: dict = {}
    code = re.findall(r"```python\n(.*?)```", (DOCS / f"{page}.md").read_text(), re.S)
    for snippet in code:
        exec(compile(snippet, f"docs/{page}.md", "exec"), names)
    assert code and isinstance(names["plan"], autoshard.Plan)
