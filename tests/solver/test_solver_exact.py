"""On random small networks the solver finds the optimum, proves it, or proves that there is none."""

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from solver_cases import layered_network, optimum, random_network

from autoshard.errors import InputError
from autoshard.solver import IMPOSSIBLE, CostNetwork, Edge, Usage, driver, evaluate, solve
from autoshard.solver.engines import toulbar2


@pytest.mark.parametrize("block", range(10))
def test_optimum_equals_brute_force_and_infeasible_is_proved(block):
    for seed in range(100 * block, 100 * block + 100):
        network = random_network(seed)
        best = optimum(network)
        found = solve(network)
        assert found.cost == best, seed
        if best is None:
            assert found.status == "infeasible" and found.reason, seed
        else:
            assert found.status == "optimal" and found.lower_bound == best, seed
            assert evaluate(network, found.assignment).cost == best


@pytest.mark.slow
def test_optimum_equals_brute_force_on_many_larger_networks():
    for seed in range(1000, 5000):
        network = random_network(seed, nodes=8, states=3)
        assert solve(network).cost == optimum(network), seed


def test_bounds_are_valid_when_message_passing_does_the_work(monkeypatch):
    monkeypatch.setattr(driver, "SMALL_ENTRIES", 0)
    for seed in range(100):
        network = random_network(seed, nodes=8, forbidden=0.1)
        best = optimum(network)
        found = solve(network)
        if best is None:
            assert found.status in ("infeasible", "unknown") and found.cost is None, seed
        else:
            assert found.lower_bound <= best <= found.cost, seed


def test_infeasible_pairs_name_the_edge():
    network = CostNetwork([np.zeros(2, int), np.zeros(2, int)], [Edge(0, 1, np.full((2, 2), IMPOSSIBLE))])
    found = solve(network)
    assert found.status == "infeasible"
    assert "nodes 0 and 1" in found.reason


def test_infeasible_memory_gives_the_least_peak():
    usages = [[Usage(0, 4, np.array([70, 90]))], [Usage(2, 6, np.array([50, 60]))]]
    network = CostNetwork([np.zeros(2, int)] * 2, [], usages, 100)
    found = solve(network)
    assert found.status == "infeasible"
    assert "at least 120" in found.reason


def test_node_without_allowed_state_is_named():
    found = solve(CostNetwork([np.zeros(1, int), np.array([IMPOSSIBLE, 10**18])], []))
    assert found.status == "infeasible" and "node 1" in found.reason


def test_memory_limit_counts_half_open_intervals():
    # the second usage begins where the first ends: never live together
    usages = [[Usage(0, 2, np.array([60]))], [Usage(2, 4, np.array([60]))]]
    network = CostNetwork([np.zeros(1, int)] * 2, [], usages, 60)
    assert solve(network).status == "optimal"


def test_two_usages_of_one_node_add_up_where_they_overlap():
    usages = [[Usage(0, 4, np.array([60, 10])), Usage(2, 6, np.array([60, 10]))]]
    network = CostNetwork([np.array([0, 7])], [], usages, 100)
    found = solve(network)
    assert (found.assignment, found.cost, found.peak) == ((1,), 7, 20)


def test_result_is_never_worse_than_a_start():
    network = layered_network(3)
    start = [4] * network.n_nodes
    found = solve(network, starts=[start], effort=0.0)
    assert found.cost is not None and found.cost <= evaluate(network, start).cost


def test_start_of_wrong_length_is_refused():
    with pytest.raises(InputError, match="one state index per node"):
        solve(layered_network(0), starts=[[0]])


def test_without_toulbar2_small_networks_are_still_bounded(monkeypatch):
    from autoshard.solver.engines import toulbar2

    monkeypatch.setattr(toulbar2, "available", lambda: False)
    for seed in range(60):
        network = random_network(seed, nodes=5)
        best = optimum(network)
        found = solve(network)
        if best is not None and found.cost is not None:
            assert found.lower_bound <= best <= found.cost
        if found.status == "infeasible":
            assert best is None


def test_importing_the_network_loads_no_engine():
    code = (
        "import sys, autoshard.solver.network, autoshard.solver\n"
        "assert not {'numba', 'ortools', 'pytoulbar2', 'scipy'} & set(sys.modules), sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_same_answer_on_every_hash_seed():
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import dataclasses\n"
        "from solver_cases import layered_network\n"
        "from autoshard.solver import solve, driver\n"
        "driver.SMALL_ENTRIES = 100\n"
        "net = dataclasses.replace(layered_network(5), usage_limit=1100)\n"
        "print(solve(net, effort=0.3).assignment)"
    )
    answers = {
        subprocess.run(
            [sys.executable, "-c", code, str(Path(__file__).parent)],
            check=True, capture_output=True, text=True, env=os.environ | {"PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("0", "1", "77")
    }  # fmt: skip
    assert len(answers) == 1 and "None" not in answers.pop()


def test_interrupt_returns_the_incumbent(monkeypatch):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(driver, "reduce_network", stop)
    network = layered_network(1)
    found = solve(network, starts=[[0] * network.n_nodes])
    assert found.status == "feasible" and found.stats["stopped"] == "interrupt"


def test_memory_limited_layers_are_solved_to_optimality():
    network = layered_network(2)
    free = solve(network)
    tight = dataclasses.replace(network, usage_limit=int(free.peak * 0.8))
    found = solve(tight)
    assert found.status == "optimal" and found.cost >= free.cost and found.peak <= tight.usage_limit


def test_an_answer_that_breaks_a_row_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        def alive(self) -> bool:
            return True

        def ask(self, job: dict, deadline: float) -> dict:
            return {"complete": True, "assignment": [1, 1], "bound": 0.0, "backtracks": 0}

    monkeypatch.setattr(toulbar2, "_idle", [Broken()])
    costs = [np.array([5, 0], np.int64), np.array([5, 0], np.int64)]
    row = toulbar2.Row((0, 1), ((1, 6), (1, 6)), 10)
    assert toulbar2.solve_exact(costs, [], upper=None, rows=[row]) is None
    assert toulbar2.solve_exact(costs, [], upper=None) is not None
