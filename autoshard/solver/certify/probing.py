"""Probing: states go that cost too much once their node is held to them and messages have settled again.

What a state costs by the messages of the whole network is often far below what it costs once messages know that it is
chosen. Where a good assignment is known, a few passes for some states of one node after the other leave a fraction of
the table entries, and everything after that is cheaper by as much. Halves of a node's states are tried before quarters
and single ones, the dearest first, so that few trials say much.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from autoshard.solver.certify.parts import OpenPart, Settler, prices_of
from autoshard.solver.certify.weigh import Record, weigh
from autoshard.solver.certify.write import record_of
from autoshard.solver.dual import passes as duals
from autoshard.solver.dual.consistent import make_consistent
from autoshard.solver.dual.cutting import cut_out
from autoshard.solver.dual.fixing import Part, reduced_costs
from autoshard.solver.dual.settling import Stop
from autoshard.solver.threads import side_by_side

AT_ONCE = 4
"""Nodes that are probed side by side, each beside all that the others have."""
LOOKED_AT, LEAST_GAIN = 2, 0.1
"""A trial ends when so many double passes close less than this share of what is missing."""
SMALLER = 4
"""Where some states cannot go together, so many times fewer are tried."""
LOOKED, WORTH_GOING_ON = 0.2, 0.1
"""A look ends after this share of the table entries that all may visit, unless this share of the states has gone."""


@dataclass(frozen=True)
class Probe:
    """Held to these states (places in its domain), the node leaves nothing below the threshold: they go.

    record: what shows it; None where nothing is consistent.
    """

    node: int
    states: np.ndarray
    record: Record | None


@dataclass(frozen=True)
class Probes:
    """Probes of the same states that are left: all that they rule out goes together."""

    probes: tuple[Probe, ...]

    @property
    def records(self) -> int:
        """Sets of messages in them."""
        return sum(one.record is not None for one in self.probes)


@dataclass
class Probed:
    """steps: in order. alive: what is left of all states. left: False where nothing is. work: table entries visited."""

    alive: np.ndarray
    steps: list[Probes] = field(default_factory=list)
    left: bool = True
    work: int = 0


@dataclass
class _OfNode:
    """What probing one node gave; found: assignments met on the way that are cheap enough."""

    probes: list[Probe] = field(default_factory=list)
    found: list[np.ndarray] = field(default_factory=list)
    work: int = 0


def probe(
    settler: Callable[[], Settler], at: OpenPart, passes: int, offer: Callable[[Settler], None], most_look: float
) -> Probed:
    """Probe all nodes of an open part, those first whose dearer half costs most.

    settler: makes one for the threshold as it is. passes: most double passes of a trial. offer: takes what was found.
    most_look: after so many table entries it ends unless it is worth going on.
    """
    own = settler()
    whole, done = own.taken_up(at), Probed(at.alive.copy())
    offsets, begun = own.flat.offsets, int(at.alive.sum())
    reach = reduced_costs(whole.dual).reach
    dearer = [np.sort(mine)[-max(1, len(mine) // 2)] for mine in np.split(reach, whole.flat.offsets[1:-1])]
    order = np.argsort(-np.array(dearer), kind="stable")
    for first in range(0, len(order), AT_ONCE):
        if done.work > most_look and int(done.alive.sum()) > (1.0 - WORTH_GOING_ON) * begun:
            break
        reach = reduced_costs(whole.dual).reach
        nodes = [node for node in order[first : first + AT_ONCE].tolist() if _choices(done.alive, offsets, node) > 1]
        trials = _Trials(own, whole, at, reach, passes)
        outcomes = side_by_side([lambda n=n, of=trials: of.probed(n) for n in nodes])
        results = [_result(outcome) for outcome in outcomes]
        for result in results:
            done.work += result.work
            own.found += result.found
        if own.found:  # what is too dear is decided by the cheapest one from now on
            offer(own)
            own = settler()
        probes = tuple(one for result in results for one in result.probes)
        if not probes:
            continue
        done.steps.append(Probes(probes))
        for one in probes:
            done.alive[offsets[one.node] + one.states] = False
        kept = done.alive[whole.origin]
        if not make_consistent(whole.flat, kept):
            done.left = False
            return done
        whole = cut_out(whole, kept)
        done.alive[:] = False
        done.alive[whole.origin] = True
    return done


def _choices(alive: np.ndarray, offsets: np.ndarray, node: int) -> int:
    return int(alive[offsets[node] : offsets[node + 1]].sum())


def _result(outcome: tuple[_OfNode, list[object]] | BaseException) -> _OfNode:
    if isinstance(outcome, BaseException):
        raise outcome
    return outcome[0]


@dataclass(frozen=True)
class _Trials:
    """Trials on one part, as it stands. settler: says what is too dear, and is left as it is. reach: of each state (see
    `ReducedCosts`). passes: most double passes of one.
    """

    settler: Settler
    whole: Part
    at: OpenPart
    reach: np.ndarray
    passes: int

    def probed(self, node: int) -> _OfNode:
        """Probe one node, its dearest states first."""
        done, offsets = _OfNode(), self.whole.flat.offsets
        low, high = int(offsets[node]), int(offsets[node + 1])
        waiting = np.arange(low, high)[np.argsort(-self.reach[low:high], kind="stable")]
        size = len(waiting) // 2
        while len(waiting) > 1:
            tried = waiting[:size]
            others = np.ones(len(self.whole.origin), dtype=bool)
            others[low:high] = False
            shown = self._shown(others, tried, done)
            if shown:
                places = np.sort(self.whole.origin[tried] - self.settler.flat.offsets[node])
                done.probes.append(Probe(node, places, shown[0]))
                waiting = waiting[size:]
                size = max(1, min(2 * size, len(waiting) // 2))
            elif size == 1:
                break
            else:
                size = max(1, size // SMALLER)
        return done

    def _shown(self, others: np.ndarray, tried: np.ndarray, done: _OfNode) -> list[Record | None]:
        """What shows that nothing below the threshold has a state that is tried, beside all of the others; empty where
        nothing does.
        """
        settler, whole = self.settler, self.whole
        settler.check()
        done.work += 2 * whole.flat.entries  # made consistent and cut out
        others[tried] = True
        if not make_consistent(whole.flat, others):
            return [None]
        part, threshold = cut_out(whole, others), settler.threshold
        prices = prices_of(part, self.at.prices, self.at.rate)
        stop = Stop(threshold, threshold if settler.costs else np.inf, LOOKED_AT, LOOKED_AT, LEAST_GAIN)
        decoded, worth = duals.settle(part.dual, prices, self.passes, stop)
        done.work += 2 * len(decoded) * part.flat.entries
        done.found += list(part.positions(decoded)[worth])
        if part.dual.bound < threshold:
            return []
        known = part.dual.prices if prices.asked else None
        record = record_of(settler.whole, part.dual, known, threshold, costs=settler.costs)
        if record is None:
            return []
        done.work += 2 * part.flat.entries
        weighed = weigh(settler.whole.cut(part.flat), np.ones(len(part.origin), dtype=bool), record)
        return [record] if weighed is not None and weighed.bound >= threshold else []
