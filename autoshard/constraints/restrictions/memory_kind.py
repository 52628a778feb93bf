"""Memory kinds: inputs and outputs that live in host memory between calls."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal, Self

from autoshard.constraints.in_config import ConfigKey, Section, mapping_by
from autoshard.constraints.kind import Kind
from autoshard.constraints.patterns import Addresses, Match
from autoshard.constraints.place import written_at
from autoshard.constraints.restrictions.restriction import Restricting, Restriction, part_of, pattern_given
from autoshard.constraints.statement import Memories
from autoshard.errors import InputError
from autoshard.program.program import Program
from autoshard.sharding.mesh import Mesh

MEMORY_KINDS = ("device", "pinned_host")
"""JAX's names of the memories that values may be stated to live in."""


@dataclass(frozen=True, slots=True)
class MemoryKind(Restricting):
    """These inputs or outputs live in host memory (``pinned_host``) between calls.

    An input is copied to the device when it is first read, an output to the host when it is made. Donated inputs and
    the outputs that replace them must be stated together. Of several of these about one value the last holds.

    >>> str(MemoryKind("state/opt/**", "pinned_host"))
    'memory pinned_host for state/opt/**'
    """

    pattern: str
    kind: str = "pinned_host"
    source: str = ""
    written: str = field(default="", init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        pattern_given(self.pattern, "a memory kind")
        if self.kind not in MEMORY_KINDS:
            raise InputError(
                f"memory kind of {self.pattern}: {self.kind!r} is none of {', '.join(MEMORY_KINDS)}, the memories that "
                "values can be planned for"
            )
        written_at(self)

    def __str__(self) -> str:
        return f"memory {self.kind} for {self.pattern}"

    @classmethod
    def from_config(cls, entry: Any, source: str) -> Self:
        """The statement that an entry of ``memory_kinds`` makes."""
        return cls(entry.pattern, entry.kind, source)

    def match(self, addresses: Addresses, mesh: Mesh) -> "MatchedMemoryKind":
        """The statement with its inputs and outputs in one program; `InputError` where the pattern addresses
        intermediates.
        """
        inputs = set(addresses.program.body.args)

        def check(pattern: str, match: Match) -> None:
            if not set(match.values) <= inputs:
                raise InputError(
                    f"{self.where}: {pattern!r} names values that ops make; inputs and outputs of the program can be "
                    "planned for other memories, intermediates cannot"
                )

        part = part_of(self, (self.pattern,), addresses, check=check)
        return MatchedMemoryKind(text=str(self), part=part, source=self.source, written=self.written, memory=self.kind)


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchedMemoryKind(Restriction):
    """memory: where its inputs and outputs live, one of `MEMORY_KINDS`."""

    kind: ClassVar[str] = "memory_kind"
    memory: str

    def memories(self, program: Program) -> Memories:
        """The memories of its inputs and outputs; `InputError` for constants."""
        args = program.body.args
        for value in self.values:
            if args.index(value) >= len(program.input_names):
                raise InputError(
                    f"{self.cited}: {program.values[value].name} is a constant of the program, which lies in device "
                    "memory; pass it as an argument"
                )
        on_host = self.memory == "pinned_host"
        return Memories(dict.fromkeys(map(args.index, self.values), on_host), dict.fromkeys(self.outputs, on_host))

    def to_dict(self) -> dict[str, Any]:
        """The statement as an entry of ``statements`` in plan.json, where the memory stands under ``direction``."""
        return {**Restriction.to_dict(self), "direction": self.memory}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], mesh: Mesh | None = None) -> Self:
        """The inverse of `to_dict`."""
        return cls(**Restriction.shared(data), memory=str(data["direction"]))


class MemoryKindSection(Section):
    """Inputs and outputs that live in a memory."""

    pattern: str
    """Path of inputs or outputs."""
    kind: Literal["device", "pinned_host"] = "pinned_host"
    """Where they live between calls."""


KIND = Kind(
    MatchedMemoryKind,
    MemoryKind,
    ConfigKey("memory_kinds", Annotated[list[MemoryKindSection], mapping_by("pattern", "kind")]),
)
