"""Reading the text form of tensor shardings, ``<@mesh, [{"x"}p1, {?}], replicated={"y"}>`` or the part in brackets."""

import re
from typing import NamedTuple

from autoshard.errors import ShardingError
from autoshard.sharding.axis import AxisRef, whole_number
from autoshard.sharding.dimension_sharding import DimensionSharding

_TOKEN = re.compile(
    r"""\s*(?:
      (?P<quoted>"[^"]*")
    | (?P<mesh>@(?:"[^"]*"|[A-Za-z_][\w.$-]*))
    | (?P<sub>:\s*\(\s*-?\d+\s*\)\s*-?\d+)
    | (?P<word>[A-Za-z_][\w./-]*)
    | (?P<minus>-\d+)
    | (?P<punct>[\[\]{}<>,=?])
    )""",
    re.VERBOSE,
)
_SUB = re.compile(r":\s*\(\s*(-?\d+)\s*\)\s*(-?\d+)")
_PREFIX = re.compile(r"^\s*#sdy\.sharding(?=<)")


class _Reader:
    """A cursor over the tokens of one sharding's text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens: list[tuple[str, str, int]] = []
        position = 0
        while position < len(text.rstrip()):
            match = _TOKEN.match(text, position)
            if match is None or match.lastgroup is None:
                raise self.error(position, "an unexpected character")
            self.tokens.append((match.lastgroup, match[match.lastgroup], match.start(match.lastgroup)))
            position = match.end()
        self.at = 0

    def error(self, position: int, found: str) -> ShardingError:
        return ShardingError(
            f"cannot read sharding {self.text.strip()!r}: {found} at column {position + 1}; "
            'write [{"x"}, {"y", ?}p1] replicated={"z"}, or <@mesh, [...], replicated={...}>'
        )

    def peek(self) -> str:
        return self.tokens[self.at][1] if self.at < len(self.tokens) else ""

    def kind(self) -> str:
        return self.tokens[self.at][0] if self.at < len(self.tokens) else "end"

    def next(self) -> str:
        token = self.peek()
        self.at += 1
        return token

    def fail(self, wanted: str) -> ShardingError:
        where = self.tokens[self.at][2] if self.at < len(self.tokens) else len(self.text.rstrip())
        return self.error(where, f"expected {wanted}, found {self.peek() or 'the end'!r}")

    def expect(self, token: str) -> None:
        if self.peek() != token:
            raise self.fail(repr(token))
        self.at += 1

    def accept(self, token: str) -> bool:
        if self.peek() == token:
            self.at += 1
            return True
        return False

    def axis(self) -> AxisRef:
        if self.kind() not in ("quoted", "word"):
            raise self.fail("an axis name")
        name = self.next().strip('"')
        if not name:
            self.at -= 1
            raise self.fail("a non-empty axis name")
        if self.kind() != "sub":
            return AxisRef(name)
        match = _SUB.match(self.next())
        assert match is not None
        return AxisRef(name, whole_number(match[1]), whole_number(match[2]))

    def axes(self) -> tuple[AxisRef, ...]:
        self.expect("{")
        refs: list[AxisRef] = []
        while not self.accept("}"):
            if refs:
                self.expect(",")
            refs.append(self.axis())
        return tuple(refs)

    def assigned(self) -> tuple[AxisRef, ...]:
        self.expect("=")
        return self.axes()

    def summed(self) -> tuple[AxisRef, ...]:
        """Axes of partial sums: ``={...}``, and what the Shardy of JAX 0.12 also reads, ``{...}`` and ``=sum{...}``."""
        if self.accept("=") and self.kind() == "word":
            if self.peek() in ("max", "min"):
                raise self.fail("sums: what devices hold that is combined by a maximum or minimum is not supported")
            self.expect("sum")
        return self.axes()

    def dimension(self) -> DimensionSharding:
        self.expect("{")
        refs: list[AxisRef] = []
        is_open = False
        first = True
        while not self.accept("}"):
            if not first:
                self.expect(",")
            first = False
            if self.accept("?"):
                is_open = True
                self.expect("}")
                break
            refs.append(self.axis())
        return DimensionSharding(tuple(refs), is_open, self.priority())

    def priority(self) -> int | None:
        if self.kind() != "word":
            return None
        word = self.peek()
        if word == "p" and self.at + 1 < len(self.tokens) and self.tokens[self.at + 1][0] == "minus":
            raise self.error(self.tokens[self.at][2], "a negative priority (priorities are 0, 1, 2, ...; 0 is first)")
        if not re.fullmatch(r"p\d+", word):
            raise self.fail("a priority such as p1")
        self.at += 1
        return whole_number(word[1:])


class Written(NamedTuple):
    """What a text states, field by field as in `TensorSharding`."""

    mesh_name: str | None
    dims: tuple[DimensionSharding, ...]
    replicated: tuple[AxisRef, ...]
    unreduced: tuple[AxisRef, ...]


def read_sharding(text: str) -> Written:
    """Read either notation; axis names may lack quotes. `ShardingError` names the column."""
    reader = _Reader(_PREFIX.sub("", text))
    mesh_name: str | None = None
    angled = reader.accept("<")
    if angled:
        if reader.kind() != "mesh":
            raise reader.fail("a mesh name such as @mesh")
        mesh_name = reader.next()[1:].strip('"')
        reader.expect(",")
    reader.expect("[")
    dims: list[DimensionSharding] = []
    while not reader.accept("]"):
        if dims:
            reader.expect(",")
        dims.append(reader.dimension())
    lists: dict[str, tuple[AxisRef, ...]] = {}
    while reader.kind() != "end" and reader.peek() != ">":
        if angled:
            reader.expect(",")
        else:
            reader.accept(",")
        label = reader.peek()
        if label not in ("replicated", "unreduced") or label in lists:
            raise reader.fail("replicated={...} or unreduced={...}, each at most once")
        reader.next()
        lists[label] = reader.summed() if label == "unreduced" else reader.assigned()
    if angled:
        reader.expect(">")
    if reader.kind() != "end":
        raise reader.fail("the end")
    return Written(mesh_name, tuple(dims), lists.get("replicated", ()), lists.get("unreduced", ()))
