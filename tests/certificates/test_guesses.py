"""Guessed costs: what is proved below a guess holds, and guesses from the bound upwards end with the optimum.

Brute force is the judge of what is true, and the checker of certificates of what is proved.
"""

import math
import time

import numpy as np
import pytest
from solver_cases import judged, optimum, tight

from autoshard.solver import CostNetwork, Edge, Usage, driver, solve
from autoshard.solver.certify import prove, tree
from autoshard.solver.certify.certificate import certificate_of
from autoshard.solver.certify.parts import deciding
from autoshard.solver.certify.tree import KEPT
from autoshard.solver.driver import trivial_bound
from autoshard.solver.incumbent import Race
from autoshard.solver.proof import guess, prover, search_part
from autoshard.solver.reductions import reduce_network
from autoshard.solver.rounds import Rounds
from autoshard.solver.work import Infeasible, Work, from_network, without_overlap
from autoshard.verify.certificate import CertificateFault


def begun(network: CostNetwork) -> tuple[Race, Work]:
    race = Race(network, time.monotonic(), math.inf)
    work = from_network(network, logged=True)
    reduce_network(work)
    for node in work.nodes() if work.limit is not None else ():
        work.held[node] = without_overlap(work.held[node])
    return race, work


def cases() -> list[tuple[CostNetwork, int]]:
    """Networks that reductions leave something of, and their optima."""
    out = []
    for seed in range(14):
        network = tight(seed, nodes=6)
        best = optimum(network)
        try:
            left = best is not None and begun(network)[1].nodes()
        except Infeasible:
            continue
        if left and best is not None:
            out.append((network, best))
    return out


CASES = cases()


@pytest.mark.parametrize("above", [-40, -1, 0, 1, 25])
def test_a_proof_with_a_ceiling_finds_what_is_cheaper_and_else_proves_the_ceiling(above: int) -> None:
    assert len(CASES) > 8
    for network, best in CASES[:6]:
        race, work = begun(network)
        ceiling = best + above
        proving = prover(race, work, ceiling=ceiling, looks=True)
        proving.begin()
        assert proving.go_on(10**9)
        assert race.settled() or above <= 0
        assert race.cost == best if above > 0 else race.cost is None or race.cost >= ceiling
        proved = int(race.proved_by(proving))
        assert proved == min(best, ceiling)
        assert judged(network, certificate_of(proving.proof, proved)).bound == proved


def test_a_ceiling_proves_no_more_than_itself() -> None:
    network, best = CASES[0]
    race, work = begun(network)
    proving = prover(race, work, ceiling=best - 5)
    proving.begin()
    proving.go_on(10**9)
    assert proving.bound == best - 5
    with pytest.raises(CertificateFault):
        judged(network, certificate_of(proving.proof, best + 1))


def test_guesses_from_the_bound_upwards_end_with_the_optimum() -> None:
    for network, best in CASES:
        race, work = begun(network)
        race.lower = trivial_bound(network)

        def made(ceiling: float, race=race, work=work):
            proving = prover(race, work, ceiling=ceiling, looks=True)
            proving.begin()
            return proving

        assert guess(race, made, 10**10) > 0
        assert (race.cost, race.lower) == (best, best)
        proof, bound = race.best_proof()
        assert proof is not None
        assert judged(network, certificate_of(proof, int(bound))).bound == best


def two_shelves(seed: int, weight: int, room: int) -> CostNetwork:
    """Seven nodes that hold this much on one of two shelves of so much room; how they are placed costs something."""
    rng = np.random.default_rng(seed)
    edges = [Edge(i, j, rng.integers(0, 40, (2, 2))) for i in range(7) for j in range(i)]
    held = (Usage(0, 1, np.array([weight, 0])), Usage(1, 2, np.array([0, weight])))
    return CostNetwork([rng.integers(0, 40, 2) for _ in range(7)], edges, [held] * 7, room)


@pytest.mark.parametrize("seed", range(4))
def test_a_guess_above_all_that_anything_can_cost_ends_with_a_proof_that_there_is_none(seed: int) -> None:
    network = two_shelves(seed, 2, 7)
    race, work = begun(network)
    proving = prover(race, work, ceiling=10 * race.beyond)
    proving.begin()
    assert proving.go_on(10**9)
    assert race.settled()
    proof, bound = race.best_proof()
    assert proof is not None
    assert bound == math.inf
    assert judged(network, certificate_of(proof, proof.beyond)).bound is None


@pytest.mark.parametrize("seed", range(4))
def test_messages_that_raise_the_bound_above_all_costs_say_that_there_is_none(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "SMALL_ENTRIES", 0)
    monkeypatch.setattr(Rounds, "_settled_without_cost", lambda self, number: False)
    network = two_shelves(seed, 2, 6)
    found = solve(network)
    assert found.status == "infeasible"
    assert judged(network, found.certificate() or b"").bound is None


def test_guesses_end_with_their_work() -> None:
    network, _ = CASES[0]
    race, work = begun(network)
    race.lower = trivial_bound(network)
    made = []

    def one(ceiling: float):
        made.append(prover(race, work, ceiling=ceiling))
        made[-1].begin()
        return made[-1]

    guess(race, one, 1)
    assert len(made) == 1


def test_exact_search_among_all_states_finds_the_optimum_where_it_is_cheap_enough() -> None:
    for network, best in CASES[:6]:
        race, work = begun(network)
        everything = np.ones(sum(len(work.domains[node]) for node in work.nodes()), dtype=bool)
        search_part(race, work, everything, best)
        assert race.cost in (None, best)  # what is left may fold away, which any search tells
        search_part(race, work, everything, best + 1)
        assert race.cost == best


def test_a_tree_looks_among_few_states_of_a_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree, "FIRST_LOOK", 1)  # small networks have few parts
    monkeypatch.setattr(prove, "MOST_PROBED", 0)  # and none where nodes are probed
    seen = 0
    for network, best in CASES:
        race, work = begun(network)
        looked: list[np.ndarray] = []
        proving = prover(race, work, ceiling=best + 1)
        proving.look = lambda of, alive, below, looked=looked: looked.append(alive)
        proving.begin()
        proving.go_on(10**9)
        for alive in looked:
            assert proving.tree is not None
            flat = proving.tree.flat
            kept = np.add.reduceat(alive.astype(int), flat.offsets[:-1])
            assert (kept >= 1).all()
            assert (kept[deciding(flat)] <= max(KEPT)).all()
            seen += 1
    assert seen > 0


def test_a_plunge_goes_on_from_the_better_half_of_the_part_split_last() -> None:
    plunges = 0
    for seed in range(14):
        try:
            race, work = begun(tight(seed, nodes=12, states=5))
        except Infeasible:
            continue
        proving = prover(race, work)  # no cost is known, so that much stays open
        proving.begin()
        split = proving.tree
        if split is None:  # nothing is left to split
            continue

        def taken(line: tree._Line, split: tree.Tree = split, choose=split._choose_next):
            nonlocal plunges
            low, high = line.newest
            below = split.threshold()
            halves = [e[:2] for e in split.open if low < e[1] <= high and e[0] < below] if line.plunging else []
            choose(line)
            plunges += bool(halves)
            assert not halves or split.chosen[-1][:2] == min(halves)

        split._choose_next = taken
        assert proving.go_on(10**9)
    assert plunges > 0
