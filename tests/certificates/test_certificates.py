"""Certificates: what the solver proves, a checker that shares no code with it accepts; what is false, it does not.

Brute force over all assignments is the judge of what is true.
"""

import functools
import itertools
import json
import lzma
import zlib
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ortools.sat.python import cp_model
from solver_cases import judged, optimum, random_network, tight

from autoshard.solver import IMPOSSIBLE, CostNetwork, Edge, Solution, Usage, driver, evaluate, solve
from autoshard.solver.certify.certificate import certificate_of, packed
from autoshard.solver.certify.ground import Ground
from autoshard.solver.certify.proof import Proof
from autoshard.solver.dual.fixing import Part
from autoshard.solver.dual.flat import flatten
from autoshard.solver.dual.passes import run_pass
from autoshard.solver.incumbent import OutOfTime, Race
from autoshard.solver.network import most_cost
from autoshard.solver.portfolio import Portfolio
from autoshard.solver.solution import Stopped
from autoshard.solver.work import from_network
from autoshard.verify.certificate import CertificateFault
from autoshard.verify.certificate.stream import Stream, unpacked


@functools.cache
def answer(number: int) -> Solution:
    return solve(CASES[number])


@functools.cache
def truth(number: int) -> int | None:
    return optimum(CASES[number])


CASES = [random_network(seed, nodes=6, states=4) for seed in range(40)] + [tight(seed) for seed in range(60)]


@pytest.mark.parametrize("number", range(len(CASES)))
def test_the_certificate_of_an_answer_proves_the_optimum(number: int) -> None:
    network, found, best = CASES[number], answer(number), truth(number)
    data = found.certificate()
    assert data is not None
    assert judged(network, data).bound == best == (None if found.status == "infeasible" else found.lower_bound)


def test_some_of_the_cases_are_split_and_some_are_infeasible() -> None:
    numbers = range(len(CASES))
    assert max(judged(CASES[k], answer(k).certificate() or b"").leaves for k in numbers) > 2
    assert sum(truth(k) is None for k in numbers) > 5


def test_a_run_that_ends_early_has_a_certificate_of_its_bound() -> None:
    network = tight(1, nodes=30, states=6)
    found = solve(network, effort=0.001)
    data = found.certificate()
    assert found.status in ("feasible", "unknown")
    assert data is not None
    assert judged(network, data).bound == found.lower_bound <= (found.cost or 10**9)


def test_the_same_run_leaves_the_same_bytes() -> None:
    network = tight(5, nodes=12)
    assert solve(network).certificate() == solve(network).certificate()


# -- what is false --------------------------------------------------------------------------------------


def with_bound(data: bytes, bound: int | None) -> bytes:
    head, _, body = data.partition(b"\n")
    return json.dumps({**json.loads(head), "bound": bound}).encode() + b"\n" + body


def with_numbers(data: bytes, numbers: np.ndarray) -> bytes:
    return data.partition(b"\n")[0] + b"\n" + zlib.compress(packed(numbers))


def test_certificates_of_the_first_format_are_judged_as_those_of_the_second() -> None:
    for number in range(0, len(CASES), 9):
        network, data = CASES[number], answer(number).certificate() or b""
        head, _, body = data.partition(b"\n")
        older = json.dumps({**json.loads(head), "format": "autoshard-certificate-1"}).encode()
        assert judged(network, older + b"\n" + lzma.compress(zlib.decompress(body))) == judged(network, data)
        with pytest.raises(CertificateFault):
            judged(network, older + b"\n" + body)


@pytest.mark.parametrize("number", range(0, len(CASES), 3))
def test_a_larger_bound_is_refused(number: int) -> None:
    network, found = CASES[number], answer(number)
    if found.cost is None:
        return
    with pytest.raises(CertificateFault):
        judged(network, with_bound(found.certificate() or b"", found.lower_bound + 1))


