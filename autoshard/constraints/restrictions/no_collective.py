"""No collective over an axis, in the whole program or in a part of it."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Self

from autoshard.constraints.axes_named import refs_of
from autoshard.constraints.in_config import ConfigKey, Section, mapping_or
from autoshard.constraints.kind import Kind
from autoshard.constraints.patterns import Addresses
from autoshard.constraints.place import written_at
from autoshard.constraints.restrictions.restriction import (
    EVERYTHING,
    Restricting,
    Restriction,
    axis_given,
    no_combining,
    part_of,
    parts_of_axes,
    pattern_given,
)
from autoshard.constraints.statement import PlacementCheck
from autoshard.errors import InfeasibleError
from autoshard.program.program import Op, Program
from autoshard.program.schedule import Use
from autoshard.sharding.layout import AtomMesh
from autoshard.sharding.mesh import Mesh


@dataclass(frozen=True, slots=True)
class NoCollective(Restricting):
    """No collective over this mesh axis, or part of one (``x:(1)2``), where the values of the pattern are made or used.

    A pattern of lines or primitives is about those ops (loops with all ops inside): about the reshards of their
    operands and the reductions inside of them. Every pattern is about the reshards of the values that it addresses.
    What moves once for several uses of a value moves at each of them. The slices that a loop takes of a stack are
    values of their own.

    >>> str(NoCollective("model", "attention.py:120"))
    'no collective over model at attention.py:120'
    """

    axis: str
    pattern: str = EVERYTHING
    source: str = ""
    written: str = field(default="", init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        axis_given(self.axis, "no_collective")
        pattern_given(self.pattern, f"no collective over {self.axis}")
        written_at(self)

    def __str__(self) -> str:
        return f"no collective over {self.axis} at {self.pattern}"

    @classmethod
    def from_config(cls, entry: Any, source: str) -> Self:
        """The statement that an entry of ``no_collective`` makes."""
        return cls(entry.axis, entry.pattern, source)

    def match(self, addresses: Addresses, mesh: Mesh) -> "MatchedNoCollective":
        """The statement with its part of one program."""
        axes = parts_of_axes(self, (self.axis,), mesh)
        part = part_of(self, (self.pattern,), addresses, of_ops=True, may_be_whole=True)
        return MatchedNoCollective(text=str(self), part=part, axes=axes, source=self.source, written=self.written)


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchedNoCollective(Restriction):
    """axes: the axis over which nothing is sent."""

    kind: ClassVar[str] = "no_collective"

    def check(self, program: Program) -> None:
        """Raise `InfeasibleError` where a `shard_map` of the program has such a collective of its own."""
        for op, outer in program.walk():
            if "collective" not in op.attrs or not set(op.attrs["axes"]) & {ref.name for ref in refs_of(self.axes)}:
                continue
            around = {o.id for o in outer if o.kind == "shard_map"}
            if around and (self.part.whole or op.id in self.ops or around & set(self.ops)):
                axes = ", ".join(op.attrs["axes"])
                own = f"{op.source}: {op.kind} over {axes} in a shard_map of the program"
                raise InfeasibleError(
                    f"these 2 statements cannot hold together\n  {self.cited}\n  {own}\n"
                    "take the collective out of the code, or state less",
                    conflict=[self.cited, own],
                )

    def placements(self, mesh: AtomMesh) -> Callable[[Op], PlacementCheck | None]:
        """Ops of the part have no collectives of their own over the axis."""
        return no_combining(self.part, self.axes, mesh)

    def without_collectives(self, value: int, use: Use | None) -> Iterable[str]:
        """The axis, for reshards in the part."""
        return self.axes if self.part.concerns(value, use) else ()


class NoCollectiveSection(Section):
    """A mesh axis without collectives, everywhere or in a part of the program."""

    axis: str
    """The mesh axis, or a part of it, `x:(1)2`."""
    pattern: str = EVERYTHING
    """Values at which it holds."""


KIND = Kind(
    MatchedNoCollective,
    NoCollective,
    ConfigKey(
        "no_collective", list[Annotated[NoCollectiveSection, mapping_or("axis", "an axis, or axis and pattern")]]
    ),
)
