"""Plans changed by hand, each change with what must be said about it."""

import copy
import re
from collections.abc import Callable
from typing import Any

import pytest

from autoshard.verify import check_plan

Change = Callable[[Any], None]


class Changes:
    """A decorator that lists changes; of: the name of the plan that they change unless told otherwise."""

    def __init__(self, of: str) -> None:
        self.of = of
        self.cases: list[Any] = []
        """Parameters of a test: the name of the plan, the change, and what must be said."""

    def __call__(self, expected: str, of: str | None = None) -> Callable[[Change], Change]:
        """List a change of the plan `of`, and what must be said about it (a regular expression)."""

        def listed(change: Change) -> Change:
            self.cases.append(pytest.param(of or self.of, change, expected, id=change.__name__))
            return change

        return listed


def check_caught(plan: Any, do: Change, expected: str) -> None:
    """That a change of a copy of a plan is found, in these words (a regular expression)."""
    changed = copy.deepcopy(plan)
    do(changed)
    found = [str(f) for f in check_plan(changed).findings]
    assert any(re.search(expected, line) for line in found), found[:10]
