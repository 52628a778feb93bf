"""The limit on host memory beside the limit on device memory, as one limit of a network."""

from itertools import product
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from autoshard.formulation.host import hold_host
from autoshard.solver.driver import solve
from autoshard.solver.network import CostNetwork, Usage

BYTES = st.one_of(st.integers(0, 9), st.integers(0, 2**50))
LIMITS = st.one_of(st.integers(1, 40), st.integers(1, 2**52), st.just(2**63 - 1))


@st.composite
def held(draw: Any) -> tuple[np.ndarray, np.ndarray]:
    """Bytes of a node by state, on the device and on the host."""
    states = draw(st.integers(1, 3))
    amounts = st.lists(BYTES, min_size=states, max_size=states)
    return np.array(draw(amounts), np.int64), np.array(draw(amounts), np.int64)


@given(st.lists(held(), min_size=1, max_size=4), st.one_of(st.none(), LIMITS), LIMITS)
def test_an_assignment_is_within_the_network_where_it_is_within_both_limits(
    nodes: list[tuple[np.ndarray, np.ndarray]], device: int | None, host: int
) -> None:
    costs = [np.zeros(len(own), np.int64) for own, _ in nodes]
    usages = [[Usage(0, 1, own)] for own, _ in nodes]
    network = hold_host(CostNetwork(costs, (), usages, device), [there for _, there in nodes], host)
    limit = network.usage_limit
    for states in product(*(range(len(own)) for own, _ in nodes)):
        on_device = sum(int(own[s]) for (own, _), s in zip(nodes, states, strict=True))
        on_host = sum(int(there[s]) for (_, there), s in zip(nodes, states, strict=True))
        sums: dict[int, int] = {}
        for uses, s in zip(network.usages, states, strict=True):
            for use in uses:
                sums[use.start] = sums.get(use.start, 0) + int(use.amounts[s])
        is_within = limit is None or max(sums.values()) <= limit
        assert is_within == ((device is None or on_device <= device) and on_host <= host)


def test_a_host_limit_that_nothing_reaches_leaves_the_device_limit_to_be_solved() -> None:
    costs, held_bytes = [np.array([0, 5])], np.array([900_000, 100_000])
    network = CostNetwork(costs, (), [[Usage(0, 1, held_bytes)]], 400_000)
    assert solve(hold_host(network, [np.array([600, 200])], 2**63 - 1)).assignment == (1,)
