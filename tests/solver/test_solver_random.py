"""Random networks of up to 12 nodes against all their assignments: optimum, bound, and proof that there is none."""

from dataclasses import replace

import numpy as np
import pytest
from solver_cases import optimum, optimum_by_tensor, random_network

from autoshard.solver import CostNetwork, Usage, evaluate, solve

NETWORKS = 5_000
BY_DEFAULT = 300


def network_of(seed: int) -> CostNetwork:
    """Up to 12 nodes with 2 or 3 states each, from sparse and free to dense with many forbidden pairs."""
    return random_network(
        seed,
        nodes=12,
        states=2 + seed % 2,
        forbidden=(0.02, 0.08, 0.2)[seed % 3],
        density=(0.08, 0.15, 0.3)[seed % 7 % 3],
    )


def judge(seed: int) -> str:
    network = network_of(seed)
    best = optimum_by_tensor(network)
    found = solve(network)
    assert found.cost == best, seed
    if best is None:
        assert found.status == "infeasible" and found.reason, seed
        return "infeasible"
    assert found.status == "optimal" and found.lower_bound == best, seed
    assert evaluate(network, found.assignment).feasible, seed
    return "optimal"


def test_the_two_brute_forces_agree():
    for seed in range(200):
        network = random_network(seed, nodes=5, states=3)
        assert optimum_by_tensor(network) == optimum(network), seed


def test_a_seeded_part_of_the_random_networks_is_solved_exactly():
    seen = [judge(seed) for seed in range(0, NETWORKS, NETWORKS // BY_DEFAULT)]
    assert min(seen.count("optimal"), seen.count("infeasible")) > BY_DEFAULT // 10


def with_releases(network: CostNetwork, seed: int) -> CostNetwork:
    """The network where some states give back what others take, and little is left without that."""
    rng = np.random.default_rng(seed)
    usages = [[Usage(u.start, u.stop, u.amounts - 20) for u in own] for own in network.usages]
    return replace(network, usages=usages, usage_limit=int(rng.integers(5, 60)) if usages else None)


def test_what_gives_back_leaves_room_for_others():
    seen = []
    for seed in range(400):
        network = with_releases(random_network(seed, nodes=6, states=4), seed)
        found = solve(network)
        assert found.cost == optimum(network), seed
        seen.append(found.status)
    assert set(seen) == {"optimal", "infeasible"}


@pytest.mark.slow
def test_all_random_networks_are_solved_exactly():
    for seed in range(NETWORKS):
        judge(seed)
