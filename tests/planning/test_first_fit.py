"""A first plan within a memory limit: the limit is tightened until an answer fits."""

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from autoshard import solver
from autoshard.planning.fitting import first_fit
from autoshard.solver.network import CostNetwork, Usage
from autoshard.solver.solution import Solution

NETWORK = CostNetwork((np.array([0, 5]),), (), ((Usage(0, 1, np.array([10, 6])),),), usage_limit=12)
"""Two states that are counted with 10 and 6 bytes."""
HOLD = (13, 9)
"""What they hold with their copies."""


def rooms(network: CostNetwork | None) -> list[int]:
    """The limits that are tried until the second state is the answer."""
    model: Any = SimpleNamespace(schedule=lambda a: a, simulate=lambda a: SimpleNamespace(peak_bytes=HOLD[a[0]]))
    tried: list[int] = []

    def run(room: int, near: Sequence[Sequence[int]]) -> Solution:
        tried.append(room)
        return solver.solve(replace(NETWORK, usage_limit=room))

    found = first_fit(cast(Any, model), 12, [0], run, 9, network)
    assert found is not None
    assert list(found) == [1]
    return tried


def test_by_what_an_answer_holds_beyond_the_limit_the_same_answer_may_come_again_and_again() -> None:
    assert rooms(None) == [12, 11, 10, 9]


def test_where_it_comes_again_by_all_that_it_holds_beside_what_is_counted() -> None:
    assert rooms(NETWORK) == [12, 9]
