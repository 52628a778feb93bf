"""Every value in a plan's program and schedule has a type, and another one is told with its place."""

import json
from pathlib import Path
from typing import Any

import pytest

from autoshard.cli import main


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        (["program", "body", "ops", 0, "source"], None, "program.body.ops.0.source is None, expected text"),
        (["program", "body", "ops", 0, "operands"], 3, "program.body.ops.0.operands is 3, expected a list"),
        (["program", "body", "ops", 0, "id"], True, "program.body.ops.0.id is True, expected a whole number"),
        (["program", "body", "ops", 0, "rule", "linear"], [[0.5]], "rule.linear.0.0 is 0.5, expected a whole number"),
        (["program", "body", "ops", 0, "attrs"], [], "program.body.ops.0.attrs is [], expected an object"),
        (["program", "values", 1, "tags"], [0], "program.values.1.tags.0 is 0, expected text"),
        (["program", "input_names"], {}, "program.input_names is {}, expected a list"),
        (["schedule", "uses"], {"x": 1}, "schedule.uses is {'x': 1}, expected a list"),
        (["schedule", "uses", 0, "region"], 2**31, "the program has no Use(op=-1, slot=0, region=2147483648)"),
        (["schedule", "uses", 1, "slot"], -1, "the program has no Use(op=-1, slot=-1, region=-1)"),
        (["schedule", "uses"], [], "there is no form of the output of Use(op=-1, slot=0, region=-1)"),
        (["schedule", "placements"], [], "schedule.placements is [], expected an object"),
    ],
)
@pytest.mark.parametrize("command", ["show", "report"])
def test_a_value_of_another_type_is_told_with_its_place(
    plan_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    command: str, path: list[Any], value: Any, says: str,
) -> None:  # fmt: skip
    plan = json.loads(plan_file.read_text())
    parent = plan
    for key in path[:-1]:
        parent = parent[key]
    parent[path[-1]] = value
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    assert main([command, str(tmp_path / "plan.json")]) == 2
    assert says in capsys.readouterr().err
