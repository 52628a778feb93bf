"""A mesh axis reserved for some values: no other array is cut by it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Self

from autoshard.constraints.in_config import ConfigKey, Patterns, Section, mapping_by
from autoshard.constraints.kind import Kind
from autoshard.constraints.patterns import Addresses
from autoshard.constraints.place import written_at
from autoshard.constraints.restrictions.restriction import (
    Restricting,
    Restriction,
    axis_given,
    part_of,
    parts_of_axes,
    patterns_given,
)
from autoshard.constraints.statement import LayoutCheck, Place
from autoshard.program.program import Op, Program
from autoshard.program.schedule import PROGRAM, Use
from autoshard.sharding.layout import AtomMesh, Layout
from autoshard.sharding.mesh import Mesh


@dataclass(frozen=True, slots=True)
class AxisOnly(Restricting):
    """The mesh axis, or part of one (``x:(1)2``), is used for these values only.

    No other array is cut by it or is a partial sum over it, neither in memory nor on its way into an op.

    >>> str(AxisOnly("zero", ["state/moments/**", "out/moments/**"]))
    'axis zero only for state/moments/**, out/moments/**'
    """

    axis: str
    patterns: Sequence[str]
    source: str = ""
    written: str = field(default="", init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        axis_given(self.axis, "axis_only")
        object.__setattr__(self, "patterns", patterns_given(self.patterns, f"axis_only {self.axis}"))
        written_at(self)

    def __str__(self) -> str:
        return f"axis {self.axis} only for {', '.join(self.patterns)}"

    @classmethod
    def from_config(cls, entry: Any, source: str) -> Self:
        """The statement that an entry of ``axis_only`` makes."""
        return cls(entry.axis, entry.patterns, source)

    def match(self, addresses: Addresses, mesh: Mesh) -> "MatchedAxisOnly":
        """The statement with the values that it is about in one program."""
        axes = parts_of_axes(self, (self.axis,), mesh)
        part = part_of(self, tuple(self.patterns), addresses)
        return MatchedAxisOnly(text=str(self), part=part, axes=axes, source=self.source, written=self.written)


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchedAxisOnly(Restriction):
    """axes: the axis that other values do not use."""

    kind: ClassVar[str] = "axis_only"

    def named_values(self, program: Program) -> set[int]:
        """The values that may use the axis; arguments of regions count as the operands that they stand for."""
        named = set(self.values)
        for op, _ in program.walk():
            named.update(arg for value, arg in _bound(op) if value in named)
        return named

    def layouts(
        self, program: Program, mesh: AtomMesh, ties: Mapping[int, int]
    ) -> Callable[[Place], LayoutCheck | None]:
        """The axis is unused everywhere but at the named values, their outputs, and outputs that replace its inputs."""
        atoms = frozenset(a for name in self.axes for a in mesh.atoms_named(name))
        may_use = self._may_use(program, ties)

        def unused(layout: Layout) -> bool:
            return not atoms & {*(a for d in layout.dims for a in d), *layout.unreduced}

        return lambda place: None if may_use(place.value, place.use) else unused

    def without_moves(self, program: Program, ties: Mapping[int, int]) -> Callable[[int, Use | None], Iterable[str]]:
        """The axis, at the same places: it cuts other values on no way either."""
        may_use = self._may_use(program, ties)
        return lambda value, use: () if may_use(value, use) else self.axes

    def _may_use(self, program: Program, ties: Mapping[int, int]) -> Callable[[int, Use | None], bool]:
        """Whether the axis may be used of a value at a use: of the named values, and of their outputs."""
        named = self.named_values(program)
        slots = {*self.outputs, *(slot for slot, value in ties.items() if value in named)}

        def may_use(value: int, use: Use | None) -> bool:
            return value in named or (use is not None and use.op == PROGRAM and use.slot in slots)

        return may_use


def _bound(op: Op) -> list[tuple[int, int]]:
    """(operand, argument of a region that stands for it) of a region op."""
    if op.kind in ("scan", "shard_map"):
        return list(zip(op.operands, op.regions[0].args, strict=False))
    if op.kind == "while":
        test, body = op.regions
        n, m = op.attrs["cond_nconsts"], op.attrs["body_nconsts"]
        return [
            *zip(op.operands[:n], test.args, strict=False),
            *zip(op.operands[n:], body.args, strict=False),
            *zip(op.operands[n + m :], test.args[n:], strict=False),
        ]
    if op.kind == "cond":
        return [pair for region in op.regions for pair in zip(op.operands[1:], region.args, strict=False)]
    return []


class AxisOnlySection(Section):
    """A mesh axis that only these values may use."""

    axis: str
    """The mesh axis, or a part of it, `x:(1)2`."""
    patterns: Patterns
    """The values that it may cut."""


KIND = Kind(
    MatchedAxisOnly,
    AxisOnly,
    ConfigKey("axis_only", Annotated[list[AxisOnlySection], mapping_by("axis", "patterns")], by="axis"),
)
