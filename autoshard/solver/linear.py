"""Branch and bound as in `certify.tree`, whose parts take messages and prices from the linear program.

Passes stop short of the best bound where several nodes of about the same size must share the memory there is: the
program is then worth its time. It also says what to round: dives fix what it takes most of, and so find assignments.
"""

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from autoshard.solver.certify.branching import Options
from autoshard.solver.certify.tree import Step, Tree, Waiting
from autoshard.solver.certify.weigh import LARGEST, Record, Weighed, Whole, starts_of
from autoshard.solver.certify.write import FINEST, ROUNDED_AWAY
from autoshard.solver.dual import passes as duals
from autoshard.solver.dual.fixing import Part, make_consistent, restrict
from autoshard.solver.engines.linear import UNKNOWN, LinearProgram, Relaxed

PRICE_BITS = 40
"""Bits that the largest price is written with: the program's bound is often exact, and rounding would leave a gap."""
RECORDS = 2
"""Records of one part before it is split: one after passes, one of the program."""
PASSES = 40
"""Most double passes before the program is asked."""
CANDIDATES = 12
"""Most nodes that are considered for one split."""
WHOLE = 1e-6
"""Less than this of a choice is taken for rounding."""
LOOK_EVERY = 6
KEPT = (5, 6, 4, 8)
"""Parts between two exact searches among the states that cost least, and how many of them deciding nodes keep then."""
DIVE_EVERY = 12
"""Splits between two dives."""
STEPS_BACK = 3
"""How many steps of a dive are taken back at once, for exact search to look through what is left then."""
MOST_UNENDED = 2
"""Exact searches of one dive that come to no end."""
FINISHED_WORK = 50_000_000
"""Table entries in whose time an exact search is done, about."""


