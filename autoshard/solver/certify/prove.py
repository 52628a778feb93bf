"""Proofs of bounds: what the bound of a reduced network leaves is reduced again, then split until nothing is left.

A proof is a list of stages on the original network: reductions as they were written down, records of messages and
prices, and at the end the tree of splits. Every bound that a solution states comes from here.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from autoshard.solver.certify.ground import Ground
from autoshard.solver.certify.parts import OpenPart
from autoshard.solver.certify.probing import LOOKED, probe
from autoshard.solver.certify.proof import Proof, Refuted
from autoshard.solver.certify.root import settle_root, take_out
from autoshard.solver.certify.tree import Tree
from autoshard.solver.certify.weigh import NEVER, Whole
from autoshard.solver.dual.fixing import Part
from autoshard.solver.dual.flat import Flat, flatten
from autoshard.solver.learning.learner import FOUND, REFUTED, Learner
from autoshard.solver.reductions import reduce_network
from autoshard.solver.work import Event, Infeasible, Work, without_overlap

ROUNDS = 6
"""How often what a bound leaves is reduced again before it is split."""
WORTH_REDUCING = 0.8
"""It is reduced again when fewer than this share of its states are left."""
RECORDS = 8
"""Most records on one network before what they leave is reduced."""
WORTH_ANOTHER = 0.85
"""The next one follows at once when fewer than this share of the states are left."""
SHAVED_AT_ONCE = 4
"""Table entries that shaving looks at in the time in which other work looks at one."""
PROBED_AFTER, PROBED_WITHIN = (0.02, 2.0), 1.0
"""Nodes are probed once splitting has visited this share of what that may visit, states times table entries: shortly,
and where little goes then, once more to the end. Only where no more is missing than this share of the bound."""
MOST_PROBED = 1e10
"""Nodes of networks where probing may visit more table entries are not probed: a look alone would take long."""
WORTH_BEGINNING, WORTH_ANOTHER_SOON = 0.05, 0.15
"""A tree begins again on what probing leaves where this share of the states has gone; where less than the second has,
the next time comes late, or not at all."""
PROBING_PASSES = (4, 16)
"""Most double passes of a trial, in the first sweep and in later ones."""


class Prover:
    """Works on a proof for one network; can be asked to go on.

    work: the reduced network, with the log of what was done. threshold: returns the cost (constants included) from
    which on assignments are of no interest. offer: takes original states per node of the reduced network. costs:
    False to show that there is no assignment at all. look: searches among some states of a network, given with what
    anything of interest costs less than (see `Tree`). ceiling: a cost; no more than that is proved.
    """

    def __init__(
        self,
        work: Work,
        threshold: Callable[[], int],
        offer: Callable[[dict[int, int]], None],
        check: Callable[[], None],
        *,
        costs: bool = True,
        look: Callable[[Work, np.ndarray, int], None] | None = None,
        ceiling: float = math.inf,
    ) -> None:
        self.work, self.offer, self.check, self.costs, self.look = work, offer, check, costs, look
        self.ceiling = ceiling
        self.above = threshold
        self.latest = Proof()
        self.earlier: tuple[float, Proof] | None = None
        """What was proved, and how, before nodes were probed."""
        self.done = False
        self.tree: Tree | None = None
        self.effort = 0
        self.reach: np.ndarray | None = None
        self.prices: np.ndarray | None = None
        self.shaved = False
        self.root: tuple[float, OpenPart] | None = None
        self.sweeps, self.looks = 0, 0

    @property
    def proof(self) -> Proof:
        """How the bound is proved."""
        return self.latest if self.earlier is None or self._bound() > self.earlier[0] else self.earlier[1]

    @property
    def bound(self) -> float:
        """Constants included; what is proved so far."""
        return self._bound() if self.earlier is None else max(self._bound(), self.earlier[0])

    def _bound(self) -> float:
        if self.done or self.tree is None:
            return min(self.latest.bound, self.ceiling)
        found = self.tree.bound
        return min(self.ceiling, math.inf if math.isinf(found) and found > 0 else found + self.constant)

    @property
    def constant(self) -> int:
        """The cost of what reductions have folded away; 0 where costs do not count."""
        return self.work.constant if self.costs else 0

    def threshold(self) -> int:
        """The cost, constants left out, from which on assignments are of no interest; 1 where costs do not count."""
        return int(min(self.above(), self.ceiling)) - self.constant if self.costs else 1

    def begin(
        self,
        ground: Ground | None = None,
        prices: np.ndarray | None = None,
        most_entries: float = math.inf,
        times: np.ndarray | None = None,
    ) -> None:
        """Everything but the tree, whose first part is settled.

        ground: what is known of the work network; prices: per slot of it, or at these times. most_entries: what keeps
        more table entries than this is left at its first bound.
        """
        known, settled = (prices, self.work.times if times is None else times), None
        self.shaved = ground is not None
        if not self.costs and not self._forget():
            self._conclude(math.inf)
            return
        for _ in range(ROUNDS):
            self._take_log()
            if not self.work.nodes():
                self._nothing_left()
                return
            if ground is None:
                flat = self._flat()
                ground = Ground.of(flat, self.costs)
                if ground is None:
                    self._conclude(-math.inf if Whole.of(flat) is None else math.inf)
                    return
                if not self.shaved and not self._shave(ground):
                    return
            else:
                self._flat()  # what nodes hold, as certificates have it
            self.latest.stages.append(ground.records)
            dead, now = self._narrow(ground, self._prices(known, ground.whole.flat))
            if self.done:
                return
            if now is not None:
                known = (now, self.work.times)
            left, settled = ground.alive, ground.part
            if not take_out(self.work, ground.whole.flat, left, dead):
                self._conclude(math.inf)
                return
            ground = None
            if int(left.sum()) >= WORTH_REDUCING * len(left):
                break
            settled = None
            try:
                reduce_network(self.work, check=self.check)
            except Infeasible:
                self._conclude(math.inf)
                return
            if self.work.entries() > most_entries:
                break
        if self.work.entries() > most_entries:
            self._take_log()
            self.done = True
            return
        self._plant(known, settled)

    def _narrow(self, ground: Ground, prices: np.ndarray | None) -> tuple[np.ndarray | None, np.ndarray | None]:
        """Records on one network, as long as they leave less and less; the pairs that go as well, and the prices."""
        dead: np.ndarray | None = None
        for number in range(RECORDS):
            prices = self._settled(ground.part, prices)
            found = ground.weighed(self.threshold(), pairs=True)
            if found is None:
                self.done = number == 0
                break
            record, weighed = found
            if self.reach is None:  # of the network as it was handed over
                self.reach = np.where(weighed.reach < NEVER, weighed.reach / 2.0**record.bits, np.inf)
                self.prices = prices
            before = int(ground.alive.sum())
            if not ground.take(record, weighed):
                self._conclude(ground.bound + self.constant)
                break
            self.latest.bound = max(self.latest.bound, weighed.bound + self.constant)
            if int(ground.alive.sum()) >= WORTH_ANOTHER * before or number == RECORDS - 1:
                dead = weighed.dead
                break
            ground.records[-1] = replace(record, pairs=False)  # pairs go with the last record only
            ground.part.dual.passes = 0
        return dead, prices

    def _plant(self, known: tuple[np.ndarray | None, np.ndarray], settled: Part | None) -> None:
        """Begin the tree on what is left. settled: the same network with messages, where it was not reduced since."""
        self._take_log()
        if not self.work.nodes():
            self._nothing_left()
            return
        ground = Ground.of(self._flat(), self.costs, None if settled is None else settled.dual)
        if ground is None:
            self._conclude(math.inf)
            return
        prices = self._prices(known, ground.whole.flat)
        if settled is None:  # passes towards known prices, before those of the tree move them
            prices = self._settled(ground.part, prices)
        look = None if self.look is None else self._look
        tree = Tree(ground.whole, self.threshold, self._offer, self.check, self.costs, look)
        tree.begin(ground.part, prices)  # stopped here, it has shown nothing yet
        self.tree, self.latest.tree = tree, tree.root
        self.root = next(((bound, part) for bound, _, part in tree.open), None)

    def go_on(self, most_work: int) -> bool:
        """Split for so many table entries, and probe where that takes long; True when the proof is complete (see
        `bound`).
        """
        begun = self.effort
        while not self.done and self.tree is not None and self.effort - begun < most_work:
            due = self._probing_due() - self.tree.work
            if due > 0:
                self._split(self.tree, math.ceil(min(due, most_work - (self.effort - begun))))
            else:
                self._probe(self.tree)
        return self.done

    def learn(self, conflicts: int) -> bool:
        """Search for anything that fits, whatever it costs, with nogoods from so many dead ends; True when settled."""
        learner = Learner(self._flat())
        result = learner.go_on(conflicts, self.check)
        if result == FOUND:
            self._offer(learner.rules.offsets[:-1] + learner.assignment())
            self._conclude(0)
        elif result == REFUTED:
            self.latest.stages.append([Refuted(learner.nogoods())])
            self.latest.tree = None
            self._conclude(math.inf)
        return self.done

    def _split(self, tree: Tree, most_work: int) -> None:
        """Split for so many table entries."""
        before = tree.work
        try:
            finished = tree.run(most_work)
        finally:
            self.effort += tree.work - before
            self.latest.parts = tree.parts
        if finished:
            least = tree.bound
            self.latest.bound = math.inf if math.isinf(least) else least + self.constant
            self.done = True

    def _probing_due(self) -> float:
        """After how many table entries of splitting nodes are to be probed."""
        if self.root is None or self.tree is None or self.looks >= len(PROBED_AFTER):
            return math.inf
        bound, _ = self.root
        if self._sweep(self.tree) > MOST_PROBED:
            return math.inf
        if self.costs and self.threshold() - bound > PROBED_WITHIN * abs(bound + self.constant):
            return math.inf
        return PROBED_AFTER[self.looks] * self._sweep(self.tree)

    def _sweep(self, tree: Tree) -> float:
        """How many table entries probing all nodes may visit, about."""
        assert self.root is not None
        return float(int(self.root[1].alive.sum()) * tree.start.flat.entries)

    def _probe(self, tree: Tree) -> None:
        """Probe all nodes, reduce what that leaves, and begin a new tree on it. Stopped, it leaves all as it was."""
        assert self.root is not None
        at = self.root[1]
        passes = PROBING_PASSES[min(self.sweeps, len(PROBING_PASSES) - 1)]
        most_look = math.inf if self.looks else LOOKED * self._sweep(tree)
        found = probe(tree.settler, at, passes, tree.take, most_look)
        self.effort += found.work
        gone = 1.0 - int(found.alive.sum()) / int(at.alive.sum())
        self.looks = 0 if gone > WORTH_ANOTHER_SOON else self.looks + 1
        if gone < WORTH_BEGINNING:
            return
        self.sweeps += 1
        made = Prover(
            self.work.copy(), self.above, self.offer, self.check, costs=self.costs, look=self.look, ceiling=self.ceiling
        )  # fmt: skip
        made.shaved, made.reach, made.prices = True, self.reach, self.prices
        made.latest.stages = [*self.latest.stages, [*tree.root.records, *found.steps]]
        made._begin_on(found.alive if found.left else None, tree.flat, at.prices)
        self.effort += made.effort
        self.earlier = self.bound, self.proof
        self.work, self.latest, self.done = made.work, made.latest, made.done
        self.tree, self.root = made.tree, made.root

    def _begin_on(self, alive: np.ndarray | None, flat: Flat, prices: np.ndarray | None) -> None:
        """Begin on what is left of the work network, laid out as `flat`; None: nothing is."""
        self.work.log = []
        times = self.work.times
        if alive is None or not take_out(self.work, flat, alive, None):
            self._conclude(math.inf)
            return
        try:
            reduce_network(self.work, check=self.check)
        except Infeasible:
            self._conclude(math.inf)
            return
        self.begin(prices=prices, times=times)

    # -- steps ---------------------------------------------------------------------------------------

    def _look(self, alive: np.ndarray, below: int) -> None:
        assert self.look is not None
        self.look(self.work, alive, below + self.constant)

    def _offer(self, positions: np.ndarray) -> None:
        nodes = self.work.nodes()
        assert self.tree is None or self.tree.flat.n == len(nodes)
        offsets = np.concatenate([[0], np.cumsum([len(self.work.domains[i]) for i in nodes])])
        local = positions - offsets[:-1]
        choice = {i: int(self.work.domains[i][x]) for i, x in zip(nodes, local.tolist(), strict=True)}
        self.offer(self.work.complete(choice))

    def _flat(self) -> Flat:
        """What is left, laid out flat; what nodes hold as stretches that do not overlap, as certificates have it."""
        work = self.work
        for node in work.nodes() if work.limit is not None else ():
            work.held[node] = without_overlap(work.held[node])
        flat = flatten(work)
        return flat if self.costs else flat.without_costs()

    def _take_log(self) -> None:
        log = self.work.log
        assert log is not None
        if log:
            self.latest.stages.append(list(log))
            log.clear()

    def _shave(self, ground: Ground) -> bool:
        """Shave what is looked at for the first time; False where nothing is left."""
        self.shaved = True
        left, visited = ground.shaved(self.check)
        self.effort += visited // SHAVED_AT_ONCE
        if not left:
            self.costs = False  # that holds whatever anything costs
            self.latest.stages.append(ground.records)
            self._conclude(math.inf)
        return left

    def _forget(self) -> bool:
        """Reduce what is left without costs, where most states are no better than another; False: nothing fits."""
        self.work.forget_costs()
        try:
            reduce_network(self.work, check=self.check)
        except Infeasible:
            return False
        return True

    def _nothing_left(self) -> None:
        """Every node was folded away: one assignment is as good as any."""
        self.offer(self.work.complete({}))
        self._conclude(self.work.constant if self.costs else 0)

    def _conclude(self, bound: float) -> None:
        """The end of the proof; without costs any bound but none at all says that there is no assignment."""
        self._take_log()
        self.latest.bound = bound if self.costs or bound <= 0 else math.inf
        self.done = True

    def _prices(self, known: tuple[np.ndarray | None, np.ndarray], flat) -> np.ndarray | None:
        """Prices by slot of the work network as it is, from those of slots that it may have lost since."""
        prices, times = known
        if prices is None or flat.limit is None or not prices.any():
            return None
        out = np.zeros(flat.slots)
        own = np.searchsorted(self.work.times, times, side="right") - 1
        inside = (own >= 0) & (prices > 0)
        np.add.at(out, own[inside], prices[inside])
        return out

    def _settled(self, part: Part, prices: np.ndarray | None) -> np.ndarray | None:
        """The prices that messages are for, once passes hardly raise the bound."""
        prices, visited = settle_root(part, prices, self.threshold, self.check)
        self.effort += visited
        return prices


@dataclass
class Standing:
    """What a run's own records prove before anybody splits; looks like a `Prover`."""

    log: Sequence[Event]
    ground: Ground
    constant: int
    costs: bool = True

    @property
    def bound(self) -> float:
        """What is proved so far, constants included."""
        return self.ground.bound + self.constant

    @property
    def proof(self) -> Proof:
        """The log of reductions and the records, as a proof of `bound`."""
        return Proof([list(self.log), self.ground.records], None, self.bound)
