"""Plan files that were damaged, in their stages, statements or rules, are told in words by commands that read them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from autoshard.cli import main
from autoshard.cli.common import reports_errors


@pytest.fixture(scope="module")
def staged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("staged")
    (folder / "c.yaml").write_text(
        "model: {name: mlp, layers: 1, inputs: 8, hidden: 16, outputs: 8, batch: 8}\n"
        "mesh: {data: 2, model: 2}\nhardware: cpu_sim\n"
        "pins:\n  - {pattern: batch/x, sharding: '[{\"data\", ?}, {?}]'}\n"
        "  - {pattern: 'state/params/layers/0/w', sharding: '[{?}, {\"model\", ?}]', priority: 1}\n"
    )
    assert main(["solve", str(folder / "c.yaml"), "-o", str(folder / "out"), "-q"]) == 0
    return folder / "out" / "plan.json"


@pytest.mark.parametrize("value", [[None], None, -0.0, {"1": 0}, {"1": [["data"], [0]]}, {"1": ["data"]}])
@pytest.mark.parametrize("where", ["placed", "left_out"])
def test_placements_of_a_stage_in_another_form(
    staged: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], where: str, value: Any
) -> None:
    plan = json.loads(staged.read_text())
    plan["stages"][0][where] = {"shared": value}
    assert "the plan is damaged: stages." + where in _told(plan, tmp_path, capsys)


@pytest.mark.parametrize("entry", [{"what": "inputs"}, {}, "x", 1])
def test_what_a_stage_relaxed_in_another_form(
    staged: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], entry: Any
) -> None:
    plan = json.loads(staged.read_text())
    plan["stages"][1]["relaxed"] = [entry]
    assert "the plan is damaged: stages.relaxed.0" in _told(plan, tmp_path, capsys)


@pytest.mark.parametrize(
    ("places", "value", "missing"),
    [
        ("outputs", "9", "output 9"), ("outputs", [9], "output 9"), ("outputs", [-1], "output -1"),
        ("values", [1000], "value 1000"), ("values", [-1], "value -1"),
    ],
)  # fmt: skip
def test_a_statement_about_what_the_program_does_not_have(
    staged: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], places: str, value: Any, missing: str
) -> None:
    plan = json.loads(staged.read_text())
    plan["statements"][0][places] = value
    assert f"is about {missing}, which the program does not have" in _told(plan, tmp_path, capsys)


def _told(plan: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    assert main(["explain", str(tmp_path / "plan.json"), "**"]) == 2
    return capsys.readouterr().err


def _another_rank(plan: dict[str, Any]) -> None:
    plan["statements"][0]["sharding"] = "[{}]"


def _linear_in_what_it_has_not(plan: dict[str, Any]) -> None:
    next(op for op in plan["program"]["body"]["ops"] if op["rule"]["linear"])["rule"]["linear"][0][0] = 3


@pytest.mark.parametrize("damage", [_another_rank, _linear_in_what_it_has_not])
def test_a_command_that_stumbles_over_a_plan_tells_what_contradicts_itself_in_it(
    staged: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], damage: Callable[[dict[str, Any]], None]
) -> None:
    plan = json.loads(staged.read_text())
    damage(plan)
    said = _told(plan, tmp_path, capsys)
    assert f"{tmp_path / 'plan.json'} contradicts itself: " in said
    assert "`autoshard verify" in said


def test_an_error_of_ours_beside_a_sound_plan_is_no_damage(staged: Path) -> None:
    @reports_errors
    def command(file: Path) -> None:
        raise AssertionError(file)

    with pytest.raises(AssertionError):
        command(file=staged)
