"""Scheduled HLO text, as ``compiled.as_text()`` prints it: what runs, in which order, and for how long.

The order of a computation's lines is the order of execution. On a TPU, lines carry ``estimated_cycles``, arrays the
memory that they lie in (``S(1)`` is on the chip, nothing is HBM), loops their number of trips.
"""

import re
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Final

from autoshard.errors import InputError

HBM = 0
"""Memory space of arrays in the device's main memory; 1 is on the chip, others hold scalars and flags."""

KINDS: Final = {
    "all-gather": "all_gather",
    "all-reduce": "all_reduce",
    "reduce-scatter": "reduce_scatter",
    "all-to-all": "all_to_all",
    "ragged-all-to-all": "all_to_all",
    "collective-permute": "permute",
}
"""Opcodes of collectives, without ``-start`` and ``-done``, and the kinds that costs know."""

FUSIONS: Final = frozenset({"fusion", "fusion-start"})
"""Opcodes of fusions; on GPUs a slice may be a ``fusion-start`` with its ``fusion-done``: it runs where it starts."""

_ITEM_BITS = {"pred": 8, "token": 0, "opaque": 0}
_ARRAY = re.compile(r"([a-z]\w*)\[([\d,]*)\](?:\{([^}]*)\})?")
_COMMENT = re.compile(r"/\*.*?\*/")
_HEAD = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\{\s*$")
_LINE = re.compile(r"^\s+(ROOT )?%?([\w.\-]+) = (.*)$")
_TILE = re.compile(r"T\(([\d,]+)\)")
_SPACE = re.compile(r"S\((\d+)\)")


@dataclass(frozen=True, slots=True)
class Array:
    """An array of a type. bytes: as it lies in memory, padded to the tiles of the text; plain_bytes: without."""

    dtype: str
    shape: tuple[int, ...]
    space: int
    bytes: int
    plain_bytes: int

    @property
    def elements(self) -> int:
        """Number of elements, without padding."""
        return prod(self.shape)


@dataclass(slots=True)
class Instruction:
    """One line. cycles: that the compiler expects, where it says so; calls: the computations that it names."""

    name: str
    opcode: str
    arrays: tuple[Array, ...]
    operands: tuple[str, ...]
    rest: str
    is_root: bool

    def attribute(self, key: str) -> str | None:
        """The text of ``key=...`` up to the next comma outside of braces; None if there is none."""
        at = re.search(rf"(?:^|[ ,]){re.escape(key)}=", self.rest)
        return None if at is None else _until_comma(self.rest, at.end())

    @property
    def cycles(self) -> int | None:
        """Cycles that the compiler expects it to take, if it says."""
        told = re.search(r'"estimated_cycles":"(\d+)"', self.rest)
        return None if told is None or int(told[1]) >= 2**62 else int(told[1])

    @property
    def trips(self) -> int | None:
        """How often the body of this loop runs, if the compiler knows."""
        told = re.search(r'"known_trip_count":\{"n":"(\d+)"\}', self.rest)
        return None if told is None else int(told[1])

    @property
    def op_name(self) -> str:
        """The name of the JAX op that it stems from, such as ``jit(step)/dot_general``; empty if the text has none."""
        told = re.search(r'op_name="([^"]*)"', self.rest)
        return told[1] if told else ""

    @property
    def channel(self) -> str | None:
        """The number that all parts of one collective share, if the text has one."""
        return self.attribute("channel_id")

    @property
    def called(self) -> tuple[str, ...]:
        """Names of the computations that it runs: that of a fusion or call, condition and body of a loop, branches."""
        names: list[str] = []
        for key in ("calls", "to_apply", "called_computations", "condition", "body", "branch_computations",
                    "true_computation", "false_computation"):  # fmt: skip
            text = self.attribute(key)
            if text is not None:
                names += [part.strip().lstrip("%") for part in text.strip("{}").split(",")]
        return tuple(names)


@dataclass(slots=True)
class Computation:
    """Instructions in the order in which they run."""

    name: str
    instructions: dict[str, Instruction] = field(default_factory=dict)

    @property
    def root(self) -> Instruction:
        """The instruction whose result is the computation's."""
        return next((i for i in self.instructions.values() if i.is_root), list(self.instructions.values())[-1])


@dataclass(frozen=True)
class Module:
    """A compiled program. devices: number of partitions."""

    computations: dict[str, Computation]
    entry: str
    devices: int
    is_scheduled: bool

    @cached_property
    def cycles_known(self) -> bool:
        """Whether the compiler wrote how many cycles it expects."""
        return any(i.cycles is not None for c in self.computations.values() for i in c.instructions.values())


def read_module(text: str) -> Module:
    """Read the text; `InputError` where it is no HLO module."""
    if not text.startswith("HloModule"):
        raise InputError("this is no HLO text: it does not begin with HloModule")
    first = text.split("\n", 1)[0]
    devices = prod(int(n) for n in re.findall(r"(?:num_partitions|replica_count)=(\d+)", first))
    computations: dict[str, Computation] = {}
    entry, current = "", None
    for line in text.splitlines():
        if current is None:
            head = _HEAD.match(line)
            if head is not None:
                current = computations.setdefault(head[2], Computation(head[2]))
                entry = head[2] if head[1] else entry
        elif line.startswith("}"):
            current = None
        elif (instruction := _instruction(line)) is not None:
            current.instructions[instruction.name] = instruction
    if not entry:
        raise InputError("this HLO text has no ENTRY computation")
    return Module(computations, entry, devices, "is_scheduled=true" in first)


def _instruction(line: str) -> Instruction | None:
    parts = _LINE.match(line)
    if parts is None:
        return None
    rest = _COMMENT.sub("", parts[3])
    if rest.startswith("("):
        stop = _closing(rest, 0) + 1
    else:
        stop = rest.find(" ")
    kind, rest = rest[:stop], rest[stop:].lstrip()
    opcode = re.match(r"[\w\-]+", rest)
    if opcode is None:
        return None
    begin = opcode.end()
    end = _closing(rest, begin) if rest[begin : begin + 1] == "(" else begin
    inner = rest[begin + 1 : end]
    operands = tuple(re.findall(r"%([\w.\-]+)", inner)) or tuple(p.strip() for p in inner.split(",") if p.strip())
    arrays = tuple(_array(*array.groups()) for array in _ARRAY.finditer(kind))
    return Instruction(parts[2], opcode[0], arrays, operands, rest[end + 1 :], parts[1] is not None)


def _array(dtype: str, dims: str, layout: str | None) -> Array:
    shape = tuple(int(n) for n in dims.split(",") if n)
    space = _SPACE.search(layout or "")
    bits = _ITEM_BITS.get(dtype)
    if bits is None:
        digits = re.search(r"\d+", dtype)
        bits = int(digits[0]) if digits else 0
    padded = _padded(shape, layout or "")
    lies = int(space[1]) if space else HBM
    return Array(dtype, shape, lies, -(-padded * bits // 8), -(-prod(shape) * bits // 8))


def _padded(shape: tuple[int, ...], layout: str) -> int:
    """Elements with the padding of the first tile, whose dimensions are the minor-most of the array."""
    tile = _TILE.search(layout)
    order = [int(n) for n in layout.split(":", 1)[0].split(",") if n.strip().isdigit()]
    if tile is None or len(order) != len(shape):
        return prod(shape)
    sizes = [shape[k] for k in order]  # minor to major
    for k, step in enumerate(reversed([int(n) for n in tile[1].split(",")])):
        if k < len(sizes) and sizes[k] > 1:
            sizes[k] = -(-sizes[k] // step) * step
    return prod(sizes)


def _closing(text: str, begin: int) -> int:
    """Position of the parenthesis that closes the one at `begin`."""
    depth = 0
    for match in re.finditer(r"[()]", text[begin:]):
        depth += 1 if match[0] == "(" else -1
        if depth == 0:
            return begin + match.start()
    raise InputError(f"unbalanced parentheses in HLO text: {text[begin : begin + 80]}")


def _until_comma(text: str, begin: int) -> str:
    depth = 0
    for at in range(begin, len(text)):
        char = text[at]
        if char in "([{":
            depth += 1
        elif char in ")]}":
            depth -= 1
        elif char == "," and depth == 0:
            return text[begin:at].strip()
    return text[begin:].strip()
