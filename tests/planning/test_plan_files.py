"""plan.json: the same bytes for the same input, read back whole, and refused where it is damaged."""

import copy
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from plan_cases import PROGRAMS, Pin, f32, mlp

from autoshard import plan
from autoshard.api.plans import Plan
from autoshard.cli import main
from autoshard.errors import InputError
from autoshard.files import read_json

MLP = (f32(64, 128), f32(128, 64), f32(32, 64))


def planned(name: str = "gradient", **options: Any) -> Plan:
    function, specs = PROGRAMS[name]
    return plan(function, *specs, mesh={"x": 2, "y": 2}, hardware="tpu_v5e", **options)


_SCRIPT = """
import sys
sys.path.insert(0, sys.argv[1])
from plan_cases import PROGRAMS, Pin
from autoshard import plan
for name in ("gradient", "looped"):
    function, specs = PROGRAMS[name]
    limit = 2_000 if name == "looped" else None
    found = plan(function, *specs, mesh={"x": 2, "y": 4}, hardware="tpu_v5e", memory_limit=limit)
    found.save(f"{sys.argv[2]}/{name}.json")
"""


def test_plans_are_the_same_bytes_on_every_run_and_hash_seed(tmp_path: Path) -> None:
    contents = []
    for seed in ("0", "12345"):
        folder = tmp_path / seed
        folder.mkdir()
        environment = {**os.environ, "PYTHONHASHSEED": seed, "JAX_PLATFORMS": "cpu"}
        environment["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)
        subprocess.run(
            [sys.executable, "-c", _SCRIPT, str(Path(__file__).parent), str(folder)], check=True, env=environment
        )
        contents.append({path.name: path.read_bytes() for path in sorted(folder.iterdir())})
    assert len(contents[0]) == 2
    assert contents[0] == contents[1]


def test_timings_are_not_part_of_the_file() -> None:
    found = planned()
    assert found.run["seconds"]
    assert "run" not in found.to_dict() and "seconds" not in found.to_dict()


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_plan_read_back_is_the_same_plan(name: str, tmp_path: Path) -> None:
    found = planned(name)
    found.save(tmp_path / "plan.json")
    again = Plan.load(tmp_path / "plan.json")
    assert again.to_dict() == found.to_dict()
    assert (again.schedule, again.cost, again.memory) == (found.schedule, found.cost, found.memory)
    again.save(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == (tmp_path / "plan.json").read_bytes()


def test_the_file_names_what_a_checker_needs() -> None:
    data = planned(constraints=[Pin("w1", '[{"x"}, {}]')], memory_limit=10_000).to_dict()
    assert {"format", "version", "status", "objective_s", "bound_s", "gap", "notes", "mesh", "hardware", "config",
            "program", "statements", "schedule", "collectives", "cost", "memory"} <= set(data)  # fmt: skip
    assert [s["kind"] for s in data["statements"]] == ["pin", "memory_limit"]
    assert json.loads(json.dumps(data)) == data


def test_literals_that_json_does_not_know_survive(tmp_path: Path) -> None:
    found = plan(lambda x: jnp.maximum(x, -jnp.inf) + jnp.nan, f32(4), mesh={"x": 2}, hardware="tpu_v5e")
    found.save(tmp_path / "plan.json")
    assert "NaN" not in (tmp_path / "plan.json").read_text() and "Infinity" not in (tmp_path / "plan.json").read_text()
    literals = [repr(v.literal) for v in Plan.load(tmp_path / "plan.json").program.values]
    assert literals == [repr(v.literal) for v in found.program.values]
    assert "-inf" in literals and "nan" in literals


# -- damaged files -------------------------------------------------------------------------------------------------

GOOD = planned().to_dict()


def _without(key: str) -> Callable[[Any], Any]:
    return lambda data: {k: v for k, v in data.items() if k != key}


def _set(path: str, value: Any) -> Callable[[Any], Any]:
    def change(data: Any) -> Any:
        at = data
        *head, last = path.split("/")
        for key in head:
            at = at[int(key) if isinstance(at, list) else key]
        at[int(last) if isinstance(at, list) else last] = value
        return data

    return change


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data: [], "is not a plan of autoshard"),
        (_set("format", "tar"), "is not a plan of autoshard"),
        (_set("version", 99), "is a plan of version 99; this autoshard reads version 1"),
        *((_without(key), "is damaged") for key in ("mesh", "program", "schedule", "hardware")),
        *((_without(key), "is damaged") for key in ("cost", "statements", "trips")),
        (_set("objective_s", None), "objective_s is None"),
        (_set("statements", "x"), "statements is 'x'"),
        (_set("statements", [{}]), "has no kind"),
        (_set("program/input_names/0", -1), "program.input_names.0 is -1, expected text"),
        (_set("program/values/0/id", 1), "value 0 has id 1"),
        (_set("program/values/0/name", []), r"program.values.0.name is \[\], expected text"),
        (_set("program/values/0/shape/0", -5), "has the shape"),
        (_set("program/body/args/0", "x"), "program.body.args.0 is 'x', expected a whole number"),
        (_set("program/body/ops/0/rule", None), "has neither a rule nor regions"),
        (_set("model_flop", [1]), "model_flop is"),
        (_set("mesh/axes", {"x": 2}), "axis 'y'|no axis"),
        (_set("mesh/axes/x", "two"), "size 'two'"),
        (_set("mesh/atoms", ["x"]), "damaged"),
        (_set("program/values/0/dtype", "float"), "unknown element type|damaged"),
        (_set("program/values/0/shape", None), "damaged"),
        (_set("program/body/ops/0/rule/text", "nonsense"), "cannot read rule"),
        (_set("program/body/ops/0/operands", [0, 9_999]), "damaged"),
        (_set("schedule/placements", {}), "there is no placement of dot_general:0"),
        (_set("schedule/placements/0/factors", [[7], [], []]), "does not fit its rule"),
        (_set("schedule/placements/0/factors", []), "does not fit its rule"),
        (_set("schedule/definitions/0", {"dims": [[0], [0]], "unreduced": []}), "damaged|do not fit"),
        (_set("schedule/uses/0/steps", [{"kind": "all_gather", "atoms": [0], "dim": 0, "to_dim": -1}]), "do not fit"),
        (_set("schedule/uses/0/steps", [{"kind": "teleport", "atoms": [0], "dim": 0, "to_dim": -1}]), "damaged"),
        (_set("schedule/uses/0/op", 12345), "damaged"),
        (_set("hardware/machine", {}), "damaged|machine"),
    ],
)  # fmt: skip
def test_a_damaged_plan_is_refused_with_the_file_s_name(
    damage: Callable[[Any], Any], message: str, tmp_path: Path
) -> None:
    path = tmp_path / "broken.json"
    path.write_text(json.dumps(damage(copy.deepcopy(GOOD))))
    with pytest.raises(InputError, match=message) as caught:
        Plan.load(path)
    assert "broken.json" in str(caught.value)


