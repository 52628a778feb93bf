"""Parts of proofs are split side by side: what comes of it does not depend on how many cores there are."""

import threading
import time
from typing import Any

import pytest
from solver_cases import judged, tight

from autoshard.solver import solve, threads
from autoshard.solver.certify import tree
from autoshard.solver.certify.certificate import certificate_of
from autoshard.solver.solution import Stopped
from autoshard.solver.threads import side_by_side


@pytest.fixture(params=[1, 3], ids=["in turn", "in threads"])
def cores(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(threads, "cores", lambda: request.param)
    threads._pool.cache_clear()
    return request.param


def test_results_come_in_the_order_of_jobs(cores: int) -> None:
    def slow(k: int) -> int:
        time.sleep(0.02 * (3 - k))
        return k

    found = side_by_side([lambda k=k: slow(k) for k in range(3)], lambda x: [lambda: slow(x), lambda: -x])
    assert found == [(k, [k, -k]) for k in range(3)]


def test_what_a_job_raises_is_its_outcome_and_leaves_the_others_alone(cores: int) -> None:
    def fail() -> None:
        raise ValueError("no")

    first, second, third = side_by_side([fail, lambda: 1, lambda: 2], lambda x: [fail if x == 2 else lambda: x])
    assert isinstance(first, ValueError)
    assert second == (1, [1])
    assert isinstance(third, ValueError)


def test_all_jobs_have_ended_when_one_is_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "cores", lambda: 2)
    ended = threading.Event()

    def slow() -> None:
        time.sleep(0.1)
        ended.set()

    def interrupted(*_: object, **__: object) -> None:
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(threads, "wait_for_some", interrupted)
    with pytest.raises(KeyboardInterrupt):
        side_by_side([slow, slow])
    assert ended.is_set()


def test_a_proof_is_the_same_on_one_core_and_on_several(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = 0
    for seed in range(8):
        network = tight(seed, nodes=14, states=6)
        told = []
        for count in (1, 2, 5):
            monkeypatch.setattr(threads, "cores", lambda count=count: count)
            threads._pool.cache_clear()
            found = solve(network, effort=0.2)
            told.append((found.status, found.cost, found.lower_bound, certificate_of(found.proof, found.lower_bound)))
            assert found.proof is not None
        assert told[0] == told[1] == told[2], seed
        parts += found.proof.parts
    assert parts > 20


@pytest.mark.parametrize("calls", [1, 2, 3, 4])
def test_a_proof_that_is_interrupted_while_parts_are_split_claims_nothing_false(
    calls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupted = 0
    for seed in range(8):
        network = tight(seed, nodes=14, states=6)
        monkeypatch.setattr(tree, "side_by_side", side_by_side)
        whole, left = solve(network, effort=0.2), [calls]
        assert whole.status in ("optimal", "infeasible")

        def stop(jobs: Any, then: Any, left: list[int] = left) -> Any:
            left[0] -= 1
            if left[0] <= 0:
                raise KeyboardInterrupt
            return side_by_side(jobs, then)

        monkeypatch.setattr(tree, "side_by_side", stop)
        found = solve(network, effort=0.2)
        if found.stopped is Stopped.INTERRUPT:
            interrupted += 1
            assert found.status != "infeasible" or whole.status == "infeasible"
            assert whole.cost is None or found.lower_bound <= whole.cost
            data = found.certificate()
            assert data is None or judged(network, data).bound == found.lower_bound
    assert interrupted > 0
