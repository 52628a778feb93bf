"""Quantities: tables over the states of a few nodes stay small, and say what the function says."""

from functools import reduce
from random import Random

import numpy as np

from autoshard.formulation.quantities import MOST_CELLS, Quantities, Quantity

WIDE, NARROW = 6000, (4,) * 6
"""States of one node, and of others, whose joint table is smaller: both together are far more than `MOST_CELLS`."""


def wide_beside_narrow() -> tuple[Quantities, Quantity]:
    """The state of the wide node, beside whether those of the narrow ones add up to a multiple of 3."""
    q = Quantities([np.ones(states, bool) for states in (WIDE, *NARROW)])
    each = [q.of(1 + k, list(range(states))) for k, states in enumerate(NARROW)]
    total = reduce(lambda one, other: q.lift(lambda a, b: (a + b) % 3, one, other), each)
    is_multiple = q.lift(lambda rest: rest == 0, total)
    assert len(is_multiple.nodes) == len(NARROW) and is_multiple.ids.size < WIDE < MOST_CELLS
    return q, q.lift(lambda state, holds: (state, holds), q.of(0, list(range(WIDE))), is_multiple)


def test_a_node_of_many_states_beside_a_smaller_table_of_several_nodes_makes_no_large_table() -> None:
    """The table becomes a node of its own, though it is not the largest argument."""
    _, both = wide_beside_narrow()
    assert both.ids.size == 2 * WIDE


def test_what_is_said_by_a_node_that_stands_for_a_table_is_what_the_function_says() -> None:
    q, both = wide_beside_narrow()
    random = Random(0)
    for _ in range(200):
        chosen = [random.randrange(states) for states in (WIDE, *NARROW)]
        for cut in q.cuts:
            chosen.append(cut.state(chosen))
        assert both.at(chosen) == (chosen[0], sum(chosen[1 : 1 + len(NARROW)]) % 3 == 0)
