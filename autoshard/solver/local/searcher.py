"""One assignment on a field and what improves it: repair of forbidden pairs and of memory, tree moves, shaking.

Several searchers may work on one network at a time, each in a thread of its own: the compiled moves release Python's
lock, the network is shared and never written to, and incumbents are exchanged through the race.
"""

import dataclasses
import math
from collections.abc import Callable

import numpy as np

from autoshard.solver.completion import Completion
from autoshard.solver.incumbent import Race
from autoshard.solver.local import search

TREE_SIZES = (20, 5, 100, 400, 2000)
"""Inner nodes of the trees that one search round re-chooses."""
WORTH_OFFERING = 2e-5
"""The relative improvement from which an assignment is checked on the original network at once."""
FAR = 0.02
WORTH_OFFERING_FAR = 5e-3
"""That improvement while the gap is larger than `FAR`: a check holds up message passing in the other thread."""
SHAKE_SCALES = (1.0, 0.6, 1.6, 2.5)
"""Multiples of the memory prices at which a shaken assignment is polished before it is polished at its true cost."""
WANDERED = 5e-4
GONE_ON = 3
"""A shaken assignment is gone on from in one of so many cases, unless it costs this share more than the best."""
CONFLICT_ROUNDS = 60
"""Sweeps of tree moves that may be spent on forbidden pairs."""
SWEEP_SCALES = (0.0, 1.3)
"""Multiples of the memory prices at which a sweep re-chooses trees, between these."""
SWEPT = 4
LEAST_SWEPT = 1000
LEAST_TREES = 4
"""A sweep re-chooses so many times as many nodes as there are, at least so many nodes, and at least so many trees."""
IDLE_SWEEPS = 2
"""Times that every tree size may gain nothing before sweeps end."""
LITTLE_GAIN = 1e-5
"""A sweep that gains up to this share of the cost counts as one that gains nothing."""
SHAKEN = (20, 5)
MOST_SHAKEN = 200
"""Shaken stretches: one in 20 of the nodes, one in 5, and so many, in turns."""
SHAKING_TREE = 20
SHAKING_SHARE = 5
"""Inner nodes of the trees that shake a stretch, one for so many of its nodes."""
NOISE = 2.0
"""Mean of the costs added to the states of a shaken stretch, as a multiple of what a node costs on average."""
POLISHING_TREES = (20, 100)
"""Inner nodes of the trees that polish a shaken stretch."""


