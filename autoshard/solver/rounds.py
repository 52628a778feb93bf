"""Rounds of the portfolio: message passing, search and proofs on what the bound leaves, in turn."""

import math
from collections.abc import Sequence

import numpy as np

from autoshard.solver import proof
from autoshard.solver.certify.prove import Prover
from autoshard.solver.engines import facets as facet_search
from autoshard.solver.portfolio import Portfolio
from autoshard.solver.scatter import Scatter

MOST_ROUNDS = 10**9
MOST_PASSES = 10**9
"""Rounds, and double passes in one, of a run that only time or a proof ends: more than there will be."""
EXACT_BACKTRACKS = 10_000
"""Those of exact search on what the bound leaves; as many times more as rounds were made."""
FACET_BACKTRACKS = 2_000
"""Those of one search over facets."""
FIXED_ROUNDS = 2
"""Rounds after which what the bound leaves is looked at in any case."""
WORTH_APART = 0.005
"""The gap from which on what messages decode is improved by itself as well, in small networks with given starts."""
IDLE_FROM = 3
"""The round from which on one that changes neither the cost nor the bound ends the run."""
ROUNDS = 4
"""Rounds of the portfolio at effort 1."""
MOST_IN_VAIN = 3
"""Beyond these rounds it is searched in one of 2, 4, ... of them while that finds nothing better: at the rarest in one
of two to the power of this."""
PASSES = 200
"""Double passes of message passing in one round."""
DUAL_SHARE = 0.25
LEAST_PASSES = 20
"""The part of the budget that one round of message passing may take, and passes that it may make in any case."""
BRANCH_SLICE = 4_000_000_000
"""Table entries that branching may visit in one round."""
FIXED_AGAIN = 0.9
"""What the bound leaves is looked at again when the gap has shrunk to this share of what it was then."""
WORTH_PIECES = 0.25
MOST_SKIPPED = 3
"""Pieces are left out, for so many rounds, while they lower the cost by less than this part of the bound's rise."""
PIECES = 12
"""Pieces solved exactly in one round."""
PROVED_ENTRIES = 3_000_000
PROVED_NONE_ENTRIES = 300_000
"""Largest number of table entries that a proof is split on, and one that there is no assignment."""
WORTH_RELAXING = 0.5
"""Exact search with few memory rows is tried where the bound leaves less than this share of the table entries."""
FIRST_PROOF_SHARE = 0.5
FIRST_PROOF_WORK = 1_000_000_000
"""The part of the budget, and the table entries, that a proof may take while no assignment is known, and under a memory
limit before exact search looks for assignments: against a poor one it would take all."""
WORTH_GUESSING = 0.02
GUESSING_SHARE = 0.8
"""The gap from which on costs are guessed under a memory limit (no rougher one may be accepted), and the part of the
budget that this may take."""
NEARLY, NEAR_SHARE = 0.01, 0.1
"""How far above the bound a first guess is without a memory limit, where bounds of messages are mostly tight, and the
part of the budget that guesses may take there: exact search follows, which takes long with a poor assignment."""
SPLIT_ENTRIES = 3_000_000
"""Networks of up to so many table entries are split where a guess would be nearly what is known, and at once where
nothing is, since plunges lead to assignments there."""
SPLIT_SLICE = 30_000_000
"""Table entries that splitting visits before it is looked at, in turn with a proof that there is no assignment."""
IMPROVING_SWEEPS = 10
"""Sweeps of tree moves from what splitting has found."""
SCATTERED, SCATTERED_EVERY = 8, 4
"""Decodings at other prices before a proof at effort 1, while nothing good is known; and slices of splitting before one
more, twice as many after each that finds nothing better."""
SCATTERED_ENTRIES = 1_500_000
"""In larger networks, whose decodings take a second and more each, that finds next to nothing."""
FACET_NODES = 3_000
"""Larger networks are not built up facet by facet when an assignment is known."""
EXACT_ENTRIES = 1_500_000
"""Largest number of table entries given to exact search."""
EXACT_ENTRIES_WITH_MEMORY = 100_000
"""The same under a memory limit, whose rows make exact search harder."""
BRANCH_NODES = 2_000
"""In networks of up to this many nodes after reduction message passing ends early when a memory limit leaves a gap."""


