"""Barriers: values that propagated shardings do not pass."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal, Self

from autoshard.constraints.in_config import ConfigKey, Section, mapping_or
from autoshard.constraints.kind import Kind
from autoshard.constraints.patterns import Addresses
from autoshard.constraints.place import written_at
from autoshard.constraints.restrictions.restriction import Restricting, Restriction, part_of, pattern_given
from autoshard.errors import InputError
from autoshard.sharding.mesh import Mesh

DIRECTIONS = ("forward", "backward", "both")
"""The directions that may be barred."""


@dataclass(frozen=True, slots=True)
class Barrier(Restricting):
    """Propagated shardings do not pass through these values: a sharding on one side does not spread to the other.

    direction: the direction that is barred, ``forward`` (from operands to results), ``backward`` or ``both``. It
    concerns the propagation of priorities and named strategies; the search by cost is free on both sides.

    >>> str(Barrier("@hidden", "backward"))
    'barrier (backward) at @hidden'
    """

    pattern: str
    direction: str = "both"
    source: str = ""
    written: str = field(default="", init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        pattern_given(self.pattern, "barrier")
        if self.direction not in DIRECTIONS:
            raise InputError(
                f"barrier {self.pattern}: the direction is forward, backward or both, found {self.direction!r}"
            )
        written_at(self)

    def __str__(self) -> str:
        return f"barrier ({self.direction}) at {self.pattern}"

    @classmethod
    def from_config(cls, entry: Any, source: str) -> Self:
        """The statement that an entry of ``barriers`` makes."""
        return cls(entry.pattern, entry.direction, source)

    def match(self, addresses: Addresses, mesh: Mesh) -> "MatchedBarrier":
        """The barrier with its values in one program."""
        part = part_of(self, (self.pattern,), addresses)
        return MatchedBarrier(
            text=str(self), part=part, source=self.source, written=self.written, direction=self.direction
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchedBarrier(Restriction):
    """direction: the direction that is barred."""

    kind: ClassVar[str] = "barrier"
    direction: str

    @property
    def barriers(self) -> Mapping[int, str]:
        """The barred values, each with the direction."""
        return dict.fromkeys(self.values, self.direction)

    def to_dict(self) -> dict[str, Any]:
        """The barrier as an entry of ``statements`` in plan.json."""
        return {**Restriction.to_dict(self), "direction": self.direction}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], mesh: Mesh | None = None) -> Self:
        """The inverse of `to_dict`."""
        return cls(**Restriction.shared(data), direction=str(data["direction"]))


class BarrierSection(Section):
    """Values through which hints do not flow."""

    pattern: str
    direction: Literal["forward", "backward", "both"] = "both"


KIND = Kind(
    MatchedBarrier,
    Barrier,
    ConfigKey(
        "barriers", list[Annotated[BarrierSection, mapping_or("pattern", "a pattern, or pattern and direction")]]
    ),
)
