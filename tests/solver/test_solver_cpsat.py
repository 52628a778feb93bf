"""CP-SAT stands in for toulbar2: the same optima, with memory rows, on every run the same."""

import subprocess
import sys

import numpy as np
import pytest
from solver_cases import optimum, random_network

from autoshard.solver import solve
from autoshard.solver.engines import cpsat, toulbar2
from autoshard.solver.engines.toulbar2 import Row
from autoshard.solver.work import FORBIDDEN_FROM


@pytest.fixture
def without_toulbar2(monkeypatch):
    monkeypatch.setattr(toulbar2, "available", lambda: False)


def test_optimum_equals_brute_force_without_toulbar2(without_toulbar2):
    for seed in range(60):
        network = random_network(seed)
        best = optimum(network)
        found = solve(network)
        assert found.cost == best, seed
        assert found.status == ("infeasible" if best is None else "optimal"), seed


def test_two_runs_give_the_same_assignment(without_toulbar2):
    networks = [random_network(seed, nodes=7) for seed in range(20)]
    assert [solve(n).assignment for n in networks] == [solve(n).assignment for n in networks]


def test_a_row_excludes_what_the_costs_prefer():
    # states 0 and 0 cost nothing but hold 6 + 6 > 10
    unary = [np.array([0, 5]), np.array([0, 7])]
    row = Row((0, 1), ((6, 1), (6, 1)), 10)
    found = cpsat.solve_exact(unary, [(0, 1, np.zeros((2, 2), np.int64))], upper=None, rows=[row])
    assert found is not None
    assert (found.assignment, found.lower, found.complete) == ((1, 0), 5, True)


def test_nothing_below_the_upper_bound_is_a_proof_of_it():
    unary = [np.array([3, 4])]
    found = cpsat.solve_exact(unary, [], upper=3)
    assert found is not None
    assert (found.assignment, found.lower, found.complete) == (None, 3, True)


def test_forbidden_pairs_are_never_chosen():
    table = np.array([[FORBIDDEN_FROM, 9], [8, FORBIDDEN_FROM]])
    found = cpsat.solve_exact([np.array([0, 0]), np.array([0, 0])], [(0, 1, table)], upper=None)
    assert found is not None
    assert (found.assignment, found.lower) == ((1, 0), 8)


def test_ctrl_c_still_arrives_after_a_search():
    """CP-SAT would leave it to the system, which ends the process at once: no plan that is known would be written."""
    script = """
import os, signal
import subprocess
import sys

import numpy as np
from autoshard.solver.engines import cpsat
assert cpsat.solve_exact([np.array([0, 5]), np.array([0, 7])], [(0, 1, np.array([[9, 0], [0, 0]]))], upper=None)
try:
    os.kill(os.getpid(), signal.SIGINT)
    signal.sigtimedwait([], 1)
except KeyboardInterrupt:
    print("arrived")
"""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (0, "arrived\n"), ran.stderr
