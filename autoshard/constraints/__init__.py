"""Statements of the user, matched to the values of a program; each kind is a file, and `registry` lists them."""

from autoshard.constraints.groups import MatchedGroup, SameSharding, match_groups
from autoshard.constraints.host_memory_limit import HostMemoryLimit
from autoshard.constraints.kernel import Kernel, MatchedKernel
from autoshard.constraints.matching import conflict
from autoshard.constraints.memory_limit import MemoryLimit
from autoshard.constraints.pin import MatchedPin, Pin, match_pins
from autoshard.constraints.restrictions import (
    AxisOnly,
    Barrier,
    ManualComputation,
    MaxReshards,
    MemoryKind,
    NoCollective,
    Replicated,
    Restricting,
    Restriction,
    in_memories,
    match_restrictions,
)
from autoshard.constraints.shard_map import ShardMap
from autoshard.constraints.statement import Matched, Statement

__all__ = [
    "AxisOnly",
    "Barrier",
    "HostMemoryLimit",
    "Kernel",
    "ManualComputation",
    "Matched",
    "MatchedGroup",
    "MatchedKernel",
    "MatchedPin",
    "MaxReshards",
    "MemoryKind",
    "MemoryLimit",
    "NoCollective",
    "Pin",
    "Replicated",
    "Restricting",
    "Restriction",
    "SameSharding",
    "ShardMap",
    "Statement",
    "conflict",
    "in_memories",
    "match_groups",
    "match_pins",
    "match_restrictions",
]
