"""Branch and bound that leaves a proof: parts of a network, each closed by a record of messages and prices.

The open part with the least bound is split next, so that the bound of the whole rises. A part is split at a node where
recent decodings disagree or the last one pays most; each half is made consistent, its messages and prices go on from
where they stood, and what they rule out is dropped by the record that goes into the certificate.
"""

import heapq
import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from autoshard.solver.certify.weigh import Record, Weighed, Whole, weigh
from autoshard.solver.certify.write import record_of
from autoshard.solver.dual import passes as duals
from autoshard.solver.dual.fixing import Part, make_consistent, restrict
from autoshard.solver.dual.flat import Flat
from autoshard.solver.dual.passes import prefix_of
from autoshard.solver.dual.settling import Stop

PASSES = 40
"""Most double passes between two records: compiled as one loop, they cost less than the parts that they save."""
LEAST_PASSES = 4
LOOKED_AT = 4
"""Double passes between two looks at how much the bound rises."""
LEAST_GAIN = 0.005
"""Passes end when so many of them close less than this share of what is missing."""
WORTH_ANOTHER = 0.85
"""A part is recorded again at once when fewer than this share of its strategies are left."""
RECORDS = 3
"""Most records of one part before it is split."""
LOOKED_BACK = 12
"""Decodings that choose where to split."""
PRICE_RATE = 0.2
"""Size of the first steps of a part's prices, which begin where those of the part that was split ended."""


@dataclass
class Step:
    """A part of the proof: records one after the other, then the two halves of a split, if there is one.

    node: of the network that was split, with the strategies (as places in its domain) of the first half. bound: of
    the last record; inf where nothing is left.
    """

    records: list[Record] = field(default_factory=list)
    bound: float = -math.inf
    node: int = -1
    first_half: np.ndarray | None = None
    halves: list["Step"] = field(default_factory=list)


@dataclass(frozen=True)
class _Open:
    """A part to split: its strategies, where its messages and prices stand, and where it is to be split."""

    step: Step
    alive: np.ndarray
    to_second: np.ndarray
    to_first: np.ndarray
    prices: np.ndarray | None
    node: int
    first_half: np.ndarray


