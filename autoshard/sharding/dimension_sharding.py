"""The sharding of one dimension of a tensor."""

from dataclasses import dataclass

from autoshard.sharding.axis import AxisRef


@dataclass(frozen=True, slots=True)
class DimensionSharding:
    """Axes of one dimension, major to minor; open (``?``) if it may gain more at the minor end.

    `priority` is None where none was written; that means 0, the highest (S0.43).

    >>> str(DimensionSharding((AxisRef("z"),), is_open=True, priority=2))
    '{"z", ?}p2'
    """

    axes: tuple[AxisRef, ...] = ()
    is_open: bool = False
    priority: int | None = None

    @property
    def effective_priority(self) -> int:
        """The priority that counts: the one written, or 0 where none is."""
        return self.priority or 0

    def __str__(self) -> str:
        entries = [str(a) for a in self.axes] + (["?"] if self.is_open else [])
        return "{" + ", ".join(entries) + "}" + ("" if self.priority is None else f"p{self.priority}")
