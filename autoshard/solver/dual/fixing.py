"""What a bound leaves of a flat network: reduced costs, consistency of what survives, and the smaller network itself.

A state whose reduced cost exceeds the gap is in no better assignment. What is left is made consistent (a partner on
every edge, room beside the least memory of all others), cut out of the arrays, and the messages go on from where
they stood: bounds stay valid, and passes become as cheap as the network is small.
"""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from autoshard.solver.compiled import compiled
from autoshard.solver.dual import passes as duals
from autoshard.solver.dual.arrays import Classes, Graph, Messages
from autoshard.solver.dual.flat import Flat
from autoshard.solver.dual.messages import by_classes, entry_of, least_partners, most_classes, widest_of
from autoshard.solver.dual.passes import Dual

TOO_MUCH = 1e18
"""What counts as the cost of a forbidden entry, so that sums stay finite."""


@dataclass(frozen=True)
class ReducedCosts:
    """bound: of the reparametrised network, without the work network's constant. reach: per state the least amount
    above it that any assignment with this state costs.
    """

    bound: float
    reach: np.ndarray


def reduced_costs(dual: Dual) -> ReducedCosts:
    """Reduced costs by the messages of a backward pass; all sums exact as in `passes.run_pass`."""
    own, share, low = _shared(dual)
    reach = own.copy()
    low += _add_edges(dual.flat.graph, dual.flat.classes, dual.messages, own, share, reach)
    return ReducedCosts(duals.rounded_down(Fraction(float(low)) - dual.charge), reach)


def paid_above(dual: Dual, chosen: np.ndarray) -> np.ndarray:
    """Per node what the states chosen (positions in the flat domains) pay above the bound, at it and on its edges."""
    own, share, _ = _shared(dual)
    paid = own[dual.flat.offsets[:-1] + chosen]
    paid[~np.isfinite(paid)] = 0.0
    _add_paid(dual.flat.graph, dual.flat.classes, dual.messages, share, chosen, paid)
    return paid


def _shared(dual: Dual) -> tuple[np.ndarray, np.ndarray, float]:
    """What is left of every state above the least of its node, what each edge gets of it, and the sum of the least."""
    flat = dual.flat
    outgoing = np.bincount(flat.second, minlength=flat.n)
    incoming = np.bincount(flat.first, minlength=flat.n)
    own, share = dual.priced.copy(), np.zeros(len(flat.unary))
    _add_messages(flat.graph, dual.messages, own)
    return own, share, _set_shares(dual.quantum, flat.offsets, outgoing, incoming, own, share)


@compiled
def _add_messages(graph: Graph, messages: Messages, own: np.ndarray):
    """Adds all incoming messages to what states cost."""
    offsets, first, second = graph.offsets, graph.first, graph.second
    second_at, first_at, to_second, to_first = messages
    for e in range(len(first)):
        low = offsets[first[e]]
        for a in range(first_at[e + 1] - first_at[e]):
            own[low + a] += to_first[first_at[e] + a]
        low = offsets[second[e]]
        for b in range(second_at[e + 1] - second_at[e]):
            own[low + b] += to_second[second_at[e] + b]


@compiled
def _set_shares(
    quantum: float,
    offsets: np.ndarray,
    outgoing: np.ndarray,
    incoming: np.ndarray,
    own: np.ndarray,
    share: np.ndarray,
):
    """What each outgoing edge of a node gets of its costs; `own` becomes what is left above the least of the node.

    Returns the sum of those least left-overs.
    """
    bound = 0.0
    for i in range(len(offsets) - 1):
        weight = 1.0 / max(1, outgoing[i], incoming[i])
        lowest = np.inf
        for a in range(offsets[i], offsets[i + 1]):
            share[a] = np.floor(own[a] * weight / quantum) * quantum
            own[a] -= outgoing[i] * share[a]
            lowest = min(lowest, own[a])
        bound += lowest
        for a in range(offsets[i], offsets[i + 1]):
            own[a] -= lowest
    return bound


