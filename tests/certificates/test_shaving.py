"""Steps of proofs that nothing fits: costs are forgotten, and states that leave nothing consistent are shaved."""

import math

import numpy as np
import pytest
from solver_cases import optimum

from autoshard.solver import CostNetwork, Edge, Usage, solve
from autoshard.solver.certify.certificate import certificate_of
from autoshard.solver.certify.ground import Ground
from autoshard.solver.certify.proof import Proof
from autoshard.solver.certify.shaving import Shave, shave
from autoshard.solver.dual.consistent import make_consistent
from autoshard.solver.dual.flat import flatten
from autoshard.solver.work import from_network
from autoshard.verify.certificate import CertificateFault, check_certificate


def judge(network: CostNetwork, proof: Proof, bound: int | None) -> int | None:
    edges = [(e.first, e.second, e.costs) for e in network.edges]
    usages = [[(u.start, u.stop, u.amounts) for u in own] for own in network.usages]
    return check_certificate(certificate_of(proof, bound), network.costs, edges, usages, network.usage_limit).bound


def two_of_four_are_large(limit: int) -> CostNetwork:
    """Four nodes that follow a fifth, which makes two of them hold 10 each and the others 1 each: 22 in all."""
    same, other = np.array([[0, 10**15], [10**15, 0]]), np.array([[10**15, 0], [0, 10**15]])
    held = (Usage(0, 1, np.array([1, 10])),)
    edges = [Edge(0, 1, same), Edge(0, 2, same), Edge(0, 3, other), Edge(0, 4, other)]
    return CostNetwork([np.zeros(2, int)] * 5, edges, [(), held, held, held, held], limit)


def triangle(seed: int) -> CostNetwork:
    rng = np.random.default_rng(seed)
    sizes = rng.integers(2, 5, 5)
    edges = [
        Edge(i, j, np.where(rng.random((sizes[i], sizes[j])) < 0.35, 10**15, rng.integers(0, 9, (sizes[i], sizes[j]))))
        for i in range(5)
        for j in range(i)
    ]
    usages = [(Usage(0, 1 + i % 3, rng.integers(0, 9, d)),) for i, d in enumerate(sizes)]
    return CostNetwork([rng.integers(0, 9, d) for d in sizes], edges, usages, int(rng.integers(8, 22)))


def test_what_no_edge_and_no_least_amount_shows_is_shaved() -> None:
    flat = flatten(from_network(two_of_four_are_large(limit=21)))
    alive = np.ones(len(flat.unary), dtype=bool)
    assert make_consistent(flat, alive)
    assert alive.all()
    assert not shave(flat, alive, lambda: None).left


@pytest.mark.parametrize("seed", range(40))
def test_shaving_keeps_every_assignment_that_fits_and_stays_consistent(seed: int) -> None:
    network = triangle(seed)
    flat = flatten(from_network(network))
    ground = Ground.of(flat)
    if ground is None:
        return
    alive = ground.alive.copy()
    found = shave(flat, alive, lambda: None)
    assert found.left or optimum(network) is None
    if found.left:
        again = alive.copy()
        assert make_consistent(flat, again)
        assert (again == alive).all()
        offsets = np.cumsum([0, *map(len, network.costs)])
        gone = [np.where(alive[offsets[i] : offsets[i + 1]], c, 10**15) for i, c in enumerate(network.costs)]
        assert optimum(CostNetwork(gone, network.edges, network.usages, network.usage_limit)) == optimum(network)


@pytest.mark.parametrize("seed", range(40))
def test_answers_on_tight_networks_are_those_of_brute_force_and_certified(seed: int) -> None:
    network = triangle(seed)
    best, found = optimum(network), solve(network)
    assert found.status == ("infeasible" if best is None else "optimal")
    assert best is None or found.cost == best


def test_a_shave_closes_a_proof() -> None:
    network = two_of_four_are_large(limit=21)
    proof = Proof([[("forget",)], [Shave(0, np.array([0])), Shave(0, np.array([1]))]], None, math.inf)
    assert judge(network, proof, None) is None


def test_a_shave_of_what_fits_is_refused() -> None:
    proof = Proof([[Shave(0, np.array([0])), Shave(0, np.array([1]))]], None, math.inf)
    with pytest.raises(CertificateFault, match="shaved that something goes with"):
        judge(two_of_four_are_large(limit=22), proof, None)


def test_a_shave_of_states_that_are_not_there_is_refused() -> None:
    proof = Proof([[Shave(0, np.array([5]))]], None, math.inf)
    with pytest.raises(CertificateFault):
        judge(two_of_four_are_large(limit=21), proof, None)


def test_costs_are_not_forgotten_where_a_bound_on_them_is_claimed() -> None:
    proof = Proof([[("forget",)], [Shave(0, np.array([0])), Shave(0, np.array([1]))]], None, 0)
    with pytest.raises(CertificateFault, match="forgotten"):
        judge(two_of_four_are_large(limit=21), proof, 3)
