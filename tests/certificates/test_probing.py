"""Probes: states that cost too much once their node is held to them go, and the checker judges each by itself."""

import functools

import numpy as np
import pytest
from solver_cases import judged, optimum, tight

from autoshard.solver import CostNetwork, Edge, solve
from autoshard.solver.certify import prove
from autoshard.solver.certify.certificate import certificate_of
from autoshard.solver.certify.ground import Ground
from autoshard.solver.certify.probing import Probe, Probes
from autoshard.solver.certify.prove import Prover
from autoshard.solver.dual.flat import flatten
from autoshard.solver.reductions import reduce_network
from autoshard.solver.work import Infeasible, from_network
from autoshard.verify.certificate import CertificateFault

SEEDS = range(40)
MET = 2
"""A state of a node, in the certificates that are forged here."""


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes are probed before anything is split, and whatever goes is worth it."""
    monkeypatch.setattr(prove, "PROBED_AFTER", (0.0, 0.0))
    monkeypatch.setattr(prove, "WORTH_BEGINNING", 0.0)


@functools.cache
def network_of(seed: int) -> CostNetwork:
    return tight(seed, nodes=7, states=4)


@functools.cache
def truth(seed: int) -> int | None:
    return optimum(network_of(seed))


def prover_of(network: CostNetwork, threshold: int) -> Prover | None:
    """A prover that has begun, without reductions; None where no states are consistent."""
    try:
        work = from_network(network, logged=True)
        reduce_network(work)
    except Infeasible:
        return None
    known = [threshold]

    def offer(choice: dict[int, int]) -> None:
        cost = sum(int(c[choice[i]]) for i, c in enumerate(network.costs))
        cost += sum(int(e.costs[choice[e.first], choice[e.second]]) for e in network.edges)
        known[0] = min(known[0], cost)

    made = Prover(work, lambda: known[0], offer, lambda: None)
    made.begin()
    return made


def probes_in(made: Prover) -> list[Probe]:
    return [one for stage in made.latest.stages for some in stage if isinstance(some, Probes) for one in some.probes]


@pytest.mark.parametrize("seed", SEEDS)
def test_proofs_with_probes_end_at_the_optimum_and_are_certified(seed: int) -> None:
    best = truth(seed)
    made = None if best is None else prover_of(network_of(seed), best + 3)
    if made is None:
        return
    assert made.go_on(10**12)
    assert best is not None and made.bound >= best
    assert judged(network_of(seed), certificate_of(made.proof, best)).bound == best


def test_some_of_the_networks_are_probed_and_some_states_go() -> None:
    found = 0
    for seed in SEEDS:
        best = truth(seed)
        made = None if best is None else prover_of(network_of(seed), best)
        if made is not None:
            made.go_on(10**12)
            found += len(probes_in(made))
    assert found > 20


@pytest.mark.parametrize("seed", range(12))
def test_what_is_proved_never_falls_while_nodes_are_probed(seed: int) -> None:
    best = truth(seed)
    made = None if best is None else prover_of(network_of(seed), best)
    before = -float("inf")
    while made is not None and not made.done:
        before = made.bound
        made.go_on(1)
        assert made.bound >= before


@pytest.mark.parametrize("seed", range(12))
def test_a_proof_stopped_while_nodes_are_probed_is_left_as_it_was(seed: int) -> None:
    best = truth(seed)
    made = None if best is None else prover_of(network_of(seed), best)
    if made is None or made.done:
        return
    before, stops = made.bound, iter([False, False, True])

    def check() -> None:
        if next(stops, False):
            raise TimeoutError

    assert made.tree is not None
    made.check = made.tree.check = check
    stages = len(made.proof.stages)
    try:
        made.go_on(10**12)
    except TimeoutError:
        assert (made.bound, len(made.proof.stages)) == (before, stages)
    assert made.go_on(10**12)
    assert judged(network_of(seed), certificate_of(made.proof, best)).bound == best


@pytest.mark.parametrize("seed", SEEDS)
def test_answers_and_their_certificates_are_the_same_with_probes(seed: int) -> None:
    best, found = truth(seed), solve(network_of(seed))
    assert (found.cost, found.status) == (best, "infeasible" if best is None else "optimal")
    assert judged(network_of(seed), found.certificate() or b"").bound == best


def square() -> CostNetwork:
    """A ring of four nodes of three states each, the third of which costs 5 more; at least 0 is to be paid."""
    costs = [np.array([0, 1, 5])] * 4
    ring = [Edge(i, (i + 1) % 4, np.where(np.eye(3) > 0, 0, 1)) for i in range(4)]
    return CostNetwork(costs, [*ring, Edge(0, 2, np.where(np.eye(3) > 0, 0, 1))])


def test_states_without_a_record_go_only_where_nothing_is_consistent() -> None:
    proof = prove.Proof(stages=[[Probes((Probe(0, np.array([MET]), None),))]], bound=1)
    with pytest.raises(CertificateFault, match="probed that something below the bound goes with"):
        judged(square(), certificate_of(proof, 1))


def test_a_record_that_does_not_reach_the_bound_shows_nothing() -> None:
    ground = Ground.of(flatten(from_network(square())))
    assert ground is not None
    weighed = ground.weighed(100)
    assert weighed is not None
    record = weighed[0]
    proof = prove.Proof(stages=[[Probes((Probe(0, np.array([0, 1, MET]), record),))]], bound=1)
    with pytest.raises(CertificateFault, match="probed that something below the bound goes with"):
        judged(square(), certificate_of(proof, 1))
