"""Where a part of a proof is split: at the node that promises most for the worse of its two halves.

Candidates are the nodes at which recent decodings hold different amounts of memory at the prices of the part, and those
at which the last one pays most above the bound. What a split there is worth is tried by a few passes on both halves
until a node has been tried, or split at, often enough; from then on it is taken to give what it gave on average
(reliability branching; Achterberg, Koch and Martin 2005). Splits at the memory of nodes that follow from others say
little and are seldom worth much, and no rule fixed beforehand tells them apart as well. Of two gains it is asked how
fast a tree grows whose splits all have them (Le Bodic and Nemhauser 2017): a half that is closed at once grows nothing,
however little the other one gains.
"""

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from autoshard.solver.dual import passes as duals
from autoshard.solver.dual.fixing import Part, paid_above, reduced_costs
from autoshard.solver.dual.flat import Flat

CANDIDATES = 8
"""Most nodes that are considered for one split."""
RELIABLE = 4
"""Trials and splits of a node before it is tried only where it gave most on average."""
LOOKED_AT = 2
"""Such nodes that are tried for one split."""
BELIEVED = 2
"""So many halves of a node say as much of what passes give beyond a trial as is believed without any: nothing."""
LEAST_GAIN = 1e-3
"""Gains count as this share of what is missing at least, so that one good half counts for something."""
BISECTIONS = 30
"""Halvings of the interval in which the growth of a tree is looked for: to a part in 10**9."""

Options = dict[int, np.ndarray]
"""Per node where a part may be split, over its states, the first half; the most promising node first."""
Trial = Callable[[int, np.ndarray], float]
"""The bound of what is left of a part with only these states of a node, after a few passes."""


@dataclass
class Gains:
    """What halves of a node closed of what was missing: per half the sum of these shares, and how many there were."""

    total: list[float] = field(default_factory=lambda: [0.0, 0.0])
    count: list[int] = field(default_factory=lambda: [0, 0])

    def add(self, half: int, share: float) -> None:
        """One more; shares outside of 0 to 1 are taken for the nearer of both."""
        self.total[half] += min(1.0, max(0.0, share))
        self.count[half] += 1

    def mean(self, half: int, otherwise: float) -> float:
        """The mean share; `otherwise` where there is none."""
        return self.total[half] / self.count[half] if self.count[half] else otherwise

    def copy(self) -> "Gains":
        """The same to add to by itself."""
        return Gains(list(self.total), list(self.count))


