"""Statements of the user, matched to the values of a program."""

from autoshard.constraints.groups import MatchedGroup, SameSharding, match_groups
from autoshard.constraints.manual import ManualComputation
from autoshard.constraints.matching import conflict, match_pins
from autoshard.constraints.model import MatchedPin, MemoryLimit, Pin, Statement
from autoshard.constraints.restrictions import (
    AxisOnly,
    Barrier,
    MaxReshards,
    MemoryKind,
    NoCollective,
    Replicated,
    Restriction,
    in_memories,
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
    "MemoryKind",
    "MemoryLimit",
    "NoCollective",
    "Pin",
    "Replicated",
    "Restriction",
    "SameSharding",
    "Statement",
    "conflict",
    "in_memories",
    "match_groups",
    "match_pins",
    "match_restrictions",
    "restrictions_of",
]
