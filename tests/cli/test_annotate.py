"""`autoshard annotate`: a plan file as annotations for explicit mode, and what it refuses."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from autoshard.cli import main

CODE = """
def step(x, w):
    return (x @ w).T @ x
"""
CONFIG = """
function: annotated_code:step
args: {x: "float32[64,32]", w: "float32[32,16]"}
mesh: {data: 2}
hardware: cpu_sim
pins: {x: '[{"data"}, {}]', w: "[{}, {}]", out: "[{}, {}]"}
baselines: []
verify: false
output: OUTPUT
"""


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("annotate")
    (folder / "annotated_code.py").write_text(CODE)
    (folder / "config.yaml").write_text(CONFIG.replace("OUTPUT", str(folder)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(folder / "state"))
        patch.chdir(folder)
        before = list(sys.path)
        assert main(["solve", "config.yaml", "-q"]) == 0
        yield folder / "plan.json"
        sys.path[:] = before
        sys.modules.pop("annotated_code", None)


def test_the_command_prints_mesh_boundary_annotations_and_collectives(
    plan: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["annotate", str(plan)]) == 0
    said = capsys.readouterr().out
    assert said.startswith("mesh = jax.make_mesh((2,), ('data',), axis_types=")
    assert '  x: P("data")' in said and "1 annotation (each is needed):\n  annotated_code.py:3 (step)" in said
    assert "jax.sharding.reshard(x, P())" in said and "collectives a call, planned -> compiled" in said


def test_json_has_the_same_and_goes_to_a_file(plan: Path, tmp_path: Path) -> None:
    out = tmp_path / "annotations.json"
    assert main(["annotate", str(plan), "--no-check", "--json", "-o", str(out)]) == 0
    data = json.loads(out.read_text())
    assert data["mesh"] == {"data": 2} and data["compilations"] == 0 and data["collectives"] == []
    assert {"source", "op", "value", "how", "write", "why", "in_derivative", "without"} == set(data["annotations"][0])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["PLAN", "--time-limit", "soon"], "error: --time-limit: "),
        (["PLAN", "--time-limit", "0"], "error: --time-limit: a time limit is a positive number of seconds"),
        (["PLAN", "-o", "PLAN/beneath"], "error: "),
        (["absent.json"], "error: "),
        (["LARGE"], "error: the mesh has 256 devices, at most 64 are simulated"),
    ],
)
def test_bad_input_is_an_error_in_a_line(
    plan: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    data = json.loads(plan.read_text())
    data["mesh"]["axes"] = {"data": 256}
    (tmp_path / "large.json").write_text(json.dumps(data))
    large = str(tmp_path / "large.json")
    assert main(["annotate", *(a.replace("PLAN", str(plan)).replace("LARGE", large) for a in arguments)]) == 2
    error = capsys.readouterr().err
    assert error.startswith(said) and "Traceback" not in error
