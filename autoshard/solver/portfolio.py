"""Message passing and local search on one reduced network: the one raises the bound, the other lowers the cost.

The dual side works on a part of the network that shrinks as the bound rules states out; the primal side keeps
the whole reduced network, so that every assignment stays reachable.
"""

import math
import weakref
from collections.abc import Callable, Sequence

import numpy as np

from autoshard.solver.certify.ground import Ground
from autoshard.solver.certify.prove import Standing
from autoshard.solver.certify.weigh import Record, Weighed
from autoshard.solver.completion import Completion
from autoshard.solver.dual import passes as duals
from autoshard.solver.dual.fixing import Part
from autoshard.solver.dual.flat import flatten
from autoshard.solver.engines import pieces, toulbar2
from autoshard.solver.incumbent import Race
from autoshard.solver.local.lookahead import decode_consistently
from autoshard.solver.local.searcher import Searcher
from autoshard.solver.work import Infeasible, Work

PIECE_NODES = 1_000
PIECE_ENTRIES = 200_000
"""Table entries that a piece may touch before its states are thinned out."""
PIECE_BACKTRACKS = 300
"""Backtracks of exact search on one piece: most good pieces are found by then."""
KEPT_IN_PIECES = (3, 2, 4, 3, 6)
"""States that every node of a piece keeps, round after round."""
LEAST_SECONDS = 0.1
"""Seconds that an engine gets at least."""
UNPRICED_PASSES = 8
"""Passes, in either direction, before prices are asked, or the messages of an unlimited network are good enough."""
LITTLE_RISE = 1e-6
"""A bound that rises by less than this share of itself does not rise."""
MOST_IDLE = 2
"""Message passing ends when the bound has hardly risen so many times in a row."""
MOST_GIVEN_UP = 6
"""Looking ahead that fails is tried in one of 2, 4, 8, ... cases: at the rarest in one of two to the power of this."""
MOST_IN_VAIN = 3
"""Decodings that are repaired within a limit and find nothing better, from the second on: at the rarest one of two to
the power of this is."""
MOST_THRESHOLD = 2.0**58
"""Costs at which records drop states stay below this, so that they can be added up in int64."""
STANDING_PASSES = 4
"""Double passes between two attempts to reach a bound again that was seen."""
AT_BEST_PRICES = 2
"""Double passes in which the messages settle at other prices."""
SWEEPS = 40
SHAKES = 20
"""Sweeps of tree moves, and shakes where those gain nothing, of one search at effort 1."""
DECODED_EVERY = 20
"""Double passes between decodings that are repaired and polished."""
WORTH_CUTTING = 0.9
"""The part is cut down when fewer than this share of its states are left."""
STALLED = 1e-2
"""Message passing ends when `DECODED_EVERY` passes close less of the gap twice: in networks without a memory limit, and
in those small enough to branch."""
TREE_WORK = 3
"""Table entries visited by a sweep of tree moves, as a multiple of those of the network."""


