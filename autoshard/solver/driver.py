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
from autoshard.solver import pieces, search, toulbar2
from autoshard.solver.exact import profile, solve_work, worst_slots
from autoshard.solver.flat import flatten
from autoshard.solver.incumbent import CloseEnough, OutOfTime, Progress, Race
from autoshard.solver.network import CostNetwork
from autoshard.solver.reductions import arc_consistency, least_usage, only_slots, reduce_network
from autoshard.solver.solution import Solution, Status
from autoshard.solver.work import FORBIDDEN, Infeasible, Work, from_network

SMALL_ENTRIES = 20_000
"""Reduced networks up to this many table entries go to exact search at once, without compiled message passing."""
ROUNDS = 4
"""Rounds of the portfolio at effort 1."""
PASSES = 200
"""Double passes of message passing in one round."""
TREE_SIZES = (20, 5, 100, 400, 2000)
"""Inner nodes of the trees that one search round re-chooses."""
PIECES = 12
"""Pieces solved exactly in one round."""
PIECE_NODES = 1_000
PIECE_ENTRIES = 200_000
"""Table entries that a piece may touch before its strategies are thinned out."""
FACET_NODES = 3_000
"""Larger networks are not built up facet by facet when an assignment is known."""
EXACT_ENTRIES_WITH_MEMORY = 100_000
"""The same under a memory limit, whose rows make exact search harder."""
RELAXED_ENTRIES = 600_000
"""The same when few time slots are held to the limit."""
SLOTS_FIRST = 40
SLOT_ROUNDS = 12
"""Slots that exact search first holds to the limit, and how often it may add overfilled ones."""
EXACT_ENTRIES = 1_500_000
"""Largest number of table entries given to exact search."""


