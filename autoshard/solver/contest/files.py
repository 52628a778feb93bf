"""The public IOPDDL contest's files: read a problem, solve it, write and score a solution.

Format (google/iopddl, Apache-2.0): `problem.nodes.{intervals,costs,usages}` with half-open intervals,
`problem.edges.{nodes,costs}` with costs row-major over the product of the nodes' strategies, `problem.usage_limit`. A
solution is a list of strategy indices.
"""

import gzip
import json
import math
import os
import sys
import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from autoshard.deadline import Deadline
from autoshard.errors import InputError, UnsupportedError, in_words
from autoshard.files import read_bytes, read_text, write_text
from autoshard.garbage import uncollected
from autoshard.solver.incumbent import Progress
from autoshard.solver.network import IMPOSSIBLE, CostNetwork, Edge, Evaluation, Usage, evaluate
from autoshard.solver.solution import Solution

LARGE_BYTES = 2**22
"""Text from this size on is read by compiled code, as long as it is regular."""
MOST_LIMIT = 2**60
"""The largest usage limit that can be held in exact arithmetic."""
WRITING_S = 0.4
"""Seconds of the time limit that are kept back for the last check and for writing."""
LEAST_SECONDS = 0.1
"""Seconds that the search has at least."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A contest file: its name and its network."""

    name: str
    network: CostNetwork


def _vector(values: list, where: str, most: int = IMPOSSIBLE) -> np.ndarray:
    """Whole numbers as int64. most: what is larger (files hold values past int64) becomes that."""
    try:
        out = np.array(values) if values else np.zeros(0, dtype=np.int64)
        if out.dtype.kind in "fuO" and out.ndim == 1:  # what is past int64
            out = np.array([_integer(v, most) for v in values], dtype=np.int64)
    except (TypeError, ValueError, OverflowError) as problem:
        raise InputError(f"{where}: expected a list of integers, found {str(values)[:60]}") from problem
    if out.ndim != 1 or out.dtype != np.int64:
        raise InputError(f"{where}: expected a flat list of integers, found {str(values)[:60]}")
    return np.minimum(out, most)


def _integer(value: Any, most: int) -> int:
    if isinstance(value, float) and not (value.is_integer() and abs(value) >= 2.0**63):
        raise ValueError(value)
    return min(int(value), most)


def _most_used(limit: int | None) -> int:
    """What larger amounts become: above the limit, and so is all else that is held beside it."""
    return max(IMPOSSIBLE, 0 if limit is None else limit + 1)


def read_problem(path: str | Path) -> Problem:
    """Read a contest problem (.json or .json.gz). Raises `InputError` naming the place that is wrong."""
    path = Path(path)
    try:
        raw = read_bytes(path, what="contest problem")
        raw = gzip.decompress(raw) if path.suffix == ".gz" else raw
    except (OSError, EOFError, zlib.error) as problem:
        raise InputError(f"{path} is not a whole gzip file: {problem}") from problem
    with uncollected():
        if len(raw) >= LARGE_BYTES and (quick := _regular(raw, path.name)) is not None:
            return quick
        try:
            data = orjson.loads(raw)
        except ValueError as problem:
            raise InputError(f"{path} is not JSON: {problem}") from problem
        del raw
        try:
            return _problem(data, path)
        except (AttributeError, LookupError, OverflowError, TypeError, ValueError) as problem:
            if isinstance(problem, InputError):
                raise
            raise InputError(f"{path}: not a contest problem: {in_words(problem)}") from problem