def test_a_feasible_network_is_not_called_infeasible() -> None:
    network = tight(8)
    found = solve(network)
    assert found.cost is not None
    with pytest.raises(CertificateFault):
        judged(network, with_bound(found.certificate() or b"", None))


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_a_changed_certificate_proves_nothing_false(data: st.DataObject) -> None:
    """Numbers changed, removed, doubled or moved; and the claim changed with them."""
    number = data.draw(st.integers(0, len(CASES) - 1))
    network, found = CASES[number], answer(number)
    stream = Stream(found.certificate() or b"")
    numbers = stream.numbers.tolist()
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(numbers) - 1)) if numbers else 0
        how = data.draw(st.sampled_from(["change", "remove", "double", "step"]))
        if not numbers:
            break
        if how == "change":
            numbers[at] = data.draw(st.integers(-(2**40), 2**40))
        elif how == "step":
            numbers[at] += data.draw(st.sampled_from([-1, 1]))
        elif how == "remove":
            del numbers[at]
        else:
            numbers.insert(at, numbers[at])
    best = truth(number)
    claim = data.draw(st.sampled_from([found.lower_bound, found.lower_bound + 1, found.lower_bound + 10**6, None]))
    changed = with_bound(with_numbers(found.certificate() or b"", np.array(numbers, dtype=np.int64)), claim)
    try:
        verdict = judged(network, changed)
    except CertificateFault:
        return
    assert best is None or (verdict.bound is not None and verdict.bound <= best)


