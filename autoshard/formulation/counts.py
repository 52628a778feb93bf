"""Limits on the number of reshards, by nodes that hold a unit of a limited amount.

Whether a use changes a layout depends on two decisions: that of the value and that of its consumer. A COUNT node
between them has a state for each answer. Its first state means that there is a reshard, and allows everything on both
sides. In every other state the value lies in one class of layouts, which the consumer takes without a reshard. Nodes in
their first state hold one unit each, all at one moment of their own. So the limit on what is held at that moment limits
the number of reshards.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from autoshard.constraints import Restriction
from autoshard.costs.reshard import ReshardTable
from autoshard.formulation.collect import Collected
from autoshard.formulation.encode import Encoded
from autoshard.formulation.model import Link, Node, NodeKind
from autoshard.formulation.restrict import served
from autoshard.program.program import Program
from autoshard.sharding.layout import AtomMesh, Layout
from autoshard.solver.network import IMPOSSIBLE, CostNetwork, Edge, Usage


@dataclass(frozen=True)
class Count:
    """At most `limit` of these nodes may be in their first state."""

    limit: int
    nodes: tuple[int, ...]


def with_counts(
    encoded: Encoded, collected: Collected, program: Program, mesh: AtomMesh, restrictions: Sequence[Restriction]
) -> tuple[Encoded, tuple[Count, ...]]:
    """The encoding with a node for every reshard that is counted, and the counts; the nodes are added to `collected`
    too.
    """
    counts: list[Count] = []
    costs, edges = list(encoded.network.costs), list(encoded.network.edges)
    facets, usages = list(encoded.network.facets), list(encoded.network.usages)
    states, priced = list(encoded.states), list(encoded.priced)
    for restriction in restrictions:
        most = restriction.most_reshards
        if most is None:
            continue
        atoms = frozenset(a for name in most.axes for a in mesh.atoms_of[name])
        nodes: list[int] = []
        serves = served(collected.links)
        for link in collected.links:
            if not any(most.counts(link.value, use) for use in serves(link)):
                continue
            changed = _changed(encoded.table(program.type_of(link.value), link), link, encoded, atoms)
            if not changed.any():
                continue
            kinds, kind_of = np.unique(changed, axis=0, return_inverse=True)
            kind_of = kind_of.reshape(-1)
            classes = [k for k in range(len(kinds)) if not kinds[k].all()]
            number = len(costs)
            nodes.append(number)
            n = 1 + len(classes)
            label = f"whether {program.values[link.value].name} is resharded"
            node = Node(NodeKind.COUNT, label, 1.0, (Layout(()),) * n)
            node.costs, node.facets = np.zeros(n), np.zeros((n, len(mesh.mesh.axis_names)), np.int64)
            collected.nodes.append(node)
            costs.append(np.zeros(n, np.int64))
            usages.append(())
            facets.append(node.facets)
            states.append(np.arange(n))
            priced.append(np.zeros(n))
            for end, table in (
                (link.source.node, [kind_of == k for k in classes]),
                (link.target.node, [~kinds[k] for k in classes]),
            ):
                free = np.array([np.ones(len(states[end]), bool), *table])
                if not free.all():
                    edges.append(Edge(number, end, np.where(free, 0, IMPOSSIBLE).astype(np.int64)))
        counts.append(Count(most.limit, tuple(nodes)))
    if not counts:
        return encoded, ()
    network = CostNetwork(tuple(costs), tuple(edges), tuple(usages), encoded.network.usage_limit, tuple(facets))
    more = network.n_nodes - encoded.network.n_nodes + len(edges) - len(encoded.network.edges)
    encoded = replace(
        encoded, network=network, states=tuple(states), priced=tuple(priced), unpriced=encoded.unpriced + more
    )
    return encoded, tuple(counts)


def _changed(table: ReshardTable, link: Link, encoded: Encoded, atoms: frozenset[int]) -> np.ndarray:
    """[state of the source, state of the target] whether there is a reshard (that moves `atoms`, where given)."""
    sources = [link.source.layouts[s] for s in encoded.states[link.source.node]]
    targets = [link.target.layouts[s] for s in encoded.states[link.target.node]]
    known: dict[tuple[Layout, Layout], bool] = {}

    def moves(a: Layout, b: Layout) -> bool:
        if a == b or not np.isfinite(table.seconds[table.index[a], table.index[b]]):
            return a != b
        if (a, b) not in known:
            steps = table.path(a, b).steps
            known[a, b] = not atoms or any(not atoms.isdisjoint(step.atoms) for step in steps)
        return known[a, b]

    return np.array([[moves(a, b) for b in targets] for a in sources], bool)


def hold_counts(network: CostNetwork, counts: Sequence[Count], limit: int | None) -> CostNetwork:
    """The network within a memory limit and the counts: units are sized so that one limit serves both."""
    if not counts:
        return CostNetwork(network.costs, network.edges, network.usages, limit, network.facets)
    if limit is None:  # take a limit that memory cannot reach
        limit = 1 + sum(int(u.amounts.max()) for us in network.usages for u in us)
    counts = [replace(count, limit=min(count.limit, len(count.nodes))) for count in counts]  # a higher limit is none
    least = max((count.limit + 1) ** 2 for count in counts)
    scale = 1 if limit > least else -(-(least + 1) // max(1, limit))
    whole = limit * scale
    usages = [[Usage(u.start, u.stop, u.amounts * scale) for u in us] for us in network.usages]
    usages += [[] for _ in range(network.n_nodes - len(usages))]
    end = max((u.stop for us in usages for u in us), default=0)
    for number, count in enumerate(counts):
        unit = whole + 1 if count.limit == 0 else whole // count.limit
        for node in count.nodes:
            amounts = np.zeros(len(network.costs[node]), np.int64)
            amounts[0] = unit
            usages[node].append(Usage(end + number, end + number + 1, amounts))
    return CostNetwork(network.costs, network.edges, tuple(usages), whole, network.facets)
