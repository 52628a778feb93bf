"""Solve a cost network: reductions, incumbents, a dual bound, and the proof.

Effort is counted in deterministic work (passes, sweeps, backtracks), scaled by `effort`; the wall clock is a guard
that only ends a run early, and `Solution.stats["stopped"]` says when it did.
"""

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from autoshard.deadline import clock
from autoshard.errors import InputError
from autoshard.solver.certify.proof import Reduced
from autoshard.solver.engines import facets as facet_search
from autoshard.solver.garbage import uncollected
from autoshard.solver.incumbent import CloseEnough, OutOfTime, Progress, Race
from autoshard.solver.network import CostNetwork, evaluate
from autoshard.solver.reductions import reduce_network
from autoshard.solver.solution import Solution, Status, Stopped
from autoshard.solver.work import Infeasible, from_network, without_overlap

if TYPE_CHECKING:
    from autoshard.solver.certify.prove import Prover
    from autoshard.solver.portfolio import Portfolio

MOST_ROUNDS = 10**9
MOST_PASSES = 10**9
"""Rounds, and double passes in one, of a run that only time or a proof ends: more than there will be."""
REDUCING_WORK = 3_000_000_000
MOST_REDUCING_EFFORT = 10.0
"""Additions that eliminations may take at effort 1, and the effort from which they get no more."""
QUICK_BACKTRACKS = 2_000
MOST_QUICK_EFFORT = 100.0
"""Backtracks of exact search in small networks at effort 1, and the effort from which they get no more."""
EXACT_BACKTRACKS = 10_000
"""Those of exact search on what the bound leaves; as many times more as rounds were made."""
FACET_BACKTRACKS = 2_000
"""Those of one search over facets."""
MOST_PROOF_WORK = 10**15
"""Table entries that a proof may visit in any case: a bound for what an infinite effort asks."""
FIXED_ROUNDS = 2
"""Rounds after which what the bound leaves is looked at in any case."""
IDLE_FROM = 3
"""The round from which on one that changes neither the cost nor the bound ends the run."""
SMALL_ENTRIES = 20_000
"""Reduced networks up to this many table entries go to exact search at once, without compiled message passing."""
ROUNDS = 4
"""Rounds of the portfolio at effort 1."""
PASSES = 200
"""Double passes of message passing in one round."""
DUAL_SHARE = 0.25
LEAST_PASSES = 20
"""The part of the budget that one round of message passing may take, and passes that it may make in any case."""
BRANCH_SLICE = 4_000_000_000
"""Table entries that branching may visit in one round."""
REDUCING_SHARE = 0.2
"""The part of a time limit after which reductions are left as they stand, where only time ends a run."""
FIXED_AGAIN = 0.9
"""What the bound leaves is looked at again when the gap has shrunk to this share of what it was then."""
WORTH_PIECES = 0.25
MOST_SKIPPED = 3
"""Pieces are left out, for so many rounds, while they lower the cost by less than this part of the bound's rise."""
PIECES = 12
"""Pieces solved exactly in one round."""
BUDGET = 16_000_000_000
"""Table entries that message passing and search visit at effort 1 in large networks: some 20 s on one core."""
BUDGET_PASSES = 20_000
"""The same in small networks, as a multiple of their table entries."""
LEAST_BUDGET = 200_000_000
BRANCH_NODES = 2_000
"""In networks of up to this many nodes after reduction message passing ends early when a memory limit leaves a gap."""
PROVED_ENTRIES = 1_000_000
PROVED_NONE_ENTRIES = 300_000
"""Largest number of table entries that a proof is split on, and one that there is no assignment."""
STANDING = 25
"""Times four double passes that may be spent at the end to reach a bound again that was seen on the way."""
WORTH_RELAXING = 0.5
"""Exact search with few memory rows is tried where the bound leaves less than this share of the table entries."""
QUICK_WORK = 20_000_000
"""Table entries that a proof may visit in a small network before exact search looks for assignments."""
FIRST_PROOF_SHARE = 0.5
FIRST_PROOF_WORK = 1_000_000_000
"""The part of the budget, and the table entries, that a proof may take under a memory limit before exact search looks
for assignments: against a poor one it would take all."""
PROOF_SHARE = 0.5
"""The part of the budget that a first proof may take."""
WORTH_GUESSING = 0.02
GUESSING_SHARE = 0.8
"""The gap from which on costs are guessed under a memory limit (no rougher one may be accepted), and the part of the
budget that this may take."""
FACET_NODES = 3_000
"""Larger networks are not built up facet by facet when an assignment is known."""
EXACT_ENTRIES = 1_500_000
"""Largest number of table entries given to exact search."""
EXACT_ENTRIES_WITH_MEMORY = 100_000
"""The same under a memory limit, whose rows make exact search harder."""


