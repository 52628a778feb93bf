"""A proof that finds what its caller has no use for is given up, and says nothing false."""

import pytest
from solver_cases import judged, tight

from autoshard.solver import driver, solve
from autoshard.solver.solution import Stopped


@pytest.mark.parametrize("nodes", [7, 12, 16])
def test_a_run_ends_when_a_proof_has_found_what_is_not_wanted(nodes: int) -> None:
    ended = 0
    for seed in range(40):
        network = tight(seed, nodes=nodes, states=5)
        told: list[tuple[int, ...]] = []

        def refuse(assignment: tuple[int, ...], told: list[tuple[int, ...]] = told) -> bool:
            told.append(assignment)
            return False

        found, best = solve(network, wanted=refuse), solve(network)
        assert best.status in ("optimal", "infeasible")
        if found.stopped is Stopped.UNWANTED:
            ended += 1
            assert found.assignment == told[-1]
            assert found.lower_bound <= best.cost <= found.cost, seed
            assert judged(network, found.certificate()).bound == found.lower_bound
        else:
            assert (found.status, found.cost) == (best.status, best.cost)
            assert not told
    assert ended > 3


def test_all_that_is_found_in_parts_split_side_by_side_is_offered_though_the_first_ends_the_run() -> None:
    """Parts are closed by what was found in them: to lose some of it is to claim too much."""
    several = 0
    for seed in range(60):
        network, offers = tight(seed, nodes=16, states=5), [0]

        def refuse(_: tuple[int, ...], offers: list[int] = offers) -> bool:
            offers[0] += 1
            return False

        found = solve(network, wanted=refuse)
        several += offers[0] > 1
        best = solve(network).cost
        assert best is None or found.lower_bound <= best, seed
    assert several > 0


def test_a_run_whose_assignments_are_all_wanted_is_as_any_other() -> None:
    for seed in range(10):
        network = tight(seed, nodes=7)
        found, same = solve(network), solve(network, wanted=lambda _: True)
        assert (found.assignment, found.cost, found.lower_bound) == (same.assignment, same.cost, same.lower_bound)
        assert found.certificate() == same.certificate()


def test_a_run_ends_before_its_proof_begins_where_what_it_knows_is_not_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "SMALL_ENTRIES", 0)  # messages and a search come before the proof
    ended = 0
    for seed in range(20):
        network = tight(seed, nodes=12, states=5)
        found = solve(network, wanted=lambda _: False)
        if found.stopped is Stopped.UNWANTED and not {"guesses", "split"} & set(found.stats["stages"]):
            ended += 1
            best = solve(network).cost
            assert found.lower_bound <= best <= found.cost
            assert judged(network, found.certificate()).bound == found.lower_bound
    assert ended > 0
