"""Assignments from decodings at many prices, and searches that end before a proof."""

import math
import sys
from pathlib import Path

import numpy as np
import pytest

from autoshard.solver import CostNetwork, evaluate, solve
from autoshard.solver.incumbent import Race
from autoshard.solver.portfolio import Portfolio
from autoshard.solver.scatter import FAR_OFF, SCALES, SPREAD, Scatter
from autoshard.solver.work import from_network

sys.path.insert(0, str(Path(__file__).parent))
from solver_cases import hard_network, judged

SEEDS = range(6)


def scatter_of(network: CostNetwork, seed: int = 0, price: float = 1.0) -> Scatter:
    """On a network as it is, with the same price in every slot."""
    race = Race(network, 0.0, math.inf)
    work = from_network(network, logged=True)
    race.log = work.log
    made = Scatter(Portfolio(race, work, 0, 1e12), seed)
    made.prices = np.full(made.state.flat.slots, price)
    return made


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_found_is_within_the_limit(seed: int) -> None:
    network = hard_network(seed, nodes=60, states=6, forbidden=0.3, room=1.2)
    scatter = scatter_of(network, price=30.0)
    for _ in range(8):
        scatter.decode()
    race = scatter.state.race
    assert race.assignment is not None and evaluate(network, race.assignment).feasible


@pytest.mark.parametrize("seed", SEEDS)
def test_decodings_never_cost_what_is_known(seed: int) -> None:
    scatter = scatter_of(hard_network(seed, nodes=60, states=6, forbidden=0.3, room=1.2), price=30.0)
    costs = []
    for _ in range(8):
        scatter.decode()
        costs.append(math.inf if scatter.state.race.cost is None else scatter.state.race.cost)
    assert costs == sorted(costs, reverse=True)


def test_the_same_seed_finds_the_same() -> None:
    network = hard_network(3, nodes=60, states=6, forbidden=0.3, room=1.2)
    found = []
    for _ in range(2):
        scatter = scatter_of(network, seed=5, price=30.0)
        for _ in range(4):
            scatter.decode()
        found.append(scatter.state.race.assignment)
    assert found[0] == found[1]


def test_messages_stand_where_they_stood_after_a_decoding() -> None:
    scatter = scatter_of(hard_network(1, nodes=60, states=6, forbidden=0.3, room=1.2), price=30.0)
    dual = scatter.state.part.dual
    before = (dual.to_first.copy(), dual.to_second.copy(), dual.prices.copy(), dual.bound)
    scatter.decode()
    assert (dual.to_first == before[0]).all() and (dual.to_second == before[1]).all()
    assert (dual.prices == before[2]).all() and dual.bound == before[3]


def test_prices_lie_within_their_range_around_the_best_ones() -> None:
    scatter = scatter_of(hard_network(1, nodes=60), price=8.0)
    drawn = np.log(np.array([scatter._prices() for _ in range(200)]) / 8.0)
    low, high = (s * math.log(2.0) for s in SCALES)
    assert drawn.min() >= low - SPREAD and drawn.max() <= high + SPREAD
    assert 0.2 < np.mean(np.ptp(drawn, axis=1) > 0) < 0.8  # some even, some not


def test_nothing_is_looked_for_where_something_good_is_known() -> None:
    scatter = scatter_of(hard_network(1, nodes=60))
    race = scatter.state.race
    race.cost = 1000
    race.raise_bound(int(1000 * (1 - FAR_OFF)) + 1)
    assert not scatter.wanted
    race.cost = 2000
    assert scatter.wanted


def test_nothing_is_looked_for_without_prices() -> None:
    scatter = scatter_of(hard_network(1, nodes=60))
    scatter.prices = None
    assert not scatter.wanted


@pytest.mark.parametrize("seed", SEEDS)
def test_a_search_without_a_proof_has_an_assignment_and_a_bound_that_is_certified(seed: int) -> None:
    network = hard_network(seed, nodes=300, states=8, forbidden=0.3, room=1.05)
    found = solve(network, effort=0.1, proves=False)
    assert found.assignment is not None and evaluate(network, found.assignment).feasible
    assert found.cost is not None and found.lower_bound <= found.cost
    certificate = found.certificate()
    assert judged(network, certificate).bound == found.lower_bound


def test_a_search_without_a_proof_ends_before_one_with_it() -> None:
    network = hard_network(2, nodes=300, states=8, forbidden=0.3, room=1.05)
    short, whole = solve(network, effort=0.1, proves=False), solve(network, effort=0.1)
    later = {"split", "guesses", "proof"}
    assert later & set(whole.stats["stages"]) and not later & set(short.stats["stages"])
