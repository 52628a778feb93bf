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
    splits side by side.
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
        return min(self.stuck, self.open[0][0] if self.open else math.inf)

    def begin(self, part: Part, prices: np.ndarray | None) -> None:
        """Settle the whole network, from messages and prices that are known."""
        settler = self._settler()
        settler.settle(self.root, part, prices, -math.inf, ROOT_PASSES)
        self._take_in(settler)
        self._tell_of([settler])

    def run(self, most_work: int) -> bool:
        """Split parts until none is open, or so many table entries have been visited; True when none is."""
        until = self.work + most_work
        while self.open and self.work < until:
            chosen = self._chosen()
            if chosen:
                self._split(chosen)
        return not self.open

    def _settler(self, keep: int | None = None) -> Settler:
        return Settler(self.whole, self.start, self.branching, self.threshold(), self.check, self.costs, keep)

    def _split(self, chosen: Sequence[_Entry]) -> None:
        """Split parts side by side, and take in what comes of it in their order."""
        due = self.look is not None and self.costs and self.parts >= FIRST_LOOK and self.work >= self.next_look
        keep = KEPT[self.looks % len(KEPT)] if due else None

        def halves(split: Split) -> list[Callable[[], tuple[Settler, Step]]]:
            return [lambda k=k: half(split, k) for k in (0, 1)]

        def half(split: Split, number: int) -> tuple[Settler, Step]:
            settler = self._settler(keep if split.at is chosen[0][2] and number == 0 else None)
            return settler, settler.half(split, number)

        try:
            outcomes = side_by_side([lambda e=e: self._settler().split(e[2], e[0]) for e in chosen], halves)
        except BaseException:  # nothing is known of any of them
            for entry in chosen:
                heapq.heappush(self.open, entry)
            raise
        raised: BaseException | None = None
        settlers: list[Settler] = []
        for number, (entry, outcome) in enumerate(zip(chosen, outcomes, strict=True)):
            if isinstance(outcome, BaseException):
                heapq.heappush(self.open, entry)
                raised = raised or outcome
                continue
            split, settled = outcome
            before = self.parts
            self._join(split, [step for _, step in settled])
            for settler, _ in settled:
                self._take_in(settler)
                settlers.append(settler)
            self.lines[number].newest = before, self.parts
        self._tell_of(settlers)
        if raised is not None:
            raise raised

    def _join(self, split: Split, halves: list[Step]) -> None:
        """Put two halves in the place of a part."""
        step = split.at.step
        step.node, step.first_half, step.halves = split.node, split.first_half, halves
        self.work += split.work
        for node, side, share in split.learned:
            self.branching.learn(node, side, share)
        for side, half in enumerate(halves):
            self.branching.learn(split.node, side, (half.bound - split.bound) / split.missing)

    def _take_in(self, settler: Settler) -> None:
        """What was settled apart from all others."""
        for bound, number, part in settler.open:
            heapq.heappush(self.open, (bound, self.parts + number, part))
        self.parts += settler.parts
        self.work += settler.work
        self.stuck = min(self.stuck, settler.stuck)

    def _tell_of(self, settlers: Sequence[Settler]) -> None:
        """Offer what was found, which may end the run, and search among what costs least where that is due."""
        for settler in settlers:
            for positions in settler.found:
                self.offer(positions)
            assert self.threshold() <= settler.threshold, "an assignment that was found was not taken"
        for settler in settlers:
            if settler.close is not None and self.look is not None:
                self.looks += 1
                self.work += LOOKED_WORK
                below = self.threshold()
                self.look(settler.close, below)
                self.patience = 1.0 if self.threshold() < below else min(SELDOM, LOOKED_IN_VAIN * self.patience)
                self.next_look = self.work + int(LOOK_EVERY * self.patience)

    def _chosen(self) -> list[_Entry]:
        """The open parts to split, one for every line as long as there are enough."""
        out: list[_Entry] = []
        for line in self.lines:
            entry = self._next(line)
            if entry is not None:
                out.append(entry)
        return out

    def _next(self, line: _Line) -> _Entry | None:
        """The open part with the least bound, and after every other one on from the better half of what the line split
        last, until neither stays open. Such a plunge soon ends at an assignment; least bounds seldom do.
        """
        low, high = line.newest
        threshold = self.threshold()
        while self.open:
            halves = [entry for entry in self.open if low < entry[1] <= high] if line.plunging else []
            if halves:
                entry = min(halves, key=lambda entry: entry[:2])
                self.open.remove(entry)
                heapq.heapify(self.open)
            else:
                line.plunging = not line.plunging
                entry = heapq.heappop(self.open)
            if entry[0] < threshold:
                return entry
        return None