@compiled
def _add_edges(
    graph: Graph, classes: Classes, messages: Messages, own: np.ndarray, share: np.ndarray, reach: np.ndarray
):  # fmt: skip
    """Adds to every state, edge by edge, the least that a partner costs above the least of the edge.

    Returns the sum over edges of those least costs.
    """
    offsets, first, second = graph.offsets, graph.first, graph.second
    table_at, tables = graph.table_at, graph.tables
    second_at, first_at, _, to_first = messages
    bound = 0.0
    widest = widest_of(offsets)
    into = np.empty(widest)  # per state of the second node its cheapest partner
    term = np.empty(widest)
    both = np.empty(widest)
    most = most_classes(classes)
    room = np.empty(most), np.empty(most)
    for e in range(len(first)):
        i = offsets[first[e]]
        j = offsets[second[e]]
        x = first_at[e]
        y = second_at[e]
        d = first_at[e + 1] - x
        c = second_at[e + 1] - y
        lowest = _least_beside(graph, classes, messages, share, e, term, room)
        if by_classes(classes, e, d, c):
            rows, columns = classes.of_first[x : x + d], classes.of_second[y : y + c]
            for b in range(c):
                both[b] = term[b] + own[j + b]
            out = least_partners(classes, e, True, columns, both, room)
            for a in range(d):
                reach[i + a] += out[rows[a]] - (to_first[x + a] + lowest)
                both[a] = own[i + a] - (to_first[x + a] + lowest)
            out = least_partners(classes, e, False, rows, both, room)
            for b in range(c):
                into[b] = out[columns[b]]
        else:
            into[:c] = np.inf
            for a in range(d):
                at = table_at[e] + a * c
                mine = to_first[x + a] + lowest
                best = np.inf
                for b in range(c):
                    best = min(best, tables[at + b] + term[b] + own[j + b])
                    into[b] = min(into[b], tables[at + b] + own[i + a] - mine)
                reach[i + a] += best - mine
        bound += lowest
        for b in range(c):
            reach[j + b] += into[b] + term[b]
    return bound


@compiled
def _add_paid(
    graph: Graph, classes: Classes, messages: Messages, share: np.ndarray, chosen: np.ndarray, paid: np.ndarray
):  # fmt: skip
    """Adds to both nodes of every edge what the entry chosen costs above the least of the edge; `TOO_MUCH` where it is
    forbidden."""
    first, second = graph.first, graph.second
    term = np.empty(widest_of(graph.offsets))
    most = most_classes(classes)
    room = np.empty(most), np.empty(most)
    for e in range(len(first)):
        lowest = _least_beside(graph, classes, messages, share, e, term, room)
        a = chosen[first[e]]
        b = chosen[second[e]]
        value = entry_of(graph, classes, messages, e, a, b) - messages.to_first[messages.first_at[e] + a] + term[b]
        value = value - lowest if value < np.inf else TOO_MUCH
        paid[first[e]] += value
        paid[second[e]] += value


@compiled
def _least_beside(
    graph: Graph, classes: Classes, messages: Messages, share: np.ndarray, e: int, term: np.ndarray, room: tuple
):  # fmt: skip
    """The least entry of an edge beside the messages.

    term: receives what its share and its message leave of every state of the second node. room: see `least_partners`.
    """
    second_at, first_at, to_second, to_first = messages
    x = first_at[e]
    y = second_at[e]
    d = first_at[e + 1] - x
    c = second_at[e + 1] - y
    j = graph.offsets[graph.second[e]]
    for b in range(c):
        term[b] = share[j + b] - to_second[y + b]
    lowest = np.inf
    if by_classes(classes, e, d, c):
        out = least_partners(classes, e, True, classes.of_second[y : y + c], term, room)
        for a in range(d):
            lowest = min(lowest, out[classes.of_first[x + a]] - to_first[x + a])
    else:
        for a in range(d):
            at = graph.table_at[e] + a * c
            row = np.inf
            for b in range(c):
                row = min(row, graph.tables[at + b] + term[b])
            lowest = min(lowest, row - to_first[x + a])
    return lowest


@dataclass(frozen=True)
class Part:
    """A restricted network with its messages; `origin`: its strategies as indices into the unrestricted one's."""

    dual: Dual
    origin: np.ndarray

    @property
    def flat(self) -> Flat:
        """The restricted network."""
        return self.dual.flat

    def positions(self, chosen: np.ndarray) -> np.ndarray:
        """An assignment of the part as indices into the states of the unrestricted network."""
        return self.origin[self.flat.offsets[:-1] + chosen]


def restrict(part: Part, alive: np.ndarray) -> Part:
    """The part with the states where `alive` is true (consistent: see `make_consistent`); messages carried over."""
    out = restrict_beside_tables(part, alive)
    _cut_tables(part.flat.graph, alive, out.flat.tables)
    return out