def _regular(raw: bytes, name: str) -> Problem | None:
    """The problem in a regular text, read by compiled code; None where the text must be read piece by piece."""
    from autoshard.solver.contest.scan import Rows, read_object

    data = read_object(raw)
    try:
        problem = data["problem"]  # pyright: ignore[reportOptionalSubscript]
        nodes, edges = problem["nodes"], problem["edges"]
        intervals, costs, amounts = nodes["intervals"], nodes["costs"], nodes["usages"]
        pairs, tables = edges["nodes"], edges["costs"]
        limit, called = problem.get("usage_limit"), problem.get("name") or name
    except (KeyError, TypeError, AttributeError):
        return None
    if not all(isinstance(rows, Rows) for rows in (intervals, costs, amounts, pairs, tables)):
        return None
    n = len(costs.lengths)
    if not n or not costs.lengths.all() or not len(intervals.lengths) == n == len(amounts.lengths):
        return None
    if (amounts.lengths != costs.lengths).any():
        return None
    if len(pairs.lengths) != len(tables.lengths) or (pairs.lengths != 2).any():
        return None
    if not np.isin(intervals.lengths, (0, 2)).all() or not (
        limit is None or (type(limit) is int and 0 <= limit <= MOST_LIMIT)
    ):
        return None
    ends = pairs.values.reshape(-1, 2)
    if ends.size and not 0 <= ends.min() <= ends.max() < n:
        return None
    shapes = costs.lengths[ends]
    if (shapes.prod(axis=1) != tables.lengths).any():
        return None
    for rows, most in ((costs, IMPOSSIBLE), (tables, IMPOSSIBLE), (amounts, _most_used(limit))):
        np.minimum(rows.values, most, out=rows.values)
    if (amounts.values < 0).any():
        return None
    starts, stops = np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.int64)
    live = intervals.lengths == 2
    starts[live], stops[live] = intervals.values.reshape(-1, 2).T
    used = np.logical_or.reduceat(amounts.values != 0, np.cumsum(amounts.lengths) - amounts.lengths) & (starts < stops)
    usages = [
        (Usage(start, stop, amount),) if some else ()
        for start, stop, some, amount in zip(
            starts.tolist(), stops.tolist(), used.tolist(), amounts.parts(), strict=True
        )
    ]
    edges_read = [
        Edge(i, j, table.reshape(rows, columns))
        for (i, j), (rows, columns), table in zip(ends.tolist(), shapes.tolist(), tables.parts(), strict=True)
    ]
    return Problem(str(called), CostNetwork(costs.parts(), edges_read, usages, limit))


def _problem(data: Any, path: Path) -> Problem:
    if not isinstance(data, dict):
        raise InputError(f"{path}: not a contest problem: expected an object with problem.nodes and problem.edges")
    try:
        problem = data["problem"]
        nodes, edges = problem["nodes"], problem["edges"]
        intervals, node_costs, amounts = nodes["intervals"], nodes["costs"], nodes["usages"]
        pairs, edge_costs = edges["nodes"], edges["costs"]
    except (KeyError, TypeError) as missing:
        raise InputError(
            f"{path}: not a contest problem: {in_words(missing)} (expected problem.nodes and problem.edges)"
        ) from missing
    if not len(intervals) == len(node_costs) == len(amounts) or len(pairs) != len(edge_costs):
        raise InputError(f"{path}: lists of nodes or edges differ in length")
    limit = problem.get("usage_limit")
    if limit is not None and (type(limit) is not int or not 0 <= limit <= MOST_LIMIT):
        raise InputError(
            f"{path}: problem.usage_limit is {repr(limit)[:40]}; give a whole number of 0 or more (at most 2**60), or "
            "leave it out"
        )
    costs = [_vector(c, f"problem.nodes.costs[{i}]") for i, c in enumerate(node_costs)]
    usages, most = [], _most_used(limit)
    for i, (interval, amount) in enumerate(zip(intervals, amounts, strict=True)):
        start, stop = _interval(interval, f"{path}: problem.nodes.intervals[{i}]")
        used = _vector(amount, f"problem.nodes.usages[{i}]", most)
        if len(used) != len(costs[i]):
            raise InputError(f"{path}: node {i} has {len(costs[i])} costs but {len(used)} usages")
        usages.append((Usage(int(start), int(stop), used),) if start < stop and used.any() else ())
    held = [usage.amounts for own in usages for usage in own]
    if any((own < 0).any() for own in held) and any((own >= most).any() for own in held):
        raise InputError(f"{path}: problem.nodes.usages holds negative amounts, and such of {most} or more beside them")
    edges_read = []
    for k in range(len(pairs)):
        pair = pairs[k]
        if not isinstance(pair, list) or any(type(i) is not int for i in pair):
            raise InputError(f"{path}: problem.edges.nodes[{k}]: expected [first, second], found {str(pair)[:60]}")
        table = _vector(edge_costs[k], f"problem.edges.costs[{k}]")
        edge_costs[k] = None  # frees the list
        if any(not 0 <= i < len(costs) for i in pair):
            raise InputError(f"{path}: edge {k} names nodes {pair}, there are {len(costs)}")
        if len(pair) != 2:
            raise UnsupportedError(f"{path}: edge {k} joins {len(pair)} nodes; only pairs can be solved")
        shape = (len(costs[pair[0]]), len(costs[pair[1]]))
        if table.size != shape[0] * shape[1]:
            raise InputError(
                f"{path}: edge {k} has {table.size} costs, its nodes have {shape[0]} x {shape[1]} strategies"
            )
        edges_read.append(Edge(pair[0], pair[1], table.reshape(shape)))
    return Problem(str(problem.get("name") or path.name), CostNetwork(costs, edges_read, usages, limit))


