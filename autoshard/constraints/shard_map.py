"""The user's own `shard_map` regions as statements: their bodies run unchanged on local arrays."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from autoshard.constraints.kind import Kind
from autoshard.constraints.patterns import line_of
from autoshard.constraints.statement import Matched, with_place
from autoshard.program.program import Program
from autoshard.sharding.mesh import Mesh


@dataclass(frozen=True, slots=True)
class ShardMap(Matched):
    """The layouts of the operands and results of a `shard_map` of the program; inside, its axes are not the planner's.

    op: id of the `shard_map`. in_shardings, out_shardings: text, in the order of its operands and results.
    """

    kind: ClassVar[str] = "manual"
    text: str
    op: int
    axes: tuple[str, ...]
    in_shardings: tuple[str, ...]
    out_shardings: tuple[str, ...]
    source: str = ""

    @property
    def cited(self) -> str:
        """The region with its place, for messages."""
        return with_place(self.text, self.source)

    @property
    def told(self) -> str:
        """The region with its place, for answers."""
        return self.cited

    def to_dict(self) -> dict[str, Any]:
        """The region as an entry of ``statements`` in plan.json."""
        return {
            "kind": self.kind, "text": self.text, "source": self.source, "op": self.op, "axes": list(self.axes),
            "in_shardings": list(self.in_shardings), "out_shardings": list(self.out_shardings),
        }  # fmt: skip

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], mesh: Mesh | None = None) -> Self:
        """The inverse of `to_dict`."""
        into, out = (tuple(map(str, data[key])) for key in ("in_shardings", "out_shardings"))
        return cls(str(data["text"]), int(data["op"]), tuple(data["axes"]), into, out, str(data["source"]))


def manual_statements(program: Program) -> tuple[ShardMap, ...]:
    """The outermost `shard_map` regions of a program."""
    regions: list[ShardMap] = []
    for op, outer in program.walk():
        if op.kind != "shard_map" or any(o.kind == "shard_map" for o in outer):
            continue
        sides = [tuple(_sharding_text(names) for names in op.attrs[key]) for key in ("in_names", "out_names")]
        axes = tuple(axis if isinstance(axis, str) else axis[0] for axis in op.attrs["mesh_axes"])
        regions.append(ShardMap(f"shard_map over {', '.join(axes)}", op.id, axes, *sides, source=line_of(op.source)))
    return tuple(regions)


def _sharding_text(names: Sequence[Sequence[str]]) -> str:
    dims = ("{" + ", ".join(f'"{name}"' for name in axes) + "}" for axes in names)
    return "[" + ", ".join(dims) + "]"


KIND = Kind(ShardMap)
