"""Where a part of a proof is split, and how steps of prices aim at a bound."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoshard.solver.certify.branching import RELIABLE, Branching, growth
from autoshard.solver.dual import pricing
from autoshard.solver.dual.flat import flatten
from autoshard.solver.dual.passes import aiming_prices
from autoshard.solver.network import CostNetwork
from autoshard.solver.work import from_network

HALF = np.array([True, False])


def branching() -> Branching:
    costs = [np.zeros(2, dtype=np.int64)] * 3
    return Branching(flatten(from_network(CostNetwork(costs, ()))))


def test_the_node_whose_worse_half_gains_more_is_split() -> None:
    bounds = {0: iter((19.0, 10.0)), 1: iter((14.0, 14.0)), 2: iter((10.0, 11.0))}
    chosen = branching().choose(dict.fromkeys(range(3), HALF), 10.0, 10.0, lambda node, _: next(bounds[node]))
    assert chosen == 1


def test_a_split_that_closes_both_halves_is_taken_at_once() -> None:
    tried: list[int] = []

    def trial(node: int, kept: np.ndarray) -> float:
        tried.append(node)
        return 20.0 if node == 1 else 12.0

    assert branching().choose(dict.fromkeys(range(3), HALF), 10.0, 10.0, trial) == 1
    assert tried == [0, 0, 1, 1]


def split_often(found: Branching, shares: dict[int, float]) -> None:
    """Nodes at which parts were split as often as makes them well known."""
    for node, share in shares.items():
        for half in (0, 1) * RELIABLE:
            found.learn_split(node, half, share)


def test_of_well_known_nodes_only_those_that_gave_most_are_tried() -> None:
    found, tried = branching(), set()
    split_often(found, {0: 0.1, 1: 0.5, 2: 0.4})

    def trial(node: int, kept: np.ndarray) -> float:
        tried.add(node)
        return 12.0

    found.choose(dict.fromkeys(range(3), HALF), 10.0, 10.0, trial)
    assert tried == {1, 2}


def test_a_node_that_was_never_tried_is_tried_beside_well_known_ones() -> None:
    found = branching()
    split_often(found, {0: 0.1, 1: 0.1})
    assert found.choose(dict.fromkeys(range(3), HALF), 10.0, 10.0, lambda node, _: 11.0 if node < 2 else 19.0) == 2


def test_what_halves_gave_beyond_trials_is_expected_of_them_again() -> None:
    found = branching()
    split_often(found, {0: 0.8})
    for half in (0, 1) * RELIABLE:
        found.learn_trial(0, half, 0.1)
    assert found.choose(dict.fromkeys((0, 1), HALF), 10.0, 10.0, lambda node, _: 11.0 if node == 0 else 12.0) == 0


def test_a_node_that_gives_less_here_than_usual_is_not_split_for_what_it_gave_elsewhere() -> None:
    found = branching()
    split_often(found, {0: 0.5, 1: 0.4})
    for node, share in ((0, 0.5), (1, 0.4)):
        for half in (0, 1) * RELIABLE:
            found.learn_trial(node, half, share)
    assert found.choose(dict.fromkeys((0, 1), HALF), 10.0, 10.0, lambda node, _: 10.0 if node == 0 else 14.0) == 1


def test_the_second_half_is_not_tried_where_the_first_one_already_gives_too_little() -> None:
    tried: list[tuple[int, bool]] = []

    def trial(node: int, kept: np.ndarray) -> float:
        tried.append((node, bool(kept[0])))
        return 15.0 if node == 0 else 10.1

    assert branching().choose(dict.fromkeys((0, 1), HALF), 10.0, 10.0, trial) == 0
    assert tried == [(0, True), (0, False), (1, True)]


def aimed(bounds: list[float]) -> tuple[list[float], list[float]]:
    """Steps with one slot that is too full by half, after passes with these bounds: prices, and lengths of steps."""
    prices = aiming_prices(1)
    rates, asked = [], []
    for bound in bounds:
        prices.pace = pricing.aim.py_func(prices.slots, prices.pace, 10, bound, np.array([15]), 100.0)
        rates.append(prices.pace.rate)
        asked.append(float(prices.slots.current[0]))
    return asked, rates


def test_the_first_step_would_reach_half_of_the_bound_more_if_it_were_linear() -> None:
    asked, _ = aimed([40.0])
    assert asked[0] * 10 * 0.5 == 40.0 * pricing.FARTHEST + 1.0


def test_steps_in_vain_go_back_to_the_best_prices_and_get_shorter_but_not_endlessly() -> None:
    asked, rates = aimed([40.0, *[39.0] * 60])
    assert asked[pricing.IN_VAIN] == 0.0
    assert rates[pricing.IN_VAIN] == 0.5 * rates[0]
    assert rates[-1] == pricing.SHORTEST


def test_steps_that_raise_the_bound_get_longer_again() -> None:
    _, rates = aimed([40.0, *[39.0] * 9, 41.0])
    assert rates[-1] == pricing.LONGER * rates[-2]


def test_a_tree_grows_by_the_golden_ratio_where_one_half_closes_twice_as_much() -> None:
    assert growth(0.5, 1.0) == pytest.approx(2 * math.log((1 + math.sqrt(5)) / 2), rel=1e-6)


@given(st.floats(0.0, 1.0), st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_a_tree_grows_less_where_a_half_closes_more(first: float, second: float, more: float) -> None:
    assert growth(min(1.0, first + more), second) <= growth(first, second) + 1e-9


@given(st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_which_half_closes_more_does_not_matter(first: float, second: float) -> None:
    assert growth(first, second) == pytest.approx(growth(second, first))
