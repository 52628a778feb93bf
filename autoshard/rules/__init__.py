"""Sharding rules of JAX primitives by name; JAX itself is not imported.

`rule_for` is all that a front end needs. Each family of primitives lives in its own file and
registers with the `rule` decorator; importing this package loads them all.
"""

from autoshard.rules import (  # noqa: F401  (each import registers its family)
    contractions,
    elementwise,
    indexing,
    ordering,
    reductions,
    reshape,
    slicing,
    structure,
)
from autoshard.rules.build import LITERALS
from autoshard.rules.registry import RuleMatch, known_primitives, local_care_of, rule_for

__all__ = ["LITERALS", "RuleMatch", "known_primitives", "local_care_of", "rule_for"]
