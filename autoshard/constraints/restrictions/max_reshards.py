"""A limit on reshards: places of the program where a value changes its layout."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Self

from pydantic import Field

from autoshard.constraints.in_config import ConfigKey, Section, mapping_or, one_or_list
from autoshard.constraints.kind import Kind
from autoshard.constraints.patterns import Addresses
from autoshard.constraints.place import written_at
from autoshard.constraints.restrictions.restriction import (
    EVERYTHING,
    Restricting,
    Restriction,
    axis_given,
    part_of,
    parts_of_axes,
    pattern_given,
)
from autoshard.constraints.statement import MostReshards
from autoshard.errors import InputError
from autoshard.sharding.mesh import Mesh


@dataclass(frozen=True, slots=True)
class MaxReshards(Restricting):
    """At most `limit` reshards: places of the program where a value changes its layout.

    Each use that takes a value in another layout counts, and each value whose uses share another layout; the body of a
    loop counts once. axis: only reshards that move this mesh axis, or part of one (``x:(1)2``), count. pattern: only
    those in this part of the program (as in `NoCollective`; what moves once for several uses counts once, where one of
    them is there).

    >>> str(MaxReshards(3, axis="model"))
    'at most 3 reshards over model'
    """

    limit: int
    axis: str | None = None
    pattern: str = EVERYTHING
    source: str = ""
    written: str = field(default="", init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        if isinstance(self.limit, bool) or not isinstance(self.limit, int) or self.limit < 0:
            raise InputError(f"max_reshards needs a whole number of 0 or more, found {self.limit!r}")
        if self.axis is not None:
            axis_given(self.axis, "max_reshards")
        pattern_given(self.pattern, "max_reshards")
        written_at(self)

    def __str__(self) -> str:
        over = f" over {self.axis}" if self.axis else ""
        at = "" if self.pattern == EVERYTHING else f" at {self.pattern}"
        return f"at most {self.limit} reshards{over}{at}"

    @classmethod
    def from_config(cls, entry: Any, source: str) -> Self:
        """The statement that an entry of ``max_reshards`` makes."""
        return cls(entry.limit, entry.axis, entry.pattern, source)

    def match(self, addresses: Addresses, mesh: Mesh) -> "MatchedMaxReshards":
        """The statement with its part of one program."""
        axes = parts_of_axes(self, () if self.axis is None else (self.axis,), mesh)
        part = part_of(self, (self.pattern,), addresses, of_ops=True, may_be_whole=True)
        return MatchedMaxReshards(
            text=str(self), part=part, axes=axes, source=self.source, written=self.written, limit=self.limit
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchedMaxReshards(Restriction):
    """limit: most reshards in its part that move one of `axes` (any axis where `axes` is empty)."""

    kind: ClassVar[str] = "max_reshards"
    limit: int

    @property
    def most_reshards(self) -> MostReshards:
        """The limit, and which reshards count."""
        return MostReshards(self.limit, self.axes, self.part.concerns)

    def to_dict(self) -> dict[str, Any]:
        """The limit as an entry of ``statements`` in plan.json."""
        return {**Restriction.to_dict(self), "limit": self.limit}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], mesh: Mesh | None = None) -> Self:
        """The inverse of `to_dict`."""
        return cls(**Restriction.shared(data), limit=int(data["limit"]))


class MaxReshardsSection(Section):
    """A limit on reshards: of all, of those over an axis, or of those in a part of the program."""

    limit: Annotated[int, Field(ge=0)]
    """How many at most."""
    axis: str | None = None
    """Count those over this mesh axis only, or over a part of it, `x:(1)2`."""
    pattern: str = EVERYTHING
    """Count those of these values only."""


KIND = Kind(
    MatchedMaxReshards,
    MaxReshards,
    ConfigKey(
        "max_reshards",
        Annotated[
            list[Annotated[MaxReshardsSection, mapping_or("limit", "a number, or limit with axis or pattern")]],
            one_or_list(),
        ],
    ),
)
