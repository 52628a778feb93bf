"""Answers to small questions, as indented lines of name and value."""

from collections.abc import Mapping, Sequence
from typing import Any

from autoshard.report.amounts import bytes_text, seconds_text


def answer_text(answer: Mapping[str, Any], indent: int = 0) -> str:
    """One line for each plain value; names that end in ``_s`` or hold ``seconds`` or ``bytes`` say their unit.

    >>> print(answer_text({"seconds": 0.0333, "bytes": 2048.0, "axes": ("x", "y"), "parts": [{"kind": "all_reduce"}]}))
    seconds: 33.3 ms
    bytes: 2 KiB
    axes: x, y
    parts:
      kind: all_reduce
    """
    pad, lines = " " * indent, []
    for name, value in answer.items():
        if isinstance(value, Mapping):
            lines += [f"{pad}{name}:", answer_text(value, indent + 2)] if value else []
        elif isinstance(value, Sequence) and not isinstance(value, str) and any(isinstance(v, Mapping) for v in value):
            lines.append(f"{pad}{name}:")
            lines += [answer_text(item, indent + 2) for item in value]
        else:
            lines.append(f"{pad}{name}: {_value(name, value)}")
    return "\n".join(lines)


def _value(name: str, value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool | str):
        return str(value)
    if isinstance(value, int | float):
        if name.endswith(("_s", "seconds")):
            return seconds_text(value)
        if "bytes" in name.split("_") and "per" not in name.split("_")[:-1]:
            return bytes_text(value)
        return f"{value:.6g}"
    if isinstance(value, Sequence):
        return ", ".join(_value("", item) for item in value) or "none"
    return str(value)
