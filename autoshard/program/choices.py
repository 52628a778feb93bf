"""Choices about a whole program, read from plan.json: what shardings in the code are, and the parts of its loops."""

from collections.abc import Mapping
from typing import Any

from autoshard.errors import InputError
from autoshard.program.program import IN_CODE


def in_code_from_json(program: Mapping[str, Any]) -> str:
    """What shardings in the code count as (one of `IN_CODE`), from the program of a plan file."""
    in_code = program.get("in_code", "hard")
    if in_code not in IN_CODE:
        raise InputError(f"plan: shardings in the code are {str(in_code)[:80]}, which is none of {', '.join(IN_CODE)}")
    return in_code


def loop_parts_from_json(program: Mapping[str, Any]) -> tuple[int, ...]:
    """In how many parts loops run, from the program of a plan file."""
    parts = program.get("loop_parts", ())
    if not isinstance(parts, list | tuple) or not all(type(n) is int and n > 0 for n in parts):
        raise InputError(f"plan: loops run in {str(parts)[:80]} parts, which are no positive numbers")
    return tuple(parts)
