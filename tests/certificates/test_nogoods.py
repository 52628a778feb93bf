"""Nogoods in certificates: each must follow from what tables allow, what there is room for, and the ones before it."""

import json
import zlib
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from solver_cases import judged, optimum, random_network

from autoshard.solver import IMPOSSIBLE, CostNetwork, Edge, Solution, Usage, anything
from autoshard.solver.certify.certificate import packed
from autoshard.verify.certificate import CertificateFault
from autoshard.verify.certificate.stream import Stream

END, PART, NOGOODS = 0, 10, 16


def pigeons(birds: int, holes: int) -> CostNetwork:
    """Each bird in a hole of its own."""
    apart = np.where(np.eye(holes, dtype=bool), IMPOSSIBLE, 0)
    edges = tuple(Edge(i, j, apart) for i in range(birds) for j in range(i))
    return CostNetwork(tuple(np.zeros(holes, np.int64) for _ in range(birds)), edges)


def of(numbers: Sequence[int] | np.ndarray, bound: int | None = None) -> bytes:
    head = json.dumps({"format": "autoshard-certificate-5", "bound": bound}).encode()
    return head + b"\n" + zlib.compress(packed(np.array(numbers, dtype=np.int64)))


def nogoods(*written: Sequence[tuple[int, Sequence[int]]]) -> bytes:
    """A certificate with these: of each its nodes with their states."""
    numbers = [PART, NOGOODS, len(written)]
    for nogood in written:
        numbers.append(len(nogood))
        before = -1
        for node, states in nogood:
            numbers += [node - before - 1, len(states), *np.diff(states, prepend=0).tolist()]
            before = node
    return of([*numbers, END, END])


@pytest.fixture(scope="module")
def refuted() -> Solution:
    return anything(pigeons(6, 5), 10_000)


def test_a_refutation_by_nogoods_is_of_the_fifth_format(refuted: Solution) -> None:
    data = refuted.certificate()
    assert data is not None and json.loads(data.split(b"\n")[0])["format"] == "autoshard-certificate-5"


def test_a_refutation_by_nogoods_is_accepted(refuted: Solution) -> None:
    data = refuted.certificate()
    assert data is not None and judged(pigeons(6, 5), data).bound is None


def test_the_nogoods_that_are_judged_are_counted(refuted: Solution) -> None:
    data = refuted.certificate()
    assert data is not None and judged(pigeons(6, 5), data).nogoods > 1
    assert judged(THREE, nogoods([(0, [0])], [(0, [1])])).nogoods == 1


def test_a_refutation_by_nogoods_is_none_of_a_network_with_room(refuted: Solution) -> None:
    data = refuted.certificate()
    roomy = CostNetwork(pigeons(6, 5).costs, pigeons(6, 5).edges[1:])
    assert data is not None
    with pytest.raises(CertificateFault):
        judged(roomy, data)


def test_nogoods_may_close_what_is_claimed_with_a_bound(refuted: Solution) -> None:
    data = refuted.certificate()
    assert data is not None
    numbers = Stream(data).numbers.tolist()
    begin = numbers.index(NOGOODS) - 1
    assert judged(pigeons(6, 5), of(numbers[begin:], 10)).bound is None


THREE = pigeons(3, 2)
"""Of each two birds one is in hole 0 and one in hole 1, which three cannot be."""


def test_a_nogood_that_follows_is_taken() -> None:
    assert judged(THREE, nogoods([(0, [0])], [(0, [1])])).bound is None


def test_what_one_nogood_leaves_may_be_nothing() -> None:
    assert judged(THREE, nogoods([(0, [0])])).bound is None


TWO = CostNetwork((np.zeros(2, np.int64), np.zeros(2, np.int64)), (Edge(0, 1, np.array([[0, 0], [0, IMPOSSIBLE]])),))
"""One of the two is in its first state."""


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ([], "leave something that fits"),
        ([[]], "does not follow"),
        ([[(0, [0])]], "does not follow"),
        ([[(0, [0]), (1, [0])]], "leave something that fits"),
        ([[(0, [0]), (1, [1])]], "does not follow"),
        ([[(0, [2])]], "states that are not there"),
        ([[(2, [0])]], "a node that is not there"),
    ],
)
def test_what_does_not_hold_or_does_not_refute_is_refused(written: list, words: str) -> None:
    data = nogoods(*written)
    with pytest.raises(CertificateFault, match=words):
        judged(TWO, data)


def test_a_nogood_may_rest_on_what_there_is_room_for() -> None:
    """Only the first states of both fit together: the first two nogoods say so, and the edge forbids just that."""
    usages = tuple((Usage(0, 3, np.array([1, 5])),) for _ in range(2))
    edge = Edge(0, 1, np.array([[IMPOSSIBLE, 0], [0, 0]]))
    network = CostNetwork((np.zeros(2, np.int64), np.zeros(2, np.int64)), (edge,), usages, 5)
    assert optimum(network) is None
    assert judged(network, nogoods([(0, [0])], [(1, [0])])).bound is None


@settings(max_examples=100)
@given(seed=st.integers(0, 10_000), change=st.integers(0, 2**32 - 1))
def test_no_nogoods_refute_a_network_that_has_an_assignment(seed: int, change: int) -> None:
    """Nogoods drawn at random, most of them such that hold."""
    network, rng = random_network(seed), np.random.default_rng(change)
    if optimum(network) is None:
        return
    sizes = [len(costs) for costs in network.costs]
    written = []
    for _ in range(int(rng.integers(1, 6))):
        nodes = np.flatnonzero(rng.random(len(sizes)) < 0.6).tolist()
        written.append([(n, np.flatnonzero(rng.random(sizes[n]) < 0.8).tolist()) for n in nodes])
    data = nogoods(*written)
    with pytest.raises(CertificateFault):
        judged(network, data)


@pytest.mark.parametrize("seed", range(20))
def test_no_change_of_a_number_refutes_what_has_an_assignment(refuted: Solution, seed: int) -> None:
    data, rng = refuted.certificate(), np.random.default_rng(seed)
    assert data is not None
    numbers = Stream(data).numbers
    roomy = CostNetwork(pigeons(6, 5).costs, pigeons(6, 5).edges[int(rng.integers(1, 6)) :])
    for _ in range(20):
        forged = numbers.copy()
        forged[rng.integers(len(forged))] += rng.choice([-50, -1, 1, 50, 2**40])
        with pytest.raises(CertificateFault):
            judged(roomy, of(forged))
