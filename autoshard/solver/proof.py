"""Ways to close the gap: exact search on what the bound leaves, memory held only where it binds, branching."""

import math

import numpy as np

from autoshard.solver import dual as duals
from autoshard.solver.branch import Branching
from autoshard.solver.exact import profile, solve_work, worst_slots
from autoshard.solver.fixing import make_consistent, reduced_costs, restrict
from autoshard.solver.incumbent import Race
from autoshard.solver.portfolio import Portfolio
from autoshard.solver.reductions import arc_consistency, least_usage, only_slots, reduce_network
from autoshard.solver.work import FORBIDDEN, Infeasible, Work

RELAXED_ENTRIES = 600_000
"""Table entries given to exact search when few time slots are held to the limit."""
SLOTS_FIRST = 40
SLOT_ROUNDS = 12
"""Slots that exact search first holds to the limit, and how often it may add overfilled ones."""

CHECKED_EVERY = 256
"""Nodes between two looks at the clock."""


def exact(race: Race, work: Work, backtracks: int, slots: list[int]) -> bool:
    """Exact search for what is worth finding (`Race.target`); True when it ended with a proof."""
    upper = None if race.cost is None else int(race.target()) + 1
    found = solve_work(work, upper=upper, backtracks=backtracks, seconds=race.patience(), slots=slots)
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
    if complete and choice is None and upper is not None:
        lower = upper
    race.raise_bound(lower if upper is None else min(lower, upper))
    if complete:
        return True
    if timed_out:
        race.check()
    return False


def exact_by_slots(race: Race, core: Work, state: Portfolio, backtracks: int) -> bool:
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
            reduce_network(relaxed, check=race.check)
        except Infeasible:
            if race.cost is None:
                raise
            race.raise_bound(int(race.target()) + 1)
            return True
        if relaxed.entries() > RELAXED_ENTRIES:
            return False
        upper = None if race.cost is None else int(race.target()) + 1
        found = solve_work(relaxed, upper=upper, backtracks=backtracks, seconds=race.patience(), slots=[])
        if found is None:
            return False
        choice, lower, complete, timed_out = found
        race.raise_bound(lower if upper is None else min(lower, upper))
        if choice is None:
            if complete and upper is not None:
                race.raise_bound(upper)
            if timed_out:
                race.check()
            return complete and upper is not None
        positions = [core.position(i, choice[i]) for i in nodes]
        if any(p is None for p in positions):
            return False
        excess = profile(core, tuple(p for p in positions if p is not None)) - core.limit
        if int(excess.max(initial=0)) <= 0:
            race.offer([choice[i] for i in range(race.network.n_nodes)])
            return race.proved()
        state.decode(np.array([state.work.position(int(i), choice[int(i)]) for i in state.flat.nodes]))
        active |= set(worst_slots(excess))
    return False


def fixed_by_bound(state: Portfolio) -> tuple[Work | None, np.ndarray | None]:
    """What can still reach the target: strategies and pairs with a reduced cost within the gap; None if nothing can.

    With it, per strategy of the portfolio's network the least amount above the bound that it costs (inf: gone).
    """
    from autoshard.solver.kernels import out_of_reach

    race, copy = state.race, state.work.copy()
    if race.cost is None:
        return copy, None
    state.to_best_prices()
    found = reduced_costs(state.part.dual)
    state.tell_bound(found.bound)
    room = state.target() - found.bound
    alive = found.reach <= room
    if room < 0 or not make_consistent(state.part.flat, alive):
        state.tell_bound(math.inf)
        return None, None
    reach = np.full(len(state.flat.unary), np.inf)
    reach[state.part.origin[alive]] = found.reach[alive]
    state.part = restrict(state.part, alive)
    try:
        for k, node in enumerate(state.flat.nodes):
            kept = np.isfinite(reach[state.flat.offsets[k] : state.flat.offsets[k + 1]])
            if not kept.all():
                copy.keep(int(node), kept)
            if k % CHECKED_EVERY == 0:
                race.check()
        flat = state.part.flat
        bound, own, rest = duals.reparametrise(state.part.dual)
        dead = np.zeros(len(rest), dtype=bool)
        some = out_of_reach(
            flat.offsets, flat.first, flat.second, flat.table_at, own, rest, float(state.target() - bound), dead
        )
        for e in np.flatnonzero(some).tolist():
            a, b = int(flat.nodes[flat.first[e]]), int(flat.nodes[flat.second[e]])
            table = copy.tables[a][b]
            gone = dead[flat.table_at[e] : flat.table_at[e + 1]].reshape(table.shape)
            copy.set_edge(a, b, np.where(gone, FORBIDDEN, table))
        race.check()
        arc_consistency(copy)
        reduce_network(copy, renumber=False, check=race.check)
    except Infeasible:
        state.tell_bound(math.inf)
        return None, None
    return copy, reach


def branch(state: Portfolio, budget: float) -> bool:
    """Branch and bound for `budget` table entries, going on where it stood; True when it ended with a proof."""
    if state.prices is None:
        return False
    race = state.race

    def offer(strategies: np.ndarray) -> None:
        state.decode(strategies - state.flat.offsets[:-1])

    if state.tree is None:
        state.to_best_prices()
        state.tree = Branching(state.part, state.target, offer, race.check)
    tree = state.tree
    before = tree.work
    tree.run(state.prices.best, min(budget, state.budget), lambda: state.tell_bound(tree.bound))
    state.budget -= tree.work - before
    state.tell_bound(tree.bound)
    return not tree.open and race.cost is not None
