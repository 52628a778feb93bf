"""Networks whose tables are kept as rows and columns of smaller ones: too large to be looked at entry by entry.

Messages are passed over the smaller tables. They prove a bound, and for every state the least that an assignment with
it costs; states that cannot be part of a better assignment than the best one known are left out. What remains is small,
and is solved as any other network. Where it does not get small enough in the time, the search is among the states that
look best, and the bound is that of the messages.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from autoshard.deadline import Deadline, clock
from autoshard.solver.dual.factored import cheapest_way, cheapest_way_across, least_by_place
from autoshard.solver.factored import Factored
from autoshard.solver.incumbent import Progress
from autoshard.solver.network import IMPOSSIBLE, CostNetwork, Edge, evaluate
from autoshard.solver.solution import Solution, Stopped
from autoshard.solver.work import Infeasible

SMALL_ENTRIES = 12_000_000
"""What is left is solved as any other network from this many table entries on downwards."""
MOST_PASSES = 60
"""Passes of messages, both ways."""
LOOKED_AFTER = 3
"""Passes before it is first looked what is left, and between two such looks."""
SEARCHED_AFTER = 6
"""Passes before there is a first search among the states that look best: earlier messages mislead it."""
SEARCH_SHARE = 0.3
"""The part of what is left of the time that a search among the states that look best may take."""
SEARCH_EFFORT = 0.3
"""The effort of such a search."""
LAST_S = 1.0
"""Seconds that the bound may take where the time is over and there is none yet."""
IDLE = 1e-5
"""Messages have settled where a pass raises the bound by less than this part of it."""


@dataclass(frozen=True)
class _Way:
    """One direction of an edge: messages from the rows of its table to its columns; across: the other way round."""

    base: np.ndarray
    scale: float
    sources: np.ndarray  # rows of the base that states of the sender have
    source_of: np.ndarray  # per state of the sender, the place of its row among these
    targets: np.ndarray  # columns that states of the receiver have
    target_of: np.ndarray
    across: bool
    least: float

    def send(self, values: np.ndarray) -> np.ndarray:
        """Per state of the receiver, the least of a sender's value and the edge between them."""
        least = least_by_place(self.source_of, values, len(self.sources))
        order = np.argsort(least, kind="stable")
        order = order[: np.searchsorted(least[order], np.inf)]
        cheapest = cheapest_way_across if self.across else cheapest_way
        return cheapest(self.base, self.sources[order], least[order], self.targets, self.scale, self.least)[
            self.target_of
        ]


