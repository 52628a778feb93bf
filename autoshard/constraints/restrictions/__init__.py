"""Restrictions: statements other than the sharding of a value, one kind per file."""

from collections.abc import Sequence
from dataclasses import replace

from autoshard.constraints.patterns import Addresses
from autoshard.constraints.restrictions.axis_only import AxisOnly
from autoshard.constraints.restrictions.barrier import Barrier
from autoshard.constraints.restrictions.manual_computation import ManualComputation
from autoshard.constraints.restrictions.max_reshards import MaxReshards
from autoshard.constraints.restrictions.memory_kind import MEMORY_KINDS, MemoryKind
from autoshard.constraints.restrictions.no_collective import NoCollective
from autoshard.constraints.restrictions.replicated import Replicated
from autoshard.constraints.restrictions.restriction import Restricting, Restriction
from autoshard.errors import InputError
from autoshard.program.program import Program
from autoshard.program.ties import donated_ties, layout_ties
from autoshard.sharding.mesh import Mesh

__all__ = [
    "MEMORY_KINDS",
    "AxisOnly",
    "Barrier",
    "ManualComputation",
    "MaxReshards",
    "MemoryKind",
    "NoCollective",
    "Replicated",
    "Restricting",
    "Restriction",
    "in_memories",
    "match_restrictions",
]


def match_restrictions(statements: Sequence[Restricting], program: Program, mesh: Mesh) -> tuple[Restriction, ...]:
    """The restrictions with the values, outputs and ops that they are about.

    Raises `InputError` where a pattern addresses nothing, `ShardingError` for an axis that the mesh lacks.
    """
    addresses = Addresses(program)
    matched = tuple(statement.match(addresses, mesh) for statement in statements)
    for number, restriction in enumerate(matched):
        restriction.check_with(matched[:number], program)
    return matched


def in_memories(program: Program, restrictions: Sequence[Restriction]) -> Program:
    """The program with its inputs and outputs in the memories that restrictions state; later restrictions win.

    Raises `InputError` for constants, and for outputs that replace donated inputs in another memory.
    """
    inputs: dict[int, bool] = {}
    outputs: dict[int, bool] = {}
    for restriction in restrictions:
        stated = restriction.memories(program)
        if stated is not None:
            inputs.update(stated.inputs)
            outputs.update(stated.outputs)
    if not any((*inputs.values(), *outputs.values())):
        return program
    for slot, value in donated_ties(program).items():
        there = inputs.get(program.body.args.index(value), False)
        if outputs.setdefault(slot, there) != there:
            raise InputError(
                f"output {program.output_names[slot]} takes the place of the donated input "
                f"{program.values[value].name}, so both live in one memory; state them together"
            )
    for slot, value in layout_ties(program).items():  # carried outputs follow their inputs unless stated otherwise
        outputs.setdefault(slot, inputs.get(program.body.args.index(value), False))
    return replace(
        program,
        host_inputs=frozenset(k for k, on_host in inputs.items() if on_host),
        host_outputs=frozenset(k for k, on_host in outputs.items() if on_host),
    )
