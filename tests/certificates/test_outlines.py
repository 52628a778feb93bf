"""Certificates of networks whose tables are rows and columns of smaller ones: messages over these come first."""

import json
import zlib
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from solver_cases import judged, optimum, random_network

from autoshard.solver import IMPOSSIBLE, CostNetwork, Edge, Solution, Usage, solve
from autoshard.solver import large as large_networks
from autoshard.solver.certify import certificate as certificates
from autoshard.solver.certify.certificate import certificate_of, packed
from autoshard.solver.certify.proof import Outline, Outlined, Proof
from autoshard.solver.factored import Factored
from autoshard.verify.certificate import CertificateFault
from autoshard.verify.certificate.stream import Stream

END, OUTLINED, LEFT = 0, 14, 15
ALL, FEW = 0, 10**6
"""Never small enough to be solved as any other network; small as soon as some assignment is known."""


def with_factors(network: CostNetwork) -> CostNetwork:
    """The same network: every table but each fourth is kept as rows and columns of its distinct ones."""
    edges = []
    for number, edge in enumerate(network.edges):
        table = np.where(edge.costs >= IMPOSSIBLE, np.inf, edge.costs)
        base, rows = np.unique(table, axis=0, return_inverse=True)
        base, columns = np.unique(base, axis=1, return_inverse=True)
        made = Factored(np.ascontiguousarray(base), rows.ravel(), columns.ravel())
        edges.append(Edge(edge.first, edge.second, edge.costs if number % 4 == 3 else made))
    return replace(network, edges=tuple(edges))


def certificate(found: Solution, bound: int | None) -> bytes:
    assert found.proof is not None
    return certificate_of(found.proof, bound)


