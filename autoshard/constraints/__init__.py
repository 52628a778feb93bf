"""Statements of the user (pins, a memory limit), matched to the values of a program."""

from autoshard.constraints.matching import conflict, match_pins
from autoshard.constraints.model import MatchedPin, MemoryLimit, Pin, Statement

__all__ = ["MatchedPin", "MemoryLimit", "Pin", "Statement", "conflict", "match_pins"]
