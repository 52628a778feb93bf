"""More workers: the same guarantees, incumbents from every thread, and a clean end on Ctrl-C."""

import dataclasses
import gc
import json
import os
import signal
import subprocess
import sys
import threading
import time
import weakref

import numpy as np
import pytest
from solver_cases import hard_network, layered_network, optimum, random_network

from autoshard.deadline import Deadline
from autoshard.garbage import uncollected
from autoshard.solver import driver, evaluate, portfolio, solve
from autoshard.solver.portfolio import Portfolio


def tight(seed: int):
    network = layered_network(seed)
    return dataclasses.replace(network, usage_limit=int(solve(network).peak * 0.8))


def test_two_workers_find_and_prove_the_optimum_that_one_finds(monkeypatch):
    network = tight(2)
    alone = solve(network)
    monkeypatch.setattr(driver, "SMALL_ENTRIES", 0)
    found = solve(network, workers=2)
    assert (found.status, found.cost) == (alone.status, alone.cost)


def test_bounds_stay_valid_with_two_workers(monkeypatch):
    monkeypatch.setattr(driver, "SMALL_ENTRIES", 0)
    for seed in range(30):
        network = random_network(seed, nodes=8, forbidden=0.1)
        best = optimum(network)
        found = solve(network, workers=2)
        assert found.cost is None or (best is not None and found.lower_bound <= best <= found.cost), seed


def test_no_thread_outlives_the_run():
    before = threading.active_count()
    solve(hard_network(1, nodes=300), workers=3, deadline=Deadline.after(3.0), effort=float("inf"))
    assert threading.active_count() == before


@pytest.mark.parametrize("workers", [1, 2])
def test_the_messages_of_a_run_go_with_it_and_wait_for_no_collector(monkeypatch, workers: int):
    made: list[weakref.ref[Portfolio]] = []

    def noted(*arguments):
        found = Portfolio(*arguments)
        made.append(weakref.ref(found))
        return found

    monkeypatch.setattr(driver, "SMALL_ENTRIES", 0)
    solve(layered_network(2), workers=workers)  # compiles: errors on its way hold the frames that they came through
    monkeypatch.setattr(portfolio, "Portfolio", noted)
    gc.collect()
    with uncollected():
        solve(layered_network(2), workers=workers)
        assert made[0]() is None


@pytest.mark.skipif(os.name != "posix", reason="signals and /proc")
def test_interrupt_gives_the_incumbent_and_leaves_no_process(tmp_path):
    network = hard_network(2, nodes=800)
    file, output = tmp_path / "n.json", tmp_path / "s.json"
    file.write_text(json.dumps(as_contest(network)))
    command = [
        sys.executable, "-m", "autoshard", "network", "solve", str(file), "--time-limit", "100", "--workers", "2",
        "--progress", "--json", "--output", str(output),
    ]  # fmt: skip
    # a shell's background jobs ignore SIGINT, and so would the process here
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
    finally:
        signal.signal(signal.SIGINT, before)
    seen = ""
    deadline = time.monotonic() + 200  # the solver may have to be compiled first
    while "search" not in seen and time.monotonic() < deadline:
        seen += process.stderr.read(40)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    result = json.loads(out)
    assert process.returncode == 0 and result["stopped"] == "interrupt" and result["feasible"]
    assert evaluate(network, json.loads(output.read_text())).cost == result["cost"]
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)


def as_contest(network) -> dict:
    """The network in the contest's format; every node with one usage at most."""
    spans = [u[0] if u else None for u in network.usages]
    return {
        "problem": {
            "name": "test",
            "nodes": {
                "intervals": [[0, 0] if u is None else [u.start, u.stop] for u in spans],
                "costs": [c.tolist() for c in network.costs],
                "usages": [
                    [0] * len(c) if u is None else u.amounts.tolist() for c, u in zip(network.costs, spans, strict=True)
                ],
            },
            "edges": {
                "nodes": [[e.first, e.second] for e in network.edges],
                "costs": [np.where(e.costs >= 10**15, 10**18, e.costs).ravel().tolist() for e in network.edges],
            },
            "usage_limit": network.usage_limit,
        }
    }
