"""The examples of docs/programs.md run as they stand."""

import re
from pathlib import Path

import autoshard

TEXT = (Path(__file__).parents[2] / "docs" / "programs.md").read_text()


def test_every_snippet_runs():
    names: dict = {}
    code = re.findall(r"```python\n(.*?)```", TEXT, re.S)
    for snippet in code:
        exec(compile(snippet, "docs/programs.md", "exec"), names)
    assert code and isinstance(names["plan"], autoshard.Plan)
