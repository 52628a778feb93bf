"""Named strategies in config files: defaults, mixes, slices, rules of one's own, and what is wrong with them."""

from pathlib import Path

import pytest

from autoshard.cli import main
from autoshard.config import load_config
from autoshard.config.load import Config

MODEL = "model: {name: mlp, batch: 8}\nmesh: {data: 2, model: 4}\nhardware: tpu_v5e\n"


def config(tmp_path: Path, text: str) -> Config:
    path = tmp_path / "c.yaml"
    path.write_text(text)
    return load_config(path)


def test_models_are_compared_with_a_few_strategies_where_nothing_is_said(tmp_path: Path) -> None:
    assert config(tmp_path, MODEL).baselines == ("data", "fsdp", "tensor", "fsdp+tensor")
    one_axis = MODEL.replace("{data: 2, model: 4}", "{data: 8}")
    assert config(tmp_path, one_axis).baselines == ("data", "fsdp", "tensor")


def test_an_empty_list_compares_with_nothing(tmp_path: Path) -> None:
    assert config(tmp_path, MODEL + "baselines: []\n").baselines == ()


def test_functions_are_compared_with_what_is_asked_for_only(tmp_path: Path) -> None:
    text = 'function: "m:f"\nargs: {x: "float32[8,16]"}\nmesh: {data: 8}\nhardware: tpu_v5e\n'
    assert config(tmp_path, text).baselines == ()


def test_rules_are_a_strategy_of_their_own(tmp_path: Path) -> None:
    text = MODEL + "baselines: [data, {name: mine, rules: {batch: [data, model], mlp: model}}]\n"
    text += "logical_axis_rules: {batch: data, embed: data}\n"
    assert config(tmp_path, text).baselines == (
        "data",
        {"name": "mine", "rules": {"batch": ["data", "model"], "mlp": ["model"]}},
        {"name": "logical_axis_rules", "rules": {"batch": ["data"], "embed": ["data"]}},
    )


def test_axes_between_slices_are_known(tmp_path: Path) -> None:
    text = MODEL.replace("data: 2", "data: {size: 2, link: dcn}")
    assert config(tmp_path, text).slow_axes == {"data"}


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("baselines: [fsdp+tensor+context]", "4:13: baselines[0]: baseline 'fsdp+tensor+context' needs a mesh axis"),
        ("baselines: [{name: m, rules: {batch: dat}}]", "4:13: baselines[0]: rule 'batch' names mesh axis 'dat'"),
        ("baselines: [{name: m, rules: {}}]", "4:13: baselines[0]: strategy 'm' has no rules"),
        ("baselines: [data, data]", "4:19: baselines[1]: two baselines are called 'data'"),
        ("logical_axis_rules: {batch: [data, data]}", "4:21: logical_axis_rules: rule 'batch' names a mesh axis twice"),
    ],
)
def test_wrong_strategies_have_their_place(
    lines: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(MODEL + lines + "\n")
    assert main(["solve", str(path)]) == 2
    assert message in capsys.readouterr().err


def test_rules_about_logical_axes_nobody_has_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(MODEL + "logical_axis_rules: {batch: data, heads: model}\n")
    assert main(["solve", str(path), "--output", str(tmp_path / "out")]) == 2
    assert "no input has the logical axis 'heads'; known are batch, embed" in capsys.readouterr().err


def test_the_plan_is_compared_and_never_worse(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import json

    path = tmp_path / "c.yaml"
    path.write_text(MODEL)
    assert main(["solve", str(path), "--output", str(tmp_path / "out"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [b["name"] for b in found["baselines"]] == ["data", "fsdp", "tensor", "fsdp+tensor"]
    for baseline in found["baselines"]:
        assert baseline["objective_s"] is None or found["objective_s"] <= baseline["objective_s"] * (1 + 1e-9)
    assert found["cost"]["step_time"]["mfu"]["upper"] > 0
