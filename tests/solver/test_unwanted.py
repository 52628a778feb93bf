"""A proof that finds what its caller has no use for is given up, and says nothing false."""

from solver_cases import optimum, tight

from autoshard.solver import solve
from autoshard.solver.solution import Stopped


def test_a_run_ends_at_the_first_assignment_of_a_proof_that_is_not_wanted() -> None:
    ended = 0
    for seed in range(40):
        network = tight(seed, nodes=7)
        told: list[tuple[int, ...]] = []

        def refuse(assignment: tuple[int, ...], told: list[tuple[int, ...]] = told) -> bool:
            told.append(assignment)
            return False

        found, best = solve(network, wanted=refuse), optimum(network)
        assert (best is None) == (found.status == "infeasible")
        if found.stopped is Stopped.UNWANTED:
            ended += 1
            assert [found.assignment] == told
            assert found.lower_bound <= best <= found.cost
        elif best is not None:
            assert found.cost == best
            assert not told
    assert ended > 3


def test_a_run_whose_assignments_are_all_wanted_is_as_any_other() -> None:
    for seed in range(10):
        network = tight(seed, nodes=7)
        found, same = solve(network), solve(network, wanted=lambda _: True)
        assert (found.assignment, found.cost, found.lower_bound) == (same.assignment, same.cost, same.lower_bound)
        assert found.certificate() == same.certificate()
