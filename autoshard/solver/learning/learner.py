"""The search itself: decide, spread, learn from dead ends, begin again now and then."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from autoshard.solver.compiled import compiled
from autoshard.solver.dual.flat import Flat
from autoshard.solver.learning.arrays import (
    CAUSES,
    CONFLICTS,
    DECIDED,
    HERE,
    LEVEL,
    NOGOODS,
    RESTART,
    RESTARTS,
    TRAIL,
    Rules,
    Search,
    begun,
    rules_of,
)
from autoshard.solver.learning.reasons import learn, watch
from autoshard.solver.learning.spread import FITS, go_back, keep_only, remove, spread

OPEN, REFUTED, FOUND, FULL = range(4)
FADING = 0.98
"""How much less a state counts with every dead end after that which it was part of."""
MOST_ACTIVITY = 1e100
UNIT = 100
"""Dead ends between restarts: so many times 1, 1, 2, 1, 1, 2, 4, ... (Luby, Sinclair and Zuckerman 1993)."""
SLICE = 250
"""Dead ends between looks at the clock."""
MOST_POOL = 64_000_000
"""States of all nogoods, at most: 256 MB."""


@dataclass(frozen=True)
class Nogood:
    """Every assignment that fits gives one of these nodes one of its states. nodes: numbers in the flat network;
    states: of each, places among its own."""

    nodes: tuple[int, ...]
    states: tuple[np.ndarray, ...]


class Learner:
    """Looks for an assignment of a flat network that fits, whatever it costs, or shows that there is none."""

    def __init__(self, flat: Flat) -> None:
        self.rules = rules_of(flat)
        self.search = begun(self.rules)
        self.search.numbers[RESTART] = UNIT
        self.result = OPEN
        self._last = FITS

    @property
    def conflicts(self) -> int:
        """Dead ends so far."""
        return int(self.search.numbers[CONFLICTS])

    def go_on(self, conflicts: int, check: Callable[[], None]) -> int:
        """Search for so many more dead ends: `OPEN`, `REFUTED` or `FOUND`, or `FULL` where nogoods take too much
        memory. check: raises where the time is over."""
        until = self.conflicts + conflicts
        while self.result == OPEN and self.conflicts < until:
            check()
            self._make_space(min(SLICE, until - self.conflicts))
            found, self._last = _search(self.rules, self.search, min(until, self.conflicts + SLICE))
            if found == FULL and len(self.search.pool) < MOST_POOL:
                self._widen()
                continue
            self.result = int(found)
        return self.result

    def assignment(self) -> np.ndarray:
        """Of every node the place of its state, once one is found."""
        left = np.flatnonzero(self.search.place == HERE)
        return left - self.rules.offsets[:-1]

    def nogoods(self) -> list[Nogood]:
        """Those that the refutation rests on, in the order in which they were learned."""
        search, causes = self.search, len(self.rules.target) + len(self.search.live)
        needed = np.zeros(int(search.numbers[NOGOODS]), dtype=bool)
        trail = search.trail[: int(search.numbers[TRAIL])]
        by = search.cause[trail] - causes
        needed[by[by >= 0]] = True
        if self._last >= causes:
            needed[self._last - causes] = True
        for nogood in range(len(needed) - 1, -1, -1):  # each rests on earlier ones
            if needed[nogood]:
                needed[search.causes[search.asked[nogood] : search.asked[nogood + 1]]] = True
        return [self._nogood(nogood) for nogood in np.flatnonzero(needed).tolist()]

    def _nogood(self, nogood: int) -> Nogood:
        states = self.search.pool[self.search.begin[nogood] : self.search.begin[nogood + 1]].astype(np.int64)
        owners = self.rules.owner[states]
        nodes, begins = np.unique(owners, return_index=True)
        own = np.split(states - self.rules.offsets[owners], begins[1:])
        return Nogood(tuple(nodes.tolist()), tuple(own))

    def _make_space(self, more: int) -> None:
        """For so many more nogoods."""
        count, search = int(self.search.numbers[NOGOODS]) + more + 2, self.search
        if len(search.begin) <= count:
            room = max(1000, 2 * count)
            self.search = search._replace(
                begin=_grown(search.begin, room + 1), asked=_grown(search.asked, room + 1),
                watched=_grown(search.watched, 2 * room), following=_grown(search.following, 2 * room),
            )  # fmt: skip

    def _widen(self) -> None:
        search = self.search
        self.search = search._replace(
            pool=_grown(search.pool, 2 * len(search.pool)), causes=_grown(search.causes, 2 * len(search.causes))
        )


def _grown(array: np.ndarray, length: int) -> np.ndarray:
    grown = np.zeros(length, dtype=array.dtype)
    grown[: len(array)] = array
    return grown


@compiled
def _restarts_after(number: int):
    """The number of units to the next restart (1, 1, 2, 1, 1, 2, 4, ...); number: of restarts before."""
    size = 1
    while size < number + 1:
        size = 2 * size + 1
    while size - 1 != number:
        size = (size - 1) >> 1
        number %= size
    return (size + 1) >> 1


@compiled
def _decide(rules: Rules, search: Search):
    """Keep of one node what holds less than the state that dead ends were most about, or this state where nothing
    does; False where every node has one state left."""
    most = -1
    for state in range(len(search.activity)):
        if search.place[state] != HERE or search.counts[rules.owner[state]] < 2:
            continue
        if most < 0 or search.activity[state] > search.activity[most]:
            most = state
    if most < 0:
        return False
    node = rules.owner[most]
    below = False
    for state in range(rules.offsets[node], rules.offsets[node + 1]):
        below = below or (search.place[state] == HERE and search.weight[state] < search.weight[most])
    search.numbers[LEVEL] += 1
    search.begins[search.numbers[LEVEL]] = search.numbers[TRAIL]
    for state in range(rules.offsets[node], rules.offsets[node + 1]):
        if search.place[state] != HERE:
            continue
        if search.weight[state] >= search.weight[most] if below else state != most:
            remove(rules, search, state, DECIDED)
    return True


@compiled
def _learned(rules: Rules, search: Search, found: int, causes: int):
    """Learn from a dead end, and go back to where what was learned leaves a node less choice."""
    level, point = learn(rules, search, found)
    go_back(rules, search, level)
    watch(rules, search, level, point)
    search.step[0] /= FADING
    if search.step[0] > MOST_ACTIVITY:
        search.step[0] /= MOST_ACTIVITY
        for state in range(len(search.activity)):
            search.activity[state] /= MOST_ACTIVITY
    nogood = search.numbers[NOGOODS] - 1
    keep_only(rules, search, nogood, point, causes + nogood)


@compiled
def _search(rules: Rules, search: Search, until: int):
    """(How it ended, what contradicted the last that was left), after so many dead ends at most."""
    causes = len(rules.target) + len(search.live)
    states = len(search.place)
    while True:
        if search.begin[search.numbers[NOGOODS]] + states > len(search.pool):
            return FULL, FITS
        if search.numbers[CAUSES] + 2 * states + 1 > len(search.causes):
            return FULL, FITS
        found = spread(rules, search)
        if found != FITS:
            if search.numbers[LEVEL] == 0:
                return REFUTED, found
            search.numbers[CONFLICTS] += 1
            search.numbers[RESTART] -= 1
            _learned(rules, search, found, causes)
            if search.numbers[CONFLICTS] >= until:
                return OPEN, FITS
        elif search.numbers[RESTART] <= 0 and search.numbers[LEVEL] > 0:
            search.numbers[RESTARTS] += 1
            search.numbers[RESTART] = UNIT * _restarts_after(search.numbers[RESTARTS])
            go_back(rules, search, 0)
        elif not _decide(rules, search):
            return FOUND, FITS
