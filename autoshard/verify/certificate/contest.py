"""Contest problems and solutions, read and added up by the checker's own code.

Format (google/iopddl): `problem.nodes.{intervals,costs,usages}` with half-open intervals,
`problem.edges.{nodes,costs}` with costs row-major, `problem.usage_limit`; a solution is a list of strategy indices.
"""

import gc
import gzip
import json
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from autoshard.errors import InputError, in_words
from autoshard.verify.certificate.exact import FORBIDDEN_COST


@dataclass(frozen=True)
class Network:
    """A contest problem.

    costs: of each node. edges: (first, second, table). usages: of each node, (start, stop, amounts). limit: None where
    there is none.
    """

    costs: list[np.ndarray]
    edges: list[tuple[int, int, np.ndarray]]
    usages: list[list[tuple[int, int, np.ndarray]]]
    limit: int | None


@dataclass(frozen=True)
class Judged:
    """What a solution comes to.

    cost: None where a pair or strategy is not allowed. peak: the largest amount live at once. feasible: whether all is
    allowed and within the limit.
    """

    cost: int | None
    peak: int
    feasible: bool


def read_network(path: Path) -> Network:
    """Read a contest problem. Raises `InputError` where the file holds none."""
    data = _json(path)
    try:
        problem = data["problem"]
        nodes, edges = problem["nodes"], problem["edges"]
        limit = problem.get("usage_limit")
        if limit is not None and (type(limit) is not int or not 0 <= limit <= 2**60):
            raise ValueError(f"usage_limit is {str(limit)[:40]}, not a whole number of 0 to 2**60")
        most = max(FORBIDDEN_COST, (limit or 0) + 1)  # amounts above the limit are as good as any other one above it
        costs = [_whole(c) for c in nodes["costs"]]
        usages: list[list[tuple[int, int, np.ndarray]]] = []
        for interval, amounts in zip(nodes["intervals"], nodes["usages"], strict=True):
            if not _is_pair(interval) and interval != []:
                raise ValueError(f"expected [start, stop], found {str(interval)[:40]}")
            usages.append([(interval[0], interval[1], _whole(amounts, most))] if interval else [])
        tables = []
        for pair, table in zip(edges["nodes"], edges["costs"], strict=True):
            if not _is_pair(pair):
                raise ValueError(f"expected [first, second], found {str(pair)[:40]}")
            i, j = pair
            if not (0 <= i < len(costs) and 0 <= j < len(costs)):
                raise ValueError(f"an edge names node {max(i, j)} of {len(costs)}")
            tables.append((i, j, _whole(table).reshape(len(costs[i]), len(costs[j]))))
        if len(usages) != len(costs) or not all(len(c) for c in costs):
            raise ValueError("nodes without strategies, or lists that differ in length")
        for own, c in zip(usages, costs, strict=True):
            if any(len(amounts) != len(c) for _, _, amounts in own):
                raise ValueError("usages and costs of a node differ in length")
        held = [amounts for own in usages for start, stop, amounts in own if start < stop]
        if any((own < 0).any() for own in held) and any((own >= most).any() for own in held):
            raise ValueError(f"usages holds negative amounts, and such of {most} or more beside them")
        return Network(costs, tables, usages, limit)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError) as problem:
        raise InputError(f"{path}: not a contest problem: {in_words(problem)}") from None


def judge(network: Network, path: Path) -> Judged:
    """Cost and peak of the solution in a file, added up in exact integers."""
    chosen = _json(path)
    sizes = [len(c) for c in network.costs]
    if not isinstance(chosen, list) or len(chosen) != len(sizes) or any(type(x) is not int for x in chosen):
        raise InputError(f"{path}: a solution is a list of {len(sizes)} whole numbers, one strategy for each node")
    for node, (x, size) in enumerate(zip(chosen, sizes, strict=True)):
        if not 0 <= x < size:
            raise InputError(f"{path}: node {node} has strategies 0 to {size - 1}, the solution says {x}")
    paid = [int(c[x]) for c, x in zip(network.costs, chosen, strict=True)]
    paid += [int(table[chosen[i], chosen[j]]) for i, j, table in network.edges]
    change: dict[int, int] = {}
    for own, x in zip(network.usages, chosen, strict=True):
        for start, stop, amounts in own:
            if start < stop:
                change[start] = change.get(start, 0) + int(amounts[x])
                change[stop] = change.get(stop, 0) - int(amounts[x])
    live = peak = 0
    for time in sorted(change):
        live += change[time]
        peak = max(peak, live)
    allowed = max(paid, default=0) < FORBIDDEN_COST
    within = network.limit is None or peak <= network.limit
    return Judged(sum(paid) if allowed else None, peak, allowed and within)


def _json(path: Path) -> Any:
    try:
        raw = path.read_bytes()
        raw = gzip.decompress(raw) if path.suffix == ".gz" else raw
    except (OSError, EOFError, zlib.error) as problem:
        raise InputError(f"{path} cannot be read: {problem}") from None
    collecting = gc.isenabled()
    gc.disable()  # millions of small lists: looking for cycles among them takes most of the time
    try:
        return json.loads(raw)
    except (ValueError, RecursionError) as problem:
        raise InputError(f"{path} is not JSON: {problem}") from None
    finally:
        if collecting:
            gc.enable()


def _is_pair(values: Any) -> bool:
    return isinstance(values, list) and len(values) == 2 and all(type(v) is int for v in values)


def _whole(values: Any, most: int = FORBIDDEN_COST) -> np.ndarray:
    """Whole numbers as int64. most: what is larger (files hold values past 64 bits) becomes that."""
    if not isinstance(values, list) or not set(map(type, values)) <= {int, float}:
        raise ValueError(f"expected a list of whole numbers, found {str(values)[:40]}")
    if any(type(v) is float and (v < 2.0**63 or not v.is_integer()) for v in values):
        raise ValueError(f"expected whole numbers, found {str(values)[:40]}")
    return np.array([int(min(v, most)) for v in values], dtype=np.int64)
