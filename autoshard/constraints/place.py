"""Where in the user's code a statement was made, for messages about it."""

import dataclasses
import os
import sys
from pathlib import Path
from typing import Any

_ROOT = str(Path(__file__).resolve().parents[1]) + os.sep


def written_at(statement: Any) -> None:
    """Set `written` of a frozen statement: its `source`, or else the file and line outside of autoshard that made it.

    It is for messages only: a plan does not depend on the place of the script that asked for it.
    """
    object.__setattr__(statement, "written", statement.source or callers_place())


def callers_place() -> str:
    """``train.py:12`` of the innermost caller outside of this package; empty where there is none.

    Files beneath the working directory are named as seen from there, others in full.
    """
    frame = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith((_ROOT, "<")) and file != dataclasses.__file__:
            return f"{_seen(file)}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


def _seen(file: str) -> str:
    try:
        return str(Path(file).resolve().relative_to(Path.cwd()))
    except (ValueError, OSError):
        return file
