"""Search that learns from dead ends: brute force says whether anything fits, and whether every nogood holds."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from solver_cases import optimum, random_network

from autoshard.solver import IMPOSSIBLE, CostNetwork, Edge, Usage, anything, evaluate
from autoshard.solver.certify.prove import Prover
from autoshard.solver.dual.flat import flatten
from autoshard.solver.learning.learner import FOUND, FULL, OPEN, REFUTED, UNIT, Learner, _restarts_after
from autoshard.solver.work import from_network, without_overlap
from autoshard.verify.certificate import check_certificate


def tight_network(seed: int, nodes: int, states: int, loose: float) -> CostNetwork:
    """Forbidden pairs, and a limit that lets about half of such networks have an assignment. loose: its part of what is
    held at most."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, states + 1, nodes).tolist()
    edges = [
        Edge(
            i,
            j,
            np.where(rng.random((sizes[i], sizes[j])) < 0.35, IMPOSSIBLE, rng.integers(0, 9, (sizes[i], sizes[j]))),
        )
        for i in range(nodes)
        for j in range(i)
        if rng.random() < 0.5
    ]
    usages = []
    for size in sizes:
        start = int(rng.integers(0, 5))
        own = [Usage(start, int(rng.integers(start + 1, 7)), rng.integers(0, 20, size))]
        usages.append((*own, Usage(0, 6, rng.integers(0, 20, size))) if rng.random() < 0.5 else tuple(own))
    costs = tuple(rng.integers(0, 9, size) for size in sizes)
    return CostNetwork(costs, tuple(edges), tuple(usages), int(loose * 20 * nodes))


def learner_of(network: CostNetwork) -> Learner:
    work = from_network(network)
    for node in work.nodes():
        work.held[node] = without_overlap(work.held[node])
    return Learner(flatten(work))


def assignments(network: CostNetwork) -> list[tuple[int, ...]]:
    every = product(*(range(len(c)) for c in network.costs))
    return [one for one in every if evaluate(network, one).feasible]


def nothing() -> None:
    """There is no clock."""


NETWORKS = {"seed": st.integers(0, 2**32 - 1), "nodes": st.integers(1, 6), "states": st.integers(1, 4)}


@settings(max_examples=150)
@given(**NETWORKS, loose=st.floats(0.05, 0.8))
def test_what_it_says_is_what_brute_force_says(seed: int, nodes: int, states: int, loose: float) -> None:
    network = tight_network(seed, nodes, states, loose)
    learner = learner_of(network)
    assert learner.go_on(1000, nothing) == (FOUND if assignments(network) else REFUTED)


@settings(max_examples=150)
@given(**NETWORKS, loose=st.floats(0.05, 0.8))
def test_what_it_finds_fits(seed: int, nodes: int, states: int, loose: float) -> None:
    network = tight_network(seed, nodes, states, loose)
    learner = learner_of(network)
    if learner.go_on(1000, nothing) == FOUND:
        assert evaluate(network, learner.assignment().tolist()).feasible


@settings(max_examples=150)
@given(**NETWORKS, loose=st.floats(0.1, 0.5))
def test_every_assignment_keeps_every_nogood(seed: int, nodes: int, states: int, loose: float) -> None:
    network = tight_network(seed, nodes, states, loose)
    learner = learner_of(network)
    learner.go_on(1000, nothing)
    for nogood in learner.nogoods():
        for one in assignments(network):
            assert any(one[node] in own for node, own in zip(nogood.nodes, nogood.states, strict=True))


def pigeons(birds: int, holes: int) -> CostNetwork:
    """Each bird in a hole of its own."""
    apart = np.where(np.eye(holes, dtype=bool), IMPOSSIBLE, 0)
    edges = tuple(Edge(i, j, apart) for i in range(birds) for j in range(i))
    return CostNetwork(tuple(np.zeros(holes, np.int64) for _ in range(birds)), edges)


