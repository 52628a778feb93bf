"""Settling and splitting parts of a proof, each apart from all others: what one thread does of a tree.

A half of a split is made consistent, its messages and prices go on from where they stood, and what they rule out is
dropped by the record that goes into the certificate. Nothing here changes the tree: what is found is kept, for the tree
to take in.
"""

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from autoshard.solver.certify.branching import Branching, Options
from autoshard.solver.certify.weigh import Record, Weighed, Whole, weigh
from autoshard.solver.certify.write import record_of
from autoshard.solver.dual import passes as duals
from autoshard.solver.dual.consistent import make_consistent
from autoshard.solver.dual.cutting import cut_out
from autoshard.solver.dual.fixing import Part
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
FARTHEST = 0.25
"""So far above the bound of a part, as a share of it, passes and splits aim at the most: where what is known costs much
more, its cost says nothing of what is within reach."""
LOOKED_BACK = 12
"""Decodings that choose where to split."""


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
class OpenPart:
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


def aim(bound: float, threshold: float) -> float:
    """What passes and splits are to raise the bound of a part to: the threshold, if that is not far away."""
    return min(threshold, bound + FARTHEST * abs(bound) + 1.0) if math.isfinite(bound) else threshold


@dataclass(frozen=True)
class Split:
    """Where a part is split. whole: the part, with its tables. first_half: of the states of the node, in its domain.

    tried: what trials of nodes were worth, in order (see `Branching.learn_trial`). work: table entries visited.
    """

    at: OpenPart
    bound: float
    missing: float
    whole: Part
    node: int
    first_half: np.ndarray
    tried: list[tuple[int, int, float]]
    work: int


@dataclass(frozen=True)
class Tried:
    """Some states of a part after a few passes. decoded, worth: see `duals.settle`."""

    part: Part
    prices: duals.Prices
    decoded: np.ndarray
    worth: np.ndarray


