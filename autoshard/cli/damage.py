"""Plan files that contradict themselves: what a command that stumbled over one tells in place of a traceback.

Reading a plan checks the form of its values. Whether they fit together takes the whole checker, which commands that
answer at once do not wait for; it is asked when one of them fails.
"""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any


def damage_of(arguments: Iterable[Any]) -> str | None:
    """What is wrong with the first plan file among the arguments of a command that is not sound; None if none is."""
    from autoshard.errors import AutoshardError
    from autoshard.files import read_json
    from autoshard.program.as_json import check_header
    from autoshard.verify.plan.checker import check_plan

    for name in _files(arguments):
        try:
            plan = check_header(read_json(name, what="plan"), name)
        except (AutoshardError, OSError):
            continue
        findings = check_plan(plan).findings
        if findings:
            return (
                f"{name} contradicts itself: {findings[0]}\n`autoshard verify {name}` tells all that is wrong with it"
            )
    return None


def _files(arguments: Iterable[Any]) -> Iterable[str]:
    for argument in arguments:
        if isinstance(argument, list | tuple):
            yield from _files(argument)
        elif isinstance(argument, str | os.PathLike):
            try:
                found = Path(argument).is_file()
            except (OSError, ValueError):  # a text that is no name of a file
                found = False
            if found:
                yield os.fspath(argument)
