"""Statements of the user (pins, a memory limit), matched to the values of a program."""

from autoshard.constraints.groups import MatchedGroup, SameSharding, match_groups
from autoshard.constraints.matching import conflict, match_pins
from autoshard.constraints.model import MatchedPin, MemoryLimit, Pin, Statement

__all__ = [
    "MatchedGroup",
    "MatchedPin",
    "MemoryLimit",
    "Pin",
    "SameSharding",
    "Statement",
    "conflict",
    "match_groups",
    "match_pins",
]
