"""Questions without a program: costs of collectives and matmuls, and the solver on contest files."""

import json
from pathlib import Path

import pytest

from autoshard.cli import main

GATHER = [
    "cost",
    "collective",
    "--kind",
    "all-gather",
    "--bytes",
    "2e9",
    "--mesh",
    "x=8,y=4",
    "--axes",
    "y",
    "--hardware",
    "tpu_v5e",
]


def result(arguments: list[str], capsys: pytest.CaptureFixture[str], code: int = 0) -> dict:
    assert main([*arguments, "--json"]) == code
    return json.loads(capsys.readouterr().out)


def test_a_collective_has_seconds_bound_and_links(capsys: pytest.CaptureFixture[str]) -> None:
    answer = result(GATHER, capsys)
    # a line of 4: 3/4 of 2e9 bytes leave over one link of 4.5e10 bytes/s
    assert answer["seconds"] == pytest.approx(2e9 * 3 / 4 / 4.5e10)
    assert answer["bound"] == "bandwidth"
    assert answer["links"] == ["ici: dimension 0 (line of 4)"]


def test_bytes_may_have_a_unit(capsys: pytest.CaptureFixture[str]) -> None:
    assert result([a if a != "2e9" else "2GB" for a in GATHER], capsys) == result(GATHER, capsys)


def test_an_axis_may_be_put_on_a_link(capsys: pytest.CaptureFixture[str]) -> None:
    assert result([*GATHER, "--link", "y=dcn"], capsys)["links"][0].startswith("dcn")


def test_a_matmul_with_a_cut_contraction_needs_a_reduction(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["cost", "matmul", "B M_x @ M_x E -> B E_x", "--dim", "B=1024", "--dim", "M=28672,E=8192"]
    answer = result([*arguments, "--mesh", "x=16,y=16", "--hardware", "tpu_v6e"], capsys)
    assert [c["kind"] for c in answer["collectives"]] == ["reduce_scatter"]


def test_answers_for_people_have_units(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(GATHER) == 0
    assert "seconds: 33.3 ms" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("all-gather", "all-gathr"), "unknown collective 'all-gathr'"),
        (("x=8,y=4", "x=8,y"), "--mesh: cannot read 'y'; write x=8,y=4"),
        (("x=8,y=4", "x=8,x=4"), "--mesh: axis 'x' occurs twice"),
        (("x=8,y=4", "x=" + "9" * 5_000), "--mesh: axis 'x' has a size of 5000 digits"),
        (("y", "z"), "the mesh has no axis 'z'"),
        (("x=8,y=4", "x=0"), "--mesh: axis 'x' has size 0; sizes start at 1"),
        (("2e9", "-1"), "--bytes: a number of bytes is not negative"),
        (("2e9", "1e400"), "--bytes: a number of bytes is finite, found 1e400"),
        (("2e9", "nan"), "--bytes: a number of bytes is finite, found nan"),
        (("2e9", "2 gigs"), "--bytes: unknown unit 'gigs'"),
        (("tpu_v5e", "tpu"), "no hardware profile named 'tpu'"),
    ],
)
def test_wrong_questions_exit_2_with_a_message(
    change: tuple[str, str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([change[1] if a == change[0] else a for a in GATHER]) == 2
    assert capsys.readouterr().err.startswith(f"error: {message}")


# ------------------------------------------------------------------ network

SMALL = {
    "problem": {
        "name": "small",
        "nodes": {"intervals": [[0, 2], [1, 3]], "costs": [[5, 1], [2, 7]], "usages": [[1, 9], [1, 1]]},
        "edges": {"nodes": [[0, 1]], "costs": [[0, 4, 3, 0]]},
        "usage_limit": 10,
    }
}


@pytest.fixture
def network(tmp_path: Path) -> Path:
    path = tmp_path / "small.json"
    path.write_text(json.dumps(SMALL))
    return path


def test_a_network_is_solved_with_its_bound(network: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = result(["network", "solve", str(network), "--output", str(tmp_path / "s.json")], capsys)
    # (1, 0): 1 + 2 + 3 = 6; (0, 0): 5 + 2 + 0 = 7; (1, 1): 1 + 7 + 0 = 8; (0, 1): 16
    assert (found["cost"], found["lower_bound"], found["status"], found["assignment"]) == (6, 6, "optimal", [1, 0])
    scored = result(["network", "score", str(network), str(tmp_path / "s.json")], capsys)
    assert (scored["cost"], scored["feasible"], scored["peak"]) == (6, True, 10)


def test_a_solution_over_the_limit_scores_as_infeasible(
    network: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    network.write_text(json.dumps(SMALL).replace('"usage_limit": 10', '"usage_limit": 5'))
    (tmp_path / "s.json").write_text("[1, 0]")
    assert result(["network", "score", str(network), str(tmp_path / "s.json")], capsys, code=1)["feasible"] is False


def test_a_network_that_cannot_be_solved_exits_3(network: Path, capsys: pytest.CaptureFixture[str]) -> None:
    network.write_text(json.dumps(SMALL).replace('"usage_limit": 10', '"usage_limit": 1'))
    assert main(["network", "solve", str(network)]) == 3
    assert "has no solution" in capsys.readouterr().err


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"problem": {}}', "no json", '{"problem": {"nodes": 3, "edges": 4}}']
)
def test_a_malformed_network_exits_2(text: str, network: Path, capsys: pytest.CaptureFixture[str]) -> None:
    network.write_text(text)
    assert main(["network", "solve", str(network)]) == 2
    assert "Traceback" not in capsys.readouterr().err
