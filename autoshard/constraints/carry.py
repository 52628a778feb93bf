"""Carried state: which output of a function is the next value of which input."""

from collections.abc import Mapping
from typing import Any

from autoshard.constraints.groups import SameSharding
from autoshard.errors import InputError
from autoshard.program.program import Program
from autoshard.program.ties import with_carried

_TRY = "give 'auto', 'none', or a mapping of outputs to inputs such as {'out/0': 'params'}"


def carried(program: Program, carry: bool | str | Mapping[str, str] | None) -> tuple[Program, tuple[SameSharding, ...]]:
    """The program with its carried state marked, and the groups that state the user's own pairs.

    carry: None, True or ``auto``: pairs found by paths and types, which yield to other statements. False or ``none``:
    no pairs. A mapping: its outputs have the layouts of its inputs, leaf by leaf, and no others do.
    """
    if carry is None or carry is True or carry == "auto":
        return with_carried(program), ()
    if carry is False or carry == "none":
        return program, ()
    return program, carry_groups(carry)


def carry_groups(carry: Any, source: str = "") -> tuple[SameSharding, ...]:
    """The groups that a mapping of outputs to inputs states; `InputError` where it is no such mapping."""
    place = f"{source}: " if source else ""
    if not isinstance(carry, Mapping):
        raise InputError(f"{place}carry is {carry!r}; {_TRY}")
    groups = []
    for output, argument in carry.items():
        shown = f"{place}carry holds {output!r}: {argument!r}"
        if not _is_path(output) or not _is_path(argument):
            raise InputError(f"{shown}; {_TRY}")
        if output != "out" and not output.startswith("out/"):
            raise InputError(f"{shown}; an output comes first, 'out' or 'out/...'")
        if argument == "out" or argument.startswith("out/"):
            raise InputError(f"{shown}; an input comes second, not another output")
        groups.append(SameSharding([argument, output], source=f"{place}carry", by_leaf=True))
    return tuple(groups)


def _is_path(entry: Any) -> bool:
    return isinstance(entry, str) and bool(entry.strip())
