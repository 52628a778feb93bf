"""Statements of the user, matched to the values of a program."""

from autoshard.constraints.groups import MatchedGroup, SameSharding, match_groups
from autoshard.constraints.manual import ManualComputation
from autoshard.constraints.matching import conflict, match_pins
from autoshard.constraints.model import MatchedPin, MemoryLimit, Pin, Statement
from autoshard.constraints.restrictions import (
    AxisOnly,
    Barrier,
    MaxReshards,
    NoCollective,
    Replicated,
    Restriction,
    match_restrictions,
    restrictions_of,
)

__all__ = [
    "AxisOnly",
    "Barrier",
    "ManualComputation",
    "MatchedGroup",
    "MatchedPin",
    "MaxReshards",
    "MemoryLimit",
    "NoCollective",
    "Pin",
    "Replicated",
    "Restriction",
    "SameSharding",
    "Statement",
    "conflict",
    "match_groups",
    "match_pins",
    "match_restrictions",
    "restrictions_of",
]
