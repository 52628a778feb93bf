"""Solve a cost network: reductions, incumbents, a dual bound, and the proof.

Effort is counted in deterministic work (passes, sweeps, backtracks), scaled by `effort`; the wall clock is a guard
that only ends a run early, and `Solution.stats["stopped"]` says when it did.
"""

import math
import time
from collections.abc import Callable, Sequence

import numpy as np

from autoshard.errors import InputError
from autoshard.solver import dual as duals
from autoshard.solver import facets as facet_search
from autoshard.solver.exact import solve_work
from autoshard.solver.flat import flatten
from autoshard.solver.incumbent import OutOfTime, Progress, Race
from autoshard.solver.network import CostNetwork
from autoshard.solver.reductions import arc_consistency, least_usage, reduce_network
from autoshard.solver.solution import Solution, Status
from autoshard.solver.work import FORBIDDEN, Infeasible, Work, from_network

SMALL_ENTRIES = 60_000
"""Reduced networks up to this many table entries go to exact search at once, without compiled message passing."""
EXACT_ENTRIES = 1_500_000
"""Largest number of table entries given to exact search."""


def solve(
    network: CostNetwork,
    *,
    time_limit_s: float | None = None,
    effort: float = 1.0,
    seed: int = 0,
    starts: Sequence[Sequence[int] | np.ndarray] = (),
    progress: Callable[[Progress], None] | None = None,
) -> Solution:
    """The cheapest assignment found, a proven lower bound, and how the run went.

    starts: known assignments; the result is never worse than the best feasible one. effort scales the deterministic
    amounts of work. time_limit_s guards the wall clock. Ctrl-C ends the run and returns the incumbent.
    Raises `InputError` for starts that do not fit or costs too large for exact arithmetic.
    """
    began = time.monotonic()
    for start in starts:
        if len(start) != network.n_nodes or any(
            not 0 <= int(x) < len(c) for x, c in zip(start, network.costs, strict=False)
        ):
            raise InputError(
                f"a start needs one strategy index per node ({network.n_nodes}), each within its node's range"
            )
    deadline = began + time_limit_s if time_limit_s is not None else math.inf
    race = Race(network, began, deadline, progress)
    stats: dict = {}
    stopped, reason = "done", None
    try:
        for start in starts:
            race.offer(start)
        _run(race, effort, seed, stats)
    except Infeasible as why:
        reason = str(why)
    except OutOfTime:
        stopped = "time"
    except KeyboardInterrupt:
        stopped = "interrupt"
    race.close()
    if race.cost is not None and reason is not None:  # the incumbent survived: cannot happen
        raise AssertionError(f"a network with a feasible assignment was called infeasible: {reason}")
    lower = race.lower if race.lower is not None else trivial_bound(network)
    status: Status
    if reason is not None:
        status = "infeasible"
    elif race.cost is None:
        status = "unknown"
    else:
        lower = min(lower, race.cost)
        status = "optimal" if lower == race.cost else "feasible"
    if stopped == "done" and status in ("feasible", "unknown"):
        stopped = "effort"
    stats |= {"stopped": stopped, "seconds": round(race.seconds(), 3), "stages": race.engines}
    return Solution(race.assignment, race.cost, lower, status, race.peak, reason, tuple(race.trace), stats)


def trivial_bound(network: CostNetwork) -> int:
    """Every table at its smallest entry."""
    return sum(int(c.min()) for c in network.costs) + sum(int(e.costs.min()) for e in network.edges)


def _run(race: Race, effort: float, seed: int, stats: dict) -> None:
    race.enter("reduce")
    work = from_network(race.network)
    stats["before"] = work.sizes()
    reduce_network(work, elimination=int(3_000_000_000 * effort))
    stats["after"] = work.sizes() | {"memory": work.limit is not None}
    if not work.nodes():
        _offer_complete(race, work, {})
        race.raise_bound(work.constant)
        return
    race.check()
    slots: list[int] = []
    if stats["after"]["entries"] <= SMALL_ENTRIES:
        race.enter("exact")
        if _exact(race, work, int(20_000 * effort), slots):
            return
    _bound_and_search(race, work, effort, stats, slots)


def _offer_complete(race: Race, work: Work, choice: dict[int, int]) -> bool:
    whole = work.complete(choice)
    return race.offer([whole[i] for i in range(race.network.n_nodes)])


def _exact(race: Race, work: Work, backtracks: int, slots: list[int], vac: int = 0) -> bool:
    """Exact search below the incumbent; True when it ended with a proof."""
    found = solve_work(
        work, upper=race.cost, backtracks=backtracks, seconds=max(0.1, race.left()), slots=slots, vac=vac
    )
    if found is None:
        return False
    choice, lower, complete, timed_out = found
    if choice is not None:
        race.offer([choice[i] for i in range(race.network.n_nodes)])
    elif complete and race.cost is None:
        least = int(least_usage(work).max(initial=0)) if work.limit is not None else 0
        raise Infeasible(
            "no assignment satisfies all forbidden pairs"
            + (
                f" within the limit of {work.limit} (at least {least} is live at once)"
                if work.limit is not None
                else ""
            )
        )
    if complete and race.cost is not None:
        race.raise_bound(race.cost)
        return True
    race.raise_bound(lower)
    if timed_out:
        raise OutOfTime
    return False


