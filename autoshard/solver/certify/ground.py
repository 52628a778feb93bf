"""What records leave of one flat network: states, their messages, and the records so far."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from autoshard.solver.certify.shaving import Shave, shave
from autoshard.solver.certify.weigh import Record, Weighed, Whole, weigh
from autoshard.solver.certify.write import record_of
from autoshard.solver.dual import passes as duals
from autoshard.solver.dual.consistent import make_consistent
from autoshard.solver.dual.fixing import Part, restrict
from autoshard.solver.dual.flat import Flat


@dataclass
class Ground:
    """part: the network with the states in `alive`, and the messages of a run; always consistent.

    records: what justifies that others are gone, in order. bound: the best that they prove, inf where nothing is left
    below the threshold of the last one. costs: whether costs count, or only what can be held.
    """

    whole: Whole
    part: Part
    alive: np.ndarray
    costs: bool = True
    records: list[Record | Shave] = field(default_factory=list)
    bound: float = -math.inf

    @staticmethod
    def of(flat: Flat, costs: bool = True, known: duals.Dual | None = None) -> "Ground | None":
        """All of a network, with the messages that are known of it, if any; None where no states are consistent. See
        also `Whole.of`.
        """
        whole = Whole.of(flat)
        alive = np.ones(len(flat.unary), dtype=bool)
        if whole is None or not make_consistent(flat, alive):
            return None
        part = Part(duals.start(flat), np.arange(len(flat.unary)))
        if known is not None:
            part.dual.go_on_from(known)
        return Ground(whole, part if alive.all() else restrict(part, alive), alive, costs)

    def copy(self) -> "Ground":
        """To go on from, while this one goes on by itself."""
        part = restrict(self.part, np.ones(len(self.part.origin), dtype=bool))
        part.dual.passes = self.part.dual.passes
        return replace(self, part=part, alive=self.alive.copy(), records=list(self.records))

    def shaved(self, check: Callable[[], None]) -> tuple[bool, int]:
        """Shave under a limit: (False where nothing is left, table entries visited)."""
        flat = self.whole.flat
        if flat.limit is None:
            return True, 0
        left = self.alive.copy()
        found = shave(flat, left, check, self.costs)
        self.records.extend(found.steps)
        if not found.left:
            self.bound = math.inf
        elif not left[self.alive].all():
            self.part = restrict(self.part, left[self.alive])
            self.alive = left
        return found.left, found.work

    def weighed(self, threshold: int, *, pairs: bool = False) -> tuple[Record, Weighed] | None:
        """What messages and prices prove as they stand; None where the numbers do not fit."""
        dual = self.part.dual
        prices = dual.prices if dual.flat.limit is not None and dual.prices.any() else None
        record = record_of(self.whole, dual, prices, threshold, pairs=pairs, costs=self.costs)
        found = None if record is None else weigh(self.whole, self.alive, record)
        return None if record is None or found is None else (record, found)

    def take(self, record: Record, found: Weighed) -> bool:
        """Write a record down and drop what it rules out; False where nothing below its threshold is left.

        Interrupted, it leaves all as it was: a record that stands there is one whose states are gone.
        """
        bound, part, left = max(self.bound, found.bound), self.part, self.alive
        done = found.bound >= record.threshold
        if not done:
            left = found.alive.copy()
            if not make_consistent(self.whole.flat, left):
                bound, done = math.inf, True
            elif not left[self.alive].all():
                part = restrict(self.part, left[self.alive])
                part.dual.passes = self.part.dual.passes
        # no call from here on: Python looks for interrupts at calls
        self.records += [record]
        self.bound = bound
        if not done:
            self.part, self.alive = part, left
        return not done

    def only_note(self, record: Record, found: Weighed) -> None:
        """Write a record down for its bound; what it would rule out stays."""
        self.records.append(record)
        self.bound = max(self.bound, found.bound)
