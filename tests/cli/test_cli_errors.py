"""The command line: light to start, errors without tracebacks, exit codes that scripts can rely on."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import autoshard
from autoshard.cli import main
from autoshard.errors import InfeasibleError, OutOfTimeError

MLP = "model: mlp\nmesh: {data: 2, model: 4}\nhardware: tpu_v5e\n"


def python(code: str) -> subprocess.CompletedProcess[str]:
    """Run code in a fresh interpreter that sees the tested package."""
    environment = {**os.environ, "PYTHONPATH": str(Path(autoshard.__file__).parent.parent)}
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environment, timeout=120
    )


HEAVY = ("jax", "pandas", "ortools", "numba", "optax", "pytoulbar2", "scipy")


@pytest.mark.parametrize("arguments", [["--help"], ["solve", "--help"], ["--version"]])
def test_help_imports_no_heavy_library(arguments: list[str]) -> None:
    done = python(
        "import sys; from autoshard.cli import main\n"
        f"code = main({arguments!r})\n"
        f"assert code == 0; loaded = [m for m in {HEAVY!r} if m in sys.modules]; assert not loaded, loaded"
    )
    assert done.returncode == 0, done.stderr


def test_importing_autoshard_imports_no_heavy_library() -> None:
    done = python(
        f"import sys, autoshard; loaded = [m for m in {HEAVY!r} if m in sys.modules]; assert not loaded, loaded"
    )
    assert done.returncode == 0, done.stderr


def test_a_wrong_config_starts_no_heavy_library(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(MLP + "strcit: true\n")
    done = python(
        "import sys; from autoshard.cli import main\n"
        f"assert main(['solve', {str(tmp_path / 'c.yaml')!r}]) == 2\n"
        f"loaded = [m for m in {HEAVY!r} if m in sys.modules]; assert not loaded, loaded"
    )
    assert done.returncode == 0, done.stderr
    assert "did you mean 'strict'" in done.stderr


def test_version_is_the_packages(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"autoshard {autoshard.__version__}\n"


@pytest.mark.parametrize(
    "arguments", [["slove"], ["solve"], ["solve", "a", "b"], ["solve", "--no-such", "x"], ["verify"]]
)
def test_wrong_usage_exits_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["solve", "{tmp}/none.yaml"], "error: config {tmp}/none.yaml does not exist"),
        (["solve", "{tmp}"], "error: {tmp} is a directory; give the path of a config"),
        (["solve", "{tmp}/c.yaml", "--time-limit", "soon"], "error: --time-limit: expected a time such as 60, 90s"),
        (["solve", "{tmp}/c.yaml", "--time-limit", "-1"], "error: --time-limit: a time limit is a positive number"),
        (["verify", "{tmp}/none.json"], "error: plan {tmp}/none.json does not exist"),
        (["verify", "{tmp}/c.yaml"], "error: {tmp}/c.yaml:1:1: the plan is not valid JSON"),
        (["verify", "{tmp}/list.json"], "error: {tmp}/list.json is not a plan of autoshard"),
        (["hardware", "tpu_v99"], "error: no hardware profile named 'tpu_v99'"),
    ],
)
def test_bad_input_exits_2_with_a_message(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "c.yaml").write_text(MLP)
    (tmp_path / "list.json").write_text("[1]")
    code = main([a.format(tmp=tmp_path) for a in arguments])
    out, err = capsys.readouterr()
    assert err.startswith(message.format(tmp=tmp_path)), err
    assert (code, out) == (2, "")
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("raised", "code"),
    [
        (InfeasibleError("two pins contradict"), 3),
        (OutOfTimeError("no plan in 1 s"), 4),
        (KeyboardInterrupt(), 130),
    ],
)
def test_exit_codes_say_why_there_is_no_plan(
    raised: BaseException,
    code: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    import autoshard.api.session

    def fail(*_: object, **__: object) -> None:
        raise raised

    monkeypatch.setattr(autoshard.api.session, "solve_session", fail)
    (tmp_path / "c.yaml").write_text(MLP)
    assert main(["solve", str(tmp_path / "c.yaml")]) == code
    assert "Traceback" not in capsys.readouterr().err


def test_hardware_lists_every_profile(capsys: pytest.CaptureFixture[str]) -> None:
    from autoshard.costmodels import list_profiles

    assert main(["hardware"]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in list_profiles())


def test_hardware_lists_as_json_what_the_table_has(capsys: pytest.CaptureFixture[str]) -> None:
    from autoshard.costmodels.load import list_calibrated, list_profiles

    assert main(["hardware", "--json"]) == 0
    assert [row["name"] for row in json.loads(capsys.readouterr().out)] == [*list_profiles(), *list_calibrated()]


def test_hardware_shows_numbers_with_sources(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["hardware", "tpu_v5e"]) == 0
    out = capsys.readouterr().out
    assert "peak_flops.bf16" in out
    assert "1.97e+14" in out
    assert "https://" in out