def test_dead_ends_are_counted_and_it_goes_on_from_there() -> None:
    learner = learner_of(pigeons(7, 6))
    assert learner.go_on(5, nothing) == OPEN
    assert learner.conflicts == 5
    assert learner.go_on(10_000, nothing) == REFUTED
    assert learner.go_on(10_000, nothing) == REFUTED


def test_the_nogoods_of_a_refutation_are_those_that_it_rests_on() -> None:
    learner = learner_of(pigeons(7, 6))
    learner.go_on(10_000, nothing)
    assert 0 < len(learner.nogoods()) <= learner.conflicts


def test_nogoods_that_take_too_much_memory_end_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from autoshard.solver.learning import learner as module

    learner = learner_of(pigeons(8, 7))
    monkeypatch.setattr(module, "MOST_POOL", 0)
    learner.search = learner.search._replace(pool=np.zeros(200, np.int32))
    assert learner.go_on(10_000, nothing) == FULL


def test_more_room_is_made_for_nogoods_where_there_may_be() -> None:
    learner = learner_of(pigeons(7, 6))
    learner.search = learner.search._replace(pool=np.zeros(200, np.int32), causes=np.zeros(200, np.int32))
    assert learner.go_on(10_000, nothing) == REFUTED


def test_the_clock_is_looked_at() -> None:
    def over() -> None:
        raise TimeoutError

    with pytest.raises(TimeoutError):
        learner_of(pigeons(7, 6)).go_on(1, over)


def test_restarts_are_as_far_apart_as_in_the_sequence_of_luby() -> None:
    assert [_restarts_after(number) for number in range(15)] == [1, 1, 2, 1, 1, 2, 4, 1, 1, 2, 1, 1, 2, 4, 8]
    assert UNIT > 1


@settings(max_examples=150)
@given(**NETWORKS, loose=st.floats(0.05, 0.8))
def test_a_solver_that_learns_agrees_and_its_proof_is_judged(seed: int, nodes: int, states: int, loose: float) -> None:
    network = tight_network(seed, nodes, states, loose)
    found = anything(network, 1000)
    assert (found.status == "infeasible") is (not assignments(network))
    if found.status == "infeasible":
        certificate = found.certificate()
        assert certificate is not None and judged(network, certificate)
    else:
        assert found.assignment is not None and evaluate(network, found.assignment).feasible


def judged(network: CostNetwork, certificate: bytes) -> bool:
    edges = [(e.first, e.second, e.costs) for e in network.edges]
    usages = [[(u.start, u.stop, u.amounts) for u in own] for own in network.usages]
    return check_certificate(certificate, network.costs, edges, usages, network.usage_limit).bound is None


def test_the_same_nogoods_come_again() -> None:
    answers = {anything(pigeons(7, 6), 10_000).certificate() for _ in range(3)}
    assert len(answers) == 1 and None not in answers


@pytest.mark.parametrize("seed", range(60))
def test_what_is_said_of_costs_holds_too(seed: int) -> None:
    """Reductions and messages may have shown a bound, or all, before anything is learned; costs may be negative."""
    network = random_network(seed)
    found, best = anything(network, 500), optimum(network)
    assert (found.status == "infeasible") is (best is None)
    assert best is None or (found.cost is not None and found.lower_bound <= best <= found.cost)


def test_large_networks_learn_from_fewer_dead_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """A dead end takes as much longer there: 6,000 of them took 90 s in a network of 100,000 states."""
    asked: list[int] = []
    monkeypatch.setattr(Prover, "go_on", lambda self, work: False)
    monkeypatch.setattr(Prover, "learn", lambda self, dead_ends: asked.append(dead_ends) or False)
    for most in (10**9, 10):
        monkeypatch.setattr("autoshard.solver.driver.LEARNT_STATES", most)
        anything(pigeons(7, 6), 1000)
    assert asked[0] == 1000 and 0 < asked[1] < 1000