def solve(
    network: CostNetwork,
    *,
    time_limit_s: float | None = None,
    effort: float = 1.0,
    seed: int = 0,
    gap: float = 0.0,
    starts: Sequence[Sequence[int] | np.ndarray] = (),
    progress: Callable[[Progress], None] | None = None,
) -> Solution:
    """The cheapest assignment found, a proven lower bound, and how the run went.

    starts: known assignments; the result is never worse than the best feasible one. effort scales the deterministic
    amounts of work. gap: in networks too large for exact search at once, stop when (cost - bound) / cost is at most
    this.
    time_limit_s guards the wall clock. Ctrl-C ends the run and returns the incumbent.
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
        _run(race, effort, seed, gap, stats)
    except CloseEnough:
        stopped = "gap"
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


def _run(race: Race, effort: float, seed: int, gap: float, stats: dict) -> None:
    race.enter("reduce")
    work = from_network(race.network)
    stats["before"] = work.sizes()
    reduce_network(work, elimination=int(3_000_000_000 * min(effort, 10.0)), check=race.check)
    stats["after"] = work.sizes() | {"memory": work.limit is not None}
    if not work.nodes():
        _offer_complete(race, work, {})
        race.raise_bound(work.constant)
        return
    race.check()
    slots: list[int] = []
    if stats["after"]["entries"] <= SMALL_ENTRIES:
        race.enter("exact")
        if _exact(race, work, int(2_000 * min(effort, 100.0)), slots):
            return
    race.accepted_gap = gap
    _bound_and_search(race, work, effort, seed, stats, slots)


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


def _bound_and_search(race: Race, work: Work, effort: float, seed: int, stats: dict, slots: list[int]) -> None:
    """Rounds of message passing, search and exact attempts on what the bound leaves, until proved or out of effort."""
    state = _Portfolio(race, work, seed)
    rounds = max(1, math.ceil(ROUNDS * effort)) if math.isfinite(effort) else 10**9
    share = min(1.0, effort)
    for round_ in range(rounds):
        before = (race.cost, race.lower)
        race.enter("dual")
        state.message_passing(max(1, int(PASSES * share)))
        if race.proved():
            return
        race.enter("search")
        state.search(share)
        race.enter("fix")
        core, reach = fixed_by_bound(race, work, state.dual, state.prices.best if state.prices else None)
        if core is None:
            return
        sizes = stats["core"] = core.sizes()
        if sizes["entries"] <= (EXACT_ENTRIES if work.limit is None else EXACT_ENTRIES_WITH_MEMORY):
            race.enter("exact")
            if _exact(race, core, int(10_000 * share) * (round_ + 1), slots):
                return
        elif work.limit is not None and state.prices is not None:
            race.enter("relaxed")
            if _exact_by_slots(race, core, state, int(10_000 * share)):
                return
        if round_ == 0 and facet_search.facet_count(race.network):
            race.enter("facets")
            _facets(race, work, share)
        elif reach is not None and round_:  # the first prices are too rough to thin out strategies by
            race.enter("pieces")
            state.pieces(reach, max(1, int(PIECES * share)), round_)
        if race.proved() or ((race.cost, race.lower) == before and round_ >= 3 and math.isfinite(effort)):
            return


def _exact_by_slots(race: Race, core: Work, state: "_Portfolio", backtracks: int) -> bool:
    """Exact search with the memory limit only at the slots that matter: most nodes then hold none and can go.

    Slots that the answer overfills are added and the search repeated. True when that ends with a proof.
    """
    if core.slots != state.flat.slots or core.limit is None or state.prices is None:
        return False
    price = state.prices.best
    active = {int(s) for s in np.argsort(-price, kind="stable")[:SLOTS_FIRST] if price[s] > 1e-3 * price.max()}
    nodes = core.nodes()
    for _ in range(SLOT_ROUNDS):
        race.check()
        relaxed = core.copy()
        try:
            only_slots(relaxed, sorted(active))
            reduce_network(relaxed)
        except Infeasible:
            if race.cost is None:
                raise
            race.raise_bound(race.cost)
            return True
        if relaxed.entries() > RELAXED_ENTRIES:
            return False
        found = solve_work(relaxed, upper=race.cost, backtracks=backtracks, seconds=max(0.1, race.left()), slots=[])
        if found is None:
            return False
        choice, lower, complete, timed_out = found
        race.raise_bound(lower if race.cost is None else min(lower, race.cost))
        if choice is None:
            if complete and race.cost is not None:
                race.raise_bound(race.cost)
            if timed_out:
                raise OutOfTime
            return complete and race.cost is not None
        positions = [core.position(i, choice[i]) for i in nodes]
        if any(p is None for p in positions):
            return False
        excess = profile(core, tuple(p for p in positions if p is not None)) - core.limit
        if int(excess.max(initial=0)) <= 0:
            race.offer([choice[i] for i in range(race.network.n_nodes)])
            if complete:
                race.raise_bound(lower)
            return race.proved()
        state.decode(np.array([state.work.position(int(i), choice[int(i)]) for i in state.flat.nodes]))
        active |= set(worst_slots(excess))
    return False


def _facets(race: Race, work: Work, share: float) -> None:
    """Facet by facet: from scratch, then downhill; in large networks only when nothing is known yet."""
    if work.limit is not None and race.cost is not None and race.network.n_nodes > FACET_NODES:
        return
    backtracks = int(2_000 * share)
    if race.cost is None or race.network.n_nodes <= FACET_NODES:
        facet_search.build_up(race, backtracks=backtracks, largest=EXACT_ENTRIES)
    facet_search.descend(race, pairs=True, backtracks=backtracks, largest=EXACT_ENTRIES)


class _Portfolio:
    """Message passing and local search on one reduced network; keeps messages, prices and the random state."""

    def __init__(self, race: Race, work: Work, seed: int) -> None:
        self.race, self.work = race, work
        self.flat = flatten(work)
        self.dual = duals.start(self.flat)
        self.prices: duals.Prices | None = None
        self.field = search.field_for(self.flat, seed)
        self.random = np.random.default_rng(seed)
        self.known: int | None = None
        self.best: np.ndarray | None = None

    def message_passing(self, passes: int) -> None:
        """Raise the bound; decode on the way."""
        race, dual = self.race, self.dual
        idle, before = 0, dual.bound
        for k in range(passes):
            race.check()
            duals.run_pass(dual, True)
            chosen = duals.run_pass(dual, False)
            if math.isfinite(dual.bound):
                race.raise_bound(self.work.constant + math.ceil(dual.bound))
            if self.flat.limit is not None and dual.passes > 8:
                live = duals.usage(self.flat, chosen)
                if self.prices is None:
                    self.prices = duals.first_prices(dual, live)
                elif self.prices.settled:
                    break
                duals.adjust_prices(dual, self.prices, live)
            if k % 20 == 9:
                self.decode(chosen)
                if race.proved():
                    return
                if self.flat.limit is None:
                    idle = idle + 1 if dual.bound - before <= 1e-6 * abs(before) else 0
                    before = dual.bound
                    if idle >= 2:
                        break

    def price(self) -> np.ndarray:
        return np.zeros(self.flat.slots) if self.prices is None else self.prices.best

    def decode(self, chosen: np.ndarray) -> None:
        """Repair and polish a decoded assignment, then offer it."""
        field = self.field
        search.place(field, chosen)
        if search.over(field) > 0 and not search.repair(field, self.price()):
            return
        if self.flat.limit is not None:
            search.descend(field, search.prefix_of(self.price()))
        search.descend(field, search.prefix_of(np.zeros(self.flat.slots)))
        self.offer()

    def offer(self) -> bool:
        """Offer what stands on the field; remembers it when it is the best so far."""
        cost = search.cost(self.field)
        if not math.isfinite(cost):
            return False
        if self.race.cost is not None and self.work.constant + cost >= self.race.cost:
            return False
        if _offer_flat(self.race, self.work, self.flat, self.field.chosen):
            self.known, self.best = self.race.cost, self.field.chosen.copy()
            return True
        return False

    def restart(self) -> bool:
        """Put the incumbent on the field; False when there is none or reductions dropped a strategy of it."""
        race = self.race
        if race.assignment is None:
            return False
        if self.known != race.cost or self.best is None:
            places = [self.work.position(int(node), race.assignment[node]) for node in self.flat.nodes]
            if any(p is None for p in places):
                return False
            self.known, self.best = race.cost, np.array(places, dtype=np.int64)
        search.place(self.field, self.best)
        return True

    def search(self, effort: float) -> None:
        """Random trees of several sizes around the incumbent."""
        race, field = self.race, self.field
        if not self.restart() and self.best is None:
            return
        prefix = search.prefix_of(self.price())
        budget = max(1000, 4 * self.flat.n)
        idle, k = 0, 0
        while idle < 2 * len(TREE_SIZES) and k < max(1, int(40 * effort)):
            race.check()
            size = TREE_SIZES[k % len(TREE_SIZES)]
            gain = search.trees(field, prefix, max(4, budget // size), size, scales=(0.0, 1.3))
            idle = 0 if gain > 1e-5 * abs(search.cost(field)) else idle + 1
            k += 1
            if gain > 0:
                self.offer()

    def pieces(self, reach: list[np.ndarray], count: int, round_: int) -> None:
        """Solve large connected pieces exactly, each node with its few most promising strategies."""
        race, field = self.race, self.field
        if not self.restart() or not toulbar2.available():
            return
        keep = (3, 2, 4, 3, 6)[round_ % 5]
        options = [np.sort(np.argsort(r, kind="stable")[:keep]) for r in reach]
        undecided = np.array([len(o) > 1 for o in options])
        roots = np.flatnonzero(undecided)
        if not len(roots):
            return
        for _ in range(count):
            race.check()
            root = int(roots[self.random.integers(len(roots))])
            piece = pieces.grow(self.flat, root, PIECE_NODES, PIECE_ENTRIES, self.random, undecided)
            left = max(0.1, race.left())
            if pieces.improve(field, piece, options, backtracks=300, seconds=left) > 0:
                self.offer()


def _offer_flat(race: Race, work: Work, flat, chosen: np.ndarray) -> bool:
    choice = {int(node): int(work.domains[node][x]) for node, x in zip(flat.nodes, chosen, strict=True)}
    return _offer_complete(race, work, choice)


def fixed_by_bound(
    race: Race, work: Work, dual: duals.Dual, best_prices: np.ndarray | None
) -> tuple[Work | None, list[np.ndarray] | None]:
    """What can still beat the incumbent: strategies and pairs with a reduced cost below the gap; None if nothing can.

    With it, per node of the flat network the least amount above the bound that each strategy costs.
    """
    copy = work.copy()
    if race.cost is None:
        return copy, None
    if best_prices is not None:
        duals.set_prices(dual, best_prices)
    for _ in range(2):
        duals.run_pass(dual, True)
        duals.run_pass(dual, False)
    bound, nodes, edges = duals.reparametrise(dual)
    race.raise_bound(work.constant + math.ceil(bound))
    room = race.cost - work.constant - bound - 1  # a better assignment costs at most this much above the bound
    if room < 0:
        race.raise_bound(race.cost)
        return None, None
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
        reduce_network(copy, renumber=False)
    except Infeasible:
        race.raise_bound(race.cost)
        return None, None
    return copy, reach
