"""The nodes of a formulation: what each decides, and which layout each of its states stands for.

Every value is *defined* by one node; a value with several uses, or a pinned intermediate, also has a *hub* node
for the form its uses share; every use is an edge from the form to the node that consumes it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

import numpy as np

from autoshard.costs.critical import Role
from autoshard.costs.travel import PLAIN, Travel
from autoshard.placements.space import OpSpace
from autoshard.program.schedule import Use
from autoshard.sharding.layout import Layout


class NodeKind(StrEnum):
    """What a node decides."""

    INPUT = "input"  # layout of an argument or constant of the program
    OP = "op"  # placement of an op
    HUB = "hub"  # the form shared by the uses of a value
    BOUNDARY = "boundary"  # layout in which a value crosses into or out of a region
    OUTPUT = "output"  # layout of an output that nothing else fixes
    COUNT = "count"  # whether a use changes a layout, where reshards are counted


@dataclass
class Node:
    """One decision.

    layouts: for INPUT, HUB, BOUNDARY, OUTPUT the layout of each state.
    copies: for HUB and BOUNDARY states whether the state is a copy beside its source (takes memory) or the same array
        (then the source must be in that layout). None for nodes where both are one.
    defined_in: of a HUB, per state the layout in which the value must be defined, or None where it may be any: states
        in which the form is gathered as it is used (`Schedule.as_used`). None for nodes without such states.
    costs: seconds per state. usages: (start, stop, bytes per state). priced: bytes per state that break ties between
        plans: those of definitions in memory and of copies, however long they are held.
    """

    kind: NodeKind
    label: str
    weight: float
    layouts: tuple[Layout, ...] = ()
    copies: np.ndarray | None = None
    defined_in: tuple[Layout | None, ...] | None = None
    space: OpSpace | None = None
    op: int | None = None
    value: int | None = None
    costs: np.ndarray = field(default_factory=lambda: np.zeros(0))
    usages: list[tuple[int, int, np.ndarray]] = field(default_factory=list)
    priced: np.ndarray = field(default_factory=lambda: np.zeros(()))
    facets: np.ndarray | None = None
    allowed: np.ndarray | None = None  # indices of the states that hard statements leave

    @property
    def states(self) -> int:
        """Number of states: placements of an op, or layouts."""
        return len(self.space.placements) if self.space is not None else len(self.layouts)


@dataclass(frozen=True)
class Port:
    """The layout of one tensor in each state of a node."""

    node: int
    layouts: Sequence[Layout]


@dataclass(frozen=True)
class Link:
    """A use: the value goes from `source` (its form) to `target`, `weight` times per step.

    shares: the target's states that are no copies must equal the source's layout. barred: atoms over which there may be
    no collective on the way. local: atoms that no step on the way may move, not even a slice. role: of the value on
    this way, where only a share of a collective's seconds counts. travel: what steps carry of it; as_used: to states of
    a hub that say where the value is defined, where there are any. whole: a use that takes the value as it is, so that
    it leaves such states in the layout of the definition alone.
    """

    value: int
    source: Port
    target: Port
    weight: float
    use: Use | None  # None: from the definition to the hub
    shares: bool = False
    barred: frozenset[int] = frozenset()
    local: frozenset[int] = frozenset()
    role: Role | None = None
    travel: Travel = PLAIN
    as_used: Travel | None = None
    whole: bool = False

    @property
    def taken_as_used(self) -> "Link":
        """The link to states that say where the value is defined."""
        assert self.as_used is not None
        return replace(self, travel=self.as_used, as_used=None)

    @property
    def is_plain(self) -> bool:
        """Whether every step may be taken on the way, at its full price."""
        return not (self.barred or self.local) and self.role is None and self.travel == PLAIN


@dataclass(frozen=True)
class Counted:
    """A reshard that limits count. node: the COUNT node; avoided: per state, the atoms that no step may move."""

    node: int
    avoided: tuple[frozenset[int], ...]
