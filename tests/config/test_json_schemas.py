"""The JSON Schemas take what autoshard takes, and refuse what has another shape."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

import autoshard
from autoshard.cli import main
from autoshard.config.json_schema import config_json_schema, plan_json_schema
from autoshard.config.load import load_config_text

ROOT = Path(autoshard.__file__).parents[1]
CONFIGS = sorted([*(ROOT / "configs").glob("*.yaml"), *(ROOT / "autoshard" / "examples").rglob("*.yaml")])
BASE = """
function: my_package.train:step
args: {x: "float32[8,16]", w: {shape: [16, 16], dtype: bfloat16}}
mesh: {data: 2, model: {size: 4, link: ici}}
hardware: tpu_v5e
"""
ROLES = "\nlogical_axes: {x: [batch, embed], w: [embed, mlp]}"
FORMS = [
    "memory_limit: 12GiB", "memory_limit: 0.9", "memory_limit: none", "memory_limit: 1000000",
    "memory_limit: {device: 90%, pinned_host: 1GiB}",
    "pins: {w: '[{\"model\"}, {}]'}", "pins: [{pattern: w, sharding: '[{\"model\"}, {}]', priority: 1}]",
    "no_collective: [model, {axis: data, pattern: w}]", "max_reshards: 3", "max_reshards: [{limit: 1, axis: data}, 5]",
    "axis_only: {model: [w]}", "axis_only: [{axis: model, patterns: w}]", "same_sharding: [[x, w]]",
    "replicated: [w]", "barriers: [{pattern: tanh, direction: both}]", "memory_kinds: {w: pinned_host}",
    "time_limit: 10min", "time_limit: 60", "solver: {effort: 2, memory: 8GB}", "carry: none",
    "priorities: [data, {name: mine, rules: {mlp: model, embed: [data]}}]" + ROLES,
    "baselines: [data]" + ROLES, "donate: [w, 0]", "share_repeats: price", "objective: overlap", "strategy: greedy",
]  # fmt: skip


def faults(schema: dict[str, Any], data: Any) -> list[str]:
    validator = jsonschema.Draft202012Validator(schema)
    return [error.message for error in validator.iter_errors(data)]


@pytest.mark.parametrize("made", [config_json_schema, plan_json_schema])
def test_they_are_schemas_and_say_their_version(made: Any) -> None:
    schema = made()
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["$id"].startswith("urn:autoshard:") and schema["$id"].rsplit(":", 1)[1]


@pytest.mark.parametrize("file", CONFIGS, ids=lambda file: f"{file.parent.name}/{file.name}")
def test_configs_that_are_shipped_fit(file: Path) -> None:
    assert not faults(config_json_schema(), yaml.safe_load(file.read_text()))


@pytest.mark.parametrize("form", FORMS)
def test_every_short_form_that_is_read_fits(form: str) -> None:
    load_config_text(BASE + form, "config.yaml")
    assert not faults(config_json_schema(), yaml.safe_load(BASE + form))


def test_a_mesh_whose_sizes_are_searched_fits() -> None:
    text = BASE.replace("{data: 2, model: {size: 4, link: ici}}", "{devices: 8, axes: [data, model]}")
    load_config_text(text, "config.yaml")
    assert not faults(config_json_schema(), yaml.safe_load(text))


@pytest.mark.parametrize(
    "wrong",
    [
        "memory_limt: 12GiB", "memory_limit: {devic: 3GiB}", "time_limit: [60]", "solver: {effort: high}",
        "pins: [{pattern: w}]", "objective: fast", "same_sharding: x", "verify: maybe", "run: {steps: 0}",
    ],
)  # fmt: skip
def test_what_has_another_shape_does_not_fit(wrong: str) -> None:
    with pytest.raises(autoshard.InputError):
        load_config_text(BASE + wrong, "config.yaml")
    assert faults(config_json_schema(), yaml.safe_load(BASE + wrong))


def test_plans_fit_and_damaged_ones_do_not() -> None:
    import jax

    x = jax.ShapeDtypeStruct((8, 16), "float32")
    pins = [autoshard.Pin("x", '[{"data"}, {}]'), autoshard.Pin("w", '[{}, {"model"}]', priority=1)]
    plan = autoshard.plan(
        lambda x, w: x @ w, x, jax.ShapeDtypeStruct((16, 16), "float32"), mesh={"data": 2, "model": 4},
        hardware="cpu_sim", constraints=pins,
    )  # fmt: skip
    data = json.loads(json.dumps(plan.to_dict()))
    assert data["stages"] and not faults(plan_json_schema(), data)
    data["stages"][0]["cost_s"] = "cheap"
    assert faults(plan_json_schema(), data)


def test_the_command_writes_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema", "plan"]) == 0
    assert json.loads(capsys.readouterr().out) == plan_json_schema()
    assert main(["schema", "-o", str(tmp_path / "config.json")]) == 0
    assert json.loads((tmp_path / "config.json").read_text()) == config_json_schema()
    assert main(["schema", "plans"]) == 2
    assert "did you mean 'plan'" in capsys.readouterr().err