def solve(
    network: CostNetwork,
    *,
    time_limit_s: float | None = None,
    effort: float = 1.0,
    seed: int = 0,
    workers: int = 1,
    gap: float = 0.0,
    rough: float = 0.0,
    starts: Sequence[Sequence[int] | np.ndarray] = (),
    progress: Callable[[Progress], None] | None = None,
) -> Solution:
    """The cheapest assignment found, a proven lower bound, and how the run went.

    workers: cores to search on; the result is reproducible with one, and without a time limit that ends the run.
    starts: known assignments; the result is never worse than the best feasible one. effort scales the deterministic
    amounts of work. gap: in networks too large for exact search at once, stop when (cost - bound) / cost is at most
    this; rough: the same in networks of any size.
    time_limit_s guards the wall clock. Ctrl-C ends the run and returns the incumbent.
    Raises `InputError` for starts that do not fit or costs too large for exact arithmetic.
    """
    if network.is_factored:
        from autoshard.solver.large import solve_large

        return solve_large(
            network, solve, time_limit_s=time_limit_s, effort=effort, gap=max(gap, rough), starts=starts,
            progress=progress, seed=seed, workers=workers,
        )  # fmt: skip
    began = clock()
    for start in starts:
        if len(start) != network.n_nodes or any(
            not 0 <= int(x) < len(c) for x, c in zip(start, network.costs, strict=False)
        ):
            raise InputError(
                f"a start needs one state index per node ({network.n_nodes}), each within its node's range"
            )
    deadline = began + time_limit_s if time_limit_s is not None else math.inf
    race = Race(network, began, deadline, progress, endless=math.isinf(effort), accepted_gap=rough)
    stats: dict = {}
    stopped, reason = Stopped.DONE, None
    try:
        for start in starts:
            race.offer(start)
        _run(race, effort, seed, workers, max(gap, rough), starts, stats)
    except CloseEnough:
        stopped = Stopped.GAP
    except Infeasible as why:
        reason = str(why)
        race.provers.append(Reduced.by(race.log))
    except OutOfTime:
        stopped = Stopped.TIME
    except KeyboardInterrupt:
        stopped = Stopped.INTERRUPT
    race.close()
    if race.assignment is not None and evaluate(network, race.assignment).cost != race.cost:
        raise AssertionError("the cost of the best assignment is not what it was taken for")
    proof, bound = race.best_proof()
    status: Status
    if math.isinf(bound) and bound > 0:
        if race.cost is not None:
            raise AssertionError(f"a network with a feasible assignment was called infeasible: {reason}")
        status, lower = "infeasible", trivial_bound(network)
        reason = reason or "every branch ends in a proof that nothing can be held within the limit"
    else:
        lower = trivial_bound(network) if math.isinf(bound) else int(bound)
        status = "unknown" if race.cost is None else "feasible"
        if race.cost is not None and lower >= race.cost:
            status, lower = "optimal", race.cost
    if stopped is Stopped.DONE and status in ("feasible", "unknown"):
        stopped = Stopped.GAP if race.cost is not None and lower > race.target() else Stopped.EFFORT
    stats |= {"stopped": stopped, "seconds": round(race.seconds(), 3), "stages": race.engines}
    if proof is not None:
        stats["proof"] = {"parts": proof.parts, "records": proof.records}
    return Solution(
        race.assignment, race.cost, lower, status, race.peak, reason if status == "infeasible" else None,
        tuple(race.trace), tuple(race.earlier), stats, proof,
    )  # fmt: skip