@dataclass
class Settler:
    """Splits and settles parts apart from all others.

    start: the whole network that is split, without messages. threshold: the cost from which on assignments are of no
    interest; falls with what is found. check: called between passes; may raise to stop. costs: see `Tree`. keep: how
    many states a node keeps where it is to be searched among what costs least, if it is.
    work: table entries visited. parts: settled so far. found: positions of assignments, each cheaper than the last
    one. open: parts that stay open, each with its bound and its number. stuck: see `Tree`. close: the states to search
    among.
    """

    whole: Whole
    start: Part
    branching: Branching
    threshold: int
    check: Callable[[], None]
    costs: bool = True
    keep: int | None = None
    work: int = 0
    parts: int = 0
    stuck: float = math.inf
    found: list[np.ndarray] = field(default_factory=list)
    open: list[tuple[float, int, OpenPart]] = field(default_factory=list)
    close: np.ndarray | None = None

    @property
    def flat(self) -> Flat:
        """The network that is split."""
        return self.whole.flat

    def split(self, at: OpenPart, bound: float) -> Split:
        """Choose where to split an open part."""
        missing = aim(bound, self.threshold) - bound
        whole = self.taken_up(at)
        branching = self.branching.apart()
        node = self._where(branching, whole, at, bound, missing)
        return Split(at, bound, missing, whole, node, at.options[node], branching.tried, self.work)

    def half(self, split: Split, number: int) -> Step:
        """Settle what is left of a half, if anything is."""
        step, at = Step(bound=split.bound), split.at
        alive = self._kept(split.whole, split.node, ~split.first_half if number else split.first_half)
        self.work += self.flat.entries // 4
        if make_consistent(split.whole.flat, alive):
            self.settle(step, cut_out(split.whole, alive), at.prices, split.bound, rate=at.rate)
        else:
            step.bound = math.inf
        return step

    def settle(
        self,
        step: Step,
        part: Part,
        start: np.ndarray | None,
        inherited: float,
        passes: int = PASSES,
        rate: float = 1.0,
    ) -> None:
        """Raise the bound of a consistent part, drop what is too dear, and keep it where it stays open."""
        self.parts += 1
        if len(part.origin) == self.flat.n:
            self._single(step, part)
            return
        prices = _prices(part, start, rate)
        recent: deque[np.ndarray] = deque(maxlen=LOOKED_BACK)
        bound = inherited
        for recorded in range(RECORDS):
            self._passes(part, prices, recent, passes)
            weighed = self.record(step, part, prices)
            if weighed is None:
                break
            bound = max(bound, weighed.bound)
            step.bound = bound
            if weighed.bound >= self.threshold:
                return
            before = len(part.origin)
            if recorded == 0 and self.keep is not None and self.close is None:
                self.close = self._close(part, weighed, self.keep)
            if not make_consistent(part.flat, weighed.alive):
                step.bound = math.inf
                return
            part = cut_out(part, weighed.alive)
            if len(part.origin) == self.flat.n:
                self._single(step, part)
                return
            if len(part.origin) >= WORTH_ANOTHER * before:
                break
        self._leave_open(step, part, prices, recent, bound)

    def taken_up(self, at: OpenPart) -> Part:
        """The part as it was when it was put by; its tables are cut out again, since those of all would take much."""
        self.work += self.flat.entries
        part = cut_out(self.start, at.alive)
        part.dual.to_second, part.dual.to_first = at.to_second, at.to_first
        return part

    def _kept(self, whole: Part, node: int, kept: np.ndarray) -> np.ndarray:
        """Which states of a part stay where only these of a node do."""
        alive = np.ones(len(self.flat.unary), dtype=bool)
        alive[self.flat.offsets[node] : self.flat.offsets[node + 1]] = kept
        return alive[whole.origin]

    def _where(self, branching: Branching, whole: Part, at: OpenPart, bound: float, missing: float) -> int:
        """The node to split a part at."""
        if len(at.options) == 1:
            return next(iter(at.options))
        stop = Stop(
            aim(bound, self.threshold), self.threshold if self.costs else math.inf, TRIED_PASSES, TRIED_PASSES, 0.0
        )

        def trial(node: int, kept: np.ndarray) -> float:
            tried = self.tried(whole, self._kept(whole, node, kept), at, TRIED_PASSES, stop)
            return math.inf if tried is None else tried.part.dual.bound

        return branching.choose(at.options, bound, missing, trial)

    def tried(self, whole: Part, alive: np.ndarray, at: OpenPart, passes: int, stop: Stop) -> "Tried | None":
        """What is left of some states of a part after a few passes, from where its messages and prices stand; None
        where nothing is.
        """
        self.check()
        self.work += 2 * whole.flat.entries  # made consistent and cut out
        if not make_consistent(whole.flat, alive):
            return None
        part = cut_out(whole, alive)
        prices = _prices(part, at.prices, at.rate)
        decoded, worth = duals.settle(part.dual, prices, passes, stop)
        self.work += 2 * len(decoded) * part.flat.entries
        return Tried(part, prices, decoded, worth)

    def _close(self, part: Part, weighed: Weighed, keep: int) -> np.ndarray:
        """The states of a part that cost least above its bound; all states of nodes without costs."""
        close, offsets = np.zeros(len(self.flat.unary), dtype=bool), part.flat.offsets
        costly = deciding(self.flat)
        for node in range(self.flat.n):
            mine = np.arange(offsets[node], offsets[node + 1])
            if costly[node]:
                mine = mine[np.argsort(weighed.reach[mine], kind="stable")[:keep]]
            close[part.origin[mine]] = True
        return close

    def _single(self, step: Step, part: Part) -> None:
        """A part with one assignment, which is within the limit: its cost is the bound, without any price."""
        self._find(part.origin)
        nothing = np.zeros(len(self.flat.first), dtype=np.int64)
        self._weigh(step, part, Record(self.threshold, 0, 0, 0, (), nothing, costs=self.costs))
        if step.bound < self.threshold:
            self.stuck = min(self.stuck, step.bound)

    def _find(self, positions: np.ndarray) -> None:
        """Keep an assignment; from now on only what costs less is of interest."""
        self.found.append(positions)
        if self.costs:
            cost = duals.flat_cost(self.flat, positions - self.flat.offsets[:-1])
            self.threshold = int(min(self.threshold, cost))

    def _passes(self, part: Part, prices: duals.Prices, recent: deque[np.ndarray], most: int) -> None:
        """Raise the bound by passes, and keep what they decode on the way."""
        self.check()
        to = aim(part.dual.bound, self.threshold)
        stop = Stop(to, self.threshold if self.costs else math.inf, LEAST_PASSES, LOOKED_AT, LEAST_GAIN)
        decoded, worth = duals.settle(part.dual, prices, most, stop)
        self.work += 2 * len(decoded) * part.flat.entries
        positions = part.positions(decoded)
        recent.extend(positions[-LOOKED_BACK:])
        for k in np.flatnonzero(worth):
            self._find(positions[k])

    def record(self, step: Step, part: Part, prices: duals.Prices) -> Weighed | None:
        """Write down where messages and prices stand, and what that proves; over the states of the part."""
        self.work += 2 * part.flat.entries
        known = part.dual.prices if prices.asked else None
        record = record_of(self.whole, part.dual, known, self.threshold, costs=self.costs)
        return None if record is None else self._weigh(step, part, record)

    def _weigh(self, step: Step, part: Part, record: Record) -> Weighed | None:
        weighed = weigh(self.whole.cut(part.flat), np.ones(len(part.origin), dtype=bool), record)
        if weighed is not None:
            step.records.append(record)
            step.bound = weighed.bound
        return weighed

    def _leave_open(
        self, step: Step, part: Part, prices: duals.Prices, recent: deque[np.ndarray], bound: float
    ) -> None:  # fmt: skip
        """Keep an open part, with where it is to be split."""
        best = prices.best if prices.asked else None
        alive = np.zeros(len(self.flat.unary), dtype=bool)
        alive[part.origin] = True
        options, visited = self.branching.options(alive, part, best, recent)
        self.work += visited
        if not options:
            self.stuck = min(self.stuck, bound)
            return
        left = OpenPart(step, alive, part.dual.to_second, part.dual.to_first, best, prices.pace.rate, options)
        self.open.append((bound, self.parts, left))


def _prices(part: Part, start: np.ndarray | None, rate: float) -> duals.Prices:
    """Where the prices of a part begin: at those of the part that was split, with steps of the same length."""
    if start is not None:
        duals.set_prices(part.dual, start)
    return duals.aiming_prices(part.flat.slots, start, rate)


def deciding(flat: Flat) -> np.ndarray:
    """Per node whether any cost depends on its choice."""
    out = np.maximum.reduceat(flat.unary, flat.offsets[:-1]) > np.minimum.reduceat(flat.unary, flat.offsets[:-1])
    for e in range(len(flat.first)):
        table = flat.tables[flat.table_at[e] : flat.table_at[e + 1]]
        if np.ptp(table[np.isfinite(table)]) > 0:
            out[flat.first[e]] = out[flat.second[e]] = True
    return out