class Searcher:
    """A field with its random state. price: tells the current prices on memory."""

    def __init__(
        self, race: Race, completion: Completion, seed: int, price: Callable[[], np.ndarray],
        check: Callable[[], None] | None = None,
    ) -> None:  # fmt: skip
        self.race, self.completion, self.price = race, completion, price
        self.constant, self.flat = completion.work.constant, completion.flat
        flat = self.flat
        self.check = race.check if check is None else check
        self.field = search.field_for(flat, seed)
        self.random = np.random.default_rng(seed)
        self.known: int | None = None
        self.best: np.ndarray | None = None
        self.unplaced: int | None = None
        """What an incumbent costs that could not be put on the field."""
        self.shakes = 0
        self.zero = search.prefix_of(np.zeros(flat.slots))

    def decode(self, chosen: np.ndarray) -> None:
        """Repair and polish an assignment (positions in the network), then offer it.

        While none is known and this one cannot be repaired, what holds least memory is tried instead.
        """
        if self._feasible(chosen) or (self.race.cost is None and self._feasible(search.least_memory(self.field))):
            if self.flat.limit is not None:
                search.descend(self.field, search.prefix_of(self.price()))
            search.descend(self.field, self.zero)
            self.offer()

    def put(self, chosen: np.ndarray, prices: np.ndarray, worth: float, sweeps: int) -> None:
        """Repair an assignment at these prices and offer it; polish it when it costs at most `worth` times the best."""
        if not self._feasible(chosen, prices):
            return
        search.descend(self.field, search.prefix_of(prices))
        search.descend(self.field, self.zero)
        cost = self.constant + search.cost(self.field)
        if self.race.cost is None or cost <= self.race.cost * worth:
            self.improve(sweeps)

    def begin(self) -> None:
        """Offer some assignment while none is known: what holds least memory, repaired."""
        if self.race.cost is None and self._feasible(search.least_memory(self.field)):
            search.descend(self.field, self.zero)
            self.offer()

    def _feasible(self, chosen: np.ndarray, prices: np.ndarray | None = None) -> bool:
        """Put an assignment on the field and repair it, at other prices than the best if asked; whether that worked."""
        field = self.field
        prices = self.price() if prices is None else prices
        search.place(field, chosen)
        if not math.isfinite(search.cost(field)):
            if not search.resolve(field, prices, CONFLICT_ROUNDS, self.check):
                return False
        return search.over(field) <= 0 or search.repair(field, prices, check=self.check)

    def offer(self, least: float = 0.0) -> bool:
        """Offer what stands on the field if it is better by the share `least`; remembers it when it is the best."""
        cost = search.cost(self.field)
        if not math.isfinite(cost):
            return False
        if self.race.cost is not None and self.constant + cost >= self.race.cost - least * abs(self.race.cost):
            return False
        if self.race.offer(self.completion.complete(self.field.chosen)):
            self.known, self.best = self.race.cost, self.field.chosen.copy()
            return True
        return False

    def restart(self) -> bool:
        """Put the incumbent on the field; False when there is none.

        Where reductions dropped a state of it, what is next to it is put there, which may cost more; False where that
        cannot be repaired.
        """
        cost, assignment = self.race.incumbent()
        if assignment is None:
            return False
        if self.known != cost or self.best is None:
            if self.unplaced == cost:
                return False
            places = self.completion.positions(assignment)
            if places is None:
                if not self._feasible(self.completion.nearest(assignment)):
                    self.unplaced = cost
                    return False
                search.descend(self.field, self.zero)
                places = self.field.chosen.copy()
            self.known, self.best = cost, places
        search.place(self.field, self.best)
        return True

    def sweep(self, size: int, scales: tuple[float, float] = SWEEP_SCALES) -> float:
        """Re-choose random trees of up to `size` inner nodes, about four times as many nodes as there are."""
        count = max(LEAST_TREES, max(LEAST_SWEPT, SWEPT * self.flat.n) // size)
        return search.trees(self.field, search.prefix_of(self.price()), count, size, scales=scales)

    def improve(self, sweeps: int, spend: Callable[[], bool] = lambda: True) -> None:
        """Sweeps of several tree sizes from where the field stands, until they gain no more; `spend` may end it."""
        idle, k = 0, 0
        try:
            while idle < IDLE_SWEEPS * len(TREE_SIZES) and k < sweeps and spend():
                self.check()
                gain = self.sweep(TREE_SIZES[k % len(TREE_SIZES)])
                idle = 0 if gain > LITTLE_GAIN * abs(search.cost(self.field)) else idle + 1
                k += 1
                if gain > 0:
                    self.offer(WORTH_OFFERING if self.race.gap() < FAR else WORTH_OFFERING_FAR)
        finally:
            self.offer()

    def shake(self) -> None:
        """Change a stretch of the assignment against its cost, polish it at other prices, then at its true cost."""
        field, flat = self.field, self.flat
        kind, self.shakes = self.shakes, self.shakes + 1
        count = max(1, min(flat.n, (flat.n // SHAKEN[0], flat.n // SHAKEN[1], MOST_SHAKEN)[kind % 3]))
        low = int(self.random.integers(0, flat.n - count + 1))
        window = (low, low + count)
        prefix = search.prefix_of(self.price())
        trees = max(LEAST_TREES, count // SHAKING_SHARE)
        scale = SHAKE_SCALES[kind % len(SHAKE_SCALES)]
        if kind % 2 or flat.limit is None:
            a, b = flat.offsets[low], flat.offsets[low + count]
            unary = flat.unary.copy()
            unary[a:b] += self.random.exponential(NOISE * abs(search.cost(field)) / flat.n, b - a)
            noisy = dataclasses.replace(flat, unary=unary)
            search.trees(field, prefix, trees, SHAKING_TREE, scales=(0.0, scale), window=window, flat=noisy)
        else:
            search.trees(field, prefix * scale, trees, SHAKING_TREE, scales=(1.0, 1.0), judge=1.0, window=window)
        for size in POLISHING_TREES:
            self.check()
            many = max(LEAST_TREES, SWEPT * count // size)
            search.trees(field, prefix, many, size, scales=SWEEP_SCALES, window=window)
        self.sweep(TREE_SIZES[kind % len(TREE_SIZES)])
        self.offer()

    def wander(self, shakes: int) -> None:
        """Shake again and again, mostly from the incumbent."""
        for _ in range(shakes):
            self.check()
            cost = self.race.cost
            far = cost is None or self.constant + search.cost(self.field) > cost + WANDERED * abs(cost)
            if (far or self.random.integers(GONE_ON)) and not self.restart():
                return
            self.shake()