def trivial_bound(network: CostNetwork) -> int:
    """Every table at its smallest entry."""
    return sum(int(c.min()) for c in network.costs) + sum(int(e.costs.min()) for e in network.edges)


def _run(
    race: Race,
    effort: float,
    seed: int,
    workers: int,
    gap: float,
    starts: Sequence[Sequence[int] | np.ndarray],
    stats: dict,
) -> None:
    race.enter("reduce")
    with uncollected():
        work = from_network(race.network, logged=True)
        race.log = work.log
        stats["before"] = work.sizes()
        reduce_network(
            work,
            elimination=int(REDUCING_WORK * min(effort, MOST_REDUCING_EFFORT)),
            check=race.check,
            enough=lambda: race.enough(REDUCING_SHARE),
        )
    for node in work.nodes() if work.limit is not None else ():
        work.held[node] = without_overlap(work.held[node])
    stats["after"] = work.sizes() | {"memory": work.limit is not None}
    if not work.nodes():
        whole = work.complete({})
        race.offer([whole[i] for i in range(race.network.n_nodes)])
        race.provers.append(Reduced.by(work.log, work.constant))
        return
    from autoshard.solver.proof import prover, search_exactly

    race.check()
    slots: list[int] = []
    entries = stats["after"]["entries"]
    budget = effort * min(BUDGET, max(LEAST_BUDGET, BUDGET_PASSES * entries))
    if entries <= SMALL_ENTRIES:
        race.enter("proof")
        quick = prover(race, work)
        quick.begin()
        quick.go_on(QUICK_WORK)
        if race.settled():
            return
        if race.cost is None and work.limit is not None:
            none = prover(race, work, costs=False)
            none.begin()
            none.go_on(QUICK_WORK)
            if race.settled():
                return
        race.enter("exact")
        search_exactly(race, work, int(QUICK_BACKTRACKS * min(effort, MOST_QUICK_EFFORT)), slots)
        race.enter("proof")
        first = quick if race.cost is not None and not quick.done else prover(race, work, costs=race.cost is not None)
        if first is not quick:
            first.begin()
        first.go_on(int(min(PROOF_SHARE * budget, MOST_PROOF_WORK)))
        if race.settled():
            return
    race.accepted_gap = gap
    from autoshard.solver.portfolio import Portfolio

    race.enter("flatten")
    state = Portfolio(race, work, seed, budget)

    race.last_resort = lambda seen: state.stand(seen, STANDING)
    if workers <= 1:
        _bound_and_search(state, effort, starts, stats, slots)
        return
    from autoshard.solver.helpers import Helpers

    with Helpers(state, workers - 1, seed):
        _bound_and_search(state, effort, starts, stats, slots)


