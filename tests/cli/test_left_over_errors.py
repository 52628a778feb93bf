"""Bad input that once ended in a traceback, hung, or passed for another answer."""

import copy
import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autoshard
from autoshard.cli import main
from autoshard.errors import InputError

X = jax.ShapeDtypeStruct((8, 16), jnp.float32)
CONFIG = """\
function: {function}
args: {{x: "float32[8,16]"}}
mesh: {{a: 2}}
hardware: tpu_v5e
verify: false
"""


@pytest.mark.parametrize(
    ("function", "says"),
    [
        ("left_over_exits:f", "ends the process when imported (exit code 3)"),
        ("left_over_exits_later:f", "cannot be traced with these arguments: SystemExit: 3"),
        ("builtins:exit", "'x' is no parameter of the function"),
    ],
)
def test_a_module_that_ends_the_process_is_told(
    function: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "left_over_exits.py").write_text("import sys\nsys.exit(3)\n")
    (tmp_path / "left_over_exits_later.py").write_text("import sys\ndef f(x):\n    sys.exit(3)\n")
    (tmp_path / "c.yaml").write_text(CONFIG.format(function=function))
    assert main(["solve", str(tmp_path / "c.yaml"), "-o", str(tmp_path / "out")]) == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "code"), [(["run"], 2), (["lower", "--target", "explicit", "--no-report"], 2), (["verify"], 0)]
)
def test_a_plan_whose_arguments_do_not_fit_its_function_is_told(
    command: list[str], code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "left_over_sum.py").write_text("def f(x):\n    return -x\n")
    (tmp_path / "c.yaml").write_text(CONFIG.format(function="left_over_sum:f"))
    assert main(["solve", str(tmp_path / "c.yaml"), "-o", str(tmp_path / "out"), "-q"]) == 0
    plan = json.loads((tmp_path / "out/plan.json").read_text())
    plan["config"]["settings"]["args"] = {"x": ["float32[8,16]"]}
    (tmp_path / "out/plan.json").write_text(json.dumps(plan))
    assert main([command[0], str(tmp_path / "out/plan.json"), *command[1:], "--trust"]) == code
    assert "left_over_sum:f cannot be traced with these arguments: TypeError" in "".join(capsys.readouterr())


def test_a_plan_in_the_place_of_a_config_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "plan.json").write_text('{"format": "autoshard-plan", "version": 1, "mesh": {"name": "mesh"}}')
    assert main(["solve", str(tmp_path / "plan.json")]) == 2
    assert "plan.json is an answer of autoshard and no config" in capsys.readouterr().err


def test_a_config_in_the_place_of_a_plan_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "c.yaml").write_text("mesh: {x: 2}\n")
    assert main(["show", str(tmp_path / "c.yaml")]) == 2
    assert "`autoshard solve` makes a plan.json of a config" in capsys.readouterr().err


def test_a_nul_in_a_file_name_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "c.yaml").write_text(CONFIG.format(function="left_over:f") + 'output: "a\\0b"\n')
    assert main(["solve", str(tmp_path / "c.yaml")]) == 2
    assert "texts hold no NUL character" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["hello", '{"a": 1}', "model: {name: mlp}\n"])
def test_explain_of_what_is_no_module_says_so(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "m.mlir").write_text(text)
    assert main(["explain", str(tmp_path / "m.mlir"), "%0"]) == 2
    assert "no value" not in capsys.readouterr().err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_help_on_a_full_disk_is_a_line() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "autoshard", "--help"], stdout=full, stderr=subprocess.PIPE, text=True, check=False,
            cwd=Path(autoshard.__file__).parent.parent, timeout=60,
        )  # fmt: skip
    assert (done.returncode, done.stderr) == (2, "error: writing the answer: No space left on device\n")


def test_whole_numbers_of_numpy_are_sizes() -> None:
    plan = autoshard.plan(lambda x: x * 2, X, mesh={"a": np.int64(2), "b": np.int32(2)}, hardware="cpu_sim")
    assert plan.schedule.mesh.mesh.axis_sizes == (2, 2)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("effort", "x"), ("effort", -1), ("effort", float("nan")), ("seed", "y"), ("seed", 1.5), ("seed", -3),
        ("accepted_gap", "q"), ("accepted_gap", 2), ("strategy", 3), ("share_repeats", "no"), ("solver_memory", "x"),
        ("progress", 3),
    ],
)  # fmt: skip
def test_search_options_of_a_wrong_kind_are_told(name: str, value: Any) -> None:
    with pytest.raises(InputError, match=rf"^{name}: expected .*found {value!r}"):
        autoshard.plan(lambda x: x * 2, X, mesh={"a": 2}, hardware="cpu_sim", **{name: value})


def test_a_mesh_of_too_many_devices_is_told() -> None:
    with pytest.raises(InputError, match="the mesh has 10000000000 devices"):
        autoshard.plan(lambda x: x * 2, X, mesh={"a": 10**10}, hardware="cpu_sim")


def test_a_copy_of_a_plan_still_runs() -> None:
    plan = autoshard.plan(lambda x: -x, X, mesh={"a": 2}, hardware="tpu_v5e")
    for again in (copy.copy(plan), copy.deepcopy({"plan": plan})["plan"]):
        assert np.array_equal(again.jit()(np.ones((8, 16), np.float32)), -np.ones((8, 16)))


def test_no_file_is_written_by_the_name_that_means_standard_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["schema", "config", "-o", "-"]) == 2
    assert "text is printed where no file is named" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_quiet_and_verbose_are_not_taken_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "c.yaml").write_text(CONFIG.format(function="builtins:abs"))
    assert main(["solve", str(tmp_path / "c.yaml"), "-q", "-v"]) == 2
    assert "give one of them" in capsys.readouterr().err


def test_a_plan_is_pickled_as_its_file_is() -> None:
    plan = autoshard.plan(lambda x: x * 2, X, mesh={"a": 2}, hardware="cpu_sim")
    again = pickle.loads(pickle.dumps(plan))
    assert again.to_dict() == plan.to_dict() and again.traced is None


def test_dir_shows_what_there_is() -> None:
    assert {"plan", "jit", "Pin", "Plan"} <= set(dir(autoshard))
