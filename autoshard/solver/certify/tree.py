"""Branch and bound that leaves a proof: parts of a network, each closed by a record of messages and prices.

The open part with the least bound is split next, so that the bound of the whole rises; `branching` says where, `parts`
settles the halves. A few parts are split side by side, in threads where the process may use several cores: which ones,
and what comes of it, is the same without.
"""

import heapq
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from autoshard.solver.certify.branching import Branching
from autoshard.solver.certify.parts import ROOT_PASSES, OpenPart, Settler, Split, Step
from autoshard.solver.certify.weigh import Whole
from autoshard.solver.dual import passes as duals
from autoshard.solver.dual.cutting import cut_out
from autoshard.solver.dual.fixing import Part
from autoshard.solver.dual.flat import Flat
from autoshard.solver.threads import side_by_side

AT_ONCE = 2
"""Parts that are split side by side; their halves are as well."""
FIRST_LOOK, LOOK_EVERY = 24, 1_000_000_000
KEPT = (5, 6, 4, 8)
"""Parts before the first search among the states that cost least, table entries that are visited between two, and how
many states a node keeps there."""
LOOKED_IN_VAIN, SELDOM = 1.5, 8.0
"""So many times as many entries are visited after each such search that finds nothing, up to so many in all."""
LOOKED_WORK = 50_000_000
"""Table entries in whose time such a search is done, about."""


Look = Callable[[np.ndarray, int], None]
"""Looks for assignments among some states of the network that is split, below a threshold, and offers them."""
_Entry = tuple[float, int, OpenPart]


@dataclass
class _Line:
    """Splits one after the other. newest: numbers of the parts that came of the last one: above the first, up to the
    second. plunging: whether it goes on from them."""

    newest: tuple[int, int] = (0, 0)
    plunging: bool = False


