"""``autoshard network check``: a certificate, a solution and the contest file they are about."""

import json
from pathlib import Path
from typing import Any

import pytest

from autoshard.cli import main

EXAMPLE = Path(__file__).parents[1] / "solver" / "example_iopddl.json"


def run(arguments: list[str], capsys: pytest.CaptureFixture[str], code: int = 0) -> dict[str, Any]:
    ended = main([*arguments, "--json"])
    out = capsys.readouterr()
    assert ended == code, out.err
    return json.loads(out.out) if out.out else {"error": out.err}


@pytest.fixture
def solved(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> tuple[Path, Path]:
    solution, certificate = tmp_path / "solution.json", tmp_path / "proof.cert"
    run(["network", "solve", str(EXAMPLE), "--output", str(solution), "--certificate", str(certificate)], capsys)
    return solution, certificate


def test_a_proof_and_its_solution_agree(solved: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    solution, certificate = solved
    found = run(["network", "check", str(EXAMPLE), str(solution), "--certificate", str(certificate)], capsys)
    assert found["ok"] is True
    assert found["optimal"] is True
    assert found["bound"] == found["cost"]


def test_where_nothing_is_proved_an_older_certificate_is_told_to_be_that(
    solved: tuple[Path, Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("autoshard.solver.solution.Solution.certificate", lambda self: None)
    assert main(["network", "solve", str(EXAMPLE), "--certificate", str(solved[1])]) == 0
    assert capsys.readouterr().err.endswith(f"written to {solved[1]}; the file there is from before\n")


def test_a_certificate_alone_proves_its_bound(solved: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    found = run(["network", "check", str(EXAMPLE), "--certificate", str(solved[1])], capsys)
    assert found["proved"] == f"nothing costs less than {found['bound']}"


def test_another_network_is_not_proved_by_it(
    solved: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other.json"
    data = json.loads(EXAMPLE.read_text())
    data["problem"]["nodes"]["costs"] = [[c - 9 for c in own] for own in data["problem"]["nodes"]["costs"]]
    other.write_text(json.dumps(data))
    found = run(["network", "check", str(other), "--certificate", str(solved[1])], capsys, code=1)
    assert found["ok"] is False
    assert "proves nothing here" in found["fault"]


def test_a_solution_that_is_not_feasible_is_told(
    solved: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tight = tmp_path / "tight.json"
    data = json.loads(EXAMPLE.read_text())
    data["problem"]["usage_limit"] = 1
    tight.write_text(json.dumps(data))
    solution, certificate = solved
    found = run(["network", "check", str(tight), str(solution), "--certificate", str(certificate)], capsys, code=1)
    assert found["fault"].startswith("the solution is not feasible; the certificate proves nothing here")


def test_that_nothing_is_feasible_is_proved_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tight, certificate = tmp_path / "tight.json", tmp_path / "none.cert"
    data = json.loads(EXAMPLE.read_text())
    data["problem"]["usage_limit"] = 1
    tight.write_text(json.dumps(data))
    run(["network", "solve", str(tight), "--certificate", str(certificate)], capsys, code=3)
    found = run(["network", "check", str(tight), "--certificate", str(certificate)], capsys)
    assert found["proved"] == "nothing is feasible"


@pytest.mark.parametrize("text", ["", "[]", "{", '{"problem": {"nodes": {}}}', '{"problem": 3}'])
def test_what_is_no_contest_file_is_bad_input(
    text: str, solved: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "bad.json"
    file.write_text(text)
    assert "bad.json" in run(["network", "check", str(file), "--certificate", str(solved[1])], capsys, code=2)["error"]


def test_without_a_certificate_there_is_nothing_to_judge(capsys: pytest.CaptureFixture[str]) -> None:
    assert "--certificate" in run(["network", "check", str(EXAMPLE)], capsys, code=2)["error"]


@pytest.mark.parametrize(
    ("what", "value", "says"),
    [
        ("usage_limit", 5.5, "usage_limit is 5.5, not a whole number"),
        ("usage_limit", 2**61, "usage_limit is 2305843009213693952, not a whole number of 0 to 2**60"),
        ("costs", [[-1.5, 2]], "expected whole numbers, found [-1.5, 2]"),
        ("costs", [[True, 2]], "expected a list of whole numbers, found [True, 2]"),
        ("usages", [["1", 2]], "expected a list of whole numbers, found ['1', 2]"),
        ("usages", [[-5, 10**16]], "usages holds negative amounts, and such of 1000000000000000 or more beside them"),
        ("intervals", [[0, 1, 2]], "expected [start, stop], found [0, 1, 2]"),
    ],
)
def test_what_is_no_whole_number_of_a_network_is_not_judged(
    what: str, value: Any, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes = {"intervals": [[0, 1]], "costs": [[1, 2]], "usages": [[0, 0]]}
    problem = {"nodes": nodes, "edges": {"nodes": [], "costs": []}, "usage_limit": 7}
    (problem if what in problem else nodes)[what] = value
    (tmp_path / "p.json").write_text(json.dumps({"problem": problem}))
    assert says in run(["network", "check", str(tmp_path / "p.json"), "--certificate", "-"], capsys, code=2)["error"]


def test_a_solution_that_holds_more_than_a_petabyte_is_not_feasible(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes = {"intervals": [[0, 1]], "costs": [[1]], "usages": [[5 * 10**15]]}
    problem = {"nodes": nodes, "edges": {"nodes": [], "costs": []}, "usage_limit": 2 * 10**15}
    (tmp_path / "p.json").write_text(json.dumps({"problem": problem}))
    (tmp_path / "s.json").write_text("[0]")
    found = run(["network", "score", str(tmp_path / "p.json"), str(tmp_path / "s.json")], capsys, code=1)
    assert found["feasible"] is False


def test_what_is_held_at_no_time_may_be_any_amounts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Also beside negative ones, as far as the solver and the checker are concerned."""
    nodes = {"intervals": [[3, 3], [0, 1]], "costs": [[1], [2, 1]], "usages": [[10**16], [-1, 5]]}
    problem = {"nodes": nodes, "edges": {"nodes": [], "costs": []}, "usage_limit": 4}
    network, certificate = tmp_path / "p.json", tmp_path / "proof.cert"
    network.write_text(json.dumps({"problem": problem}))
    assert run(["network", "solve", str(network), "--certificate", str(certificate)], capsys)["cost"] == 3
    assert run(["network", "check", str(network), "--certificate", str(certificate)], capsys)["bound"] == 3
