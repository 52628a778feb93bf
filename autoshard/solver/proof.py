"""From search to proof: exact engines look for better assignments, and `certify` proves the bounds.

The bounds that exact engines report are not used, since they have been wrong (see `toulbar2.told_apart`).
"""

import math
from collections.abc import Callable

import numpy as np

from autoshard.solver.certify.prove import Prover
from autoshard.solver.engines.exact import profile, solve_work, worst_slots
from autoshard.solver.incumbent import Race
from autoshard.solver.portfolio import Portfolio
from autoshard.solver.reductions import only_slots, reduce_network
from autoshard.solver.work import Infeasible, Work

RELAXED_ENTRIES = 600_000
"""Table entries given to exact search when few time slots are held to the limit."""
SLOTS_FIRST = 40
SLOT_ROUNDS = 12
"""Slots that exact search first holds to the limit, and how often it may add overfilled ones."""
PRICED = 1e-3
"""Of these slots, those that are priced at this share of the highest price or less do not matter."""
PART_ENTRIES = 60_000
PART_BACKTRACKS = 500
"""Table entries of parts that exact search looks through on the way of a proof, and its backtracks in each."""
SLICE = 300_000_000
"""Table entries that a proof with a guess visits before it is looked at."""
GUESSED, RISING = 0.1, 1.1
"""How far above the bound a guess is, as a share of the bound; the next share is so much larger."""
LAST_GUESS = 0.9
"""From this share of the cost of what is known on, nothing is guessed: the proof for what is known is as quick."""


def search_exactly(race: Race, work: Work, backtracks: int, slots: list[int], below: float = math.inf) -> bool:
    """Exact search for what is worth finding (`Race.target`) and costs less than `below`; True when it says that there
    is nothing else.
    """
    below = min(below, race.target() + 1)
    upper = None if below >= race.beyond else int(below)
    result = solve_work(work, upper=upper, backtracks=backtracks, seconds=race.patience(), slots=slots)
    if result is None:
        return False
    choice, _, complete, timed_out = result
    if choice is not None:
        race.offer([choice[i] for i in range(race.network.n_nodes)])
    if timed_out and not complete:
        race.check()
    return complete


def search_by_slots(race: Race, core: Work, state: Portfolio, backtracks: int) -> None:
    """Exact search with the memory limit only at the slots that matter: most nodes then hold none and can go.

    Slots that the answer overfills are added and the search repeated. core: a copy, with the slots of the portfolio.
    """
    if core.slots != state.flat.slots or core.limit is None or state.prices is None:
        return
    price = state.prices.best
    active = {int(s) for s in np.argsort(-price, kind="stable")[:SLOTS_FIRST] if price[s] > PRICED * price.max()}
    nodes = core.nodes()
    for _ in range(SLOT_ROUNDS):
        race.check()
        relaxed = core.copy()
        try:
            only_slots(relaxed, sorted(active))
            reduce_network(relaxed, check=race.check)
        except Infeasible:
            return
        if relaxed.entries() > RELAXED_ENTRIES:
            return
        upper = None if race.cost is None else int(race.target()) + 1
        result = solve_work(relaxed, upper=upper, backtracks=backtracks, seconds=race.patience(), slots=[])
        if result is None:
            return
        choice, _, _, timed_out = result
        if choice is None:
            if timed_out:
                race.check()
            return
        positions = [core.position(i, choice[i]) for i in nodes]
        if any(p is None for p in positions):
            return
        excess = profile(core, tuple(p for p in positions if p is not None)) - core.limit
        if int(excess.max(initial=0)) <= 0:
            race.offer([choice[i] for i in range(race.network.n_nodes)])
            return
        state.decode(np.array([state.work.position(int(i), choice[int(i)]) for i in state.flat.nodes]))
        active |= set(worst_slots(excess))


def prover(race: Race, work: Work, *, costs: bool = True, ceiling: float = math.inf, looks: bool = False) -> Prover:
    """A prover for what the race looks for, on a copy of a reduced network that was logged.

    ceiling: only what is cheaper is of interest. looks: exact search looks through what is close on the way.
    """
    own = work.copy()
    assert work.log is not None
    own.log = list(work.log)

    def threshold() -> int:
        target = race.target()
        return race.beyond if math.isinf(target) else int(target) + 1

    def offer(choice: dict[int, int]) -> None:
        race.offer([choice[i] for i in range(race.network.n_nodes)])

    def look(part_of: Work, alive: np.ndarray, below: int) -> None:
        search_part(race, part_of, alive, below)

    made = Prover(own, threshold, offer, race.check, costs=costs, look=look if looks else None, ceiling=ceiling)
    if race.provers:  # only the best one is kept: each holds a network
        race.provers = [max(race.provers, key=race.proved_by)]
    race.provers.append(made)
    return made


def search_part(race: Race, work: Work, alive: np.ndarray, below: int) -> None:
    """Exact search for what costs less, among some states of what is left of a network, node after node."""
    part, at = work.copy(), 0
    for node in part.nodes():
        size = len(part.domains[node])
        part.keep(node, alive[at : at + size])
        at += size
    try:
        reduce_network(part, check=race.check)
    except Infeasible:
        return
    if not part.nodes():
        whole = part.complete({})
        race.offer([whole[i] for i in range(race.network.n_nodes)])
    elif part.entries() <= PART_ENTRIES:
        search_exactly(race, part, PART_BACKTRACKS, [], below)


def guess(
    race: Race, begun: Callable[[float], Prover], most_work: float, whole: bool = True, first: float = GUESSED
) -> int:
    """Guess what an assignment costs, from the bound upwards, and look for one so cheap until that is settled.

    Little is left of a network below a low guess, so that it is soon clear whether there is anything; where there is
    not, the guess was a bound. begun: a prover with this ceiling that has begun. whole: where a guess is nearly what is
    known, all that is cheaper than that is looked at. first: how far above the bound the first guess is, as a share of
    it. Returns the table entries visited.
    """
    spent, step, share = 0, 1.0, first
    while spent < most_work and race.lower is not None:
        missing = race.target() - race.lower
        step = max(step, share * abs(race.lower), share * missing if math.isfinite(missing) else 0.0)
        ceiling = math.ceil(race.lower + step)
        last = ceiling > LAST_GUESS * race.target()
        if last and not whole:
            break
        proving = begun(math.inf if last else ceiling)
        while not proving.done and spent + proving.effort < most_work and not race.settled():
            proving.go_on(SLICE)
        spent += max(1, proving.effort)
        if race.settled() or last or not proving.done:
            break
        share *= RISING
    return spent