# complexity: the order of the engines in a round, and what each of them is asked after, is what this function says
def _bound_and_search(
    state: "Portfolio", effort: float, starts: Sequence[Sequence[int] | np.ndarray], stats: dict, slots: list[int]
) -> None:
    """Rounds of message passing, search and proofs on what the bound leaves, until proved or out of effort."""
    from autoshard.solver import proof

    race, work = state.race, state.work
    small, entries = state.flat.n <= BRANCH_NODES, len(state.flat.tables)
    fixed_at, reach = math.inf, None
    proving: Prover | None = None
    fallen, skipped = math.inf, 0  # what pieces took off the cost when they were last tried, and rounds since
    rounds = max(1, math.ceil(ROUNDS * effort)) if math.isfinite(effort) else MOST_ROUNDS
    share = min(1.0, effort)
    most_passes = MOST_PASSES
    if math.isfinite(effort):  # what large tables leave of the budget goes to the search as well
        most_passes = max(LEAST_PASSES, int(DUAL_SHARE * state.budget / (2 * max(1, len(state.flat.tables)))))
    race.enter("starts")
    for start in starts:
        race.check()
        state.begin_from(start)
    for round_ in range(rounds):
        before = (race.cost, race.lower)
        race.enter("dual")
        state.message_passing(min(max(1, int(PASSES * share)), most_passes), small and work.limit is not None)
        if race.settled():
            return
        race.enter("search")
        state.search(share)
        gap = race.gap()
        if race.cost is None:
            race.enter("proof")
            none = proof.prover(race, work, costs=False)
            none.begin(most_entries=PROVED_NONE_ENTRIES)
            finished = none.go_on(int(min(PROOF_SHARE * state.budget, FIRST_PROOF_WORK)))
            state.budget -= none.effort
            if finished and race.settled():
                return
            if work.limit is not None and round_ == 0 and race.accepted_gap < WORTH_GUESSING:
                _guess(state)
                if race.settled():
                    return
        elif round_ < FIXED_ROUNDS or gap < FIXED_AGAIN * fixed_at:
            fixed_at = gap
            race.enter("fix")
            proving = proof.prover(race, work)
            prices = None if state.prices is None else state.prices.best
            proving.begin(state.ground.copy(), prices, PROVED_ENTRIES)
            state.budget -= proving.effort
            if race.settled():
                return
            reach = proving.reach
            if work.limit is not None and round_ == 0 and race.gap() > WORTH_GUESSING > race.accepted_gap:
                _guess(state)
                if race.settled():
                    return
                if proving not in race.provers:  # it goes on below
                    race.provers.append(proving)
            elif work.limit is not None and round_ == 0:
                race.enter("proof")
                spent = proving.effort
                proving.go_on(int(min(FIRST_PROOF_WORK, FIRST_PROOF_SHARE * state.budget)))
                state.budget -= proving.effort - spent
                if race.settled():
                    return
                race.enter("fix")
            core = proving.work.copy()
            sizes = stats["core"] = core.sizes()
            if sizes["entries"] <= (EXACT_ENTRIES if work.limit is None else EXACT_ENTRIES_WITH_MEMORY):
                race.enter("exact")
                proof.search_exactly(race, core, int(EXACT_BACKTRACKS * share) * (round_ + 1), slots)
            elif work.limit is not None and sizes["entries"] < WORTH_RELAXING * entries:
                race.enter("relaxed")
                proof.search_by_slots(race, core, state, int(EXACT_BACKTRACKS * share))
        if round_ == 0 and facet_search.facet_count(race.network) and (not small or race.cost is None):
            race.enter("facets")
            _facets(race, work.limit is not None, share)
        if proving is not None and not proving.done:
            race.enter("proof")
            spent = proving.effort
            proving.go_on(int(min(BRANCH_SLICE, max(0, state.budget))))
            state.budget -= proving.effort - spent
            if race.settled():
                return
        elif reach is not None and round_:  # the first prices are too rough to thin out states by
            risen = math.inf if before[1] is None or race.lower is None else race.lower - before[1]
            if fallen < WORTH_PIECES * risen and skipped < MOST_SKIPPED:
                skipped += 1
            else:
                race.enter("pieces")
                cost = race.cost
                state.pieces(reach, max(1, int(PIECES * share)), round_)
                skipped, fallen = 0, math.inf if cost is None or race.cost is None else cost - race.cost
        if race.settled() or state.budget <= 0:
            return
        if (race.cost, race.lower) == before and round_ >= IDLE_FROM and math.isfinite(effort):
            return


def _guess(state: "Portfolio") -> None:
    """Guess what an assignment costs, from what messages and prices have come to."""
    from autoshard.solver import proof

    race, prices = state.race, None if state.prices is None else state.prices.best
    race.enter("guesses")

    def begun(ceiling: float) -> "Prover":
        made = proof.prover(race, state.work, ceiling=ceiling, looks=True)
        made.begin(state.ground.copy(), prices, PROVED_ENTRIES)
        return made

    state.budget -= proof.guess(race, begun, GUESSING_SHARE * state.budget)


def _facets(race: Race, limited: bool, share: float) -> None:
    """Facet by facet: from scratch, then downhill; in large networks only when nothing is known yet."""
    if limited and race.cost is not None and race.network.n_nodes > FACET_NODES:
        return
    backtracks = int(FACET_BACKTRACKS * share)
    if race.cost is None or race.network.n_nodes <= FACET_NODES:
        facet_search.build_up(race, backtracks=backtracks, largest=EXACT_ENTRIES)
    facet_search.descend(race, pairs=True, backtracks=backtracks, largest=EXACT_ENTRIES)