@dataclass
class Tree:
    """The search over parts of one flat network.

    threshold: returns the cost from which on assignments are of no interest; it may only fall. offer: takes positions.
    check: called between passes; may raise to stop. costs: whether costs count, or only what can be held. work: table
    entries visited so far, the measure of effort. stuck: least bound of parts that can neither be closed nor split.
    """

    whole: Whole
    threshold: Callable[[], int]
    offer: Callable[[np.ndarray], None]
    check: Callable[[], None]
    costs: bool = True
    work: int = 0
    parts: int = 0
    stuck: float = math.inf
    open: list[tuple[float, int, _Open]] = field(default_factory=list)
    root: Step = field(default_factory=Step)

    def __post_init__(self) -> None:
        flat = self.whole.flat
        self.start = Part(duals.start(flat), np.arange(len(flat.unary)))

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
        self._settle(self.root, part, prices, -math.inf)

    def run(self, most_work: int) -> bool:
        """Split parts until none is open, or so many table entries have been visited; True when none is."""
        until = self.work + most_work
        while self.open and self.work < until:
            bound, _, at = heapq.heappop(self.open)
            if bound >= self.threshold():
                continue
            try:
                at.step.node, at.step.first_half = at.node, at.first_half
                at.step.halves = [Step(bound=bound), Step(bound=bound)]
                whole = self._taken_up(at)
                low, high = self.flat.offsets[at.node], self.flat.offsets[at.node + 1]
                for half, outside in zip(at.step.halves, (~at.first_half, at.first_half), strict=True):
                    gone = np.zeros(len(self.flat.unary), dtype=bool)
                    gone[low:high] = outside
                    self._half(half, whole, ~gone[whole.origin], at.prices, bound)
            except BaseException:
                heapq.heappush(self.open, (bound, self.parts, at))
                at.step.halves, at.step.node = [], -1
                raise
        return not self.open

    def _taken_up(self, at: _Open) -> Part:
        """The part as it was when it was put by; its tables are cut out again, since those of all would take much."""
        part = restrict(self.start, at.alive)
        part.dual.to_second, part.dual.to_first = at.to_second, at.to_first
        return part

    def _half(self, step: Step, whole: Part, alive: np.ndarray, prices: np.ndarray | None, bound: float) -> None:
        """Settle what is left of a part, if anything is."""
        self.work += len(self.flat.tables) // 4
        if make_consistent(whole.flat, alive):
            self._settle(step, restrict(whole, alive), prices, bound)
        else:
            step.bound = math.inf

    # -- one part ------------------------------------------------------------------------------------

    def _settle(self, step: Step, part: Part, start: np.ndarray | None, inherited: float) -> None:
        """Raise the bound of a consistent part, drop what is too dear, and queue it where it stays open."""
        self.parts += 1
        if len(part.origin) == self.flat.n:
            self._single(step, part)
            return
        if start is None:
            prices = duals.no_prices(part.flat.slots)
        else:
            duals.set_prices(part.dual, start)
            prices = duals.known_prices(start, PRICE_RATE)
        recent: deque[np.ndarray] = deque(maxlen=LOOKED_BACK)
        bound = inherited
        for _ in range(RECORDS):
            self._passes(part, prices, recent)
            weighed = self._record(step, part, prices)
            if weighed is None:
                break
            bound = max(bound, weighed.bound)
            step.bound = bound
            if weighed.bound >= self.threshold():
                return
            before = len(part.origin)
            if not make_consistent(part.flat, weighed.alive):
                step.bound = math.inf
                return
            part = restrict(part, weighed.alive)
            if len(part.origin) == self.flat.n:
                self._single(step, part)
                return
            if len(part.origin) >= WORTH_ANOTHER * before:
                break
        self._queue(step, part, prices, recent, bound)

    def _single(self, step: Step, part: Part) -> None:
        """A part with one assignment, which is within the limit: its cost is the bound, without any price."""
        self.offer(part.origin)
        nothing = np.zeros(len(self.flat.first), dtype=np.int64)
        self._weigh(step, part, Record(self.threshold(), 0, 0, 0, (), nothing, costs=self.costs))
        if step.bound < self.threshold():
            self.stuck = min(self.stuck, step.bound)

    def _passes(self, part: Part, prices: duals.Prices, recent: deque[np.ndarray]) -> None:
        """Raise the bound by passes, and offer what they decode on the way."""
        self.check()
        threshold = self.threshold()
        stop = Stop(threshold, threshold if self.costs else math.inf, LEAST_PASSES, LOOKED_AT, LEAST_GAIN)
        decoded, worth = duals.settle(part.dual, prices, PASSES, stop)
        self.work += 2 * len(decoded) * len(part.flat.tables)
        positions = part.positions(decoded)
        recent.extend(positions[-LOOKED_BACK:])
        for k in np.flatnonzero(worth):
            self.offer(positions[k])

    def _record(self, step: Step, part: Part, prices: duals.Prices) -> Weighed | None:
        """Write down where messages and prices stand, and what that proves; over the strategies of the part."""
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
        node, half = self._split(alive, part, best, recent)
        if node < 0:
            self.stuck = min(self.stuck, bound)
            return
        entry = _Open(step, alive, part.dual.to_second, part.dual.to_first, best, node, half)
        heapq.heappush(self.open, (bound, self.parts, entry))

    # -- where to split ------------------------------------------------------------------------------

    def _split(
        self, alive: np.ndarray, part: Part, prices: np.ndarray | None, recent: deque[np.ndarray]
    ) -> tuple[int, np.ndarray]:
        """A node and, over its strategies, the first half; node -1 when no node has a choice left."""
        flat = self.flat
        counts = np.add.reduceat(alive.astype(np.int64), flat.offsets[:-1])
        open_ = counts > 1
        if not open_.any():
            return -1, np.zeros(0, dtype=bool)
        if prices is not None and len(recent):
            found = self._by_memory(alive, prices, recent)
            if found is not None:
                return found
        chosen = recent[-1] if recent and alive[recent[-1]].all() else None
        reach = self._excess(part, alive)
        score = np.where(open_, 0.0, -1.0)
        if chosen is not None:
            score += np.where(open_, self._paid(part, alive, chosen), 0.0)
        if not score.max() > 0:
            close = np.where(alive, np.where(np.isfinite(reach), reach, 0.0), 0.0)
            score = np.where(open_, np.add.reduceat(close, flat.offsets[:-1]) / np.maximum(counts, 1) + 1e-9, -1.0)
        node = int(np.argmax(score))
        a, b = int(flat.offsets[node]), int(flat.offsets[node + 1])
        mine = np.flatnonzero(alive[a:b])
        order = mine[np.argsort(reach[a:b][mine], kind="stable")]
        half = np.zeros(b - a, dtype=bool)
        half[order[: max(1, len(order) // 2)]] = True
        return node, half

    def _excess(self, part: Part, alive: np.ndarray) -> np.ndarray:
        from autoshard.solver.dual.fixing import reduced_costs

        reach = np.full(len(alive), np.inf)
        reach[part.origin] = reduced_costs(part.dual).reach
        self.work += len(part.flat.tables)
        return reach

    def _paid(self, part: Part, alive: np.ndarray, chosen: np.ndarray) -> np.ndarray:
        """Per node what the last decoding pays above the bound at it and on its edges."""
        flat = part.flat
        own, rest, _, _ = duals.left_over(part.dual)
        number = np.full(len(alive), -1)
        number[part.origin] = np.arange(len(part.origin))
        places = number[chosen]
        paid = np.where(np.isfinite(own[places]), own[places], 0.0)
        local = places - flat.offsets[:-1]
        at = flat.table_at[:-1] + local[flat.first] * flat.sizes[flat.second] + local[flat.second]
        on_edge = np.where(np.isfinite(rest[at]), rest[at], 1e18)
        np.add.at(paid, flat.first, on_edge)
        np.add.at(paid, flat.second, on_edge)
        return paid

    def _by_memory(
        self, alive: np.ndarray, prices: np.ndarray, recent: deque[np.ndarray]
    ) -> tuple[int, np.ndarray] | None:
        """A node whose priced memory differs most among recent decodings; None where it differs nowhere."""
        flat = self.flat
        prefix = prefix_of(prices)
        weight = np.zeros(len(flat.unary))
        per_unit = prefix[flat.held_stop] - prefix[flat.held_start]
        np.add.at(weight, flat.held_places, np.repeat(per_unit, flat.held_lengths) * flat.amounts)
        seen = np.array([weight[p] for p in recent])  # of strategies that have gone since as well
        spread = seen.max(axis=0) - seen.min(axis=0)
        node = int(np.argmax(spread))
        if not spread[node] > 0:
            return None
        a, b = int(flat.offsets[node]), int(flat.offsets[node + 1])
        light = weight[a:b] <= (seen[:, node].max() + seen[:, node].min()) / 2
        mine = alive[a:b]
        if not (light & mine).any() or (light | ~mine).all():
            return None
        return node, light