@pytest.mark.parametrize("text", ["", "{", "null", "\x00\x01"])
def test_text_that_is_no_json_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "broken.json"
    path.write_text(text)
    with pytest.raises(InputError, match=r"broken\.json"):
        Plan.load(path)


@pytest.mark.parametrize(
    ("key", "command"),
    [("dims", ""), ("axes", ""), *product(["objective_s"], ["", "show", "verify", "run", "lower", "specs", "diff"])],
)
def test_a_plan_that_says_a_key_twice_is_refused(
    key: str, command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of two Python keeps the last: a plan with a cost at its head and another one at its end was taken."""
    text, path = json.dumps(GOOD, indent=1), tmp_path / "twice.json"
    at = text.rindex(f'"{key}":')
    path.write_text(f'{text[:at]}"{key}": 1,\n{text[at:]}')
    line = text.count("\n", 0, at) + 2
    says = f'{path}:{line}:1: the plan has the key "{key}" twice in one object, first at line {line - 1}'
    if not command:
        with pytest.raises(InputError, match=re.escape(says[: says.index(":1:")])):
            Plan.load(path)
        return
    assert main([command, str(path), *([str(path)] if command == "diff" else [])]) == 2
    assert says[says.index("the plan") :] in capsys.readouterr().err


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"missing\.json"):
        Plan.load(tmp_path / "missing.json")


# -- attaching a function ------------------------------------------------------------------------------------------


def test_a_loaded_plan_runs_once_its_function_is_attached(tmp_path: Path) -> None:
    found = plan(mlp, *MLP, mesh={"x": 2, "y": 2}, hardware="tpu_v5e")
    found.save(tmp_path / "plan.json")
    loaded = Plan.load(tmp_path / "plan.json")
    with pytest.raises(InputError, match=r"does not hold the function; call plan.attach"):
        loaded.jit()
    assert loaded.attach(mlp, *MLP).in_shardings == found.in_shardings


@pytest.mark.parametrize(
    ("f", "specs"),
    [
        (lambda w1, w2, x: jnp.sin(x @ w1) @ w2, MLP),
        (mlp, (f32(64, 256), f32(256, 64), f32(32, 64))),
        (mlp, (*MLP[:2], jax.ShapeDtypeStruct((32, 64), jnp.bfloat16))),
    ],
    ids=["another function", "other shapes", "another type"],
)
def test_another_function_is_not_attached(f: Any, specs: Any) -> None:
    found = plan(mlp, *MLP, mesh={"x": 2, "y": 2}, hardware="tpu_v5e")
    with pytest.raises(InputError, match="does not trace to the program of this plan"):
        found.attach(f, *specs)


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity"])
def test_what_json_has_no_number_for_is_refused(tmp_path: Path, word: str) -> None:
    file = tmp_path / "plan.json"
    file.write_text(f'{{"objective_s": {word}}}')
    with pytest.raises(InputError, match=rf"plan\.json: the plan is not valid JSON: it has {word}, which is no number"):
        read_json(file, what="plan")