@settings(max_examples=200, deadline=None)
@given(seed=st.integers(0, 10**6), other=st.integers(0, 10**6))
def test_a_certificate_of_another_network_proves_nothing_false(seed: int, other: int) -> None:
    """The same nodes and edges, with one cost, one amount or the limit changed."""
    network, found = CASES[seed % len(CASES)], answer(seed % len(CASES))
    rng = np.random.default_rng(other)
    costs, edges, usages, limit = list(network.costs), list(network.edges), list(network.usages), network.usage_limit
    which = int(rng.integers(0, 4))
    if which == 0:
        node = int(rng.integers(0, len(costs)))
        costs[node] = costs[node] + rng.integers(-3, 1, len(costs[node]))
    elif which == 1 and edges:
        at = int(rng.integers(0, len(edges)))
        edges[at] = Edge(edges[at].first, edges[at].second, np.maximum(edges[at].costs - int(rng.integers(1, 5)), -50))
    elif which == 2 and limit is not None:
        limit += int(rng.integers(1, 40))
    elif usages:
        usages = [tuple(Usage(u.start, u.stop, u.amounts // 2) for u in own) for own in usages]
    changed = CostNetwork(costs, edges, usages, limit)
    best = optimum(changed)
    try:
        verdict = judged(changed, found.certificate() or b"")
    except CertificateFault:
        return
    assert best is None or (verdict.bound is not None and verdict.bound <= best)


@pytest.mark.parametrize(
    "data",
    [
        b"", b"{}", b"\n", b"[1]\n", b'{"format": "autoshard-certificate-1"}\n', b"not json\n" + lzma.compress(b""),
        b'{"format": "autoshard-certificate-1", "bound": 1.5}\n' + lzma.compress(b"\x00"),
        b'{"format": "autoshard-certificate-1", "bound": 1}\n' + lzma.compress(b"\xff" * 20),
        b'{"format": "autoshard-certificate-1", "bound": 1}\n' + lzma.compress(b"\x80" * 12 + b"\x01"),
        b'{"format": "autoshard-certificate-1", "bound": 1}\n' + lzma.compress(b"\x00" * 100)[:-9],
        b'{"format": "autoshard-certificate-1", "bound": 1}\n' + lzma.compress(bytes([2 * 2, 2 * 9])),
        b'{"format": "autoshard-certificate-2", "bound": 1.5}\n' + zlib.compress(b"\x00"),
        b'{"format": "autoshard-certificate-2", "bound": 1}\n' + zlib.compress(b"\xff" * 20),
        b'{"format": "autoshard-certificate-2", "bound": 1}\n' + zlib.compress(b"\x80" * 12 + b"\x01"),
        b'{"format": "autoshard-certificate-2", "bound": 1}\n' + zlib.compress(b"\x00" * 100)[:-9],
        b'{"format": "autoshard-certificate-2", "bound": 1}\n' + zlib.compress(bytes([2 * 2, 2 * 9])),
    ],
)  # fmt: skip
def test_what_is_no_certificate_is_refused(data: bytes) -> None:
    with pytest.raises(CertificateFault):
        judged(CASES[45], data)


# -- numbers as bytes -----------------------------------------------------------------------------------


@given(st.lists(st.integers(-(2**63), 2**63 - 1)))
def test_numbers_survive_the_way_into_bytes_and_back(numbers: list[int]) -> None:
    assert unpacked(packed(np.array(numbers, dtype=np.int64))).tolist() == numbers


@pytest.mark.parametrize("number", range(40, 100, 6))
def test_a_run_that_is_stopped_at_any_moment_claims_nothing_false(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As by the clock: a part that is not settled yet has shown nothing."""
    least = truth(number)
    for stop in (1, 2, 3, 5, 8, 12, 17, 23, 30, 60):
        calls = 0

        def check(race: Race, stop: int = stop) -> None:
            nonlocal calls
            calls += 1
            if calls >= stop:
                raise OutOfTime

        monkeypatch.setattr(Race, "check", check)
        found = solve(CASES[number], effort=0.1)
        assert found.status != "infeasible" or least is None
        assert least is None or found.lower_bound <= least
        assert found.status != "optimal" or found.cost == least


def test_an_interrupt_at_the_end_of_a_run_leaves_what_was_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """What messages prove as they stand takes seconds in large networks."""
    network = tight(4)
    best = solve(network)
    assert best.assignment is not None

    def check(race: Race) -> None:
        if race.lower is not None:
            raise OutOfTime

    def stand(portfolio: Portfolio, bound: float, passes: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(driver, "SMALL_ENTRIES", 0)
    monkeypatch.setattr(Race, "check", check)
    monkeypatch.setattr(Portfolio, "stand", stand)
    found = solve(network, starts=[best.assignment])
    assert found.cost == best.cost
    assert found.stopped is Stopped.INTERRUPT


def test_a_record_whose_states_are_still_there_when_it_is_interrupted_is_not_written_down(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What a stopped run writes down at the end is about the states that are left; the checker drops them at once."""
    ground = Ground.of(flatten(from_network(tight(4))))
    assert ground is not None
    best = optimum(tight(4))
    assert best is not None
    weighed = None
    for _ in range(20):
        run_pass(ground.part.dual, True)
        run_pass(ground.part.dual, False)
        weighed = ground.weighed(best + 1)
    assert weighed is not None
    assert not weighed[1].alive.all()

    def interrupted(part: Part, alive: np.ndarray) -> Part:
        raise KeyboardInterrupt

    monkeypatch.setattr("autoshard.solver.certify.ground.restrict", interrupted)
    with pytest.raises(KeyboardInterrupt):
        ground.take(*weighed)
    assert ground.records == []
    assert ground.alive.all()


@pytest.mark.parametrize("magnitude", [2.0**k for k in range(30, 63)])
def test_a_message_of_any_size_makes_a_record_that_the_checker_adds_up_or_none(magnitude: float) -> None:
    """Where nothing fits, messages grow without end."""
    network = tight(4)
    ground = Ground.of(flatten(from_network(network)))
    assert ground is not None
    run_pass(ground.part.dual, True)
    run_pass(ground.part.dual, False)
    ground.part.dual.to_second[0] += magnitude
    weighed = ground.weighed(100)
    if weighed is not None:
        record, found = weighed
        data = certificate_of(Proof([[record]], None, found.bound), found.bound)
        assert judged(network, data).bound == found.bound


# -- that nothing is cheaper than what nothing costs -------------------------------------------------------


def claimed(data: bytes) -> int | None:
    return json.loads(data.partition(b"\n")[0])["bound"]


def crowded(seed: int) -> CostNetwork:
    """A network whose limit is just below the least that any assignment holds at its peak."""
    network = tight(seed, nodes=9)
    least = optimum_peak(network)
    assert least is not None
    return replace(network, usage_limit=least - 1)


def optimum_peak(network: CostNetwork) -> int | None:
    """The least peak of an assignment that is allowed."""
    sizes = (range(len(c)) for c in network.costs)
    found = (evaluate(network, x) for x in itertools.product(*sizes))
    return min((e.peak for e in found if e.cost is not None), default=None)


@pytest.mark.parametrize("seed", range(8))
def test_where_nothing_fits_a_bound_above_all_costs_says_so(seed: int) -> None:
    network = crowded(seed)
    found = solve(network)
    data = found.certificate()
    assert found.status == "infeasible" and data is not None
    assert claimed(data) in (None, most_cost(network) + 1)
    assert judged(network, data).bound is None


def fits_by_cpsat(network: CostNetwork) -> bool:
    """Another engine's word on whether anything is allowed and fits."""
    model = cp_model.CpModel()
    chosen = [[model.new_bool_var("") for _ in own] for own in network.costs]
    for own, costs in zip(chosen, network.costs, strict=True):
        model.add_exactly_one(own)
        model.add(sum(x for x, cost in zip(own, costs, strict=True) if cost >= IMPOSSIBLE) == 0)
    for edge in network.edges:
        for a, b in np.argwhere(edge.costs >= IMPOSSIBLE).tolist():
            model.add_bool_or(chosen[edge.first][a].negated(), chosen[edge.second][b].negated())
    held = [(u, own) for own, usages in zip(chosen, network.usages, strict=True) for u in usages]
    for time in {u.start for u, _ in held}:
        live = [
            n * x for u, own in held if u.start <= time < u.stop for n, x in zip(u.amounts.tolist(), own, strict=True)
        ]
        model.add(sum(live) <= (network.usage_limit or 0))
    return cp_model.CpSolver().solve(model) != cp_model.INFEASIBLE


@functools.cache
def splits_show() -> CostNetwork:
    """A network within whose limit nothing fits, which neither reductions nor shaving show."""
    network = tight(6, nodes=14, states=6)
    while (found := solve(network)).peak is not None:
        network = replace(network, usage_limit=found.peak - 1)
    return network


def test_that_nothing_fits_is_proved_with_costs_where_only_splits_show_it() -> None:
    network = splits_show()
    data = solve(network).certificate() or b""
    assert claimed(data) == most_cost(network) + 1
    verdict = judged(network, data)
    assert verdict.bound is None and verdict.leaves > 2
    assert not fits_by_cpsat(network)


def test_a_bound_above_all_costs_is_refused_where_something_fits() -> None:
    network = splits_show()
    data = solve(network).certificate() or b""
    roomier = replace(network, usage_limit=(network.usage_limit or 0) + 1)
    assert fits_by_cpsat(roomier)
    with pytest.raises(CertificateFault):
        judged(roomier, data)


def test_a_bound_that_something_may_cost_is_no_proof_that_there_is_nothing() -> None:
    """The optimum is below what the tables have at most: the checker takes the bound for what it is."""
    network = CostNetwork([np.array([3, 7]), np.array([0, 5])], [Edge(0, 1, np.array([[10**15, 1], [10**15, 2]]))])
    data = solve(network).certificate() or b""
    assert judged(network, data).bound == 3 + 5 + 1 < most_cost(network) == 7 + 5 + 2
