"""Nested lists of integers read from JSON text straight into arrays, without a Python object per number.

Only what is regular is read here: anything else (floats, strings within lists, deeper nesting) gives None, and the
caller reads the whole text by an ordinary JSON library, which also finds the words for what is wrong.
"""

import json
import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from autoshard.solver.compiled import compiled

SATURATED = np.int64(10**18)
"""What integers of 19 digits and more become."""
MOST_DIGITS = 18
"""Integers of so many digits fit into int64 for sure."""
ROW_DEPTH = 2
"""Brackets around a value: those of the list, and those of its row."""
SPACE, NEWLINE, RETURN, TAB = ord(" "), ord("\n"), ord("\r"), ord("\t")
OPENING, CLOSING, COMMA, MINUS = ord("["), ord("]"), ord(","), ord("-")
ZERO, NINE = ord("0"), ord("9")
"""Bytes of JSON text."""
NO_ROWS = (-1, 0, 0)
"""Of what is no list of lists of integers."""
_KEY = re.compile(rb'\s*"([^"\\]*)"\s*:\s*')
_NEXT = re.compile(rb"\s*([,}])")
_SCALAR = re.compile(rb'"[ !#-\[\]-~]*"|-?[0-9]{1,18}(?![0-9.eE])|null')
_OPEN = re.compile(rb"\s*\{")


@compiled
def _rows(text: np.ndarray, at: int, values: np.ndarray, lengths: np.ndarray):
    """Read [[int, ...], ...] that starts at `at`: (end, values read, rows read), or end -1 where it is something else
    (or where values and lengths, which receive what is read, have no room for it).
    """
    size = len(text)
    count = 0
    rows = 0
    depth = 0
    before = 0
    wants = True  # a value or a closing bracket may come; after a value only a comma or a closing bracket
    comma = False  # a comma came last: no closing bracket may follow
    while at < size:
        c = text[at]
        if c in (SPACE, NEWLINE, RETURN, TAB):
            at += 1
        elif c == OPENING:
            if not wants or depth == ROW_DEPTH:
                return NO_ROWS
            depth += 1
            before = count
            comma = False
            at += 1
        elif c == CLOSING:
            if comma:
                return NO_ROWS
            if depth == ROW_DEPTH:
                if rows == len(lengths):
                    return NO_ROWS
                lengths[rows] = count - before
                rows += 1
            depth -= 1
            wants = False
            at += 1
            if depth == 0:
                return at, count, rows
        elif c == COMMA:
            if wants or depth == 0:
                return NO_ROWS
            wants = True
            comma = True
            at += 1
        else:
            if not wants or depth != ROW_DEPTH:
                return NO_ROWS
            negative = c == MINUS
            if negative:
                at += 1
            begun = at
            value = np.int64(0)
            while at < size and ZERO <= text[at] <= NINE:
                if at - begun < MOST_DIGITS:
                    value = value * 10 + np.int64(text[at] - ZERO)
                at += 1
            digits = at - begun
            if digits == 0 or (digits > 1 and text[begun] == ZERO):
                return NO_ROWS
            if digits > MOST_DIGITS:
                if negative:
                    return NO_ROWS
                value = SATURATED
            if count == len(values):
                return NO_ROWS
            values[count] = -value if negative else value
            count += 1
            wants = False
            comma = False
    return NO_ROWS


@dataclass(frozen=True, slots=True)
class Rows:
    """A list of lists of integers: all values in a row, and the length of each list."""

    values: np.ndarray
    lengths: np.ndarray

    def parts(self) -> list[np.ndarray]:
        """The lists as views."""
        ends = np.cumsum(self.lengths).tolist()
        return [self.values[end - length : end] for end, length in zip(ends, self.lengths.tolist(), strict=True)]


def read_object(text: bytes) -> dict[str, Any] | None:
    """A JSON object whose values are objects, integers, null, plain strings and lists of lists of integers (`Rows`).

    None where the text is anything else.
    """
    room = text.count(b",") + 2
    begun = _OPEN.match(text)
    members = None if begun is None else _members(text, np.frombuffer(text, dtype=np.uint8), begun.end(), room)
    if members is None or text[members[1] :].strip():
        return None
    return members[0]


def _members(text: bytes, data: np.ndarray, at: int, room: int) -> tuple[dict[str, Any], int] | None:
    """The members of the object whose brace ends at `at`, and where it ends."""
    out: dict[str, Any] = {}
    while True:
        key = _KEY.match(text, at)
        if key is None:
            return None
        at = key.end()
        value: Any
        if text[at : at + 1] == b"[":
            values, lengths = np.empty(room, dtype=np.int64), np.empty(room, dtype=np.int64)
            end, count, rows = _rows(data, at, values, lengths)
            if end < 0:
                return None
            value, at = Rows(values[:count].copy(), lengths[:rows].copy()), end
        elif text[at : at + 1] == b"{":
            inner = _members(text, data, at + 1, room)
            if inner is None:
                return None
            value, at = inner
        else:
            scalar = _SCALAR.match(text, at)
            if scalar is None:
                return None
            try:
                value, at = json.loads(scalar.group()), scalar.end()
            except ValueError:
                return None
        name = key.group(1).decode("utf-8", "replace")
        if name in out:
            return None
        out[name] = value
        after = _NEXT.match(text, at)
        if after is None:
            return None
        at = after.end()
        if after.group(1) == b"}":
            return out, at
