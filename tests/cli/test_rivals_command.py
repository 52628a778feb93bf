"""``simulate --rivals``: what is printed and written, and what is refused."""

import json
from pathlib import Path

import jax
import pytest
from rival_cases import SMALL

import autoshard
from autoshard.api import rivals as api
from autoshard.cli import main
from autoshard.cli.rivals import share_of


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rivals")
    (folder / "c.yaml").write_text(SMALL)
    assert main(["solve", str(folder / "c.yaml"), "-o", str(folder / "out"), "-q"]) == 0
    return folder / "out" / "plan.json"


def test_the_command_ranks_and_writes_a_plan_that_its_checks_pass(file, tmp_path, capsys):
    before = file.read_bytes()
    out = tmp_path / "new" / "rival.json"
    assert main(["simulate", str(file), "--compiler", "own", "--rivals", "5", "-o", str(out)]) == 0
    lines = capsys.readouterr().out.splitlines()
    ranking = lines[lines.index("fastest first, beside the modelled seconds:") + 1 :]
    assert ranking[0].split()[:3] == ["fsdp", "as", "explicit"]
    assert lines[-1].startswith("quickest: fsdp as explicit") and lines[-1].endswith(f"; written to {out}")
    assert file.read_bytes() == before
    assert main(["verify", str(out), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert "failed" not in {check["status"] for check in told["checks"]}
    assert main(["show", str(out)]) == 0
    shown = capsys.readouterr().out
    assert "status feasible" in shown and "chosen by simulation among 4 plans" in " ".join(shown.split())


def test_the_command_gives_json(file, capsys):
    assert main(["simulate", str(file), "--compiler", "own", "--rivals", "5%", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["rivals"]["chosen"] == "fsdp"
    assert told["form"] == "explicit"
    assert len(told["simulations"]) == 4


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--rivals", "x"], "give a percentage above 0 and up to 100, such as 5; found 'x'"),
        (["--rivals", "0"], "give a percentage"),
        (["--rivals", "nan"], "give a percentage"),
        (["--rivals", "101"], "give a percentage"),
        (["--rivals", "5", "--form", "auto", "--write"], "--output FILE writes that one"),
        (["--rivals", "5", "-o", "PLAN"], "it is what the command reads"),
        (["-o", "other.json"], "--output writes the plan that --rivals chooses"),
        (["--time-limit", "5"], "--time-limit is for the search for rivals"),
        (["--rivals", "5", "--time-limit", "soon"], "--time-limit: "),
        (["PLAN", "--rivals", "5"], "--rivals is about one plan"),
        (["--rivals", "5", "--form", "all"], "--compiler own knows the forms"),
    ],
)
def test_wrong_words_end_the_command_with_2_and_a_reason(file, capsys, words, says):
    words = [str(file) if word == "PLAN" else word for word in words]
    assert main(["simulate", str(file), "--compiler", "own", *words]) == 2
    told = capsys.readouterr().err
    assert told.startswith("error: ") and says in told


def test_a_stopped_command_writes_nothing(file, tmp_path, capsys, monkeypatch):
    def stopped(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(api, "simulate", stopped)
    out = tmp_path / "rival.json"
    assert main(["simulate", str(file), "--compiler", "own", "--rivals", "5", "-o", str(out)]) == 130
    assert "interrupted" in capsys.readouterr().err
    assert not out.exists()


def test_percentages_are_read_with_and_without_their_sign():
    assert share_of("5") == share_of(" 5% ") == 0.05


@pytest.mark.parametrize("asked", [["--rivals", "2"], ["--form", "explicit,constraints"]])
def test_a_program_that_only_hands_on_is_ranked_without_percentages(asked, tmp_path, capsys):
    plan = autoshard.plan(lambda x: x, jax.ShapeDtypeStruct((8, 8), "float32"), mesh={"a": 2}, hardware="tpu_v5e")
    plan.save(tmp_path / "plan.json")
    assert main(["simulate", str(tmp_path / "plan.json"), "--compiler", "own", *asked]) == 0
    told = capsys.readouterr().out
    assert "fastest first" in told
