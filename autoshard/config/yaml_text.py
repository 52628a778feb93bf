"""YAML read safely into plain data, with the place of every key and value.

Plain scalars mean what YAML 1.2 says (so ``no`` is text, and ``1e9`` a number). Refused: tags (no Python
objects are ever built), keys that are not text or occur twice, and documents that grow through aliases.
"""

import re
from dataclasses import dataclass, field
from typing import Any

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from autoshard.errors import InputError

MAX_NODES = 100_000
"""Most keys and values a document may have after its aliases are expanded."""
MAX_DEPTH = 64
"""Deepest nesting a document may have."""

KeyPath = tuple[str | int, ...]

_INT = re.compile(r"^[-+]?[0-9][0-9_]*$|^0x[0-9a-fA-F]+$|^0o[0-7]+$")
_FLOAT = re.compile(r"^[-+]?(\.[0-9]+|[0-9][0-9_]*(\.[0-9_]*)?)([eE][-+]?[0-9]+)?$")
_CONSTANTS: dict[str, Any] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), float("inf")),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), float("-inf")),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
}


@dataclass(frozen=True, slots=True)
class Place:
    """A line and a column of a file, both from 1; line 0 is the file, or whatever it names, as a whole."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}" if self.line else self.file


@dataclass(frozen=True)
class Document:
    """The data of a YAML text and where each part stands.

    keys, values: the place of a key and of its value, by path; items of lists have only values.
    """

    data: Any
    file: str
    keys: dict[KeyPath, Place] = field(default_factory=dict)
    values: dict[KeyPath, Place] = field(default_factory=dict)

    def place(self, path: KeyPath, *, of_key: bool = False) -> Place:
        """The place of the value (or key) at `path`, or of the nearest thing around it."""
        if of_key and path in self.keys:
            return self.keys[path]
        for end in range(len(path), -1, -1):
            if path[:end] in self.values:
                return self.values[path[:end]]
        return Place(self.file, 1, 1)


def load_yaml(text: str, file: str) -> Document:
    """Read one YAML document; every error is an `InputError` that begins with ``file:line:column``."""
    try:
        root = yaml.compose(text, Loader=yaml.BaseLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = Place(file, mark.line + 1, mark.column + 1) if mark else Place(file, 1, 1)
        context = f" ({error.context})" if error.context else ""
        raise InputError(f"{place}: this is not YAML: {error.problem}{context}") from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        column = error.position - text.rfind("\n", 0, error.position)
        code = ord(text[error.position])
        raise InputError(
            f"{Place(file, line, column)}: this is not YAML: character U+{code:04X} is not allowed"
        ) from None
    except RecursionError:
        raise InputError(f"{file}: nested deeper than {MAX_DEPTH} levels") from None
    if root is None:
        raise InputError(f"{file}: the file is empty")
    reader = _Reader(file)
    data = reader.value(root, (), 0)
    return Document(data, file, reader.keys, reader.values)


class _Reader:
    """Turns nodes into data; counts them, aliases expanded."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.keys: dict[KeyPath, Place] = {}
        self.values: dict[KeyPath, Place] = {}
        self.nodes = 0

    def place(self, node: Node) -> Place:
        return Place(self.file, node.start_mark.line + 1, node.start_mark.column + 1)

    def value(self, node: Node, path: KeyPath, depth: int) -> Any:
        self.nodes += 1
        if self.nodes > MAX_NODES:
            raise InputError(
                f"{self.place(node)}: more than {MAX_NODES} keys and values after expanding aliases (&name, *name)"
            )
        if depth > MAX_DEPTH:
            raise InputError(f"{self.place(node)}: nested deeper than {MAX_DEPTH} levels, or an alias inside of itself")
        self.values.setdefault(path, self.place(node))
        if isinstance(node, MappingNode):
            self._only_plain(node, "map")
            return self._mapping(node, path, depth)
        if isinstance(node, SequenceNode):
            self._only_plain(node, "seq")
            return [self.value(item, (*path, i), depth + 1) for i, item in enumerate(node.value)]
        assert isinstance(node, ScalarNode)
        self._only_plain(node, "str")
        return node.value if node.style is not None else _scalar(node.value)

    def _mapping(self, node: MappingNode, path: KeyPath, depth: int) -> dict[str, Any]:
        data: dict[str, Any] = {}
        for key_node, value_node in node.value:
            place = self.place(key_node)
            is_text = isinstance(key_node, ScalarNode) and (
                key_node.style is not None or isinstance(_scalar(key_node.value), str)
            )
            if not is_text:
                shown = key_node.value if isinstance(key_node, ScalarNode) else "a list or mapping"
                raise InputError(f"{place}: keys are text, found {shown}; put it in quotes")
            self._only_characters(key_node)
            key = key_node.value
            if key in data:
                first = self.keys[(*path, key)]
                raise InputError(f"{place}: key {key!r} occurs twice; it stands first in line {first.line}")
            self.keys[(*path, key)] = place
            data[key] = self.value(value_node, (*path, key), depth + 1)
        return data

    def _only_plain(self, node: Node, kind: str) -> None:
        # BaseLoader gives untagged nodes these tags, and an explicit tag is kept
        if node.tag not in (f"tag:yaml.org,2002:{kind}", "!"):
            raise InputError(f"{self.place(node)}: the tag {node.tag} is not allowed; write plain values")
        if isinstance(node, ScalarNode):
            self._only_characters(node)

    def _only_characters(self, node: ScalarNode) -> None:
        if "\0" in node.value:
            raise InputError(f"{self.place(node)}: texts hold no NUL character, found {node.value[:60]!r}")
        if any("\ud800" <= c <= "\udfff" for c in node.value):
            raise InputError(f"{self.place(node)}: half of a surrogate pair is no character, in {node.value[:60]!r}")


def _scalar(text: str) -> Any:
    """A plain scalar as YAML 1.2's core schema reads it (with ``_`` between digits)."""
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if _INT.match(text):
        # Python refuses to convert endless digit strings, and to show such numbers; no setting is that large
        if text.startswith(("0x", "0o")):
            return int(text, 0) if len(text) < 40 else float("inf")
        digits = text.replace("_", "")
        return int(digits) if len(digits) < 40 else float(digits)
    if _FLOAT.match(text):
        return float(text.replace("_", ""))
    return text
