"""Networks whose tables are kept as rows and columns of smaller ones: too large to be looked at entry by entry.

Messages are passed over the smaller tables. They prove a bound, and for every state the least that an assignment with
it costs; states that cannot be part of a better assignment than the best one known are left out. What remains is small,
and is solved as any other network. Where it does not get small enough in the time, the search is among the states that
look best, and the bound is that of the messages.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from autoshard.deadline import Deadline, clock
from autoshard.solver.certify.proof import Charge, Outline, Outlined, Proof
from autoshard.solver.dual.sequential import Sequential, Standing
from autoshard.solver.few_states import Few
from autoshard.solver.held_prices import MOST_CHANGED, HeldPrices
from autoshard.solver.incumbent import Progress
from autoshard.solver.network import CostNetwork, evaluate
from autoshard.solver.solution import Solution, Stopped
from autoshard.solver.work import Infeasible

SMALL_ENTRIES = 12_000_000
"""What is left is solved as any other network from this many table entries on downwards."""
MOST_PASSES = 60
"""Passes of messages, both ways."""
FEW_PASSES = 9
"""The same where no proof is asked for."""
LOOKED_AFTER = 3
"""Passes before it is first looked whether messages have settled, and between two such looks."""
CLOSER = 0.5
"""States are left out where the gap is at most this part of what it was when that was last done (a half, first)."""
SEARCHED_AFTER = 6
"""Passes before there is a first search among the states that look best: earlier messages mislead it."""
SEARCH_SHARE = 0.3
"""The part of what is left of the time that a search among the states that look best may take."""
SEARCH_EFFORT = 0.3
"""The effort of such a search."""
LAST_S = 1.0
"""Seconds that the bound may take where the time is over and there is none yet."""
UNPRICED = 0.02
"""No price is asked for memory until a pass raises the bound by less than this part of it: earlier messages say little
about who holds what."""
AIMED = 0.15
"""Steps of prices aim so far above the bound, as a part of it, at the most."""
SHORT = 1 / 32
"""Steps of prices this much shorter than would reach what they aim at, if bounds were linear, are the last."""
ROUNDED_AWAY = 1 / 64
"""Messages may be rounded by this part of the gap in all where they are to say which states can be left out."""
IDLE = 1e-5
"""Messages have settled where a pass raises the bound by less than this part of it."""


class _Late(Exception):
    """The time is over."""


@dataclass
class _Run:
    """One run. lower: proved of all assignments but those that are known not to be better than `best`.

    written: messages that were weighed, as a certificate has them; weighed: the best bound of these. inner: the proof
    of a search among what is left, and the states that were left. charge: the prices that are asked. passed: the best
    bound of a pass, and the messages after it.
    """

    network: CostNetwork
    began: float
    ends: float
    report: Callable[[Progress], None] | None
    best: tuple[int, ...] | None = None
    cost: int | None = None
    lower: float = -math.inf
    trace: list[tuple[float, int]] = field(default_factory=list)
    stopped: Stopped = Stopped.DONE
    written: list[Outlined] = field(default_factory=list)
    weighed: float = -math.inf
    inner: tuple[Proof, Sequence[np.ndarray]] | None = None
    charge: Charge | None = None
    passed: tuple[float, Outlined | None] = (-math.inf, None)

    def __post_init__(self) -> None:
        self.messages = Sequential(self.network, lambda: self.late)
        self.memory = HeldPrices.of(self.network)

    def check_room(self) -> None:
        """Raise `Infeasible` where some node has no state, or nothing has room within the limit."""
        allowed = [np.isfinite(unary) for unary in self.messages.unary]
        for node, own in enumerate(allowed):
            if not own.any():
                raise Infeasible(f"every state of node {node} is forbidden by its own cost")
        if self.memory is not None:
            self.memory.check_room(np.concatenate(allowed))

    def offer(self, assignment: Sequence[int]) -> None:
        """Take an assignment where it is feasible and the cheapest so far."""
        evaluation = evaluate(self.network, assignment)
        if evaluation.feasible and evaluation.cost is not None and (self.cost is None or evaluation.cost < self.cost):
            self.best, self.cost = tuple(int(x) for x in assignment), evaluation.cost
            self.trace.append((clock() - self.began, evaluation.cost))

    def tell(self, stage: str) -> None:
        """Report how far the run is."""
        if self.report is not None:
            lower = None if math.isinf(self.lower) else self.floor
            self.report(Progress(clock() - self.began, stage, self.cost, lower))

    @property
    def late(self) -> bool:
        """Whether the time is over."""
        return clock() >= self.ends

    @property
    def gap(self) -> float:
        """How far the best assignment may be from the optimum, as a part of its cost; infinite where none is known."""
        if self.cost is None:
            return math.inf
        return max(0.0, self.cost - self.lower) / max(1, abs(self.cost))

    def seconds(self, share: float) -> float | None:
        """A part of the time that is left; None where there is no limit."""
        return None if math.isinf(self.ends) else max(0.1, (self.ends - clock()) * share)

    @property
    def floor(self) -> int:
        """The proven bound, a whole number."""
        if not math.isinf(self.lower):
            return int(self.lower) if self.cost is None else min(int(self.lower), self.cost)
        return sum(int(c.min()) for c in self.network.costs) + sum(int(e.costs.min()) for e in self.network.edges)

    @property
    def stats(self) -> dict[str, Any]:
        """What is told of the run."""
        return {"stopped": self.stopped, "seconds": round(clock() - self.began, 3), "stages": {}}

    def left(self) -> list[np.ndarray] | None:
        """Of every node, the states that may be part of a better assignment than the best one, and those of that; None
        where none is known. No others are looked at any more."""
        if self.cost is None or self.best is None:
            return None
        out = []
        for least, states, state in zip(self.messages.least, self.messages.left, self.best, strict=True):
            out.append(states[(least < self.cost) | (states == state)])
        if sum(map(len, out)) < self.messages.states:
            self.messages.narrow(out)
        return out

    def likely(self) -> list[np.ndarray]:
        """Of every node, the states that look best, so many that what they make is small."""
        order = [np.argsort(least, kind="stable") for least in self.messages.least]
        most = 64
        while True:
            chosen = []
            for node, (least, places) in enumerate(zip(self.messages.least, order, strict=True)):
                some = places[:most]
                some = self.messages.left[node][some[np.isfinite(least[some])]]
                chosen.append(np.union1d(some, [] if self.best is None else [self.best[node]]).astype(np.int64))
            if most <= 4 or _entries(self.network, chosen) <= SMALL_ENTRIES / 4:
                return chosen
            most //= 2

    def double_pass(self) -> None:
        """Messages both ways; what they prove, and the assignment that looks best on the way back. Raises `_Late` where
        the time is over after it.
        """
        self.messages.forward()
        decoded = self.messages.back()
        self.lower = max(self.lower, self.messages.lower)
        if decoded is not None:
            risen = self.messages.last - self.passed[0]
            if risen > 0:
                self.passed = self.messages.last, Outlined(0, self.charge, self.messages.outlined(0))
            self.offer(decoded)
            memory, target = self.memory, self.lower + AIMED * abs(self.lower)
            target = target if self.cost is None else min(target, float(self.cost))
            settled = self.charge is not None or risen < UNPRICED * abs(self.lower)
            if memory is not None and settled and memory.step(decoded, self.messages.last, target):
                self.ask(memory.prices.slots.current)
        if self.late:
            raise _Late

    @property
    def searches_prices(self) -> bool:
        """Whether steps of prices are still long enough to raise the bound."""
        return self.charge is not None and self.memory is not None and self.memory.prices.pace.rate > SHORT

    def standing(self) -> tuple[Standing, tuple[np.ndarray, np.ndarray] | None]:
        """Where messages and prices stand, for another search of the same tables."""
        prices = None
        if self.memory is not None and self.charge is not None:
            prices = self.memory.moments, self.memory.prices.best
        return self.messages.standing(), prices

    def go_on_from(self, standing: tuple[Standing, tuple[np.ndarray, np.ndarray] | None]) -> None:
        """Begin with the messages, and the prices, of another search."""
        messages, prices = standing
        if self.messages.go_on_from(messages) and self.memory is not None:
            self.memory.most_changed = MOST_CHANGED
        if prices is not None and self.memory is not None:
            self.memory.begin_with(*prices)
            self.ask(self.memory.prices.slots.current)

    def ask(self, prices: np.ndarray) -> None:
        """Ask these prices for what is held from now on."""
        asked = None if self.memory is None else self.memory.charge(prices)
        if asked is not None:
            self.charge = asked[2]
            self.messages.price(*asked[:2])

    def weigh(self, step: int = 0) -> None:
        """What the messages, in multiples of 2**step, prove of every state; written down."""
        weighed = self.messages.weigh(step)
        if weighed > -math.inf:
            self.written.append(Outlined(step, self.charge, self.messages.outlined(step)))
            self.weighed = max(self.weighed, weighed)
        self.lower = max(self.lower, self.messages.lower)

    @property
    def step(self) -> int:
        """The multiples of which messages are weighed on the way: they say nearly as much, in half of the bytes."""
        if self.cost is None or math.isinf(self.lower):
            return 0
        unit = (self.cost - self.lower) * ROUNDED_AWAY / max(1, len(self.network.edges))
        return max(0, math.floor(math.log2(unit))) if unit > 0 else 0

    def look(self) -> None:
        """Weigh messages on the way, and report that. Raises `_Late` where nothing says yet what states cost."""
        self.weigh(self.step)
        if not self.messages.least:
            raise _Late
        self.tell("dual")

    def ended_late(self) -> None:
        """The end where the time is over: the bound of the messages, where none is known yet."""
        self.stopped = Stopped.TIME
        if math.isinf(self.lower):
            self.ends = clock() + LAST_S
            self.weigh()

    def proof(self) -> Proof | None:
        """Of the bound."""
        searched = -math.inf if self.inner is None else self.inner[0].bound
        bound, messages = self.passed
        if messages is not None and max(self.weighed, searched) < self.floor <= bound:
            self.written.append(messages)  # weighed, they prove as much as their pass
            self.weighed = bound
        if self.inner is not None and searched >= self.floor:
            return replace(self.inner[0], outline=Outline(self.written, self.inner[1]))
        if self.weighed >= self.floor:
            return Proof(bound=self.weighed, outline=Outline(self.written))
        return None


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
    standing: Any,
    proves: bool,
    **words: Any,
) -> Solution:
    """The cheapest assignment found of a network with factored tables, and a proven bound (see `driver.solve`)."""
    began = clock()
    ends = math.inf if deadline is None else deadline.ends
    run = _Run(network, began, ends, progress)
    if standing is not None:
        run.go_on_from(standing)
    for start in starts:
        run.offer([int(x) for x in start])
    try:
        run.check_room()
        try:
            (_look if proves else _glance)(run, solve, effort, gap, words)
        except _Late:
            run.ended_late()
    except KeyboardInterrupt:
        run.stopped = Stopped.INTERRUPT
    except Infeasible as why:
        if run.cost is not None:
            raise AssertionError(f"a network with a feasible assignment was called infeasible: {why}") from None
        none = Proof(bound=math.inf, outline=Outline(()))
        return Solution(None, None, run.floor, "infeasible", reason=str(why), stats=run.stats, proof=none)
    proof, lower = run.proof(), run.floor
    if run.cost is not None and lower >= run.cost:
        lower, status = run.cost, "optimal"
    else:
        status = "unknown" if run.cost is None else "feasible"
        if run.stopped is Stopped.DONE:
            run.stopped = Stopped.EFFORT
    peak = None if run.best is None else evaluate(network, run.best).peak
    stats = run.stats if proof is None else run.stats | {"proof": {"parts": proof.parts, "records": proof.records}}
    return Solution(
        run.best, run.cost, lower, status, peak, trace=tuple(run.trace), stats=stats, proof=proof,
        standing=run.standing(), likely=run.likely() if run.messages.least else None,
    )  # fmt: skip


def _look(run: _Run, solve: Solve, effort: float, gap: float, words: dict[str, Any]) -> None:
    """Passes and searches until what is left is small or settled."""
    before, searched, gap_before = -math.inf, False, 0.5
    for number in range(1, MOST_PASSES + 1):
        run.double_pass()
        if run.gap <= gap:
            _polish(run, solve, effort, gap, words, searched)
            return
        look = number % LOOKED_AFTER == 0
        settled = look and not run.searches_prices and run.lower - before <= IDLE * abs(run.lower)
        before = run.lower if look else before
        search = settled or (look and number >= SEARCHED_AFTER and not searched)
        if not search and run.gap > CLOSER * gap_before:
            continue
        run.look()
        if run.gap <= gap:
            _polish(run, solve, effort, gap, words, searched)
            return
        gap_before = min(gap_before, run.gap)
        left = run.left()
        if left is not None and _entries(run.network, left) <= SMALL_ENTRIES:
            _among(run, solve, left, run.seconds(1.0), effort, gap, words, whole=True)
            return
        if search:
            searched = True
            _among(run, solve, run.likely(), run.seconds(SEARCH_SHARE), SEARCH_EFFORT * effort, gap, words)
            left = run.left()
            if left is not None and _entries(run.network, left) <= SMALL_ENTRIES:
                _among(run, solve, left, run.seconds(1.0), effort, gap, words, whole=True)
                return
            if settled:
                return


def _glance(run: _Run, solve: Solve, effort: float, gap: float, words: dict[str, Any]) -> None:
    """A few passes, and a search among the states that look best then."""
    for _ in range(FEW_PASSES):
        run.double_pass()
    run.look()
    _among(run, solve, run.likely(), run.seconds(SEARCH_SHARE), SEARCH_EFFORT * effort, gap, words)


def _polish(run: _Run, solve: Solve, effort: float, gap: float, words: dict[str, Any], searched: bool) -> None:
    """The end of a run whose gap is small enough: a last look among the states that look best, which takes little."""
    if not searched:
        if not run.messages.least:
            run.weigh()
        if run.messages.least:
            _among(run, solve, run.likely(), run.seconds(SEARCH_SHARE), SEARCH_EFFORT * effort, gap, words)
    run.stopped = Stopped.GAP


def _among(
    run: _Run, solve: Solve, left: Sequence[np.ndarray], seconds: float | None, effort: float, gap: float,
    words: dict[str, Any], *, whole: bool = False,
) -> None:  # fmt: skip
    """Search among some states of every node. whole: no others can be part of a better assignment than the best one,
    whose states are among them, so that what is proved here holds for all."""
    if not all(map(len, left)):
        return
    few, before = Few(run.network, left), run.cost

    def told(now: Progress) -> None:
        if run.report is not None:
            cost = run.cost if now.cost is None else now.cost
            lower = now.lower_bound if whole and now.lower_bound is not None else run.floor
            run.report(Progress(clock() - run.began, now.stage, cost, max(lower, run.floor)))

    solution = solve(
        few.network,
        deadline=Deadline.after(seconds),
        effort=effort,
        gap=gap,
        starts=few.within([] if run.best is None else [run.best]),
        progress=told,
        **words,
    )
    found = few.back(solution).assignment
    if found is not None:
        run.offer(found)
    if whole and before is not None:
        run.stopped = solution.stopped or Stopped.DONE
        run.lower = max(run.lower, min(solution.lower_bound, before))
        if solution.proof is not None:
            run.inner = solution.proof, left
    if solution.stopped is Stopped.INTERRUPT:
        raise KeyboardInterrupt


def _entries(network: CostNetwork, left: Sequence[np.ndarray]) -> int:
    return sum(len(left[edge.first]) * len(left[edge.second]) for edge in network.edges)