@dataclass
class Tree:
    """The search over parts of one flat network.

    threshold: returns the cost from which on assignments are of no interest; it may only fall. offer: takes positions.
    check: called between passes; may raise to stop. costs: whether costs count, or only what can be held. look:
    searches among what costs least in a part, now and then. work: table entries visited so far, the measure of effort.
    stuck: least bound of parts that can neither be closed nor split. looks, next_look: searches by `look` so far, and
    the table entries after which the next one is due; patience: how many times `LOOK_EVERY` that is after one. lines:
    splits side by side. open, chosen: parts to split, and those of them that are being split; settled: the number of
    parts before these.
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
    looks: int = 0
    next_look: int = 0
    patience: float = 1.0
    lines: list[_Line] = field(default_factory=lambda: [_Line() for _ in range(AT_ONCE)])
    open: list[_Entry] = field(default_factory=list)
    chosen: list[_Entry] = field(default_factory=list)
    settled: int = 0
    root: Step = field(default_factory=Step)

    def __post_init__(self) -> None:
        flat = self.whole.flat
        everything = np.arange(len(flat.unary))
        self.start = cut_out(Part(duals.start(flat), everything), np.ones(len(everything), dtype=bool))
        self.branching = Branching(flat)

    @property
    def flat(self) -> Flat:
        """The network that is split."""
        return self.whole.flat

    @property
    def bound(self) -> float:
        """Nothing costs less, up to the threshold."""
        return min(self.stuck, min((entry[0] for entry in (*self.open, *self.chosen)), default=math.inf))

    def begin(self, part: Part, prices: np.ndarray | None) -> None:
        """Settle the whole network, from messages and prices that are known."""
        settler = self.settler()
        settler.settle(self.root, part, prices, -math.inf, ROOT_PASSES)
        self._take_in(settler)
        self.take([settler])

    def run(self, most_work: int) -> bool:
        """Split parts until none is open, or so many table entries have been visited; True when none is."""
        until = self.work + most_work
        while (self.open or self.chosen) and self.work < until:
            self._take_back()
            self._choose()
            if self.chosen:
                self._split()
        return not self.open and not self.chosen

    def _take_back(self) -> None:
        """Open again what was chosen when a run was stopped: nothing is known of its halves."""
        if self.chosen:
            for _, _, at in self.chosen:
                at.step.node, at.step.first_half, at.step.halves = -1, None, []
            known = {entry[1] for entry in self.chosen}
            self.open = [*(e for e in self.open if e[1] not in known and e[1] <= self.settled), *self.chosen]
            heapq.heapify(self.open)
            self.chosen = []

    def settler(self, keep: int | None = None) -> Settler:
        """What settles parts apart from all others, below the threshold as it is."""
        return Settler(self.whole, self.start, self.branching, self.threshold(), self.check, self.costs, keep)

    def _split(self) -> None:
        """Split what was chosen side by side, and take in what comes of it in that order."""
        chosen, self.settled = self.chosen, self.parts
        due = self.look is not None and self.costs and self.parts >= FIRST_LOOK and self.work >= self.next_look
        keep = KEPT[self.looks % len(KEPT)] if due else None

        def halves(split: Split) -> list[Callable[[], tuple[Settler, Step]]]:
            return [lambda k=k: half(split, k) for k in (0, 1)]

        def half(split: Split, number: int) -> tuple[Settler, Step]:
            settler = self.settler(keep if split.at is chosen[0][2] and number == 0 else None)
            return settler, settler.half(split, number)

        outcomes = side_by_side([lambda e=e: self.settler().split(e[2], e[0]) for e in chosen], halves)
        done = [outcome for outcome in outcomes if not isinstance(outcome, BaseException)]
        settlers = [settler for _, settled in done for settler, _ in settled]
        ended = self._offered(settlers)
        left: list[_Entry] = []
        for line, entry, outcome in zip(self.lines, chosen, outcomes, strict=False):
            if isinstance(outcome, BaseException):
                left.append(entry)
                ended = ended or outcome
                continue
            before = self.parts
            self._join(outcome[0], [step for _, step in outcome[1]])
            for settler, _ in outcome[1]:
                self._take_in(settler)
            line.newest = before, self.parts
        for entry in left:
            heapq.heappush(self.open, entry)
        self.chosen = []
        if ended is not None:
            raise ended
        self._look_around(settlers)

    def _offered(self, settlers: Sequence[Settler]) -> Exception | None:
        """Offer what was found: all of it, for parts are closed by what was found in them. The first of what that
        raises, which ends the run.
        """
        ended: Exception | None = None
        for settler in settlers:
            for positions in settler.found:
                try:
                    self.offer(positions)
                except Exception as end:
                    ended = ended or end
            assert self.threshold() <= settler.threshold, "an assignment that was found was not taken"
        return ended

    def take(self, settlers: Sequence[Settler]) -> None:
        """Offer what was found; raises what ends the run."""
        ended = self._offered(settlers)
        if ended is not None:
            raise ended

    def _join(self, split: Split, halves: list[Step]) -> None:
        """Put two halves in the place of a part."""
        step = split.at.step
        step.node, step.first_half, step.halves = split.node, split.first_half, halves
        self.work += split.work
        for node, side, share in split.tried:
            self.branching.learn_trial(node, side, share)
        for side, half in enumerate(halves):
            self.branching.learn_split(split.node, side, (half.bound - split.bound) / split.missing)

    def _take_in(self, settler: Settler) -> None:
        """What was settled apart from all others."""
        for bound, number, part in settler.open:
            heapq.heappush(self.open, (bound, self.parts + number, part))
        self.parts += settler.parts
        self.work += settler.work
        self.stuck = min(self.stuck, settler.stuck)

    def _look_around(self, settlers: Sequence[Settler]) -> None:
        """Search among what costs least in a part, where that is due."""
        for settler in settlers:
            if settler.close is not None and self.look is not None:
                self.looks += 1
                self.work += LOOKED_WORK
                below = self.threshold()
                self.look(settler.close, below)
                self.patience = 1.0 if self.threshold() < below else min(SELDOM, LOOKED_IN_VAIN * self.patience)
                self.next_look = self.work + int(LOOK_EVERY * self.patience)

    def _choose(self) -> None:
        """Choose the open parts to split, one for every line as long as there are enough."""
        for line in self.lines:
            self._choose_next(line)

    def _choose_next(self, line: _Line) -> None:
        """The open part with the least bound, and after every other one on from the better half of what the line split
        last, until neither stays open. Such a plunge soon ends at an assignment; least bounds seldom do.
        """
        low, high = line.newest
        threshold = self.threshold()
        while self.open:
            halves = [entry for entry in self.open if low < entry[1] <= high] if line.plunging else []
            if not halves:
                line.plunging = not line.plunging
            entry = min(halves, key=lambda entry: entry[:2]) if halves else self.open[0]
            wanted = entry[0] < threshold
            if wanted:
                self.chosen.append(entry)  # first of all: whatever stops the run, it stays open
            if halves:
                self.open.remove(entry)
                heapq.heapify(self.open)
            else:
                heapq.heappop(self.open)
            if wanted:
                return
