"""What messages decode within a limit is repaired less often while that finds nothing."""

from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from autoshard.solver.portfolio import MOST_IN_VAIN, Portfolio


def repaired(limit: int | None, times: int, better_at: int = -1) -> list[int]:
    """The numbers of the decodings, of so many, that are repaired; the one of this number finds something better."""
    race, done, now = SimpleNamespace(cost=100), [], [0]

    def decode(chosen: np.ndarray) -> None:
        done.append(now[0])
        race.cost -= now[0] == better_at

    state = SimpleNamespace(
        flat=SimpleNamespace(limit=limit), race=race, decode=decode, hand_over=None, offered=0, in_vain=0
    )
    for now[0] in range(1, times + 1):
        Portfolio._offer_decoded(cast(Any, state), np.zeros(1, dtype=np.int64))
    return done


def test_within_a_limit_few_are_repaired_while_that_is_in_vain() -> None:
    assert len(repaired(10, 80)) <= 80 // 2**MOST_IN_VAIN + 2 * MOST_IN_VAIN


def test_without_a_limit_all_are_repaired() -> None:
    assert repaired(None, 80) == list(range(1, 81))


def test_after_one_that_finds_something_the_next_ones_are_repaired_again() -> None:
    found = repaired(10, 80, better_at=40)
    assert {40, 41, 42} <= set(found)