@dataclass
class LinearTree(Tree):
    """Parts whose bounds come from the linear program. finish: looks for assignments among some states, by an exact
    engine; returns whether it found one that was worth having, and whether it came to its end.
    """

    finish: Callable[[np.ndarray], tuple[bool, bool]] | None = None
    splits: int = 0
    relaxed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.program = LinearProgram(self.flat, costs=self.costs)
        self.deciding = _deciding(self.program)

    def begin(self, part: Part, prices: np.ndarray | None) -> None:
        """As `Tree.begin`, and a first dive where nothing is known that could guide."""
        super().begin(part, prices)
        if self.open and (not self.costs or self.threshold() >= UNKNOWN):
            self.dive(self.open[0][2].alive)

    def _where(self, whole: Part, at: Waiting, bound: float, missing: float) -> int:
        """The node to split a part at, and a dive into it now and then."""
        self.splits += 1
        if self.splits % DIVE_EVERY == 0:
            self.dive(at.alive)
        return super()._where(whole, at, bound, missing)

    def _relaxed(self, alive: np.ndarray) -> Relaxed | float | None:
        """What the program says of these states, made consistent in place; inf where nothing is left, None: no word."""
        self.check()
        self.work += len(self.flat.tables) // 4
        if not make_consistent(self.flat, alive):
            return math.inf
        found = self.program.solve(alive, self.threshold())
        if found is not None:
            self.work += found.work
        return found

    def _settle(
        self,
        step: Step,
        part: Part,
        start: np.ndarray | None,
        inherited: float,
        passes: int = PASSES,
        rate: float = 1.0,
    ) -> None:
        """A few passes, which may close a part, and then the program; what stays open is queued."""
        self.parts += 1
        bound, prices, found = inherited, start, None
        for number in range(RECORDS):
            if len(part.origin) == self.flat.n:
                self._single(step, part)
                return
            if number == 0:
                searched = self._prices(part, start, rate)
                self._passes(part, searched, deque(), passes)
                weighed = self._record(step, part, searched)
            else:
                found = self._relaxed(self._alive(part))
                if not isinstance(found, Relaxed):
                    break
                prices = found.prices
                record = record_of(self.whole, self._alive(part), found, self.threshold(), costs=self.costs)
                weighed = None if record is None else self._weigh(step, part, record)
            if weighed is None:
                break
            bound = max(bound, weighed.bound)
            step.bound = bound
            if weighed.bound >= self.threshold():
                return
            if number:
                self._look_close(part, weighed)
            if not make_consistent(part.flat, weighed.alive):
                step.bound = math.inf
                return
            part = restrict(part, weighed.alive)
        if len(part.origin) == self.flat.n:
            self._single(step, part)
            return
        alive = self._alive(part)
        if isinstance(found, Relaxed):
            self._take_over(part, alive, found)
        options = self._options(alive, found.chosen if isinstance(found, Relaxed) else alive.astype(float))
        if not options:
            self.stuck = min(self.stuck, bound)
            return
        self._push(bound, Waiting(step, alive, part.dual.to_second, part.dual.to_first, prices, rate, options))

    def _alive(self, part: Part) -> np.ndarray:
        """The states of a part among all."""
        alive = np.zeros(len(self.flat.unary), dtype=bool)
        alive[part.origin] = True
        return alive

    def _take_over(self, part: Part, alive: np.ndarray, found: Relaxed) -> None:
        """Make the messages of the program those of the part."""
        dual, flat = part.dual, self.flat
        for ends, name in ((flat.second, "to_second"), (flat.first, "to_first")):
            kept = alive[duals.message_places(flat, ends)]
            setattr(dual, name, np.floor(getattr(found, name)[kept] / dual.quantum) * dual.quantum)

    def _options(self, alive: np.ndarray, chosen: np.ndarray) -> Options:
        """Where a part may be split: at nodes of which the program takes several states, deciding ones first."""
        offsets, out = self.flat.offsets, {}
        counts = np.add.reduceat(alive.astype(np.int64), offsets[:-1])
        most = np.maximum.reduceat(np.where(alive, chosen, -1.0), offsets[:-1])
        between = (counts > 1) & (most < 1.0 - WHOLE)
        for group in (between & self.deciding, between & ~self.deciding, (counts > 1) & self.deciding, counts > 1):
            nodes = np.flatnonzero(group)
            if len(nodes):
                for node in nodes[np.argsort(most[nodes], kind="stable")][:CANDIDATES].tolist():
                    out[node] = _half(
                        chosen[offsets[node] : offsets[node + 1]], alive[offsets[node] : offsets[node + 1]]
                    )
                break
        return out

    # -- assignments ---------------------------------------------------------------------------------

    def _look_close(self, part: Part, weighed: Weighed) -> None:
        """Now and then exact search among the states of a part that cost least above its bound."""
        self.relaxed += 1
        if self.finish is None or not self.costs or self.relaxed % LOOK_EVERY != 1:
            return
        keep = KEPT[(self.relaxed // LOOK_EVERY) % len(KEPT)]
        close, offsets = np.zeros(len(self.flat.unary), dtype=bool), part.flat.offsets
        for node in range(self.flat.n):
            mine = np.arange(offsets[node], offsets[node + 1])
            if self.deciding[node]:
                mine = mine[np.argsort(weighed.reach[mine], kind="stable")[:keep]]
            close[part.origin[mine]] = True
        self.finish(close)
        self.work += FINISHED_WORK

    def dive(self, alive: np.ndarray) -> None:
        """Fix what the program takes most of, node after node, and offer what comes out; where that leads nowhere, look
        through what was left a few steps before, and some more before that.
        """
        alive, offsets = alive.copy(), self.flat.offsets
        met: list[np.ndarray] = []
        found = self._relaxed(alive)
        while isinstance(found, Relaxed) and found.bound < self.threshold():
            counts = np.add.reduceat(alive.astype(np.int64), offsets[:-1])
            if (counts == 1).all():
                self.offer(np.flatnonzero(alive))
                break
            met.append(alive.copy())
            most = np.maximum.reduceat(np.where(alive, found.chosen, -1.0), offsets[:-1])
            open_ = (counts > 1) & self.deciding
            open_ = open_ if open_.any() else counts > 1
            between = open_ & (most < 1.0 - WHOLE)
            nodes = [int(np.argmax(np.where(between, most, -1.0)))] if between.any() else np.flatnonzero(open_).tolist()
            for node in nodes:
                mine = slice(int(offsets[node]), int(offsets[node + 1]))
                best = int(np.argmax(np.where(alive[mine], found.chosen[mine], -1.0)))
                alive[mine] = False
                alive[mine.start + best] = True
            found = self._relaxed(alive)
        unended = 0
        for left in met[-STEPS_BACK::-STEPS_BACK] if self.finish is not None else ():
            self.check()
            better, ended = self.finish(left)
            self.work += FINISHED_WORK
            unended += not ended
            if better or unended == MOST_UNENDED:
                break


def record_of(whole: Whole, alive: np.ndarray, found: Relaxed, threshold: int, *, costs: bool) -> Record | None:
    """The messages and prices of a linear program, rounded; None where they do not fit. alive: the states left."""
    margin = max(1.0, abs(threshold - found.bound) if threshold < UNKNOWN else abs(found.bound))
    unit = max(2.0**-FINEST, margin * ROUNDED_AWAY / max(1, len(whole.flat.first)))
    exponent = math.floor(math.log2(unit))
    bits, step = max(0, -exponent), max(0, exponent)
    most = max(float(np.abs(found.to_second).max(initial=0.0)), float(np.abs(found.to_first).max(initial=0.0)))
    total = whole.total + most * (len(whole.flat.first) + 1)
    while bits and total * 2.0**bits > LARGEST:
        bits -= 1
    kept = alive[whole.ends]
    near, at = np.where(kept, _near(whole, found), np.inf), whole.at[:-1]
    if len(near):
        near -= np.repeat(np.minimum.reduceat(near, at), np.diff(whole.at))
    scaled = np.floor(near[kept] * 2.0 ** (bits - step))
    if float(scaled.max(initial=0.0)) * 2.0**step > LARGEST:
        return None
    price_bits, listed = 0, []
    if found.prices.any():
        price_bits = max(0, PRICE_BITS - math.frexp(float(found.prices.max()))[1])
        whole_prices = np.floor(found.prices * 2.0**price_bits)
        listed = [(int(t), int(whole_prices[t])) for t in np.flatnonzero(whole_prices).tolist()]
    return Record(threshold, bits, step, price_bits, tuple(listed), scaled.astype(np.int64), False, costs)


def _near(whole: Whole, found: Relaxed) -> np.ndarray:
    """The messages that are written down, edge after edge."""
    sizes = whole.flat.sizes
    second_at, first_at = starts_of(sizes[whole.flat.second]), starts_of(sizes[whole.flat.first])
    parts = [
        found.to_second[second_at[e] : second_at[e + 1]] if second else found.to_first[first_at[e] : first_at[e + 1]]
        for e, second in enumerate(whole.at_second.tolist())
    ]
    return np.concatenate([*parts, np.zeros(0)])


def _deciding(program: LinearProgram) -> np.ndarray:
    """Per node whether anything depends on its choice but what is allowed and what is held."""
    flat = program.flat
    out = np.maximum.reduceat(flat.unary, flat.offsets[:-1]) > np.minimum.reduceat(flat.unary, flat.offsets[:-1])
    for e, edge in enumerate(program.edges):
        finite = edge.core[np.isfinite(edge.core)]
        if (finite > 0).any() or np.ptp(edge.by_row) > 0 or np.ptp(edge.by_column) > 0:
            out[flat.first[e]] = out[flat.second[e]] = True
    return out


def _half(chosen: np.ndarray, alive: np.ndarray) -> np.ndarray:
    """The states that the program takes most of, as few as are half of what it takes, and never all."""
    order = np.argsort(np.where(alive, -chosen, np.inf), kind="stable")[: int(alive.sum())]
    taken = np.cumsum(chosen[order])
    count = min(int(np.searchsorted(taken, 0.5 - WHOLE)) + 1, len(order) - 1)
    half = np.zeros(len(alive), dtype=bool)
    half[order[:count]] = True
    return half
