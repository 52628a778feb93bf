"""Branch and bound on the priced network, for networks whose memory limit leaves a gap that prices cannot close.

At fixed prices message passing is tight on the networks of programs; what remains is that a few decisions hold much
memory, and prices can only mix their extremes. A node is split by the amount of memory it may hold, where recent
decodings disagree most at the current prices; both halves go on with the prices and messages of the whole. The open
part with the least bound is always split next, so that the least bound of all parts rises.
"""

import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from autoshard.solver import dual as duals
from autoshard.solver.fixing import Part, make_consistent, reduced_costs, restrict
from autoshard.solver.search import prefix_of

LOOKED_BACK = 24
"""Decodings that choose where to split."""
CHECKED_EVERY = 8
"""Double passes between attempts to drop strategies."""
WORTH_CUTTING = 0.9
"""A part is cut down when fewer than this share of its strategies are left."""
LEAST_GAIN = 0.02
"""A part whose bound rises by less than this share of what is missing in `CHECKED_EVERY` passes is split."""
PART_PASSES = 160
"""Most double passes spent on one part."""
BRANCH_RATE = 0.2


@dataclass(frozen=True)
class _Open:
    """A part to split: its strategies (over the root's), where its prices and messages stand, and its two halves.

    high: over the part's strategies, those of one node that go to the second half; low: those that go to the first.
    """

    bound: float
    alive: np.ndarray
    prices: np.ndarray
    to_second: np.ndarray
    to_first: np.ndarray
    low: np.ndarray
    high: np.ndarray