def restrict_beside_tables(part: Part, alive: np.ndarray) -> Part:
    """The same with room for the entries of tables."""
    old, flat = part.dual, part.flat
    offsets, table_at, second_at, first_at, held_at = _cut_starts(flat.graph, flat.held_node, alive)

    def cut(values: np.ndarray, ends: np.ndarray, at: np.ndarray, length: int) -> np.ndarray:
        return _cut_vectors(flat.offsets, ends, at, values, alive, length)

    of, first, second = flat.classes, int(first_at[-1]), int(second_at[-1])
    to_first, of_first = (cut(v, flat.first, old.first_at, first) for v in (old.to_first, of.of_first))
    to_second, of_second = (cut(v, flat.second, old.second_at, second) for v in (old.to_second, of.of_second))
    classes = of._replace(of_first=of_first, of_second=of_second)
    new = Flat(
        nodes=flat.nodes, offsets=offsets, unary=flat.unary[alive], first=flat.first, second=flat.second,
        table_at=table_at, tables=np.empty(int(table_at[-1])), incident_at=flat.incident_at, incident=flat.incident,
        held_node=flat.held_node, held_start=flat.held_start, held_stop=flat.held_stop, held_at=held_at,
        amounts=_cut_vectors(flat.offsets, flat.held_node, flat.held_at, flat.amounts, alive, int(held_at[-1])),
        slots=flat.slots, limit=flat.limit, classes=classes,
    )  # fmt: skip
    dual = Dual(
        new, old.quantum, second_at, first_at, to_second, to_first, np.zeros(len(new.unary)),
        old.prices, old.priced[alive], old.charge, old.bound,
    )  # fmt: skip
    return Part(dual, part.origin[alive])


@compiled
def _cut_starts(graph: Graph, held_node: np.ndarray, alive: np.ndarray):
    """Where states, tables, messages to second and first nodes, and amounts start among those that are left."""
    offsets, first, second = graph.offsets, graph.first, graph.second
    n = len(offsets) - 1
    nodes = np.zeros(n + 1, dtype=np.int64)
    for i in range(n):
        nodes[i + 1] = nodes[i]
        for a in range(offsets[i], offsets[i + 1]):
            if alive[a]:
                nodes[i + 1] += 1
    tables = np.zeros(len(first) + 1, dtype=np.int64)
    to_second = np.zeros(len(first) + 1, dtype=np.int64)
    to_first = np.zeros(len(first) + 1, dtype=np.int64)
    for e in range(len(first)):
        d = nodes[first[e] + 1] - nodes[first[e]]
        c = nodes[second[e] + 1] - nodes[second[e]]
        tables[e + 1] = tables[e] + d * c
        to_second[e + 1] = to_second[e] + c
        to_first[e + 1] = to_first[e] + d
    held = np.zeros(len(held_node) + 1, dtype=np.int64)
    for r in range(len(held_node)):
        held[r + 1] = held[r] + nodes[held_node[r] + 1] - nodes[held_node[r]]
    return nodes, tables, to_second, to_first, held


@compiled
def _cut_vectors(
    offsets: np.ndarray, node: np.ndarray, at: np.ndarray, values: np.ndarray, alive: np.ndarray, length: int
):  # fmt: skip
    """Of vectors over the states of nodes, one after the other, the entries of states that are left."""
    out = np.empty(length, dtype=values.dtype)
    k = 0
    for v in range(len(node)):
        low = offsets[node[v]]
        for a in range(at[v + 1] - at[v]):
            if alive[low + a]:
                out[k] = values[at[v] + a]
                k += 1
    return out


@compiled
def _cut_tables(graph: Graph, alive: np.ndarray, out: np.ndarray):
    """Writes the entries of tables whose two states are left, one table after the other."""
    offsets, first, second = graph.offsets, graph.first, graph.second
    table_at, tables = graph.table_at, graph.tables
    columns = np.empty(widest_of(offsets), dtype=np.int64)
    at = 0
    for e in range(len(first)):
        i = offsets[first[e]]
        j = offsets[second[e]]
        d = offsets[first[e] + 1] - i
        c = offsets[second[e] + 1] - j
        left = 0
        for b in range(c):
            if alive[j + b]:
                columns[left] = b
                left += 1
        for a in range(d):
            if alive[i + a]:
                row = table_at[e] + a * c
                for k in range(left):
                    out[at + k] = tables[row + columns[k]]
                at += left
