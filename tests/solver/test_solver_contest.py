"""Contest files: read, solve, write, score. `example_iopddl.json` is the example of google/iopddl (Apache-2.0)."""

import gzip
import json
from pathlib import Path

import pytest
from solver_cases import optimum

from autoshard.errors import InputError, UnsupportedError
from autoshard.solver import IMPOSSIBLE, evaluate, solve
from autoshard.solver.contest.files import read_problem, read_solution, score, write_solution

EXAMPLE = Path(__file__).with_name("example_iopddl.json")


def changed(tmp_path: Path, change) -> Path:
    data = json.loads(EXAMPLE.read_text())
    change(data["problem"])
    path = tmp_path / "changed.json"
    path.write_text(json.dumps(data))
    return path


def test_arithmetic_of_the_example():
    network = read_problem(EXAMPLE).network
    # nodes 15 + 55 + 45 + 85 + 95 = 295; edges 30 + 10 + 80 ... read off the file: 220 together
    found = score(network, (0, 0, 1, 0, 0))
    assert found.cost == 295 + 220
    # at time 50..70: nodes 0, 1 and 2 are live, 10 + 25 + 20 = 55, above the limit of 50
    assert found.peak == 55 and not found.feasible
    assert optimum(network) == solve(network).cost


def test_compressed_file_is_the_same_problem(tmp_path):
    path = tmp_path / "example.json.gz"
    path.write_bytes(gzip.compress(EXAMPLE.read_bytes()))
    assert evaluate(read_problem(path).network, (0, 0, 0, 0, 0)) == evaluate(
        read_problem(EXAMPLE).network, (0, 0, 0, 0, 0)
    )


def test_costs_past_int64_are_impossible(tmp_path):
    def huge(problem):
        problem["nodes"]["costs"][1] = [10**20, 65]

    network = read_problem(changed(tmp_path, huge)).network
    assert network.costs[1].tolist() == [IMPOSSIBLE, 65]
    assert solve(network).assignment[1] == 1


def test_solution_round_trip(tmp_path):
    network = read_problem(EXAMPLE).network
    found = solve(network)
    write_solution(tmp_path / "s.json", found.assignment)
    assert read_solution(tmp_path / "s.json", network) == found.assignment


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda p: p.pop("edges"), "there is no 'edges'"),
        (lambda p: p["edges"]["nodes"].__setitem__(0, [0, 9]), "edge 0 names nodes"),
        (lambda p: p["edges"]["costs"].__setitem__(1, [1]), "edge 1 has 1 costs"),
        (lambda p: p["nodes"]["usages"].__setitem__(2, [1]), "node 2 has 3 costs but 1 usages"),
        (lambda p: p["nodes"]["costs"].__setitem__(2, ["a", 1, 2]), r"problem.nodes.costs\[2\]"),
        (lambda p: p["nodes"]["intervals"].pop(), "differ in length"),
    ],
)
def test_malformed_problem_is_refused(tmp_path, change, message):
    with pytest.raises(InputError, match=message):
        read_problem(changed(tmp_path, change))


def test_hyperedge_is_refused(tmp_path):
    def hyper(problem):
        problem["edges"]["nodes"][0] = [0, 1, 2]

    with pytest.raises(UnsupportedError, match="only pairs"):
        read_problem(changed(tmp_path, hyper))


@pytest.mark.parametrize(
    ("text", "message"),
    [("[0, 0]", "expected 5 strategy indices, found 2"), ("[0, 7, 0, 0, 0]", "node 1"), ("no", "no list")],
)
def test_malformed_solution_is_refused(tmp_path, text, message):
    path = tmp_path / "solution.json"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        read_solution(path, read_problem(EXAMPLE).network)


def test_missing_file_is_an_input_error(tmp_path):
    with pytest.raises(InputError, match="does not exist"):
        read_problem(tmp_path / "none.json")
