"""Branch and bound that leaves a proof: parts of a network, each closed by a record of messages and prices.

The open part with the least bound is split next, so that the bound of the whole rises; `branching` says where. Each
half is made consistent, its messages and prices go on from where they stood, and what they rule out is dropped by the
record that goes into the certificate.
"""

import heapq
import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from autoshard.solver.certify.branching import Branching, Options
from autoshard.solver.certify.weigh import Record, Weighed, Whole, weigh
from autoshard.solver.certify.write import record_of
from autoshard.solver.dual import passes as duals
from autoshard.solver.dual.consistent import make_consistent
from autoshard.solver.dual.fixing import Part, restrict
from autoshard.solver.dual.flat import Flat
from autoshard.solver.dual.settling import Stop

PASSES = 40
"""Most double passes between two records: compiled as one loop, they cost less than the parts that they save."""
ROOT_PASSES = 200
"""The same on the whole network."""
TRIED_PASSES = 4
"""Double passes that show what a split is worth."""
LEAST_PASSES = 4
LOOKED_AT = 4
"""Double passes between two looks at how much the bound rises."""
LEAST_GAIN = 0.02
"""Passes end when so many of them close less than this share of what is missing."""
WORTH_ANOTHER = 0.85
"""A part is recorded again at once when fewer than this share of its states are left."""
RECORDS = 3
"""Most records of one part before it is split."""
FIRST_LOOK, LOOK_EVERY = 24, 1_000_000_000
KEPT = (5, 6, 4, 8)
"""Parts before the first search among the states that cost least, table entries that are visited between two, and how
many states a node keeps there."""
FARTHEST = 0.25
"""So far above the bound of a part, as a share of it, passes and splits aim at the most: where what is known costs much
more, its cost says nothing of what is within reach."""
LOOKED_WORK = 50_000_000
"""Table entries in whose time such a search is done, about."""
LOOKED_BACK = 12
"""Decodings that choose where to split."""


Look = Callable[[np.ndarray, int], None]
"""Looks for assignments among some states of the network that is split, below a threshold, and offers them."""


@dataclass
class Step:
    """A part of the proof: records one after the other, then the two halves of a split, if there is one.

    node: of the network that was split, with the states (as places in its domain) of the first half. bound: of
    the last record; inf where nothing is left.
    """

    records: list[Record] = field(default_factory=list)
    bound: float = -math.inf
    node: int = -1
    first_half: np.ndarray | None = None
    halves: list["Step"] = field(default_factory=list)


@dataclass(frozen=True)
class _Open:
    """A part to split: its states, where its messages and prices stand, how long the steps of its prices were, and
    where it may be split.
    """

    step: Step
    alive: np.ndarray
    to_second: np.ndarray
    to_first: np.ndarray
    prices: np.ndarray | None
    rate: float
    options: Options


