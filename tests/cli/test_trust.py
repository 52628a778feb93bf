"""Plans and the code that they name: found from any folder, and imported only where the user made or allowed it."""

import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from autoshard import trust
from autoshard.cli import main

MODULE = """
from pathlib import Path
Path(__file__).with_name("imported").touch()

def step(x, w):
    return x @ w
"""
CONFIG = """
function: planned_code:step
args: {x: "float32[8,16]", w: "float32[16,16]"}
mesh: {data: 2}
hardware: cpu_sim
verify: false
output: OUTPUT
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a module, a config that names its function, and the plan that this user made of it."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "planned_code.py").write_text(MODULE)
    (folder / "config.yaml").write_text(CONFIG.replace("OUTPUT", str(folder / "out")))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv(trust.TRUSTED, "")
    monkeypatch.chdir(folder)
    before = list(sys.path)
    assert main(["solve", "config.yaml", "-q"]) == 0
    forget()
    yield folder
    sys.path[:] = before
    forget()


def forget() -> None:
    """As in a new process: the module is not imported any more, and what was allowed is known by the folder alone."""
    sys.modules.pop("planned_code", None)
    os.environ[trust.TRUSTED] = ""
    sys.path[:] = [folder for folder in sys.path if "project" not in folder]
    sys.path_importer_cache.clear()


def given_by_somebody(project: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The plan as another user sees it, with the folder's module next to it."""
    monkeypatch.setenv("XDG_STATE_HOME", str(project.parent / "another"))
    (project / "imported").unlink()
    return project / "out" / "plan.json"


def test_a_plan_made_here_runs_without_a_word(project: Path) -> None:
    assert main(["run", "out/plan.json", "--json"]) == 0


def test_a_plan_by_somebody_else_runs_no_code(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = given_by_somebody(project, monkeypatch)
    assert main(["run", str(plan)]) == 2
    assert "names code, planned_code:step" in (told := capsys.readouterr().err) and "--trust" in told
    assert not (project / "imported").exists()


def test_verify_does_what_needs_no_code_and_says_what_is_left(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = given_by_somebody(project, monkeypatch)
    assert main(["verify", str(plan), "--json"]) == 0
    checks = {c["name"]: c for c in json.loads(capsys.readouterr().out)["checks"]}
    assert {c["status"] for c in checks.values()} == {"ok", "not done"}
    assert any("--trust" in line for c in checks.values() for line in c["lines"])
    assert not (project / "imported").exists()


@pytest.mark.parametrize("command", [["verify"], ["lower", "--no-report"], ["run"]])
def test_code_for_a_kernel_is_code_too(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    """A model of the library needs no code of anybody's, but a jitted function in it may be said to be a kernel."""
    monkeypatch.setenv("XDG_STATE_HOME", str(project.parent / "another"))
    kernel = {"rule": "([i, j])->([i, j])", "local": "planned_code:step"}
    config = {"model": {"name": "mlp"}, "mesh": {"data": 2}, "hardware": "cpu_sim", "output": str(project / "model")}
    (project / "model.yaml").write_text(json.dumps(config))
    assert main(["solve", "model.yaml", "-q"]) == 0
    (project / "imported").unlink()
    plan = project / "model" / "plan.json"
    data = json.loads(plan.read_text())
    data["config"]["settings"]["kernels"] = {"relu": kernel}
    plan.write_text(json.dumps(data))
    main([*command, str(plan)])
    told = capsys.readouterr()
    assert "names code, planned_code:step" in told.out + told.err
    assert not (project / "imported").exists()


@pytest.mark.parametrize("command", [["verify"], ["lower", "--no-report"], ["run"]])
def test_what_is_trusted_once_stays_so(project: Path, monkeypatch: pytest.MonkeyPatch, command: list[str]) -> None:
    plan = given_by_somebody(project, monkeypatch)
    assert main([*command, str(plan), "--trust"]) == 0
    forget()
    assert main(["run", str(plan)]) == 0
    assert (project / "imported").exists()


def test_a_plan_that_was_changed_since_is_not_trusted(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = project / "out" / "plan.json"
    file.write_text(file.read_text() + " ")
    assert main(["run", str(file)]) == 2
    assert "--trust" in capsys.readouterr().err


def test_no_text_in_a_plan_makes_it_trusted(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from autoshard.config.load import Config

    data = json.loads(given_by_somebody(project, monkeypatch).read_text())
    assert not Config.from_dict({**data["config"], "trusted": True}).trusted


def test_a_plan_whose_code_lies_elsewhere_is_not_trusted(project: Path, tmp_path: Path) -> None:
    """The same bytes beside another module."""
    other = tmp_path / "download"
    shutil.copytree(project, other)
    shutil.rmtree(project)
    assert not trust.is_allowed(other / "out" / "plan.json")


def test_a_plan_works_from_any_folder(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["run", "project/out/plan.json"]) == 0


def test_a_tree_that_was_moved_finds_its_code_beside_it(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    project.rename(tmp_path / "moved_project")
    assert main(["run", "moved_project/out/plan.json", "--trust"]) == 0


def test_a_plan_in_hand_runs_from_its_file_with_the_function_passed_in(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import jax

    import autoshard

    plan = given_by_somebody(project, monkeypatch)
    specs = (jax.ShapeDtypeStruct((8, 16), "float32"), jax.ShapeDtypeStruct((16, 16), "float32"))
    attached = autoshard.Plan.load(plan).attach(lambda x, w: x @ w, *specs)
    assert attached.jit() is not None and not (project / "imported").exists()


def test_the_file_of_a_plan_says_nothing_of_this_machine(project: Path) -> None:
    """Same input, same plan, byte for byte: folders stand in run.json."""
    assert set(json.loads((project / "out/plan.json").read_text())["config"]) == {"file", "settings"}
    told = json.loads((project / "out/run.json").read_text())["folder"]
    assert told == {"absolute": str(project.resolve()), "from_plan": ".."}