class Portfolio:
    """Message passing and local search on one reduced network; keeps messages, prices and the random state.

    budget: table entries that message passing and search may still visit: the measure of effort. hand_over: takes what
    message passing decodes, so that another thread repairs and polishes it.
    """

    def __init__(self, race: Race, work: Work, seed: int, budget: float) -> None:
        self.race, self.work, self.budget = race, work, budget
        self.flat = flatten(work)
        ground = Ground.of(self.flat)
        if ground is None:
            raise Infeasible("no states are left that fit together within the limit")
        self.ground = ground
        race.standing = Standing(list(work.log or ()), ground, work.constant)
        self.prices: duals.Prices | None = None
        self.decoded, self.given_up = 0, 0
        self.offered, self.in_vain = 0, 0
        self.last: np.ndarray | None = None
        """What the messages decoded last (positions in the whole reduced network)."""
        self.hand_over: Callable[[np.ndarray], None] | None = None
        self.completion = Completion(work, self.flat, race.network.n_nodes)
        own = weakref.proxy(self)  # a cycle would keep all messages until Python's collector comes by
        self.searcher = Searcher(race, self.completion, seed, lambda: own.price())

    @property
    def part(self) -> Part:
        """The network that message passing works on."""
        return self.ground.part

    @property
    def bound(self) -> float:
        """The best bound of the messages, without the constant of the work network."""
        return self.part.dual.bound

    @property
    def ready(self) -> bool:
        """Whether message passing has found prices of the right magnitude, or needs none."""
        return (
            self.part.dual.passes > UNPRICED_PASSES
            if self.flat.limit is None
            else self.prices is not None and self.prices.scale < 0
        )

    def target(self) -> float:
        """`race.target` without the constant of the work network."""
        return self.race.target() - self.work.constant

    def tell_bound(self, bound: float) -> None:
        """Report a bound on what costs at most the target; inf where there is nothing."""
        if self.race.cost is not None:
            bound = min(bound, self.target() + 1)
        if math.isfinite(bound):
            self.race.raise_bound(self.work.constant + math.ceil(bound))

    def message_passing(self, passes: int, stalls: bool) -> None:
        """Raise the bound; decode, and drop what the bound rules out, on the way.

        stalls: end when the bound hardly rises any more.
        """
        idle, before = 0, self.bound
        for k in range(passes):
            if self.budget <= 0:
                return
            self.race.check()
            dual = self.part.dual
            duals.run_pass(dual, True)
            chosen = duals.run_pass(dual, False)
            self.budget -= 2 * self.part.flat.visited
            if math.isfinite(dual.bound):
                self.tell_bound(dual.bound)
            if self.flat.limit is not None and dual.passes > UNPRICED_PASSES:
                live = duals.usage(self.part.flat, chosen)
                if self.prices is None:
                    self.prices = duals.first_prices(dual, live)
                elif self.prices.settled:
                    break
                duals.adjust_prices(dual, self.prices, live)
            if k % DECODED_EVERY == DECODED_EVERY // 2 - 1:
                self.last = self.positions(self.consistent(chosen))
                self._offer_decoded(self.last)
                if not self.cut() or self.race.proved():
                    return
                if self.flat.limit is None:
                    little = LITTLE_RISE * abs(before)
                    if self.race.cost is not None and math.isfinite(before):
                        little = max(little, STALLED * (self.target() - before))
                    idle = idle + 1 if dual.bound - before <= little else 0
                elif stalls and self.prices is not None and self.prices.scale < 0 and self.race.cost is not None:
                    idle = idle + 1 if dual.bound - before <= STALLED * (self.target() - before) else 0
                before = dual.bound
                if idle >= MOST_IDLE:
                    break

    def _offer_decoded(self, chosen: np.ndarray) -> None:
        """Repair and polish what messages decode, less and less often while that finds nothing better within a limit:
        there it may take ten times as long as the passes."""
        if self.hand_over is not None:
            self.hand_over(chosen)
            return
        self.offered += 1
        if self.flat.limit is not None and self.offered % 2 ** min(max(0, self.in_vain - 1), MOST_IN_VAIN):
            return
        before = self.race.cost
        self.decode(chosen)
        self.in_vain = self.in_vain + 1 if self.race.cost == before else 0

    def begin_from(self, start: Sequence[int] | np.ndarray) -> None:
        """Repair and polish an assignment of the original network, or what is next to it where a state was dropped."""
        self.decode(self.completion.nearest(start))

    def consistent(self, chosen: np.ndarray) -> np.ndarray:
        """A decoding of the part without forbidden pairs, if it has some and another one is found by looking ahead."""
        if math.isfinite(duals.flat_cost(self.part.flat, chosen)):
            return chosen
        self.decoded += 1
        if self.decoded % 2**self.given_up:  # what fails takes long: it is tried less and less often
            return chosen
        self.budget -= len(self.part.flat.tables)
        decoded = decode_consistently(self.part.dual)
        self.given_up = 0 if decoded is not None else min(self.given_up + 1, MOST_GIVEN_UP)
        return chosen if decoded is None else decoded

    def positions(self, chosen: np.ndarray) -> np.ndarray:
        """Positions in the whole reduced network of an assignment of the part."""
        return self.part.positions(chosen) - self.flat.offsets[:-1]

    def cut(self) -> bool:
        """Drop the states that the bound rules out; False when nothing better than the target is left."""
        if self.race.cost is None:
            return True
        record_and_reach = self.ground.weighed(math.floor(self.target()) + 1)
        if record_and_reach is None:
            return True
        record, weighed = record_and_reach
        if weighed.bound < record.threshold and weighed.alive.sum() >= WORTH_CUTTING * self.ground.alive.sum():
            return True
        if not self.ground.take(record, weighed):
            self.tell_bound(math.inf)
            return False
        return True

    def stand(self, bound: float, passes: int) -> None:
        """Write down what the best prices prove, after passes enough to reach a bound that was seen."""
        self.to_best_prices()
        record_and_reach: tuple[Record, Weighed] | None = None
        for k in range(max(1, passes)):
            record_and_reach = self.ground.weighed(math.floor(min(self.target(), MOST_THRESHOLD)) + 1)
            if record_and_reach is None:
                return
            if k == passes - 1 or self.work.constant + record_and_reach[1].bound >= bound:
                break
            for _ in range(STANDING_PASSES):
                duals.run_pass(self.part.dual, True)
                duals.run_pass(self.part.dual, False)
        assert record_and_reach is not None
        record, weighed = record_and_reach
        self.ground.only_note(record, weighed)

    def to_best_prices(self) -> None:
        """Let the messages settle at the prices of the best bound."""
        if self.prices is not None:
            duals.set_prices(self.part.dual, self.prices.best)
        for _ in range(AT_BEST_PRICES):
            duals.run_pass(self.part.dual, True)
            duals.run_pass(self.part.dual, False)

    def price(self) -> np.ndarray:
        """The prices of the best bound, or 0 while there are none."""
        return np.zeros(self.flat.slots) if self.prices is None else self.prices.best

    def decode(self, chosen: np.ndarray) -> None:
        """Repair, polish and offer an assignment (positions in the whole reduced network)."""
        self.searcher.decode(chosen)

    def search(self, effort: float) -> None:
        """Tree moves around the incumbent, then, when they have nothing to give, shaking."""
        if not self.searcher.restart() and self.searcher.best is None:
            return
        visited = TREE_WORK * len(self.flat.tables)

        def spend() -> bool:
            self.budget -= visited
            return self.budget > 0

        before = self.race.cost
        self.searcher.improve(max(1, int(SWEEPS * effort)), spend)
        if self.race.cost == before:
            for _ in range(max(1, int(SHAKES * effort))):
                if not spend():
                    return
                self.searcher.wander(1)

    def search_apart(self, effort: float) -> None:
        """Tree moves from what the messages decoded last, whatever it costs: what was given to begin from may be far
        from all that is better.
        """
        if self.last is None or self.budget <= 0:
            return
        sweeps = max(1, int(SWEEPS * effort))
        self.budget -= TREE_WORK * len(self.flat.tables) * sweeps
        self.searcher.put(self.last, self.price(), math.inf, sweeps)

    def pieces(self, reach: np.ndarray, count: int, round_: int) -> None:
        """Solve large connected pieces exactly, each node with its few most promising states.

        reach: per state what it costs above the bound.
        """
        race, searcher = self.race, self.searcher
        if not searcher.restart() or not toulbar2.available():
            return
        keep = KEPT_IN_PIECES[round_ % len(KEPT_IN_PIECES)]
        own = np.split(reach, self.flat.offsets[1:-1])
        options = [np.sort(np.argsort(r, kind="stable")[: min(keep, int(np.isfinite(r).sum()))]) for r in own]
        undecided = np.array([len(o) > 1 for o in options])
        roots = np.flatnonzero(undecided)
        if not len(roots):
            return
        for _ in range(count):
            race.check()
            root = int(roots[searcher.random.integers(len(roots))])
            piece = pieces.grow(self.flat, root, PIECE_NODES, PIECE_ENTRIES, searcher.random, undecided)
            left = max(LEAST_SECONDS, race.left())
            if pieces.improve(searcher.field, piece, options, backtracks=PIECE_BACKTRACKS, seconds=left) > 0:
                searcher.offer()