@pytest.fixture(params=[ALL, FEW])
def small(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(large_networks, "SMALL_ENTRIES", request.param)
    return request.param


@pytest.mark.parametrize("seed", range(40))
def test_every_bound_of_a_large_network_has_a_certificate(small: int, seed: int) -> None:
    whole = random_network(seed)
    network = with_factors(whole)
    found = solve(network)
    data, best = found.certificate(), optimum(whole)
    assert data is not None
    bound = judged(network, data).bound
    if found.status == "infeasible":
        assert bound is None and best is None
    else:
        assert bound == found.lower_bound and (best is None or bound <= best)


@pytest.mark.parametrize("seed", range(40))
def test_no_certificate_proves_more_than_the_optimum_costs(small: int, seed: int) -> None:
    network = with_factors(random_network(seed))
    found = solve(network)
    if found.status == "optimal" and found.cost is not None:
        data = certificate(found, found.cost + 1)
        with pytest.raises(CertificateFault):
            judged(network, data)


@pytest.mark.parametrize("seed", range(20))
def test_no_change_of_a_number_proves_what_is_false(small: int, seed: int) -> None:
    whole = random_network(seed)
    network, best = with_factors(whole), optimum(whole)
    found = solve(network)
    if best is None or found.status != "optimal":
        return
    data, rng = certificate(found, best), np.random.default_rng(seed)
    numbers = Stream(data).numbers
    for _ in range(30):
        forged, claimed = numbers.copy(), best + int(rng.integers(0, 3))
        forged[rng.integers(len(forged))] += rng.choice([-50, -1, 1, 50, 2**40])
        head = json.dumps({"format": "autoshard-certificate-4", "bound": claimed}).encode()
        try:
            verdict = judged(network, head + b"\n" + zlib.compress(packed(forged)))
        except CertificateFault:
            continue
        assert verdict.bound is not None and verdict.bound <= best


def test_that_no_states_fit_together_is_proved_without_any_message() -> None:
    never = Factored(np.array([[0.0, np.inf], [np.inf, 0.0]]), np.array([0, 0]), np.array([1, 1, 1]))
    network = CostNetwork([np.zeros(2, np.int64), np.zeros(3, np.int64)], [Edge(0, 1, never)])
    found = solve(network)
    data = found.certificate()
    assert found.status == "infeasible" and data is not None
    assert judged(network, data).bound is None


@pytest.mark.parametrize("room", [0, -1])
def test_that_all_hold_more_than_the_limit_is_proved_without_any_message(room: int) -> None:
    """The state that holds less than the others is not allowed."""
    costs = [np.array([0, IMPOSSIBLE, 3]), np.array([5, 6])]
    table = Factored(np.array([[2.0, 1.0]]), np.array([0, 0, 0]), np.array([0, 1]))
    usages = [[Usage(0, 4, np.array([70, 10, 60]))], [Usage(0, 2, np.array([9, 9])), Usage(3, 6, np.array([50, 40]))]]
    found = solve(network := CostNetwork(costs, [Edge(0, 1, table)], usages, 100 + room))
    data = found.certificate()
    assert data is not None
    assert (found.status == "infeasible") == (room < 0)
    assert (judged(network, data).bound is None) == (room < 0)


TWO = CostNetwork(
    [np.array([0, 7]), np.array([0, 9])],
    [Edge(0, 1, Factored(np.array([[5.0, 1.0], [3.0, 2.0]]), np.array([0, 1]), np.array([0, 1])))],
)
"""Its assignments cost 5, 10, 10 and 18."""


def of(numbers: Sequence[int], bound: int | None) -> bytes:
    head = json.dumps({"format": "autoshard-certificate-4", "bound": bound}).encode()
    return head + b"\n" + zlib.compress(packed(np.array(numbers, dtype=np.int64)))


def test_messages_prove_what_they_leave_at_both_ends() -> None:
    assert judged(TWO, of([OUTLINED, 0, 0, 0, 2, 5, -2], 5)).bound == 5
    assert judged(TWO, of([OUTLINED, 0, 0, 0, 2, 5, 3], 5)).records == 1


def test_messages_come_in_multiples_of_a_power_of_two() -> None:
    assert judged(TWO, of([OUTLINED, 2, 0, 0, 2, 1, 0], 4)).bound == 4


@pytest.mark.parametrize(
    ("numbers", "bound", "why"),
    [
        ([], 5, "it does not say what is left"),
        ([OUTLINED, 0, 0, 0, 2, 5, 3], 6, "it does not say what is left"),
        ([OUTLINED, 0, 0, 0, 3, 5, 3, 0], 5, "more or fewer messages than rows"),
        ([OUTLINED, 0, 0, 0, 1, 5], 5, "more or fewer messages than rows"),
        ([OUTLINED, 60, 0, 0, 2, 5, 3], 5, "too large for exact sums"),
        ([OUTLINED, 0, 0, 0, 2, -(2**63), 0], 5, "too large for exact sums"),
        ([OUTLINED, 65, 0, 0, 2, 5, 3], 5, "the step of messages is 65"),
        ([OUTLINED, 0, 0, 0, 2, 5, 3], None, "what is claimed is that there is no assignment"),
        ([LEFT, 1, 1, 1, 1, 0, 2, END], 5, "node 0: state 0 is left out"),
        ([LEFT, 1, 0, 3, 1, 0, 2, END], 5, "states of node 0 are left that it does not have"),
        ([LEFT, 1, 1, 2, 1, 0, 2, END], 5, "states of node 0 are left that it does not have"),
        ([LEFT, 2, 0, 2, 1, 1, 1, 0, 2, END], 5, "or twice"),
        ([LEFT, 1, 0, 2, 1, 0, 2, END], 5, "a branch ends without a proof"),
        ([LEFT, 1, 0, 2], 5, "end in the middle of a step"),
    ],
)
def test_what_does_not_fit_the_network_is_refused(numbers: list[int], bound: int | None, why: str) -> None:
    with pytest.raises(CertificateFault, match=why):
        judged(TWO, of(numbers, bound))


def star(most: int, leaves: int, held: int = 0) -> CostNetwork:
    """One node with an edge to each of the others; each second state costs up to `most`, on its own and on edges.

    held: what first states hold, of a limit that leaves half of them room; second ones hold a third of it.
    """
    rng = np.random.default_rng(0)
    costs = [np.array([int(rng.integers(1, 1000)), int(rng.integers(most // 2, most))]) for _ in range(leaves + 1)]
    edges = []
    for leaf in range(1, leaves + 1):
        base = np.array([[0.0, float(rng.integers(1, most))], [float(rng.integers(1, 10**6)), 7.0]])
        edges.append(Edge(0, leaf, Factored(base, np.array([0, 1]), np.array([0, 1]))))
    if not held:
        return CostNetwork(costs, edges)
    usages = [(Usage(0, 2, np.array([held, held // 3])),)] * (leaves + 1)
    return CostNetwork(costs, edges, usages, held * (leaves + 1) // 2)


@pytest.mark.parametrize(("leaves", "held"), [(400, 0), (6, 1), (6, 3 * 10**6), (6, 7 * 10**12)])
@pytest.mark.parametrize("most", [10**9, 10**14 - 1])
def test_bounds_have_certificates_however_large_costs_and_amounts_are(
    small: int, most: int, held: int, leaves: int
) -> None:
    """Of a plan's network no cost is above 1e14."""
    network = star(most, leaves, held)
    found = solve(network)
    data = found.certificate()
    assert data is not None
    assert judged(network, data).bound == found.lower_bound


def test_the_cheapest_beside_costs_of_1e14_at_400_edges_is_proved(small: int) -> None:
    assert solve(star(10**14 - 1, 400)).status == "optimal"


@pytest.mark.parametrize("bits", [0, 15, 30])
def test_a_price_counts_whatever_it_makes_of_an_amount(bits: int) -> None:
    """State 0 of the first node holds more than the limit; at 21 for each byte, it costs the most that counts."""
    network = replace(TWO, usages=((Usage(0, 1, np.array([7 * 10**12, 0])),), ()), usage_limit=3 * 10**12)
    numbers = [OUTLINED, 0, bits, 1, 0, 21 << bits, 2, 5, 3]
    bound = 10 - 21 * 3 * 10**12
    assert judged(network, of(numbers, bound)).bound == bound
    with pytest.raises(CertificateFault, match="does not say what is left"):
        judged(network, of(numbers, bound + 1))


def test_a_cost_that_is_too_far_below_zero_is_refused() -> None:
    network = replace(TWO, costs=[np.array([0, -(2**50)]), TWO.costs[1]])
    with pytest.raises(CertificateFault, match="too far below 0"):
        judged(network, of([OUTLINED, 0, 0, 0, 2, 5, 3], 5))


def test_what_is_left_is_proved_by_the_rest_of_the_certificate() -> None:
    """State 1 of either node costs 8 at least by these messages; beside them each node has one state."""
    left = Outline([Outlined(0, None, np.array([2, 0]))], [np.array([0]), np.array([0])])
    proof = Proof([[("eliminate", 0), ("eliminate", 1)]], bound=5, outline=left)
    assert judged(TWO, certificate_of(proof, 5)).bound == 5


def test_a_certificate_that_checkers_would_not_read_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    found = solve(TWO)
    assert found.certificate() is not None
    monkeypatch.setattr(certificates, "MOST_BYTES", 3)
    assert found.certificate() is None
