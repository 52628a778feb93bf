"""Contest files by hand: odd but right ones are solved, wrong ones refused with the place, results written safely."""

import gzip
import json
import os
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autoshard.cli import main
from autoshard.errors import InputError
from autoshard.solver import CostNetwork, Edge, solve
from autoshard.solver.contest.files import read_problem, write_solution

BIG = 10**18


def problem(costs: Any, edges: Any = (), intervals: Any = None, usages: Any = None, **options: Any) -> dict[str, Any]:
    """edges: (pair, costs) each."""
    nodes = {
        "intervals": intervals or [[0, 0]] * len(costs),
        "costs": costs,
        "usages": usages or [[0] * len(c) for c in costs],
    }
    return {
        "problem": {
            "nodes": nodes,
            "edges": {"nodes": [e[0] for e in edges], "costs": [e[1] for e in edges]},
            **options,
        }
    }


def written(tmp_path: Path, data: Any) -> Path:
    (tmp_path / "p.json").write_text(json.dumps(data))
    return tmp_path / "p.json"


@pytest.mark.parametrize(
    ("data", "cost"),
    [
        (problem([]), 0),
        (problem([[3]]), 3),
        (problem([[3, 1], [2, 5]]), 3),
        (problem([[1], [2]], [([0, 1], [7])]), 10),
        (problem([[BIG, 5], [BIG, 1]], [([0, 1], [BIG, 0, 0, 2])]), 8),
        (problem([[2**63, 1]]), 1),
        (problem([[0, 1], [0, 1, 2]], [([0, 1], [5, 0, 0, 5, 1, 1]), ([1, 0], [0, 3, 4, 0, 1, 1])]), 3),
        (problem([[0, 1], [0, 1]], [([0, 0], [5, 9, 9, 0])]), 1),
        (problem([[3, 1]], intervals=[[]], usages=[[9, 9]], usage_limit=0), 1),
        (problem([[3, 1]], intervals=[[5, 2]], usages=[[9, 9]], usage_limit=0), 1),
        (problem([[3, 1]], intervals=[[0, 5]], usages=[[0, 1]], usage_limit=0), 3),
        (problem([[0, 5]], intervals=[[0, 1]], usages=[[5 * 10**15, 1]], usage_limit=2 * 10**15), 5),
        (problem([[0, 5]], intervals=[[0, 1]], usages=[[10**30, 1]], usage_limit=2 * 10**15), 5),
    ],
    ids=[
        "no nodes", "one choice", "no edges", "nothing to choose", "infinite", "past int64", "twice the same pair",
        "a node with itself", "never live", "ends before it begins", "no room", "more than a petabyte",
        "amounts past int64",
    ],
)  # fmt: skip
def test_odd_problems_are_solved(data: Any, cost: int, tmp_path: Path) -> None:
    found = solve(read_problem(written(tmp_path, data)).network)
    assert (found.status, found.cost, found.lower_bound) == ("optimal", cost, cost)


@pytest.mark.parametrize(
    "data", [problem([[BIG] * 2] * 3), problem([[3, 1]], intervals=[[0, 5]], usages=[[10, 11]], usage_limit=5)]
)
def test_what_has_no_solution_exits_with_3(data: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["network", "solve", str(written(tmp_path, data))]) == 3
    assert "has no solution" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "not a contest problem: expected an object"),
        ({"problem": []}, "not a contest problem"),
        (problem([[1]], usage_limit=-1), "usage_limit is -1; give a whole number"),
        (problem([[1]], usage_limit="1"), "usage_limit is '1'"),
        (problem([[1]], intervals=[[1]]), r"problem.nodes.intervals\[0\]: expected \[start, stop\], found \[1\]"),
        (problem([[1]], intervals=[[0, "1"]]), r"problem.nodes.intervals\[0\]"),
        (problem([[1]], intervals=[None]), r"problem.nodes.intervals\[0\]"),
        ({"problem": {"nodes": None, "edges": None}}, "not a contest problem"),
        (
            problem([[1], [2]], [(["a", 0], [1])]),
            r"problem.edges.nodes\[0\]: expected \[first, second\], found \['a', 0\]",
        ),
        (problem([[1], [2]], [(3, [1])]), r"problem.edges.nodes\[0\]: expected \[first, second\], found 3"),
    ],
)
def test_wrong_problems_are_refused_with_their_place(data: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        read_problem(written(tmp_path, data))


def test_a_compressed_file_cut_short_is_told(tmp_path: Path) -> None:
    whole = gzip.compress(json.dumps(problem([[1]])).encode())
    for content in (whole[:-12], b"no gzip"):
        (tmp_path / "p.json.gz").write_bytes(content)
        with pytest.raises(InputError, match="is not a whole gzip file"):
            read_problem(tmp_path / "p.json.gz")


def test_a_solution_written_to_a_pipe_leaves_the_pipe(tmp_path: Path) -> None:
    """As must ``--output /dev/null``, whoever runs it."""
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_solution(tmp_path / "pipe", (1, 0))
        assert os.read(reader, 20) == b"[1, 0]\n"
    finally:
        os.close(reader)
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


def test_a_directory_as_output_is_told_before_the_search(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = written(tmp_path, problem([[1]]))
    assert main(["network", "solve", str(file), "--output", str(tmp_path)]) == 2
    assert capsys.readouterr().err == f"error: cannot write {tmp_path}: it is a directory\n"
    assert [p.name for p in tmp_path.iterdir()] == ["p.json"]


def test_networks_may_be_built_of_lists() -> None:
    network = CostNetwork([[3, 1], [2, 5]], [Edge(0, 1, [[0, 9], [9, 0]])])  # type: ignore[arg-type, list-item]
    assert solve(network).cost == 5


@pytest.mark.parametrize(
    ("costs", "edges", "message"),
    [
        ([[1.5, 2]], [], "costs of node 0 are float64; give whole numbers"),
        ([[1, 2]], [Edge(0, 1, np.zeros((2, 2), np.int64))], r"edge \(0, 1\) names nodes of 0..0 only"),
        ([[1, 2]] * 2, [Edge(0, 1, np.zeros((2, 2)))], r"costs of edge \(0, 1\) are float64"),
        ([[]], [], "node 0 has no states"),
    ],
)
def test_networks_that_are_none_are_refused(costs: Any, edges: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        CostNetwork(costs, edges)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (problem([[0, 1]] * 3, intervals=[[0, 1]] * 3, usages=[[-(2**62)] * 2] * 3, usage_limit=5), "holds adds up to"),
        (problem([[-(2**63)]] * 2, [([0, 1], [-(2**63)])]), "the costs of the network add up to as much as 2.77e+19"),
        (problem([[0]], intervals=[[0, 1]], usages=[[1]], usage_limit=2**61), "a whole number of 0 or more (at most"),
    ],
)
def test_sums_that_would_wrap_around_are_bad_input(
    data: Any, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["network", "solve", str(written(tmp_path, data))]) == 2
    assert says in capsys.readouterr().err
