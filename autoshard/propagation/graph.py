"""The graph that propagation runs on: holders of shardings, and nodes that tie them together.

A *holder* is a place that has one sharding: an argument, an op's result, a data-flow edge. Several values may
share one (the arguments of a loop's body and its results). A *node* is an op with a rule, a data-flow edge, a barrier.
Front ends differ in how they build the graph; the engine sees nothing else.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from autoshard.propagation.directions import Direction, OpClass
from autoshard.propagation.spec import Spec
from autoshard.propagation.step import Steps
from autoshard.sharding.mesh import Mesh

NO_HOLDER = -1


@dataclass(slots=True)
class Node:
    """An op as the engine sees it.

    operands, results: holders, `NO_HOLDER` for values that cannot have a sharding.
    rule: number of its `StepRule`, -1 for none (nothing passes).
    shared: whether an operand that is no scalar has other uses too.
    heeds_conservative: False for edges and barriers, which pass sub-axes in conservative mode too.
    allowed: the directions that the op itself allows (propagation barriers).
    before, after: change the spec of the only result when it is read and written (edges of manual computations).
    op: the op's id in the program, for provenance.
    values, defines: values used (with repetition) and defined, for removing dead ops.
    erasable: the op has no effect but its results.
    inner: how many of the nodes that follow lie inside this op's regions.
    tensors: operands, then results. kind: number of the node's `Kind` in `moves`. The engine sets both.
    """

    operands: tuple[int, ...]
    results: tuple[int, ...]
    rule: int = -1
    op_class: OpClass = OpClass.OTHER
    elementwise: bool = False
    shared: bool = False
    heeds_conservative: bool = True
    allowed: Direction = Direction.BOTH
    before: Callable[[Spec], Spec] | None = None
    after: Callable[[Spec], Spec] | None = None
    op: int = -1
    values: tuple[int, ...] = ()
    defines: tuple[int, ...] = ()
    erasable: bool = False
    inner: int = 0
    tensors: tuple[int, ...] = ()
    kind: int = -1


@dataclass(slots=True)
class Graph:
    """All there is to propagate over.

    holders: number of the spec that each holder has now, -1 for none. ranks: number of dimensions of each holder.
    nodes: in program order, region ops before their bodies.
    notify: for each holder the nodes to look at again when its spec changes, the most urgent last; None until
    `find_notified` was called for it.
    groups: for each holder in a sharding group all members of the group. Members that share the holder of another
    value (arguments of loops) have a number of their own there, whose holder is in `shared`: they follow their group,
    but no change of the holder is one of theirs.
    siblings: where there are several meshes, for each result of an op the holders of its other results.
    outputs: (holder of a returned value, holder of the output's own sharding, number of the rule between them).
    prioritised: holders whose user priorities count (all but those behind a data-flow edge).
    uses: for each value how often it is used; defined_by: its node or -1; users: nodes that use it; scalar: rank 0.
    """

    meshes: tuple[Mesh, ...]
    steps: Steps
    holders: list[int] = field(default_factory=list)
    ranks: list[int] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    notify: list[tuple[int, ...] | None] = field(default_factory=list)
    find_notified: Callable[[int], tuple[int, ...]] | None = None
    groups: dict[int, tuple[int, ...]] = field(default_factory=dict)
    shared: dict[int, int] = field(default_factory=dict)
    outputs: list[tuple[int, int, int]] = field(default_factory=list)
    prioritised: list[int] = field(default_factory=list)
    siblings: dict[int, tuple[int, ...]] = field(default_factory=dict)
    uses: list[int] = field(default_factory=list)
    defined_by: list[int] = field(default_factory=list)
    users: list[list[int]] = field(default_factory=list)
    scalar: list[bool] = field(default_factory=list)

    def holder(self, spec: Spec | None, rank: int) -> int:
        """Add a holder for a tensor with this many dimensions; returns its number."""
        self.holders.append(self.steps.number(spec))
        self.ranks.append(rank)
        self.notify.append(None)
        return len(self.holders) - 1

    def notified(self, holder: int) -> tuple[int, ...]:
        """The nodes to look at again when a holder's spec changes, the most urgent last."""
        nodes = self.notify[holder]
        if nodes is None:
            nodes = self.notify[holder] = () if self.find_notified is None else self.find_notified(holder)
        return nodes

    def spec(self, holder: int) -> Spec | None:
        """The spec that a holder has now; None for no sharding and for `NO_HOLDER`."""
        return None if holder < 0 else self.steps.spec(self.holders[holder])


def new_graph(meshes: tuple[Mesh, ...]) -> Graph:
    """A graph over these meshes without holders and nodes."""
    return Graph(meshes, Steps(tuple(m.axis_sizes for m in meshes)))
