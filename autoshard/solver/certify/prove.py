"""Proofs of bounds: what the bound of a reduced network leaves is reduced again, then split until nothing is left.

A proof is a list of stages on the original network: reductions as they were written down, records of messages and
prices, and at the end the tree of splits. Every bound that a solution states comes from here.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from autoshard.solver.certify.ground import Ground
from autoshard.solver.certify.proof import Proof
from autoshard.solver.certify.tree import Look, Tree
from autoshard.solver.certify.weigh import NEVER, Whole
from autoshard.solver.dual import passes as duals
from autoshard.solver.dual.fixing import Part
from autoshard.solver.dual.flat import Flat, flatten
from autoshard.solver.reductions import reduce_network
from autoshard.solver.work import FORBIDDEN, Event, Infeasible, Work, without_overlap

ROUNDS = 6
"""How often what a bound leaves is reduced again before it is split."""
WORTH_REDUCING = 0.8
"""It is reduced again when fewer than this share of its states are left."""
RECORDS = 8
"""Most records on one network before what they leave is reduced."""
WORTH_ANOTHER = 0.85
"""The next one follows at once when fewer than this share of the states are left."""
SETTLING = 6
"""Double passes that let messages settle before they are written down."""
ROOT_PASSES, ROOT_PASSES_OF_LARGE = 3_000, 400
SMALL_ENTRIES = 1_000_000
"""Most double passes on a network that nothing is known of, and in networks of more table entries than these: their
passes are dear, and they are split little."""
SHAVED_AT_ONCE = 4
"""Table entries that shaving looks at in the time in which other work looks at one."""
LOOKED_AT, LEAST_GAIN, LEAST_GAIN_OF_LARGE = 10, 1e-3, 0.01
"""Every so many double passes it is looked at how much the bound has risen; where that is less than this share of what
is missing, more of them would be in vain."""
UNPRICED = 8
"""Double passes before the first prices: until then the messages of a fresh network say little about who holds what."""
KNOWN_RATE = 0.05
"""The rate of steps from prices that are known to be good: twenty times smaller than from none."""
CLOSING = 2
"""Double passes after the best prices are put back, so that the messages written down are for them."""


class Prover:
    """Works on a proof for one network; can be asked to go on.

    work: the reduced network, with the log of what was done. threshold: returns the cost (constants included) from
    which on assignments are of no interest. offer: takes original states per node of the reduced network. costs:
    False to show that there is no assignment at all. look: see `Tree`. ceiling: a cost; no more than that is proved.
    """

    def __init__(
        self,
        work: Work,
        threshold: Callable[[], int],
        offer: Callable[[dict[int, int]], None],
        check: Callable[[], None],
        *,
        costs: bool = True,
        look: Look | None = None,
        ceiling: float = math.inf,
    ) -> None:
        self.work, self.offer, self.check, self.costs, self.look = work, offer, check, costs, look
        self.ceiling = ceiling
        self.above = threshold
        self.proof = Proof()
        self.done = False
        self.tree: Tree | None = None
        self.effort = 0
        self.reach: np.ndarray | None = None
        self.prices: np.ndarray | None = None
        self.shaved = False

    @property
    def bound(self) -> float:
        """Constants included; what is proved so far."""
        if self.done or self.tree is None:
            return min(self.proof.bound, self.ceiling)
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
        self, ground: Ground | None = None, prices: np.ndarray | None = None, most_entries: float = math.inf
    ) -> None:
        """Everything but the tree, whose first part is settled.

        ground: what is known of the work network; prices: per slot of it. most_entries: what keeps more table entries
        than this is left at its first bound.
        """
        known, settled = (prices, self.work.times), None
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
            self.proof.stages.append(ground.records)
            dead, now = self._narrow(ground, self._prices(known, ground.whole.flat))
            if self.done:
                return
            if now is not None:
                known = (now, self.work.times)
            left, settled = ground.alive, ground.part
            if not self._cut(ground.whole.flat, left, dead):
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
            prices = self._settle(ground.part, prices)
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
            self.proof.bound = max(self.proof.bound, weighed.bound + self.constant)
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
            prices = self._settle(ground.part, prices)
        tree = Tree(ground.whole, self.threshold, self._offer, self.check, self.costs, self.look)
        tree.begin(ground.part, prices)  # stopped here, it has shown nothing yet
        self.tree, self.proof.tree = tree, tree.root

    def go_on(self, most_work: int) -> bool:
        """Split for so many table entries; True when the proof is complete (see `bound`)."""
        if self.done or self.tree is None:
            return self.done
        before = self.tree.work
        try:
            finished = self.tree.run(most_work)
        finally:
            self.effort += self.tree.work - before
            self.proof.parts = self.tree.parts
        if finished:
            least = self.tree.bound
            self.proof.bound = math.inf if math.isinf(least) else least + self.constant
            self.done = True
        return self.done

    # -- steps ---------------------------------------------------------------------------------------

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
            self.proof.stages.append(list(log))
            log.clear()

    def _shave(self, ground: Ground) -> bool:
        """Shave what is looked at for the first time; False where nothing is left."""
        self.shaved = True
        left, visited = ground.shaved(self.check)
        self.effort += visited // SHAVED_AT_ONCE
        if not left:
            self.costs = False  # that holds whatever anything costs
            self.proof.stages.append(ground.records)
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
        self.proof.bound = bound if self.costs or bound <= 0 else math.inf
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

    def _settle(self, part: Part, prices: np.ndarray | None) -> np.ndarray | None:
        """Run passes until the bound hardly rises; returns the prices that the messages are for."""
        dual, flat = part.dual, part.flat
        state: duals.Prices | None = None
        fresh, small = dual.passes == 0, len(flat.tables) <= SMALL_ENTRIES
        most, gain = (ROOT_PASSES, LEAST_GAIN) if small else (ROOT_PASSES_OF_LARGE, LEAST_GAIN_OF_LARGE)
        if prices is not None:
            duals.set_prices(dual, prices)
            state = duals.known_prices(prices, KNOWN_RATE) if fresh else None
        dual.bound = -math.inf
        before = -math.inf
        for k in range(most if fresh else SETTLING):
            self.check()
            duals.run_pass(dual, True)
            chosen = duals.run_pass(dual, False)
            self.effort += 2 * flat.visited
            if dual.bound >= self.threshold():
                if state is not None:
                    state.close_with(dual.last)
                break
            if fresh and flat.limit is not None and flat.slots:
                live = duals.usage(flat, chosen)
                if state is None and k > UNPRICED and int(live.max()) > flat.limit:
                    state = duals.first_prices(dual, live)
                if state is not None:
                    if state.settled:
                        break
                    duals.adjust_prices(dual, state, live)
            if fresh and k % LOOKED_AT == LOOKED_AT - 1:
                missing = self.threshold() - dual.bound
                searching = state is not None and state.searching
                if not searching and k > 2 * LOOKED_AT and dual.bound - before < gain * missing:
                    break
                before = max(before, dual.bound)
        if state is not None:
            prices = state.best
            duals.set_prices(dual, prices)
            for _ in range(CLOSING):
                duals.run_pass(dual, True)
                duals.run_pass(dual, False)
        return prices

    def _cut(self, flat, alive: np.ndarray, dead: np.ndarray | None) -> bool:
        """Take out of the work network what a record rules out; False where nothing is left of it."""
        work, log = self.work, self.work.log
        work.log = None  # the record says it
        try:
            nodes = flat.nodes.tolist()
            old = [len(work.domains[i]) for i in nodes]
            for k, node in enumerate(nodes):
                kept = alive[flat.offsets[k] : flat.offsets[k + 1]]
                if not kept.all():
                    work.keep(node, kept)
            if dead is not None and dead.any():
                some = np.flatnonzero(np.logical_or.reduceat(dead, flat.table_at[:-1])) if len(flat.first) else []
                for e in some:
                    a, b = int(flat.first[e]), int(flat.second[e])
                    i, j = nodes[a], nodes[b]
                    gone = dead[flat.table_at[e] : flat.table_at[e + 1]].reshape(old[a], old[b])
                    gone = gone[alive[flat.offsets[a] : flat.offsets[a + 1]]][
                        :, alive[flat.offsets[b] : flat.offsets[b + 1]]
                    ]
                    if gone.any():
                        table = work.tables[i][j]
                        if gone.all():
                            return False
                        work.set_edge(i, j, np.where(gone, FORBIDDEN, table))
        finally:
            work.log = log
        return True


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
