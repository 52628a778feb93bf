"""Cost networks: nodes with strategies, pairwise edge costs, and a limit on what is live at once.

This is the problem of the public IOPDDL contest (google/iopddl, ASPLOS/EuroSys 2025), with two
extensions: a node may hold several usages (one per tensor it defines), and a node may carry *facets*,
labels per strategy that let a search vary one aspect (one mesh axis) and keep the others.

Costs are integers (the planner states what a tick is worth). `IMPOSSIBLE` and anything above it
means "not allowed"; it is never added up.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from autoshard.errors import InputError

IMPOSSIBLE = 10**15
"""Costs at or above this are forbidden."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What a node keeps live in the half-open interval [start, stop), per strategy (int64 bytes)."""

    start: int
    stop: int
    amounts: np.ndarray


@dataclass(frozen=True, slots=True)
class Edge:
    """Costs over the product of two nodes' strategies: ``costs[a, b]``, int64."""

    first: int
    second: int
    costs: np.ndarray


@dataclass(frozen=True)
class CostNetwork:
    """A whole problem.

    costs: one int64 vector per node. edges: at most one per pair is not required; parallel ones add up.
    usages: per node a (possibly empty) sequence. usage_limit: None for no limit.
    facets: per node None or an int array [strategies, facets]; equal labels mean "same choice there", label 0
    means "nothing chosen there" where a node has such strategies (a search builds up from it).
    """

    costs: Sequence[np.ndarray]
    edges: Sequence[Edge]
    usages: Sequence[Sequence[Usage]] = field(default_factory=tuple)
    usage_limit: int | None = None
    facets: Sequence[np.ndarray | None] = field(default_factory=tuple)

    def __post_init__(self) -> None:
        for index, cost in enumerate(self.costs):
            if cost.ndim != 1 or not len(cost):
                raise InputError(f"node {index} has no strategies")
        for edge in self.edges:
            want = (len(self.costs[edge.first]), len(self.costs[edge.second]))
            if edge.costs.shape != want:
                raise InputError(
                    f"edge ({edge.first}, {edge.second}) has costs of shape {edge.costs.shape}, "
                    f"its nodes have {want} strategies"
                )

    @property
    def n_nodes(self) -> int:
        return len(self.costs)


@dataclass(frozen=True, slots=True)
class Evaluation:
    """cost: exact sum, or None if a forbidden entry is chosen. peak: largest usage. feasible: all in all."""

    cost: int | None
    peak: int
    feasible: bool


def usage_profile(network: CostNetwork, assignment: Sequence[int]) -> list[tuple[int, int]]:
    """(time, live amount from that time on), exact integers, in order of time."""
    delta: dict[int, int] = {}
    for usages, choice in zip(network.usages, assignment, strict=False):
        for usage in usages:
            amount = int(usage.amounts[choice])
            if amount and usage.start < usage.stop:
                delta[usage.start] = delta.get(usage.start, 0) + amount
                delta[usage.stop] = delta.get(usage.stop, 0) - amount
    live, out = 0, []
    for time in sorted(delta):
        live += delta[time]
        out.append((time, live))
    return out


def evaluate(network: CostNetwork, assignment: Sequence[int]) -> Evaluation:
    """Cost, peak and feasibility of an assignment, in exact integers; knows no solver."""
    values = [cost.item(choice) for cost, choice in zip(network.costs, assignment, strict=True)]
    values += [edge.costs.item(assignment[edge.first], assignment[edge.second]) for edge in network.edges]
    allowed, total = max(values, default=0) < IMPOSSIBLE, sum(values)
    peak = max((live for _, live in usage_profile(network, assignment)), default=0)
    within = network.usage_limit is None or peak <= network.usage_limit
    return Evaluation(total if allowed else None, peak, allowed and within)
