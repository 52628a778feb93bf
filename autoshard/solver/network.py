"""Cost networks: nodes with states, pairwise edge costs, and a limit on what is live at once.

This is the problem of the public IOPDDL contest (google/iopddl, ASPLOS/EuroSys 2025), with two
extensions: a node may hold several usages (one per tensor it defines), and a node may carry *facets*,
labels per state that let a search vary one aspect (one mesh axis) and keep the others.

Costs are integers (the planner states what a tick is worth). `IMPOSSIBLE` and anything above it
means "not allowed"; it is never added up.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from autoshard.errors import InputError
from autoshard.solver.factored import IMPOSSIBLE, Factored

_LOWEST = np.iinfo(np.int64).min


@dataclass(frozen=True, slots=True)
class Usage:
    """What a node keeps live in the half-open interval [start, stop): an amount for each state (int64, bytes)."""

    start: int
    stop: int
    amounts: np.ndarray


@dataclass(frozen=True, slots=True)
class Edge:
    """Costs over the product of two nodes' states: ``costs[a, b]``, int64; a `Factored` table is made when asked."""

    first: int
    second: int
    costs: np.ndarray  # or Factored, which is indexed in the same way


@dataclass(frozen=True)
class CostNetwork:
    """A cost network: all that the solver knows of a problem.

    costs: one int64 vector per node. edges: two nodes may have several, which add up.
    usages: per node a (possibly empty) sequence. usage_limit: None for no limit.
    facets: per node None or an int array [states, facets]; equal labels mean "same choice there", label 0
    means "nothing chosen there" where a node has such states (a search builds up from it).
    """

    costs: Sequence[np.ndarray]
    edges: Sequence[Edge]
    usages: Sequence[Sequence[Usage]] = field(default_factory=tuple)
    usage_limit: int | None = None
    facets: Sequence[np.ndarray | None] = field(default_factory=tuple)

    def __post_init__(self) -> None:
        if not all(map(_is_whole, self.costs)):
            costs = [_whole(cost, f"costs of node {index}") for index, cost in enumerate(self.costs)]
            object.__setattr__(self, "costs", costs)
        if not all(_is_whole(edge.costs) for edge in self.edges):
            edges = [replace(e, costs=_whole(e.costs, f"costs of edge ({e.first}, {e.second})")) for e in self.edges]
            object.__setattr__(self, "edges", edges)
        for index, cost in enumerate(self.costs):
            if cost.ndim != 1 or not len(cost):
                raise InputError(f"node {index} has no states")
        for edge in self.edges:
            if not (0 <= edge.first < len(self.costs) and 0 <= edge.second < len(self.costs)):
                raise InputError(f"edge ({edge.first}, {edge.second}) names nodes of 0..{len(self.costs) - 1} only")
            want = (len(self.costs[edge.first]), len(self.costs[edge.second]))
            if edge.costs.shape != want:
                raise InputError(
                    f"edge ({edge.first}, {edge.second}) has costs of shape {edge.costs.shape}, "
                    f"its nodes have {want} states"
                )

    @property
    def n_nodes(self) -> int:
        """The number of nodes."""
        return len(self.costs)

    @property
    def is_factored(self) -> bool:
        """Whether there are tables that are not whole, because all of them would take too much memory."""
        return any(isinstance(edge.costs, Factored) for edge in self.edges)

    def restricted(self, left: Sequence[np.ndarray]) -> "CostNetwork":
        """The network with only some states of every node (their indices here), its tables whole."""
        edges = tuple(Edge(e.first, e.second, e.costs[np.ix_(left[e.first], left[e.second])]) for e in self.edges)
        usages = tuple(
            tuple(Usage(u.start, u.stop, u.amounts[keep]) for u in own)
            for own, keep in zip(self.usages, left, strict=False)
        )
        facets = tuple(None if f is None else f[keep] for f, keep in zip(self.facets, left, strict=False))
        costs = tuple(c[keep] for c, keep in zip(self.costs, left, strict=True))
        return CostNetwork(costs, edges, usages, self.usage_limit, facets)


def _is_whole(costs: object) -> bool:
    return isinstance(costs, Factored) or (isinstance(costs, np.ndarray) and costs.dtype.kind in "iu")


def _whole(costs: object, what: str) -> np.ndarray:
    """A list as an int64 array; `InputError` where it does not hold whole numbers."""
    array = np.asarray(costs)
    if array.size and array.dtype.kind not in "iu":
        raise InputError(f"{what} are {array.dtype}; give whole numbers of at most int64, fractions scaled up")
    return array.astype(np.int64)


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The value of an assignment. cost: the exact sum, None where a forbidden entry is chosen. peak: the largest usage.
    feasible: whether it has a cost and keeps to the limit.
    """

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


def less_room(network: CostNetwork, taken: np.ndarray) -> CostNetwork:
    """The network with so much less room at every moment, from 0 on: the first node holds it in any state."""
    ends = np.flatnonzero(np.diff(taken, prepend=0, append=0))
    amounts = [np.full(len(network.costs[0]), taken[start], dtype=np.int64) for start in ends[:-1]]
    also = (Usage(int(a), int(b), held) for a, b, held in zip(ends, ends[1:], amounts, strict=False) if held.any())
    usages = (*network.usages, *[()] * (network.n_nodes - len(network.usages)))
    return replace(network, usages=((*usages[0], *also), *usages[1:]))


def evaluate(network: CostNetwork, assignment: Sequence[int]) -> Evaluation:
    """Cost, peak and feasibility of an assignment, in exact integers; knows no solver."""
    values = [cost.item(choice) for cost, choice in zip(network.costs, assignment, strict=True)]
    values += [edge.costs.item(assignment[edge.first], assignment[edge.second]) for edge in network.edges]
    allowed, total = max(values, default=0) < IMPOSSIBLE, sum(values)
    peak = max((live for _, live in usage_profile(network, assignment)), default=0)
    within = network.usage_limit is None or peak <= network.usage_limit
    return Evaluation(total if allowed else None, peak, allowed and within)


def most_cost(network: CostNetwork) -> int:
    """Every table at its largest allowed entry: no assignment costs more. 0 for a table that allows nothing."""
    tables = [*network.costs, *(edge.costs for edge in network.edges)]
    most = {
        id(table): int(table[table < IMPOSSIBLE].max(initial=_LOWEST)) for table in {id(t): t for t in tables}.values()
    }
    return sum(0 if most[id(table)] == _LOWEST else most[id(table)] for table in tables)


def without_costs(network: CostNetwork) -> CostNetwork:
    """The same network with all costs 0: its assignments are the same."""
    costs = tuple(np.where(c >= IMPOSSIBLE, IMPOSSIBLE, 0) for c in network.costs)
    edges = tuple(
        Edge(e.first, e.second, np.where(e.costs >= IMPOSSIBLE, IMPOSSIBLE, 0))
        for e in network.edges
        if (e.costs >= IMPOSSIBLE).any()
    )
    return CostNetwork(costs, edges, network.usages, network.usage_limit, network.facets)