@dataclass
class Branching:
    """State of the search over parts of `root`.

    target: returns the cost (without the work network's constant) up to which assignments are looked for; it may only
    fall. offer: takes positions in the root's domains. check: called between passes; may raise to stop. work: table
    entries visited so far, the measure of effort. unsplit: least bound of the parts that cannot be split any further.
    """

    root: Part
    target: Callable[[], float]
    offer: Callable[[np.ndarray], None]
    check: Callable[[], None]
    work: int = 0
    parts: int = 0
    unsplit: float = np.inf
    origin: np.ndarray = field(init=False)
    open: list[tuple[float, int, _Open]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.origin = self.root.origin
        self.root = Part(self.root.dual, np.arange(len(self.root.flat.unary)))

    @property
    def bound(self) -> float:
        """No assignment that costs at most the target costs less than this; inf when there is none at all."""
        return min(self.unsplit, self.open[0][0] if self.open else np.inf)

    def run(self, prices: np.ndarray, budget: float, report: Callable[[], None]) -> None:
        """Split parts until none is open or `budget` table entries have been visited; `report` follows every split."""
        limit = self.work + budget
        if not self.parts:
            self._settle(self.root, prices, self.root.dual.bound)
        while self.open and self.work < limit:
            bound, _, part = heapq.heappop(self.open)
            if bound > self.target():
                continue
            for other in (part.high, part.low):
                self._settle(self._rebuilt(part, ~other), part.prices, bound)
            report()

    def _rebuilt(self, part: _Open, keep: np.ndarray) -> Part | None:
        """The part without the strategies where `keep` is false, or None when nothing consistent is left."""
        whole = restrict(self.root, part.alive)
        self.work += len(whole.flat.tables) // 4
        dual = whole.dual
        dual.to_second, dual.to_first = part.to_second, part.to_first
        if not make_consistent(whole.flat, keep):
            return None
        half = restrict(whole, keep)
        duals.set_prices(half.dual, part.prices)
        return half

    def _settle(self, part: Part | None, start: np.ndarray, inherited: float) -> None:
        """Raise the bound of a part by messages and prices, drop what is too dear, and queue it with its halves."""
        if part is None:
            return
        self.parts += 1
        prices = duals.known_prices(start, BRANCH_RATE)
        part.dual.bound = inherited
        recent: deque[np.ndarray] = deque(maxlen=LOOKED_BACK)
        before = inherited
        limit = self.root.flat.limit
        assert limit is not None
        for k in range(PART_PASSES):
            self.check()
            duals.run_pass(part.dual, True)
            chosen = duals.run_pass(part.dual, False)
            self.work += 2 * len(part.flat.tables)
            if part.dual.bound > self.target():
                return
            live = duals.usage(part.flat, chosen)
            positions = part.positions(chosen)
            recent.append(positions)
            if int(live.max()) <= limit:
                self.offer(self.origin[positions])
            duals.adjust_prices(part.dual, prices, live)
            if k % CHECKED_EVERY == CHECKED_EVERY - 1:
                smaller = self._cut(part)
                if smaller is None:
                    return
                part = smaller
                missing = self.target() - part.dual.bound
                if k > 2 * CHECKED_EVERY and part.dual.bound - before < LEAST_GAIN * missing:
                    break
                before = part.dual.bound
        self._queue(part, prices, recent)

    def _cut(self, part: Part) -> Part | None:
        """The part without strategies that no assignment up to the target has; None when that is all of it."""
        found = reduced_costs(part.dual)
        self.work += len(part.flat.tables)
        alive = found.reach <= self.target() - found.bound
        if alive.sum() >= WORTH_CUTTING * len(alive):
            return part
        if not make_consistent(part.flat, alive):
            return None
        return restrict(part, alive)

    def _queue(self, part: Part, prices: duals.Prices, recent: deque[np.ndarray]) -> None:
        duals.set_prices(part.dual, prices.best)
        duals.run_pass(part.dual, True)
        self.offer(self.origin[part.positions(duals.run_pass(part.dual, False))])
        found = reduced_costs(part.dual)
        low, high = self._halves(part, prices.best, found.reach, recent)
        if not high.any():
            self.unsplit = min(self.unsplit, part.dual.bound)
            return
        alive = np.zeros(len(self.root.flat.unary), dtype=bool)
        alive[part.origin] = True
        entry = _Open(part.dual.bound, alive, prices.best, part.dual.to_second, part.dual.to_first, low, high)
        heapq.heappush(self.open, (entry.bound, self.parts, entry))

    def _halves(
        self, part: Part, prices: np.ndarray, reach: np.ndarray, recent: deque[np.ndarray]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Two sets of strategies of one node, over the part's strategies; empty when no node has a choice left."""
        flat = part.flat
        prefix = prefix_of(prices)
        weight = np.zeros(len(flat.unary))
        lengths = np.diff(flat.held_at)
        index = np.repeat(flat.offsets[flat.held_node] - flat.held_at[:-1], lengths) + np.arange(len(flat.amounts))
        np.add.at(weight, index, np.repeat(prefix[flat.held_stop] - prefix[flat.held_start], lengths) * flat.amounts)
        whole = np.full(len(self.root.flat.unary), np.nan)
        whole[part.origin] = weight
        seen = np.array([whole[p] for p in recent])  # [decoding, node]; nan where the strategy has been dropped since
        seen = seen[~np.isnan(seen).any(axis=1)] if len(seen) else seen
        low = np.zeros(len(flat.unary), dtype=bool)
        high = low.copy()
        if len(seen):
            spread = seen.max(axis=0) - seen.min(axis=0)
            node = int(np.argmax(spread))
            if spread[node] > 0:
                a, b = flat.offsets[node], flat.offsets[node + 1]
                heavy = weight[a:b] > (seen[:, node].max() + seen[:, node].min()) / 2
                if heavy.any() and not heavy.all():
                    low[a:b], high[a:b] = ~heavy, heavy
                    return low, high
        close = np.add.reduceat((reach <= np.median(reach)).astype(np.int64), flat.offsets[:-1])
        node = int(np.argmax(np.where(flat.sizes > 1, close, -1)))
        a, b = flat.offsets[node], flat.offsets[node + 1]
        if b - a > 1:
            order = np.argsort(reach[a:b], kind="stable")
            low[a + order[: (b - a) // 2]] = True
            high[a + order[(b - a) // 2 :]] = True
        return low, high