def _ways(table: Any, known: dict[object, Any]) -> tuple[_Way, _Way]:
    if isinstance(table, Factored):
        base, rows, columns, scale = table.base, table.rows, table.columns, float(table.scale)
    else:
        base, scale = np.where(table >= IMPOSSIBLE, np.inf, table.astype(np.float64)), 1.0
        rows, columns = np.arange(table.shape[0]), np.arange(table.shape[1])
    known[id(table)] = table

    def distinct(places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        key = places.tobytes()
        if key not in known:
            known[key] = np.unique(places, return_inverse=True)
        return known[key]

    own, theirs = distinct(rows), distinct(columns)
    turned = not base.flags.c_contiguous  # tables are transposed without being copied
    base = base.T if turned else base
    assert base.flags.c_contiguous
    whole = base if base.base is None else base.base
    if ("least", id(whole)) not in known:
        known["least", id(whole)] = whole, float(base.min())
    least = scale * known["least", id(whole)][1]
    there = _Way(base, scale, own[0], own[1], theirs[0], theirs[1], turned, least)
    back = _Way(base, scale, theirs[0], theirs[1], own[0], own[1], not turned, least)
    return there, back


@dataclass
class _Run:
    """One run. to_first, to_second: messages of every edge to its ends."""

    network: CostNetwork
    began: float
    ends: float
    report: Callable[[Progress], None] | None
    best: tuple[int, ...] | None = None
    cost: int | None = None
    lower: float = -math.inf
    bounds: list[np.ndarray] = field(default_factory=list)
    trace: list[tuple[float, int]] = field(default_factory=list)
    stopped: Stopped = Stopped.DONE

    def __post_init__(self) -> None:
        network, known = self.network, {}
        self.unary = [np.where(c >= IMPOSSIBLE, np.inf, c.astype(np.float64)) for c in network.costs]
        self.edges = [edge for edge in network.edges if edge.first != edge.second]
        for edge in network.edges:
            if edge.first == edge.second:
                own = edge.costs.diagonal()
                self.unary[edge.first] = self.unary[edge.first] + np.where(own >= IMPOSSIBLE, np.inf, own)
        self.ways = [_ways(edge.costs, known) for edge in self.edges]
        self.to_first = [np.zeros(len(network.costs[edge.first])) for edge in self.edges]
        self.to_second = [np.zeros(len(network.costs[edge.second])) for edge in self.edges]
        self.around: list[list[tuple[int, bool]]] = [[] for _ in network.costs]  # (edge, whether the node is its first)
        for k, edge in enumerate(self.edges):
            self.around[edge.first].append((k, True))
            self.around[edge.second].append((k, False))

    # -- what is known -------------------------------------------------------------------------------

    def offer(self, assignment: Sequence[int]) -> None:
        """Take an assignment where it is feasible and the cheapest so far."""
        evaluation = evaluate(self.network, assignment)
        if evaluation.feasible and evaluation.cost is not None and (self.cost is None or evaluation.cost < self.cost):
            self.best, self.cost = tuple(int(x) for x in assignment), evaluation.cost
            self.trace.append((clock() - self.began, evaluation.cost))

    def tell(self, stage: str) -> None:
        """Report how far the run is."""
        if self.report is not None:
            lower = None if math.isinf(self.lower) else int(self.lower)
            self.report(Progress(clock() - self.began, stage, self.cost, lower))

    @property
    def late(self) -> bool:
        """Whether the time is over."""
        return clock() >= self.ends

    def seconds(self, share: float) -> float | None:
        """A part of the time that is left; None where there is no limit."""
        return None if math.isinf(self.ends) else max(0.1, (self.ends - clock()) * share)

    @property
    def floor(self) -> int:
        """The proven bound, a whole number."""
        if math.isinf(self.lower):
            return sum(int(c.min()) for c in self.network.costs) + sum(int(e.costs.min()) for e in self.network.edges)
        return int(self.lower)

    @property
    def stats(self) -> dict[str, Any]:
        """What is told of the run."""
        return {"stopped": self.stopped, "seconds": round(clock() - self.began, 3), "stages": {}}

    def left(self) -> list[np.ndarray] | None:
        """Of every node, the states that may be part of a better assignment than the best one, and those of that; None
        where none is known."""
        if self.cost is None or self.best is None:
            return None
        out = []
        for least, state in zip(self.bounds, self.best, strict=True):
            keep = least < self.cost
            keep[state] = True
            out.append(np.flatnonzero(keep))
        return out

    def likely(self) -> list[np.ndarray]:
        """Of every node, the states that look best, so many that what they make is small."""
        order = [np.argsort(least, kind="stable") for least in self.bounds]
        most = 64
        while True:
            chosen = []
            for node, (least, states) in enumerate(zip(self.bounds, order, strict=True)):
                some = states[:most]
                some = some[np.isfinite(least[some])]
                chosen.append(np.union1d(some, [] if self.best is None else [self.best[node]]).astype(np.int64))
            if most <= 4 or _entries(self.network, chosen) <= SMALL_ENTRIES / 4:
                return chosen
            most //= 2

    def weigh_late(self) -> None:
        """The bound of the messages where the time is over and none is known yet."""
        if not self.bounds:
            self.ends = clock() + LAST_S
            self.weigh()

    # -- messages ------------------------------------------------------------------------------------

    def own(self, node: int) -> np.ndarray:
        """What the states of a node cost with all messages."""
        total = self.unary[node].copy()
        for k, first in self.around[node]:
            total += self.to_first[k] if first else self.to_second[k]
        return total

    def message_pass(self, forward: bool) -> list[int] | None:
        """One sequential pass (see `dual.messages`); backward ones decode an assignment on the way."""
        n = self.network.n_nodes
        chosen = [0] * n
        for node in range(n) if forward else reversed(range(n)):
            if self.late:
                return None
            own = self.own(node)
            if not forward:
                decode = self.unary[node].copy()
                for k, first in self.around[node]:
                    edge = self.edges[k]
                    decode += _row(edge, chosen[edge.second]) if first else self.to_second[k]
                chosen[node] = int(np.argmin(decode if np.isfinite(decode).any() else own))
            there = sum(first for _, first in self.around[node])
            able = np.isfinite(own)
            weight = 1.0 / max(1, there, len(self.around[node]) - there)
            for k, first in self.around[node]:
                if first != forward:
                    continue
                edge = self.edges[k]
                message = self.to_first[k] if first else self.to_second[k]
                share = np.full(len(own), np.inf)  # states without a partner have infinite messages
                share[able] = np.floor(own[able] * weight) - message[able]
                sent = self.ways[k][0 if first else 1].send(share)
                if not np.isfinite(sent).any():
                    other = edge.second if first else edge.first
                    raise Infeasible(f"nodes {node} and {other} have no states that fit together")
                sent -= sent.min()
                if first:
                    self.to_second[k] = sent
                else:
                    self.to_first[k] = sent
        return None if forward else chosen

    def weigh(self) -> None:
        """The bound that the messages prove, exactly, and the least that an assignment with each state costs.

        All numbers are whole and below 2**53. Of every edge, messages to its first node are taken as they are, and to
        its second one what the table leaves beside them.
        """
        owns = [u.copy() for u in self.unary]
        for k, edge in enumerate(self.edges):
            if self.late:
                return
            message = np.floor(self.to_first[k])
            owns[edge.first] += message
            owns[edge.second] += self.ways[k][0].send(np.where(np.isfinite(message), -message, np.inf))
        least = [own.min() for own in owns]
        if not np.isfinite(least).all():
            raise Infeasible(f"node {int(np.argmax(least))} has no state left that its neighbours allow")
        bound = sum(map(int, least))
        if bound > self.lower or not self.bounds:
            self.lower = max(self.lower, bound)
            self.bounds = [bound + (own - low) for own, low in zip(owns, least, strict=True)]


def _row(edge: Edge, state: int) -> np.ndarray:
    """What an edge costs for each state of its first node beside a state of its second one."""
    costs: Any = edge.costs
    row = costs.T[state]
    return np.where(row >= IMPOSSIBLE, np.inf, row)


Solve = Callable[..., Solution]
"""`solver.driver.solve`, for what is left."""


def solve_large(
    network: CostNetwork,
    solve: Solve,
    *,
    deadline: Deadline | None,
    effort: float,
    gap: float,
    starts: Sequence[Sequence[int] | np.ndarray],
    progress: Callable[[Progress], None] | None,
    **words: Any,
) -> Solution:
    """The cheapest assignment found of a network with factored tables, and a proven bound (see `driver.solve`).

    The bound has no certificate: nothing writes down what proves it.
    """
    began = clock()
    ends = math.inf if deadline is None else deadline.ends
    run = _Run(network, began, ends, progress)
    for start in starts:
        run.offer([int(x) for x in start])
    try:
        status = _look(run, solve, effort, gap, words)
    except KeyboardInterrupt:
        run.stopped, status = Stopped.INTERRUPT, ""
    except Infeasible as why:
        if run.cost is not None:
            raise AssertionError(f"a network with a feasible assignment was called infeasible: {why}") from None
        return Solution(None, None, run.floor, "infeasible", reason=str(why), stats=run.stats)
    lower = run.floor
    if status == "infeasible":
        return Solution(None, None, lower, "infeasible", reason="no states that are left fit together", stats=run.stats)
    if run.cost is not None and lower >= run.cost:
        lower, status = run.cost, "optimal"
    else:
        status = "unknown" if run.cost is None else "feasible"
        if run.stopped is Stopped.DONE:
            run.stopped = Stopped.EFFORT
    peak = None if run.best is None else evaluate(network, run.best).peak
    return Solution(run.best, run.cost, lower, status, peak, trace=tuple(run.trace), stats=run.stats)


def _look(run: _Run, solve: Solve, effort: float, gap: float, words: dict[str, Any]) -> str:
    """Passes and searches until what is left is small or settled; "infeasible" where nothing is."""
    before, searched = -math.inf, False
    for number in range(1, MOST_PASSES + 1):
        run.message_pass(True)
        decoded = run.message_pass(False)
        if run.late:
            run.weigh_late()
            run.stopped = Stopped.TIME
            return ""
        if decoded is not None:
            run.offer(decoded)
        if number % LOOKED_AFTER:
            continue
        run.weigh()
        run.tell("dual")
        settled = run.lower - before <= IDLE * abs(run.lower)
        before = run.lower
        if run.cost is not None and run.cost - run.lower <= gap * abs(run.cost):
            run.stopped = Stopped.GAP
            return ""
        left = run.left()
        if left is not None and _entries(run.network, left) <= SMALL_ENTRIES:
            return _among(run, solve, left, run.seconds(1.0), effort, gap, words, whole=True)
        if settled or (number >= SEARCHED_AFTER and not searched):
            searched = True
            _among(run, solve, run.likely(), run.seconds(SEARCH_SHARE), SEARCH_EFFORT * effort, gap, words)
            left = run.left()
            if left is not None and _entries(run.network, left) <= SMALL_ENTRIES:
                return _among(run, solve, left, run.seconds(1.0), effort, gap, words, whole=True)
            if settled:
                return ""
    return ""


def _among(
    run: _Run, solve: Solve, left: Sequence[np.ndarray], seconds: float | None, effort: float, gap: float,
    words: dict[str, Any], *, whole: bool = False,
) -> str:  # fmt: skip
    """Search among some states of every node. whole: no others can be part of a better assignment, so that what is
    proved here holds for all."""
    if not all(map(len, left)):
        if whole and run.cost is not None:
            run.lower = max(run.lower, run.cost)
        return "infeasible" if whole and run.cost is None else ""
    places = [{int(state): k for k, state in enumerate(states)} for states in left]
    starts = []
    if run.best is not None and all(x in at for x, at in zip(run.best, places, strict=True)):
        starts.append([at[x] for x, at in zip(run.best, places, strict=True)])
    before = run.cost

    def told(now: Progress) -> None:
        if run.report is not None:
            cost = run.cost if now.cost is None else now.cost
            lower = now.lower_bound if whole and now.lower_bound is not None else run.floor
            run.report(Progress(clock() - run.began, now.stage, cost, max(lower, run.floor)))

    solution = solve(
        run.network.restricted(left),
        deadline=Deadline.after(seconds),
        effort=effort,
        gap=gap,
        starts=starts,
        progress=told,
        **words,
    )
    if solution.assignment is not None:
        run.offer([int(states[x]) for states, x in zip(left, solution.assignment, strict=True)])
    if solution.stopped is Stopped.INTERRUPT:
        raise KeyboardInterrupt
    if whole:
        run.stopped = solution.stopped or Stopped.DONE
        if solution.status == "infeasible":
            if run.cost is None:
                return "infeasible"
            run.lower = max(run.lower, run.cost)
        else:
            proved = solution.lower_bound if before is None else min(solution.lower_bound, before)
            run.lower = max(run.lower, proved)
    return ""


def _entries(network: CostNetwork, left: Sequence[np.ndarray]) -> int:
    return sum(len(left[edge.first]) * len(left[edge.second]) for edge in network.edges)
