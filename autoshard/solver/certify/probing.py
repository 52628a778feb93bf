"""Probing: states go that cost too much once their node is held to them and messages have settled again.

What a state costs by the messages of the whole network is often far below what it costs once messages know that it is
chosen. Where a good assignment is known, a few passes for some states of one node after the other leave a fraction of
the table entries, and everything after that is cheaper by as much. Halves of a node's states are tried before quarters
and single ones, the dearest first, so that few trials say much.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from autoshard.solver.certify.parts import OpenPart, Settler, Step
from autoshard.solver.certify.weigh import Record
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


def probe(
    settler: Callable[[], Settler],
    at: OpenPart,
    passes: int,
    offer: Callable[[Sequence[Settler]], None],
    most_look: float,
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
        trials = [_Trials(settler(), whole, at, reach, passes, node) for node in nodes]
        outcomes = side_by_side([one.probes for one in trials])
        probes = tuple(one for outcome in outcomes for one in _result(outcome))
        done.work += sum(one.settler.work for one in trials)
        offer([one.settler for one in trials])  # the cheapest decides what is too dear from now on
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


def _result(outcome: tuple[list[Probe], list[object]] | BaseException) -> list[Probe]:
    if isinstance(outcome, BaseException):
        raise outcome
    return outcome[0]


@dataclass(frozen=True)
class _Trials:
    """Trials of one node of a part, as it stands. settler: says what is too dear, and takes what is found and the work.
    reach: of each state (see `ReducedCosts`). passes: most double passes of one.
    """

    settler: Settler
    whole: Part
    at: OpenPart
    reach: np.ndarray
    passes: int
    node: int

    def probes(self) -> list[Probe]:
        """Probes of the node, its dearest states first."""
        out, node, offsets = [], self.node, self.whole.flat.offsets
        low, high = int(offsets[node]), int(offsets[node + 1])
        waiting = np.arange(low, high)[np.argsort(-self.reach[low:high], kind="stable")]
        size = len(waiting) // 2
        while len(waiting) > 1:
            tried = waiting[:size]
            alive = np.ones(len(self.whole.origin), dtype=bool)
            alive[low:high] = False
            alive[tried] = True
            shown = self._shown(alive)
            if shown:
                places = np.sort(self.whole.origin[tried] - self.settler.flat.offsets[node])
                out.append(Probe(node, places, shown[0]))
                waiting = waiting[size:]
                size = max(1, min(2 * size, len(waiting) // 2))
            elif size == 1:
                break
            else:
                size = max(1, size // SMALLER)
        return out

    def _shown(self, alive: np.ndarray) -> list[Record | None]:
        """What shows that these states leave nothing below the threshold; empty where nothing does."""
        settler, threshold = self.settler, self.settler.threshold
        stop = Stop(threshold, threshold if settler.costs else np.inf, LOOKED_AT, LOOKED_AT, LEAST_GAIN)
        tried = settler.tried(self.whole, alive, self.at, self.passes, stop)
        if tried is None:
            return [None]
        settler.found += list(tried.part.positions(tried.decoded)[tried.worth])
        if tried.part.dual.bound < threshold:
            return []
        step = Step()
        weighed = settler.record(step, tried.part, tried.prices)
        return list(step.records) if weighed is not None and weighed.bound >= threshold else []