def _interval(values: Any, where: str) -> tuple[int, int]:
    """A half-open interval; that of an empty list is empty."""
    if values == []:
        return 0, 0
    if not isinstance(values, list) or len(values) != 2 or not all(type(end) is int for end in values):
        raise InputError(f"{where}: expected [start, stop], found {str(values)[:60]}")
    return values[0], values[1]


def write_solution(path: str | Path, assignment: Sequence[int]) -> None:
    """Write the assignment as one JSON list, whole or not at all."""
    write_text(path, "[" + ", ".join(str(int(x)) for x in assignment) + "]\n")


def read_solution(path: str | Path, network: CostNetwork) -> tuple[int, ...]:
    """A JSON list of strategy indices, or text whose last line starting with '[' is one."""
    text = read_text(path, what="solution")
    lines = [line.strip() for line in text.splitlines() if line.strip().startswith("[")]
    try:
        values = json.loads(lines[-1] if lines and lines[-1].endswith("]") else text)
    except ValueError as problem:
        raise InputError(f"{path}: no list of strategy indices found ({problem})") from problem
    if not isinstance(values, list) or len(values) != network.n_nodes:
        count = len(values) if isinstance(values, list) else "no list"
        raise InputError(f"{path}: expected {network.n_nodes} strategy indices, found {count}")
    for node, value in enumerate(values):
        if type(value) is not int or not 0 <= value < len(network.costs[node]):
            raise InputError(f"{path}: node {node}: strategy {value!r} is not in 0..{len(network.costs[node]) - 1}")
    return tuple(values)


def score(network: CostNetwork, solution: Sequence[int]) -> Evaluation:
    """Cost, peak and feasibility in exact integers (see `network.evaluate`)."""
    return evaluate(network, solution)


def peak_memory_mb() -> int | None:
    """Most memory this process has held, in MB (2**20 bytes); None where the system does not tell."""
    try:
        import resource
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak // (2**20 if sys.platform == "darwin" else 2**10)


def process_age_s() -> float | None:
    """Seconds since this process began, the start of the interpreter included; None where the system does not tell."""
    try:
        ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, AttributeError):
        return None


@dataclass(frozen=True, slots=True)
class Solved:
    """A solved contest file. parse_s: seconds spent reading, part of the time limit."""

    problem: Problem
    solution: Solution
    evaluation: Evaluation | None
    parse_s: float


def solve_file(
    path: str | Path,
    *,
    time_limit_s: float | None = None,
    seed: int = 0,
    workers: int = 1,
    effort: float | None = None,
    output: str | Path | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Solved:
    """Read a problem, solve it, check the solution and, with `output`, write it. The time limit includes reading.

    With a time limit and no `effort` the search goes on until the limit or a proof; without one, one effort is spent.
    """
    from autoshard.solver.driver import solve

    began = time.monotonic()
    problem = read_problem(path)
    parse_s = time.monotonic() - began
    if effort is None:
        effort = 1.0 if time_limit_s is None else math.inf
    until = None if time_limit_s is None else Deadline.after(max(LEAST_SECONDS, time_limit_s - parse_s - WRITING_S))
    solution = solve(problem.network, deadline=until, effort=effort, seed=seed, workers=workers, progress=progress)
    evaluation = None if solution.assignment is None else evaluate(problem.network, solution.assignment)
    if output is not None and solution.assignment is not None:
        write_solution(output, solution.assignment)
    return Solved(problem, solution, evaluation, parse_s)
