"""Sharding rules of JAX primitives by name; JAX itself is not imported.

`rule_for` is all that a front end needs. Each family of primitives lives in its own file and
registers with the `rule` decorator; importing this package loads them all.
"""

from autoshard.rules import (  # noqa: F401  (each import registers its family)
    contractions,
    convolution,
    elementwise,
    indexing,
    linalg,
    opaque,
    ordering,
    reductions,
    reshape,
    rng,
    slicing,
    structure,
    windows,
)
from autoshard.rules.build import LITERALS
from autoshard.rules.custom import register_rule, unregister_rule
from autoshard.rules.registry import RuleMatch, has_rule, known_primitives, local_care_of, rule_for

__all__ = [
    "LITERALS",
    "RuleMatch",
    "has_rule",
    "known_primitives",
    "local_care_of",
    "register_rule",
    "rule_for",
    "unregister_rule",
]
