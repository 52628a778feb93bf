"""Replicated values: no dimension is cut by some axes, or by any."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Self

from pydantic import Field

from autoshard.constraints.axes_named import refs_of
from autoshard.constraints.in_config import Axes, ConfigKey, Section, mapping_or
from autoshard.constraints.kind import Kind
from autoshard.constraints.patterns import Addresses
from autoshard.constraints.place import written_at
from autoshard.constraints.restrictions.restriction import (
    Restricting,
    Restriction,
    axis_given,
    part_of,
    parts_of_axes,
    pattern_given,
)
from autoshard.constraints.statement import Member
from autoshard.program.program import Program
from autoshard.sharding.mesh import Mesh
from autoshard.sharding.tensor_sharding import TensorSharding


@dataclass(frozen=True, slots=True)
class Replicated(Restricting):
    """No dimension of these values is cut by one of `axes` (by any axis where none are given).

    axes: mesh axes, or parts of them (``x:(1)2``). This is about inputs as they are stored, outputs as they are handed
    back, and other values in the form that their uses share.

    >>> str(Replicated("params/*/scale"))
    'replicated params/*/scale'
    >>> str(Replicated("batch/**", ["model"]))
    'replicated batch/** over model'
    """

    pattern: str
    axes: Sequence[str] = ()
    source: str = ""
    written: str = field(default="", init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        pattern_given(self.pattern, "replicated")
        axes = (self.axes,) if isinstance(self.axes, str) else tuple(self.axes)
        object.__setattr__(self, "axes", tuple(axis_given(a, f"replicated {self.pattern}") for a in axes))
        written_at(self)

    def __str__(self) -> str:
        return f"replicated {self.pattern}" + (f" over {', '.join(self.axes)}" if self.axes else "")

    @classmethod
    def from_config(cls, entry: Any, source: str) -> Self:
        """The statement that an entry of ``replicated`` makes."""
        return cls(entry.pattern, entry.axes, source)

    def match(self, addresses: Addresses, mesh: Mesh) -> "MatchedReplicated":
        """The statement with its values in one program."""
        axes = parts_of_axes(self, self.axes, mesh)
        part = part_of(self, (self.pattern,), addresses)
        return MatchedReplicated(text=str(self), part=part, axes=axes, source=self.source, written=self.written)


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchedReplicated(Restriction):
    """axes: none of them cuts the values; where `axes` is empty, no axis of the mesh does."""

    kind: ClassVar[str] = "replicated"

    def sharding_for(self, rank: int) -> TensorSharding:
        """The sharding that the statement demands of a value of this rank."""
        if not self.axes:
            return TensorSharding.closed(rank)
        return TensorSharding(None, TensorSharding.open(rank).dims, refs_of(self.axes))

    def claims(self, program: Program) -> list[tuple[Member, TensorSharding]]:
        """The demanded sharding of every value and output."""
        results = program.body.results
        of = [(member, member[1] if member[0] == "value" else results[member[1]]) for member in self.members]
        return [(member, self.sharding_for(program.type_of(value).rank)) for member, value in of]

    def hints(self, program: Program) -> Mapping[int, TensorSharding]:
        """The demanded sharding of every value, for propagation."""
        return {v: self.sharding_for(program.type_of(v).rank) for v in self.values}


class ReplicatedSection(Section):
    """Values that no axis cuts, or none of `axes`."""

    pattern: str
    """Path, tag, source lines, primitive or scope of the values."""
    axes: Axes = Field(default_factory=list)
    """Mesh axes, and parts of them such as `x:(1)2`, that cut none of them; all where none are given."""


KIND = Kind(
    MatchedReplicated,
    Replicated,
    ConfigKey(
        "replicated", list[Annotated[ReplicatedSection, mapping_or("pattern", "a pattern, or pattern and axes")]]
    ),
)
