"""Solve a cost network: reductions, incumbents, a dual bound, and the proof.

Effort is counted in deterministic work (passes, sweeps, backtracks), scaled by `effort`; the wall clock is a guard
that only ends a run early, and `Solution.stats["stopped"]` says when it did.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from autoshard.deadline import Deadline, clock
from autoshard.errors import InputError
from autoshard.garbage import uncollected
from autoshard.solver.certify.proof import Reduced
from autoshard.solver.incumbent import CloseEnough, OutOfTime, Progress, Race, Unwanted
from autoshard.solver.network import CostNetwork, evaluate
from autoshard.solver.reductions import reduce_network
from autoshard.solver.solution import Solution, Status, Stopped
from autoshard.solver.work import Infeasible, Work, from_network, without_overlap

REDUCING_WORK = 3_000_000_000
MOST_REDUCING_EFFORT = 10.0
"""Additions that eliminations may take at effort 1, and the effort from which they get no more."""
QUICK_BACKTRACKS = 2_000
MOST_QUICK_EFFORT = 100.0
"""Backtracks of exact search in small networks at effort 1, and the effort from which they get no more."""
MOST_PROOF_WORK = 10**15
"""Table entries that a proof may visit in any case: a bound for what an infinite effort asks."""
SMALL_ENTRIES = 20_000
"""Reduced networks up to this many table entries go to exact search at once, without compiled message passing."""
REDUCING_SHARE = 0.2
"""The part of a time limit after which reductions are left as they stand, where only time ends a run."""
BUDGET = 16_000_000_000
"""Table entries that message passing and search visit at effort 1 in large networks: some 20 s on one core."""
BUDGET_PASSES = 20_000
"""The same in small networks, as a multiple of their table entries."""
LEAST_BUDGET = 1_000_000_000
STANDING = 25
"""Times four double passes that may be spent at the end to reach a bound again that was seen on the way."""
QUICK_WORK = 20_000_000
"""Table entries that a proof may visit in a small network before exact search looks for assignments."""
ANYTHING_WORK, SPLIT_SHARE = 400_000_000, 12
"""Table entries that splitting may visit before nogoods are learned, where it is only asked whether anything fits: one
in so many for every dead end that may be learned from. In small networks nogoods settle sooner what can be settled."""
LEARNT_STATES = 30_000
"""In networks of more states after reduction fewer dead ends are learned from: each takes as much longer."""
PROOF_SHARE = 0.5
"""The part of the budget that a first proof may take."""


def solve(
    network: CostNetwork,
    *,
    deadline: Deadline | None = None,
    effort: float = 1.0,
    seed: int = 0,
    workers: int = 1,
    gap: float = 0.0,
    rough: float = 0.0,
    proves: bool = True,
    starts: Sequence[Sequence[int] | np.ndarray] = (),
    progress: Callable[[Progress], None] | None = None,
    wanted: Callable[[tuple[int, ...]], bool] | None = None,
    standing: Any = None,
) -> Solution:
    """The cheapest assignment found, a proven lower bound, and how the run went.

    workers: cores to search on; the result is reproducible with one, and without a time limit that ends the run.
    starts: known assignments; the result is never worse than the best feasible one. effort scales the deterministic
    amounts of work. gap: in networks too large for exact search at once, stop when (cost - bound) / cost is at most
    this; rough: the same in networks of any size. proves: whether to go on, in networks too large for exact search at
    once and within a memory limit (or with factored tables), when a first bound and a first search are done. wanted:
    whether an assignment that a proof finds on its way is of any use; the run ends at the first that is not (not in
    networks with factored tables). standing: of an earlier solution, for networks with factored tables.
    deadline guards the wall clock; None for no limit. Ctrl-C ends the run and returns the incumbent.
    Raises `InputError` for starts that do not fit or costs too large for exact arithmetic.
    """
    began = clock()
    for start in starts:
        if len(start) != network.n_nodes or any(
            not 0 <= int(x) < len(c) for x, c in zip(start, network.costs, strict=False)
        ):
            raise InputError(
                f"a start needs one state index per node ({network.n_nodes}), each within its node's range"
            )
    if network.is_factored:
        from autoshard.solver.large import solve_large

        return solve_large(
            network, solve, deadline=deadline, effort=effort, gap=max(gap, rough), starts=starts, progress=progress,
            standing=standing, proves=proves, seed=seed, workers=workers,
        )  # fmt: skip
    ends = math.inf if deadline is None else deadline.ends
    race = Race(network, began, ends, progress, endless=math.isinf(effort), accepted_gap=rough, wanted=wanted)
    stats: dict = {}

    def run() -> None:
        for start in starts:
            race.offer(start)
        _run(race, effort, seed, workers, max(gap, rough), starts, stats, proves)

    return _ended(race, run, stats)


def anything(
    network: CostNetwork,
    dead_ends: int,
    *,
    deadline: Deadline | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Solution:
    """An assignment that fits, whatever it costs, or a proof that there is none, by search that learns from dead ends.

    Not for networks with factored tables; otherwise as `solve`.
    """
    race = Race(network, clock(), math.inf if deadline is None else deadline.ends, progress)
    stats: dict = {}
    return _ended(race, lambda: _look_for_anything(race, dead_ends, stats), stats)


def _ended(race: Race, run: Callable[[], None], stats: dict) -> Solution:
    """What a race has come to once it has run."""
    stopped, reason = Stopped.DONE, None
    try:
        run()
    except CloseEnough:
        stopped = Stopped.GAP
    except Unwanted:
        stopped = Stopped.UNWANTED
    except Infeasible as why:
        reason = str(why)
        race.provers.append(Reduced.by(race.log))
    except OutOfTime:
        stopped = Stopped.TIME
    except KeyboardInterrupt:
        stopped = Stopped.INTERRUPT
    network = race.network
    race.close()
    if race.assignment is not None and evaluate(network, race.assignment).cost != race.cost:
        raise AssertionError("the cost of the best assignment is not what it was taken for")
    try:
        proof, bound = race.best_proof()
    except KeyboardInterrupt:  # what the messages prove as they stand is left out; all else is known
        stopped, race.last_resort = Stopped.INTERRUPT, None
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
    race.let_go()
    return Solution(
        race.assignment, race.cost, lower, status, race.peak, reason if status == "infeasible" else None,
        tuple(race.trace), tuple(race.earlier), stats, proof,
    )  # fmt: skip


def trivial_bound(network: CostNetwork) -> int:
    """Every table at its smallest entry."""
    return sum(int(c.min()) for c in network.costs) + sum(int(e.costs.min()) for e in network.edges)


def _reduced(race: Race, effort: float, stats: dict) -> Work:
    """What reductions leave of the network; where that is nothing, all is known."""
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
    return work


def _look_for_anything(race: Race, dead_ends: int, stats: dict) -> None:
    """An assignment that fits, or a proof that there is none."""
    work = _reduced(race, 1.0, stats)
    if work.nodes():
        from autoshard.solver.proof import prover

        race.enter("proof")
        none = prover(race, work, costs=False)
        none.begin()
        states, entries = stats["after"]["states"], stats["after"]["entries"]
        none.go_on(min(ANYTHING_WORK, dead_ends * entries // SPLIT_SHARE))
        if not none.done and race.cost is None:
            race.enter("learn")
            none.learn(dead_ends if states <= LEARNT_STATES else max(1, dead_ends * LEARNT_STATES // states))


def _run(
    race: Race,
    effort: float,
    seed: int,
    workers: int,
    gap: float,
    starts: Sequence[Sequence[int] | np.ndarray],
    stats: dict,
    proves: bool,
) -> None:
    work = _reduced(race, effort, stats)
    if not work.nodes():
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
    from autoshard.solver.rounds import Rounds

    race.enter("flatten")
    state = Portfolio(race, work, seed, budget)

    race.last_resort = lambda seen: state.stand(seen, STANDING)
    rounds = Rounds(state, effort, stats, slots, seed, proves)
    if workers <= 1:
        rounds.run(starts)
        return
    from autoshard.solver.helpers import Helpers

    with Helpers(state, workers - 1, seed):
        rounds.run(starts)