def _bound_and_search(race: Race, work: Work, effort: float, stats: dict, slots: list[int]) -> None:
    race.enter("dual")
    flat = flatten(work)
    dual = duals.start(flat)
    _message_passing(race, work, dual, passes=int(60 * effort))
    if race.proved():
        return
    if facet_search.facet_count(race.network):
        race.enter("facets")
        backtracks, largest = int(2_000 * effort), EXACT_ENTRIES
        if race.cost is None or effort >= 1:
            facet_search.build_up(race, backtracks=backtracks, largest=largest)
        facet_search.descend(race, pairs=True, backtracks=backtracks, largest=largest)
    for round_ in range(3):
        race.enter("dual")
        _message_passing(race, work, dual, passes=int(100 * effort))
        race.check()
        if race.proved():
            return
        race.enter("fix")
        core = fixed_by_bound(race, work, dual)
        if core is None:
            return
        stats[f"core_{round_}"] = core.sizes()
        if core.entries() <= EXACT_ENTRIES:
            race.enter("exact")
            if _exact(race, core, int(20_000 * effort), slots, vac=0):
                return


def _message_passing(race: Race, work: Work, dual: duals.Dual, passes: int) -> None:
    """Raise the bound; offer what the passes decode."""
    from autoshard.solver.kernels import coordinate_descent

    flat = dual.flat
    scratch = np.empty(int(flat.sizes.max()))
    seen = math.inf
    price_step = 0.0
    for sweep in range(passes):
        race.check()
        duals.run_pass(dual, True)
        chosen = duals.run_pass(dual, False)
        if math.isfinite(dual.bound):
            race.raise_bound(work.constant + math.ceil(dual.bound))
        cost = duals.flat_cost(flat, chosen)
        if flat.limit is not None:
            price_step = _update_prices(dual, chosen, sweep, price_step)
        if cost < seen or sweep % 10 == 9:
            seen = min(seen, cost)
            if math.isfinite(cost):
                better = chosen.copy()
                coordinate_descent(
                    20, flat.offsets, dual.priced, flat.first, flat.second, flat.table_at, flat.tables,
                    flat.incident_at, flat.incident, better, scratch,
                )  # fmt: skip
                _offer_flat(race, work, flat, better)
        if race.proved():
            return


def _offer_flat(race: Race, work: Work, flat, chosen: np.ndarray) -> bool:
    choice = {int(node): int(work.domains[node][x]) for node, x in zip(flat.nodes, chosen, strict=True)}
    return _offer_complete(race, work, choice)


def _update_prices(dual: duals.Dual, chosen: np.ndarray, sweep: int, scale: float) -> float:
    """Subgradient step on the memory prices, towards the slots that the decoded assignment overfills."""
    flat = dual.flat
    assert flat.limit is not None
    live = duals.usage(flat, chosen).astype(np.float64)
    over = live / max(1, flat.limit) - 1.0
    if scale == 0.0:
        spread = float(np.abs(dual.last)) if math.isfinite(dual.last) else 1.0
        scale = max(1.0, spread) / max(1.0, float(flat.limit))
    norm = float((over[(over > 0) | (dual.prices > 0)] ** 2).sum())
    if norm <= 0:
        return scale
    step = 0.3 * scale / (1.0 + 0.1 * sweep)
    prices = np.maximum(0.0, dual.prices + step * over / math.sqrt(norm))
    duals.set_prices(dual, prices)
    return scale


def fixed_by_bound(race: Race, work: Work, dual: duals.Dual) -> Work | None:
    """What can still beat the incumbent: strategies and pairs whose reduced cost stays below the gap; None if nothing can."""
    copy = work.copy()
    if race.cost is None:
        return copy
    duals.run_pass(dual, True)
    duals.run_pass(dual, False)
    bound, nodes, edges = duals.reparametrise(dual)
    race.raise_bound(work.constant + math.ceil(bound))
    room = race.cost - work.constant - bound - 1  # a better assignment costs at most this much above the bound
    if room < 0:
        race.raise_bound(race.cost)
        return None
    flat = dual.flat
    reach = [own.copy() for own in nodes]
    for e, table in enumerate(edges):
        i, j = flat.first[e], flat.second[e]
        reach[i] += (table + nodes[j][None, :]).min(axis=1)
        reach[j] += (table + nodes[i][:, None]).min(axis=0)
    try:
        for e, table in enumerate(edges):
            i, j = flat.first[e], flat.second[e]
            a, b = int(flat.nodes[i]), int(flat.nodes[j])
            dead = table + nodes[i][:, None] + nodes[j][None, :] > room
            if dead.any():
                copy.set_edge(a, b, np.where(dead, FORBIDDEN, copy.tables[a][b]))
        for k, own in enumerate(reach):
            alive = own <= room
            if not alive.any():
                raise Infeasible("nothing beats the incumbent")
            if not alive.all():
                copy.keep(int(flat.nodes[k]), alive)
        arc_consistency(copy)
        reduce_network(copy)
    except Infeasible:
        race.raise_bound(race.cost)
        return None
    return copy