class Rounds:
    """Rounds of message passing, search and proofs on what the bound leaves, until proved or out of effort.

    stats: hears how large the network is that the bound leaves. slots: those at which exact search minds the limit.
    proves: whether to go on, within a limit, when an assignment is known and a first bound and a first search are done.
    """

    def __init__(
        self, state: Portfolio, effort: float, stats: dict, slots: list[int], seed: int, proves: bool = True
    ) -> None:
        self.state, self.race, self.work = state, state.race, state.work
        self.stats, self.slots = stats, slots
        self.limited = self.work.limit is not None
        self.began = False
        self.scatter, self.proves = Scatter(state, seed), proves
        self.ends = math.isfinite(effort)
        self.count = max(1, math.ceil(ROUNDS * effort)) if self.ends else MOST_ROUNDS
        self.share = min(1.0, effort) if proves else 1.0
        self.most_passes = MOST_PASSES
        self.small, self.entries = state.flat.n <= BRANCH_NODES, len(state.flat.tables)
        if self.ends:  # what large tables leave of the budget goes to the search as well
            self.most_passes = max(LEAST_PASSES, int(DUAL_SHARE * state.budget / (2 * max(1, self.entries))))
        self.fixed_at = math.inf
        """The gap when what the bound leaves was last looked at."""
        self.reach: np.ndarray | None = None
        self.proving: Prover | None = None
        self.in_vain = 0
        """Searches that found nothing better, since one did."""
        self.fallen, self.skipped = math.inf, 0
        """What pieces took off the cost when they were last tried, and rounds since."""

    def run(self, starts: Sequence[Sequence[int] | np.ndarray]) -> None:
        """All rounds, after a search from every start."""
        self.race.enter("starts")
        for start in starts:
            self.race.check()
            self.state.begin_from(start)
        self.began = bool(starts)
        for number in range(self.count):
            before = (self.race.cost, self.race.lower)
            if self._settled_in(number) or self.race.settled() or self.state.budget <= 0:
                return
            if (self.race.cost, self.race.lower) == before and number >= IDLE_FROM and self.ends:
                return

    def _settled_in(self, number: int) -> bool:
        """One round. Whether the run is over."""
        race, lower = self.race, self.race.lower
        race.enter("dual")
        self.state.message_passing(min(max(1, int(PASSES * self.share)), self.most_passes), self.small and self.limited)
        if race.settled():
            return True
        if number < ROUNDS or number % 2 ** min(self.in_vain, MOST_IN_VAIN) == 0:
            self._search()
        gap = race.gap()
        if race.cost is None:
            if self._settled_without_cost(number):
                return True
        elif number < FIXED_ROUNDS or gap < FIXED_AGAIN * self.fixed_at:
            self.fixed_at = gap
            if self._settled_by_fixing(number):
                return True
        if number == 0 and facet_search.facet_count(race.network) and (not self.small or race.cost is None):
            race.enter("facets")
            self._facets()
        if self.proving is not None and not self.proving.done:
            race.enter("proof")
            self._prove_on(self.proving, min(BRANCH_SLICE, max(0, self.state.budget)))
            return race.settled()
        if self.reach is not None and number:  # the first prices are too rough to thin out states by
            self._pieces(self.reach, number, lower)
        return False

    def _search(self) -> None:
        """Tree moves from what is known and from what messages decode."""
        race, before = self.race, self.race.cost
        race.enter("search")
        self.state.search(self.share)
        if self.began and self.small and race.gap() > WORTH_APART:
            self.state.search_apart(self.share)
        self.in_vain = self.in_vain + 1 if race.cost == before else 0

    def _prove_on(self, prover: Prover, work: float) -> None:
        """Let a proof visit so many more table entries, and book them."""
        spent = prover.effort
        prover.go_on(int(work))
        self.state.budget -= prover.effort - spent

    def _settled_without_cost(self, number: int) -> bool:
        """While no assignment is known: split, prove that there is none, or guess a cost. Whether the run is over."""
        race, state = self.race, self.state
        if self.limited and number == 0 and self.entries <= SPLIT_ENTRIES and not race.accepts(WORTH_GUESSING):
            self._split()
            if race.settled() or race.cost is not None:
                return race.settled()
        race.enter("proof")
        none = proof.prover(race, self.work, costs=False)
        none.begin(most_entries=PROVED_NONE_ENTRIES)
        finished = none.go_on(int(min(FIRST_PROOF_SHARE * state.budget, FIRST_PROOF_WORK)))
        state.budget -= none.effort
        if finished and race.settled():
            return True
        if self.limited and number == 0 and not race.accepts(WORTH_GUESSING):
            self._guess(GUESSING_SHARE)
            return race.settled()
        return False

    def _is_far(self) -> bool:
        """Whether what is known costs so much more than the bound that costs in between are worth guessing."""
        return self.race.gap() > WORTH_GUESSING and not self.race.accepts(WORTH_GUESSING)

    def _settled_by_fixing(self, number: int) -> bool:
        """Begin a proof on what the bound leaves, and search in that. Whether the run is over."""
        race, state = self.race, self.state
        race.enter("fix")
        proving = self.proving = proof.prover(race, self.work)
        proving.begin(state.ground.copy(), self._prices(), PROVED_ENTRIES)
        state.budget -= proving.effort
        if race.settled():
            return True
        self.reach = proving.reach
        self._scatter_from(proving)
        if self.limited and number == 0 and self._settled_within_limit(proving):
            return True
        if not self.limited and number == 0 and self.entries <= SPLIT_ENTRIES and self._is_far():
            self._guess(NEAR_SHARE, first=NEARLY, whole=False)
            if race.settled():
                return True
            race.enter("fix")
        self._search_core(proving, number)
        return False

    def _settled_within_limit(self, proving: Prover) -> bool:
        """In the first round, within a limit: split or guess where the gap is wide, else prove. Whether it is over."""
        race = self.race
        if not self.proves:
            return True
        race.end_if_unwanted()
        if self._is_far():
            small = self.entries <= SPLIT_ENTRIES
            self._guess(GUESSING_SHARE, whole=not small)
            if small and not race.settled():
                self._split()
            if small or race.settled():
                return race.settled()
            if proving not in race.provers:  # it goes on later in the round
                race.provers.append(proving)
            return False
        race.enter("proof")
        self._prove_on(proving, min(FIRST_PROOF_WORK, FIRST_PROOF_SHARE * self.state.budget))
        if race.settled():
            return True
        race.enter("fix")
        return False

    def _search_core(self, proving: Prover, number: int) -> None:
        """Exact search on what the bound leaves, where that is small enough."""
        race, core = self.race, proving.work.copy()
        sizes = self.stats["core"] = core.sizes()
        backtracks = int(EXACT_BACKTRACKS * self.share)
        if sizes["entries"] <= (EXACT_ENTRIES_WITH_MEMORY if self.limited else EXACT_ENTRIES):
            race.enter("exact")
            proof.search_exactly(race, core, backtracks * (number + 1), self.slots)
        elif self.limited and sizes["entries"] < WORTH_RELAXING * self.entries:
            race.enter("relaxed")
            proof.search_by_slots(race, core, self.state, backtracks)

    def _pieces(self, reach: np.ndarray, number: int, lower: int | None) -> None:
        """Solve pieces exactly, unless they have gained little lately. lower: the bound before the round."""
        race = self.race
        risen = math.inf if lower is None or race.lower is None else race.lower - lower
        if self.fallen < WORTH_PIECES * risen and self.skipped < MOST_SKIPPED:
            self.skipped += 1
            return
        race.enter("pieces")
        cost = race.cost
        self.state.pieces(reach, max(1, int(PIECES * self.share)), number)
        self.skipped, self.fallen = 0, math.inf if cost is None or race.cost is None else cost - race.cost

    def _split(self) -> None:
        """Split what the bound leaves, until that is proved or its part of the budget is spent; while no assignment is
        known, in turn with a proof that there is none."""
        race, most = self.race, self.state.budget * (1 - GUESSING_SHARE)
        race.enter("split")
        proving = self.proving = proof.prover(race, self.work, looks=True)
        proving.begin(most_entries=PROVED_ENTRIES)
        self.state.budget -= proving.effort
        self._scatter_from(proving)
        race.enter("split")
        none: Prover | None = None
        slices, every = 0, SCATTERED_EVERY
        while not proving.done and not race.settled() and self.state.budget > most:
            known = race.cost
            self._prove_on(proving, SPLIT_SLICE)
            if race.cost != known and not race.settled() and self.state.searcher.restart():
                self.state.searcher.improve(IMPROVING_SWEEPS)
            slices += 1
            if slices >= every and self.scatter.wanted and not race.settled():
                slices, every = 0, SCATTERED_EVERY if self.scatter.decode() else 2 * every
            if race.cost is None and not race.settled():
                if none is None:
                    none = proof.prover(race, self.work, costs=False)
                    none.begin(most_entries=PROVED_NONE_ENTRIES)
                    race.provers.append(proving)
                self._prove_on(none, SPLIT_SLICE)

    def _scatter_from(self, proving: Prover) -> None:
        """While nothing good is known, look at other prices than those of a proof of the whole reduced network."""
        if not self.limited or self.entries > SCATTERED_ENTRIES:
            return
        if proving.prices is None or len(proving.prices) != self.state.flat.slots:
            return
        self.scatter.prices = proving.prices
        if self.scatter.wanted:
            self.race.enter("scatter")
        for _ in range(round(SCATTERED * self.share)):
            if self.scatter.wanted:
                self.scatter.decode()

    def _guess(self, budget: float, *, first: float = proof.GUESSED, whole: bool = True) -> None:
        """Guess what an assignment costs, from what messages and prices have come to. budget: the part of it that this
        may take; first: see `proof.guess`. whole: at last all that is cheaper than what is known."""
        race, prices = self.race, self._prices()
        race.enter("guesses")

        def begun(ceiling: float) -> Prover:
            made = proof.prover(race, self.work, ceiling=ceiling, looks=True)
            made.begin(self.state.ground.copy(), prices, PROVED_ENTRIES)
            return made

        self.state.budget -= proof.guess(race, begun, budget * self.state.budget, whole, first)

    def _prices(self) -> np.ndarray | None:
        """The best prices on memory so far; None where it has none."""
        return None if self.state.prices is None else self.state.prices.best

    def _facets(self) -> None:
        """Facet by facet: from scratch, then downhill; in large networks only when nothing is known yet."""
        race, large = self.race, self.race.network.n_nodes > FACET_NODES
        if self.limited and race.cost is not None and large:
            return
        backtracks = int(FACET_BACKTRACKS * self.share)
        if race.cost is None or not large:
            facet_search.build_up(race, backtracks=backtracks, largest=EXACT_ENTRIES)
        facet_search.descend(race, pairs=True, backtracks=backtracks, largest=EXACT_ENTRIES)