@dataclass
class Tree:
    """The search over parts of one flat network.

    threshold: returns the cost from which on assignments are of no interest; it may only fall. offer: takes positions.
    check: called between passes; may raise to stop. costs: whether costs count, or only what can be held. look:
    searches among what costs least in a part, now and then. work: table entries visited so far, the measure of effort.
    stuck: least bound of parts that can neither be closed nor split. looks, next_look: searches by `look` so far, and
    the table entries after which the next one is due. newest: the number of parts when the last one was split.
    """

    whole: Whole
    threshold: Callable[[], int]
    offer: Callable[[np.ndarray], None]
    check: Callable[[], None]
    costs: bool = True
    look: Look | None = None
    work: int = 0
    parts: int = 0
    stuck: float = math.inf
    newest: int = 0
    plunging: bool = False
    looks: int = 0
    next_look: int = 0
    open: list[tuple[float, int, _Open]] = field(default_factory=list)
    root: Step = field(default_factory=Step)

    def __post_init__(self) -> None:
        flat = self.whole.flat
        self.start = Part(duals.start(flat), np.arange(len(flat.unary)))
        self.branching = Branching(flat)

    @property
    def flat(self) -> Flat:
        """The network that is split."""
        return self.whole.flat

    @property
    def bound(self) -> float:
        """Nothing costs less, up to the threshold."""
        return min(self.stuck, self.open[0][0] if self.open else math.inf)

    def begin(self, part: Part, prices: np.ndarray | None) -> None:
        """Settle the whole network, from messages and prices that are known."""
        self._settle(self.root, part, prices, -math.inf, ROOT_PASSES)

    def run(self, most_work: int) -> bool:
        """Split parts until none is open, or so many table entries have been visited; True when none is."""
        until = self.work + most_work
        while self.open and self.work < until:
            bound, number, at = self._next()
            if bound >= self.threshold():
                continue
            missing = self._aim(bound) - bound
            parts = self.newest = self.parts
            try:
                whole = self._taken_up(at)
                node = self._where(whole, at, bound, missing)
                first = at.options[node]
                at.step.node, at.step.first_half = node, first
                at.step.halves = [Step(bound=bound), Step(bound=bound)]
                for side, (half, kept) in enumerate(zip(at.step.halves, (first, ~first), strict=True)):
                    self._half(half, whole, self._kept(whole, node, kept), at.prices, bound, at.rate)
                    self.branching.learn(node, side, (half.bound - bound) / missing)
            except BaseException:
                self.open = [entry for entry in self.open if entry[1] <= parts]  # halves of what is open again
                heapq.heapify(self.open)
                heapq.heappush(self.open, (bound, number, at))
                at.step.halves, at.step.node = [], -1
                raise
        return not self.open

    def _aim(self, bound: float) -> float:
        """What passes and splits are to raise the bound of a part to: the threshold, if that is not far away."""
        return min(self.threshold(), bound + FARTHEST * abs(bound) + 1.0) if math.isfinite(bound) else self.threshold()

    def _next(self) -> tuple[float, int, _Open]:
        """The open part to split: the one with the least bound, and after every other one on from the better half of
        what was split last, until neither stays open. Such a plunge soon ends at an assignment; least bounds seldom do.
        """
        halves = [entry for entry in self.open if entry[1] > self.newest] if self.plunging else []
        if not halves:
            self.plunging = not self.plunging
            return heapq.heappop(self.open)
        best = min(halves, key=lambda entry: entry[:2])
        self.open.remove(best)
        heapq.heapify(self.open)
        return best

    def _where(self, whole: Part, at: _Open, bound: float, missing: float) -> int:
        """The node to split a part at."""
        if len(at.options) == 1:
            return next(iter(at.options))
        threshold, aim = self.threshold(), self._aim(bound)
        stop = Stop(aim, threshold if self.costs else math.inf, TRIED_PASSES, TRIED_PASSES, 0.0)

        def trial(node: int, kept: np.ndarray) -> float:
            self.check()
            self.work += 2 * len(whole.flat.tables)  # made consistent and cut out
            alive = self._kept(whole, node, kept)
            if not make_consistent(whole.flat, alive):
                return math.inf
            part = restrict(whole, alive)
            decoded, _ = duals.settle(part.dual, self._prices(part, at.prices, at.rate), TRIED_PASSES, stop)
            self.work += 2 * len(decoded) * len(part.flat.tables)
            return part.dual.bound

        return self.branching.choose(at.options, bound, missing, trial)

    def _kept(self, whole: Part, node: int, kept: np.ndarray) -> np.ndarray:
        """Which states of a part stay where only these of a node do."""
        alive = np.ones(len(self.flat.unary), dtype=bool)
        alive[self.flat.offsets[node] : self.flat.offsets[node + 1]] = kept
        return alive[whole.origin]

    def _prices(self, part: Part, start: np.ndarray | None, rate: float) -> duals.Prices:
        """Where the prices of a part begin: at those of the part that was split, with steps of the same length."""
        if start is not None:
            duals.set_prices(part.dual, start)
        return duals.aiming_prices(part.flat.slots, start, rate)

    def _taken_up(self, at: _Open) -> Part:
        """The part as it was when it was put by; its tables are cut out again, since those of all would take much."""
        self.work += len(self.flat.tables)
        part = restrict(self.start, at.alive)
        part.dual.to_second, part.dual.to_first = at.to_second, at.to_first
        return part

    def _half(
        self, step: Step, whole: Part, alive: np.ndarray, prices: np.ndarray | None, bound: float, rate: float
    ) -> None:
        """Settle what is left of a part, if anything is."""
        self.work += len(self.flat.tables) // 4
        if make_consistent(whole.flat, alive):
            self._settle(step, restrict(whole, alive), prices, bound, rate=rate)
        else:
            step.bound = math.inf

    # -- one part ------------------------------------------------------------------------------------

    def _settle(
        self,
        step: Step,
        part: Part,
        start: np.ndarray | None,
        inherited: float,
        passes: int = PASSES,
        rate: float = 1.0,
    ) -> None:
        """Raise the bound of a consistent part, drop what is too dear, and queue it where it stays open."""
        self.parts += 1
        if len(part.origin) == self.flat.n:
            self._single(step, part)
            return
        prices = self._prices(part, start, rate)
        recent: deque[np.ndarray] = deque(maxlen=LOOKED_BACK)
        bound = inherited
        for recorded in range(RECORDS):
            self._passes(part, prices, recent, passes)
            weighed = self._record(step, part, prices)
            if weighed is None:
                break
            bound = max(bound, weighed.bound)
            step.bound = bound
            if weighed.bound >= self.threshold():
                return
            before, close = len(part.origin), self._close(part, weighed) if recorded == 0 else None
            if not make_consistent(part.flat, weighed.alive):
                step.bound = math.inf
                return
            part = restrict(part, weighed.alive)
            if close is not None and self.look is not None:
                self.work += LOOKED_WORK
                self.look(close, self.threshold())
            if len(part.origin) == self.flat.n:
                self._single(step, part)
                return
            if len(part.origin) >= WORTH_ANOTHER * before:
                break
        self._queue(step, part, prices, recent, bound)

    def _close(self, part: Part, weighed: Weighed) -> np.ndarray | None:
        """Now and then, the states of a part that cost least above its bound; all states of nodes without costs."""
        if self.look is None or not self.costs or self.parts < FIRST_LOOK or self.work < self.next_look:
            return None
        keep = KEPT[self.looks % len(KEPT)]
        self.next_look = self.work + LOOK_EVERY
        self.looks += 1
        close, offsets = np.zeros(len(self.flat.unary), dtype=bool), part.flat.offsets
        for node in range(self.flat.n):
            mine = np.arange(offsets[node], offsets[node + 1])
            if self.deciding[node]:
                mine = mine[np.argsort(weighed.reach[mine], kind="stable")[:keep]]
            close[part.origin[mine]] = True
        return close

    @cached_property
    def deciding(self) -> np.ndarray:
        """Per node whether any cost depends on its choice."""
        flat = self.flat
        out = np.maximum.reduceat(flat.unary, flat.offsets[:-1]) > np.minimum.reduceat(flat.unary, flat.offsets[:-1])
        for e in range(len(flat.first)):
            table = flat.tables[flat.table_at[e] : flat.table_at[e + 1]]
            if np.ptp(table[np.isfinite(table)]) > 0:
                out[flat.first[e]] = out[flat.second[e]] = True
        return out

    def _single(self, step: Step, part: Part) -> None:
        """A part with one assignment, which is within the limit: its cost is the bound, without any price."""
        self.offer(part.origin)
        nothing = np.zeros(len(self.flat.first), dtype=np.int64)
        self._weigh(step, part, Record(self.threshold(), 0, 0, 0, (), nothing, costs=self.costs))
        if step.bound < self.threshold():
            self.stuck = min(self.stuck, step.bound)

    def _passes(self, part: Part, prices: duals.Prices, recent: deque[np.ndarray], most: int) -> None:
        """Raise the bound by passes, and offer what they decode on the way."""
        self.check()
        threshold, aim = self.threshold(), self._aim(part.dual.bound)
        stop = Stop(aim, threshold if self.costs else math.inf, LEAST_PASSES, LOOKED_AT, LEAST_GAIN)
        decoded, worth = duals.settle(part.dual, prices, most, stop)
        self.work += 2 * len(decoded) * len(part.flat.tables)
        positions = part.positions(decoded)
        recent.extend(positions[-LOOKED_BACK:])
        for k in np.flatnonzero(worth):
            self.offer(positions[k])

    def _record(self, step: Step, part: Part, prices: duals.Prices) -> Weighed | None:
        """Write down where messages and prices stand, and what that proves; over the states of the part."""
        self.work += 2 * len(part.flat.tables)
        known = part.dual.prices if prices.asked else None
        record = record_of(self.whole, part.dual, known, self.threshold(), costs=self.costs)
        return None if record is None else self._weigh(step, part, record)

    def _weigh(self, step: Step, part: Part, record: Record) -> Weighed | None:
        weighed = weigh(self.whole.cut(part.flat), np.ones(len(part.origin), dtype=bool), record)
        if weighed is not None:
            step.records.append(record)
            step.bound = weighed.bound
        return weighed

    def _queue(
        self, step: Step, part: Part, prices: duals.Prices, recent: deque[np.ndarray], bound: float
    ) -> None:  # fmt: skip
        """Put an open part by, with where it is to be split."""
        best = prices.best if prices.asked else None
        alive = np.zeros(len(self.flat.unary), dtype=bool)
        alive[part.origin] = True
        options, visited = self.branching.options(alive, part, best, recent)
        self.work += visited
        if not options:
            self.stuck = min(self.stuck, bound)
            return
        entry = _Open(step, alive, part.dual.to_second, part.dual.to_first, best, prices.pace.rate, options)
        heapq.heappush(self.open, (bound, self.parts, entry))