@dataclass
class Branching:
    """trials, splits: per node what a few passes on its halves gave, and what its halves gave in the end.

    tried: all trials (node, half, share), in order.
    """

    flat: Flat
    trials: dict[int, Gains] = field(default_factory=dict)
    splits: dict[int, Gains] = field(default_factory=dict)
    tried: list[tuple[int, int, float]] = field(default_factory=list)

    def apart(self) -> "Branching":
        """The same to learn on by itself."""
        trials, splits = ({n: gains.copy() for n, gains in known.items()} for known in (self.trials, self.splits))
        return Branching(self.flat, trials, splits)

    def learn_trial(self, node: int, half: int, share: float) -> None:
        """How much of what was missing a few passes on a half have closed."""
        self.tried.append((node, half, share))
        self.trials.setdefault(node, Gains()).add(half, share)

    def learn_split(self, node: int, half: int, share: float) -> None:
        """How much of what was missing a half has closed when it was settled."""
        self.splits.setdefault(node, Gains()).add(half, share)

    def choose(self, options: Options, bound: float, missing: float, trial: Trial) -> int:
        """The node to split at; missing: from the bound of the part to the threshold."""
        known = [node for node in options if self._times(node) >= RELIABLE]
        ahead = sorted(known, key=self._usually)[:LOOKED_AT]
        best, chosen = math.inf, next(iter(options))
        for node in (*ahead, *(node for node in options if node not in known)):
            expected, tried = [1.0, 1.0], [1.0, 1.0]
            usual = [self._usual(node, half) for half in (0, 1)]
            for half in sorted((0, 1), key=usual.__getitem__):
                kept = ~options[node] if half else options[node]
                tried[half] = (trial(node, kept) - bound) / max(missing, 1.0)
                expected[half] = self._expected(node, half, tried[half])
                self.learn_trial(node, half, tried[half])
                if growth(*expected) >= best:  # whatever the other half gives
                    break
            else:
                if min(tried) >= 1.0:
                    return node
                best, chosen = growth(*expected), node
        return chosen

    def _of(self, node: int) -> tuple[Gains, Gains]:
        return self.trials.get(node, _NONE), self.splits.get(node, _NONE)

    def _times(self, node: int) -> int:
        """How often a node has been tried or split at."""
        trials, splits = self._of(node)
        return min(t + s for t, s in zip(trials.count, splits.count, strict=True))

    def _usual(self, node: int, half: int) -> float:
        """What a half of a node gave on average, or trials of it while it was seldom split at."""
        trials, splits = self._of(node)
        return (splits if splits.count[half] >= BELIEVED else trials).mean(half, 1.0)

    def _usually(self, node: int) -> float:
        """How a tree grows by that."""
        return growth(self._usual(node, 0), self._usual(node, 1))

    def _expected(self, node: int, half: int, tried: float) -> float:
        """What a half will give that gave so much in a trial."""
        trials, splits = self._of(node)
        tried, times = min(1.0, max(0.0, tried)), splits.count[half]
        if tried >= 1.0 or not times:
            return tried
        beyond = splits.mean(half, 0.0) - trials.mean(half, tried)
        return min(1.0, max(tried, tried + beyond * times / (times + BELIEVED)))

    def options(
        self, alive: np.ndarray, part: Part, prices: np.ndarray | None, recent: deque[np.ndarray]
    ) -> tuple[Options, int]:
        """Where a part may be split, none where no node has a choice left; and table entries visited on the way."""
        flat = self.flat
        counts = np.add.reduceat(alive.astype(np.int64), flat.offsets[:-1])
        open_ = counts > 1
        if not open_.any():
            return {}, 0
        reach = np.full(len(alive), np.inf)
        reach[part.origin] = reduced_costs(part.dual).reach
        seen = None
        score = np.where(open_, 0.0, -1.0)
        if prices is not None and len(recent):
            weight = self._weights(prices)
            seen = np.array([weight[p] for p in recent])  # of states that have gone since as well
            score += np.where(open_, _scaled(seen.max(axis=0) - seen.min(axis=0)), 0.0)
        chosen = recent[-1] if recent and alive[recent[-1]].all() else None
        if chosen is not None:
            score += np.where(open_, _scaled(_paid(part, alive, chosen)), 0.0)
        if not score.max() > 0:
            close = np.where(alive, np.where(np.isfinite(reach), reach, 0.0), 0.0)
            score = np.where(open_, np.add.reduceat(close, flat.offsets[:-1]) / np.maximum(counts, 1) + 1e-9, -1.0)
        out: Options = {}
        for node in np.argsort(-score, kind="stable")[:CANDIDATES].tolist():
            if score[node] > 0:
                a, b = int(flat.offsets[node]), int(flat.offsets[node + 1])
                half = None if seen is None else _by_memory(weight[a:b], seen[:, node], alive[a:b])
                out[node] = _by_cost(reach[a:b], alive[a:b]) if half is None else half
        return out, 2 * part.flat.entries

    def _weights(self, prices: np.ndarray) -> np.ndarray:
        """Per state what its memory costs."""
        flat = self.flat
        prefix = duals.prefix_of(prices)
        per_unit = prefix[flat.held_stop] - prefix[flat.held_start]
        amounts = np.repeat(per_unit, flat.held_lengths) * flat.amounts
        return np.bincount(flat.held_places, amounts, minlength=len(flat.unary))


_NONE = Gains()


def growth(first: float, second: float) -> float:
    """The logarithm of the factor by which a tree grows while all that is missing is closed, where every split closes
    these shares of it: the x with exp(-first x) + exp(-second x) = 1.

    >>> round(growth(0.5, 0.5), 3), round(growth(1.0, 0.1), 3)
    (1.386, 1.802)
    """
    first, second = (min(1.0, max(share, LEAST_GAIN)) for share in (first, second))
    low, high = 0.0, math.log(2.0) / min(first, second)
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        if math.exp(-first * middle) + math.exp(-second * middle) > 1.0:
            low = middle
        else:
            high = middle
    return high


def _scaled(values: np.ndarray) -> np.ndarray:
    most = float(values.max(initial=0.0))
    return values / most if most > 0 else np.zeros(len(values))


def _by_memory(weight: np.ndarray, seen: np.ndarray, alive: np.ndarray) -> np.ndarray | None:
    """The states of a node with less priced memory than halfway between what was seen; None where that splits
    nothing."""
    if not seen.max() > seen.min():
        return None
    light = weight <= (seen.max() + seen.min()) / 2
    return None if not (light & alive).any() or (light | ~alive).all() else light


def _by_cost(reach: np.ndarray, alive: np.ndarray) -> np.ndarray:
    """The half of a node's states that cost least above the bound."""
    mine = np.flatnonzero(alive)
    order = mine[np.argsort(reach[mine], kind="stable")]
    half = np.zeros(len(alive), dtype=bool)
    half[order[: max(1, len(order) // 2)]] = True
    return half


def _paid(part: Part, alive: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """Per node what a decoding pays above the bound at it and on its edges."""
    number = np.full(len(alive), -1)
    number[part.origin] = np.arange(len(part.origin))
    return paid_above(part.dual, number[chosen] - part.flat.offsets[:-1])
