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
"""Halves of a node that have been seen before it is taken to give what it gave on average."""
LEAST_GAIN = 1e-3
"""Gains count as this share of what is missing at least, so that one good half counts for something."""
BISECTIONS = 30
"""Halvings of the interval in which the growth of a tree is looked for: to a part in 10**9."""

Options = dict[int, np.ndarray]
"""Per node where a part may be split, over its states, the first half; the most promising node first."""
Trial = Callable[[int, np.ndarray], float]
"""The bound of what is left of a part with only these states of a node, after a few passes."""


@dataclass
class Branching:
    """gains: per node, for first and second halves, how much of what was missing they closed: the sum, and how many.

    learned: all of that, in order.
    """

    flat: Flat
    gains: dict[int, tuple[list[float], list[int]]] = field(default_factory=dict)
    learned: list[tuple[int, int, float]] = field(default_factory=list)

    def apart(self) -> "Branching":
        """The same to learn on by itself."""
        return Branching(self.flat, {node: (list(total), list(count)) for node, (total, count) in self.gains.items()})

    def learn(self, node: int, half: int, share: float) -> None:
        """How much of what was missing a half has closed."""
        self.learned.append((node, half, share))
        total, count = self.gains.setdefault(node, ([0.0, 0.0], [0, 0]))
        total[half] += min(1.0, max(0.0, share))
        count[half] += 1

    def choose(self, options: Options, bound: float, missing: float, trial: Trial) -> int:
        """The node to split at; missing: from the bound of the part to the threshold."""
        best, chosen = math.inf, next(iter(options))
        for node, first in options.items():
            if node not in self.gains or min(self.gains[node][1]) < RELIABLE:
                shares = [(trial(node, kept) - bound) / max(missing, 1.0) for kept in (first, ~first)]
                for half, share in enumerate(shares):
                    self.learn(node, half, share)
                if min(shares) >= 1.0:
                    return node
            else:
                total, count = self.gains[node]
                shares = [total[half] / count[half] for half in (0, 1)]
            grows = growth(*shares)
            if grows < best:
                best, chosen = grows, node
        return chosen

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
