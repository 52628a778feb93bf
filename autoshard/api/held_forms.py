"""What users state of a program that a form leaves to XLA's partitioner: a plan does not run in it.

Written out, a plan runs as it is. A sharding constraint on every value says nothing of collectives, and shardings of
inputs and outputs say nothing of what lies between.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from autoshard.errors import UnsupportedError
from autoshard.program.program import Program
from autoshard.report.amounts import bytes_text

Statements = Sequence[Mapping[str, Any]]
"""As they stand in plan.json."""

ABOUT_COLLECTIVES = ("no_collective", "max_reshards", "manual_computation")
"""Statements about what moves: in a manual computation nothing does, over its axes."""
ABOUT_BORDERS = ("pin", "same_sharding", "memory_kind")
"""Statements that shardings of inputs and outputs hold, as far as they are about inputs and outputs."""
ELSEWHERE = ("barrier", "kernel", "manual", "host_memory_limit")
"""Statements that need no form: about the search, about regions that are `shard_map`s in every form, or about what no
other form than the written-out one has."""


def check_held(program: Program, statements: Statements, form: str) -> None:
    """`UnsupportedError` where a statement about the program does not hold in this form; names the first and counts the
    others."""
    left = list(not_held(program, statements, form))
    if not left:
        return
    more = f" (and {len(left) - 1} more)" if len(left) > 1 else ""
    what = "the collectives" if form == "constraints" else "all between inputs and outputs"
    raise UnsupportedError(
        f"as {form} XLA's partitioner decides {what}, and does not know what is stated: {left[0]}{more}; "
        "form 'explicit' holds it"
    )


def not_held(program: Program, statements: Statements, form: str) -> Iterator[str]:
    """The statements that a form leaves to XLA, in words."""
    if form == "explicit":
        return
    inputs = {*program.body.args[: len(program.input_names)]}
    for one in statements:
        kind = one["kind"]
        if form == "constraints":
            left = kind in ABOUT_COLLECTIVES
        elif kind in ABOUT_BORDERS:
            left = not set(one["values"]) <= inputs
        else:
            left = kind not in ELSEWHERE
        if left:
            yield _words(one)


def _words(one: Mapping[str, Any]) -> str:
    if one["kind"] == "pin":
        return f"pin {one['pattern']} {one['sharding']}"
    if one["kind"] == "memory_limit":
        return f"a memory_limit of {bytes_text(one['bytes'])}"
    return one.get("text") or f"{one['kind'].replace('_', ' ')} {', '.join(one.get('patterns', ()))}"
