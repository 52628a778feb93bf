"""The examples of docs/kernels.md run as they stand, and its config can be read."""

import re
from pathlib import Path

import yaml

import autoshard
from autoshard.config.load import load_config_text

TEXT = (Path(__file__).parents[2] / "docs" / "kernels.md").read_text()


def test_every_snippet_runs():
    names: dict = {}
    code = re.findall(r"```python\n(.*?)```", TEXT, re.S)
    for snippet in code:
        exec(compile(snippet, "docs/kernels.md", "exec"), names)
    assert code and isinstance(names["plan"], autoshard.Plan)


def test_config_is_as_it_stands():
    (section,) = re.findall(r"```yaml\n(.*?)```", TEXT, re.S)
    whole = f"model: mlp\nmesh: {{data: 8}}\nhardware: tpu_v5e\n{section}"
    stated = load_config_text(whole, "kernels.yaml").statements
    assert [s.name for s in stated if isinstance(s, autoshard.Kernel)] == list(yaml.safe_load(section)["kernels"])
