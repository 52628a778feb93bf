"""The form of messages about faults of a config: place, path of keys, message."""

from collections.abc import Mapping, Sequence
from typing import Any

from autoshard.config.yaml_text import Document, KeyPath, Place

MOST_FAULTS, LONGEST_LINE = 20, 600
"""Most faults that a message lists, and most characters of each."""


def told(lines: Sequence[str]) -> str:
    """The faults, one per line; long lines are cut, and of very many faults only the first are listed."""
    cut = [line if len(line) <= LONGEST_LINE else line[: LONGEST_LINE - 3] + "..." for line in lines[:MOST_FAULTS]]
    rest = len(lines) - len(cut)
    return "\n".join([*cut, *([f"and {rest} more faults"] if rest else [])])


def fault_line(document: Document, path: KeyPath, message: str, *, of_key: bool = False) -> str:
    """One fault with its place and the path of its key."""
    place = document.place(path, of_key=of_key) if document.values else Place(document.file, 1, 1)
    return f"{place}: {key_text(path)}: {message}" if path else f"{place}: {message}"


def key_text(path: KeyPath) -> str:
    """A path of keys as people write it.

    >>> key_text(("pins", 0, "sharding"))
    'pins[0].sharding'
    """
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else str(step)
    return text


def shown(value: Any) -> str:
    """A value of the config as a message shows it, shortened."""
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    if value is None:
        return "nothing"
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
