"""Memory in the network: what every decision holds, and nodes for what depends on several decisions.

The bytes that a plan holds are a sum of quantities (see `formulation.lifetimes`). The part of a quantity that one
decision holds, whatever the others are, goes to the node of that decision. The rest depends on several decisions: it is
an *excess*. A node of its own can stand for an excess; its states are boxes of choices with the bytes that these hold.
The search takes the least box that allows the chosen states, and one of the boxes has exactly the bytes of the
simulation. A network without some of these nodes holds less than the simulation, never more.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np

from autoshard.formulation.boxes import Box, least_boxes
from autoshard.formulation.lifetimes import Holding
from autoshard.formulation.quantities import FREE, MOST_CELLS, Cut, Quantities, Quantity
from autoshard.formulation.tables import distinct_rows
from autoshard.solver.network import IMPOSSIBLE, CostNetwork, Edge, Usage
from autoshard.solver.reductions.consistency import arc_consistency, usage_consistency
from autoshard.solver.work import Infeasible, from_network

Span = tuple[int, int]

Chosen = Mapping[int, frozenset[int]]
"""Excesses that get nodes, by number -> the numbers of the spans of time at which their bytes count."""


@dataclass(eq=False)
class Excess:
    """Bytes that depend on several nodes: `amounts` has a number of bytes for each span of time."""

    spans: tuple[Span, ...]
    amounts: Quantity
    _boxes: "tuple[list[Box], list[tuple[int, ...]]] | None" = field(default=None, repr=False)

    def boxes(self) -> tuple[list[Box], list[tuple[int, ...]]]:
        """Boxes of choices, those that hold least first, and the bytes of each in every span."""
        if self._boxes is None:
            quantity = self.amounts
            free = np.array([v is FREE for v in quantity.values], bool)
            none = (0,) * len(self.spans)
            table = [none if v is FREE else v for v in quantity.values]
            boxes, values = least_boxes(quantity.ids, np.array(table, np.int64).reshape(len(table), -1), free)
            order = sorted(range(len(boxes)), key=lambda k: (sum(table[values[k]]), k))
            self._boxes = [boxes[k] for k in order], [table[values[k]] for k in order]
        return self._boxes

    def state(self, assignment: Sequence[int]) -> int:
        """The number of the box that has exactly the bytes of these choices."""
        cell = [int(c[assignment[n]]) for n, c in zip(self.amounts.nodes, self.amounts.classes, strict=True)]
        boxes, _ = self.boxes()
        return next((k for k, box in enumerate(boxes) if all(s[c] for s, c in zip(box, cell, strict=True))), 0)


class Memory:
    """The bytes that the plans of a network hold: by decision, and the excesses that nodes can be made for."""

    def __init__(self, base: CostNetwork, holdings: Iterable[Holding], quantities: Quantities) -> None:
        self.base, self.q = base, quantities
        self._own: list[dict[Span, np.ndarray]] = [{} for _ in range(base.n_nodes)]
        self._parts: dict[tuple[int, frozenset[int]], Excess] = {}
        self._split: dict[tuple[Any, ...], tuple[list[tuple[int, np.ndarray, np.ndarray]], list[Quantity]]] = {}
        self._kept: list[Quantity] = []
        grouped: dict[tuple[int, ...], list[Excess]] = {}
        for holding in holdings:
            for part in self._parted(holding.held):
                grouped.setdefault(part.amounts.nodes, []).append(part)
        self.excesses = [excess for nodes in sorted(grouped) for excess in self._joined(grouped[nodes])]
        self.own = tuple(tuple(Usage(*span, held) for span, held in sorted(own.items())) for own in self._own)

    # -- from quantities to usages and excesses ---------------------------------------------------------

    def _parted(self, held: Quantity) -> list[Excess]:
        """The excesses of a quantity, after the bytes of single decisions are given to their nodes."""
        held_values = [v for v in held.values if v is not FREE and v is not None]
        times = sorted({t for start, stop, _ in held_values for t in (start, stop)})
        spans = tuple(pairwise(times))
        if not spans:
            return []
        rows, place = np.zeros((len(held.values), len(spans)), np.int64), {t: k for k, t in enumerate(times)}
        for row, value in zip(rows, held.values, strict=True):
            if value is not FREE and value is not None:
                row[place[value[0]] : place[value[1]]] = value[2]
        if held.is_constant:
            self._give(0, np.zeros(len(self.base.costs[0]), np.int64), spans, rows[held.ids][None])
            return []
        free = np.array([v is FREE for v in held.values], bool)
        key = (held.nodes, id(held.ids), *map(id, held.classes), len(spans), rows.tobytes(), free.tobytes())
        if key not in self._split:  # equal layers hold the same at other times
            self._kept.append(held)  # its arrays' ids stay their own
            self._split[key] = self._of_single_decisions(held, rows, free[held.ids])
        own, rest = self._split[key]
        for node, classes, least in own:
            self._give(node, classes, spans, least)
        return [Excess(spans, amounts) for amounts in rest]

    def _of_single_decisions(
        self, held: Quantity, rows: np.ndarray, free: np.ndarray
    ) -> tuple[list[tuple[int, np.ndarray, np.ndarray]], list[Quantity]]:
        """What each node holds of a quantity whatever the others are, by (node, classes, bytes); and the rest.

        rows: for every value the bytes at every span. free: where the network forbids what is chosen.
        """
        own, out = [], []
        amounts, huge = rows[held.ids], np.iinfo(np.int64).max
        for axis, (node, classes) in enumerate(zip(held.nodes, held.classes, strict=True)):
            others = tuple(k for k in range(len(held.nodes)) if k != axis)
            least = np.where(free[..., None], huge, amounts).min(axis=others)
            least[least == huge] = 0
            if not least.any():
                continue
            shape = [least.shape[0] if k == axis else 1 for k in range(len(held.nodes))]
            amounts = np.where(free[..., None], 0, amounts - least.reshape(*shape, -1))
            if node < self.base.n_nodes:
                own.append((node, classes, least))
            else:
                out.append(self._quantity((node,), (classes,), least, np.zeros(len(least), bool)))
        if amounts.any():
            out.append(self._quantity(held.nodes, held.classes, amounts, free))
        return own, out

    def _quantity(
        self, nodes: tuple[int, ...], classes: tuple[np.ndarray, ...], amounts: np.ndarray, free: np.ndarray
    ) -> Quantity:
        rows = np.ascontiguousarray(amounts.reshape(-1, amounts.shape[-1]))
        number, first = distinct_rows(rows)
        ids = np.where(free, len(first), number.reshape(free.shape))
        return self.q.smaller(nodes, classes, ids, (*map(tuple, rows[first].tolist()), FREE))

    def _give(self, node: int, classes: np.ndarray, spans: Sequence[Span], amounts: np.ndarray) -> None:
        own = self._own[node]
        for k, span in enumerate(spans):
            if amounts[:, k].any():
                more = amounts[classes, k]
                own[span] = own[span] + more if span in own else more

    def _joined(self, parts: Sequence[Excess]) -> list[Excess]:
        """Sums of excesses over the same nodes, so that few are left."""
        out: list[Excess] = []
        for part in parts:
            joint = self._sum(out[-1], part) if out else None
            if joint is None:
                out.append(part)
            else:
                out[-1] = joint
        return out

    def _sum(self, one: Excess, other: Excess) -> Excess | None:
        if one.amounts.nodes != other.amounts.nodes:
            return None
        pairs = zip(one.amounts.classes, other.amounts.classes, strict=True)
        if prod(len(self.q.refined([a, b])[1]) for a, b in pairs) > MOST_CELLS:
            return None
        times = sorted({t for e in (one, other) for span in e.spans for t in span})
        spans = tuple(pairwise(times))
        return Excess(spans, self.q.summed(*((e.amounts, _over(spans, e)) for e in (one, other))))

    # -- networks ---------------------------------------------------------------------------------------

    def all_of_them(self) -> dict[int, frozenset[int]]:
        """Every excess at all of its spans."""
        return {k: frozenset(range(len(excess.spans))) for k, excess in enumerate(self.excesses)}

    def _chosen(self, chosen: Chosen) -> list[Excess]:
        """The chosen excesses at the chosen spans alone, over the nodes that still matter there."""
        out = []
        for k in sorted(chosen):
            key = (k, chosen[k])
            if key not in self._parts:
                whole, among = self.excesses[k], sorted(chosen[k])
                amounts = self.q.lift(lambda held, among=among: tuple(held[s] for s in among), whole.amounts)
                self._parts[key] = Excess(tuple(whole.spans[s] for s in among), amounts)
            out.append(self._parts[key])
        return out

    def network(self, chosen: Chosen) -> CostNetwork:
        """The network with nodes for these excesses, and with the nodes that they need."""
        base, parts = self.base, self._chosen(chosen)
        number = {node: node for node in range(base.n_nodes)}
        costs = [np.where(left, cost, IMPOSSIBLE) for left, cost in zip(self.q.left, base.costs, strict=True)]
        edges = list(base.edges)
        usages: list[list[Usage]] = [list(own) for own in self.own]

        def add(quantity: Quantity, boxes: Sequence[Box]) -> int:
            costs.append(np.zeros(len(boxes), np.int64))
            usages.append([])
            for axis, (node, states) in enumerate(zip(quantity.nodes, quantity.classes, strict=True)):
                allowed = np.array([box[axis] for box in boxes])[:, states].T
                if not allowed.all():
                    edges.append(Edge(number[node], len(costs) - 1, np.where(allowed, 0, IMPOSSIBLE).astype(np.int64)))
            return len(costs) - 1

        for cut in self._cuts(parts):
            number[cut.node] = add(cut.quantity, cut.boxes)
        for part in parts:
            self.q.check()
            nodes = part.amounts.nodes
            if len(nodes) < 2:
                node = number[nodes[0]] if nodes else 0
                held = [part.amounts.values[k] for k in part.amounts.ids.reshape(-1).tolist()]
                states = part.amounts.classes[0] if nodes else np.zeros(len(costs[0]), np.int64)
                held = [held[c] for c in states.tolist()]
            else:
                boxes, held = part.boxes()
                node = add(part.amounts, boxes)
            for k, (start, stop) in enumerate(part.spans):
                amounts = np.array([0 if h is FREE else h[k] for h in held], np.int64)
                if amounts.any():
                    usages[node].append(Usage(start, stop, amounts))
        facets = (*base.facets, *[None] * (len(costs) - base.n_nodes)) if base.facets else ()
        return CostNetwork(tuple(costs), tuple(edges), tuple(map(tuple, usages)), None, facets)

    def knows(self, assignment: Sequence[int]) -> bool:
        """Whether the statements leave all of these states, so that the bytes of the assignment are known."""
        return all(left[k] for left, k in zip(self.q.left, assignment, strict=True))

    def extended(self, assignment: Sequence[int], chosen: Chosen) -> tuple[int, ...]:
        """The assignment of `network(chosen)` that belongs to one of the base network."""
        parts = self._chosen(chosen)
        whole = self._whole(assignment)
        out = [int(x) for x in assignment]
        out += [whole[cut.node] for cut in self._cuts(parts)]
        out += [part.state(whole) for part in parts if len(part.amounts.nodes) > 1]
        return tuple(out)

    def missing(self, assignment: Sequence[int], limit: int, chosen: Chosen) -> dict[int, frozenset[int]]:
        """`chosen`, and every excess that an assignment holds at times when it exceeds `limit`."""
        whole = self._whole(assignment)
        held = [excess.amounts.at(whole) for excess in self.excesses]
        return self._at([(a, b) for a, b, _ in self._full(assignment, held, limit)], chosen, held)

    def around(self, assignment: Sequence[int], limit: int, chosen: Chosen) -> dict[int, frozenset[int]]:
        """`chosen`, and every excess that some assignment may hold at times when this one exceeds `limit`."""
        whole = self._whole(assignment)
        full = self._full(assignment, [excess.amounts.at(whole) for excess in self.excesses], limit)
        return self._at([(a, b) for a, b, _ in full], chosen, None)

    def there(self, assignment: Sequence[int], limit: int, chosen: Chosen) -> dict[int, frozenset[int]]:
        """`chosen`, and every excess that some assignment may hold at the time when this one exceeds `limit` most."""
        whole = self._whole(assignment)
        full = self._full(assignment, [excess.amounts.at(whole) for excess in self.excesses], limit)
        most = max((n for _, _, n in full), default=0)
        return self._at([(a, b) for a, b, n in full if n == most], chosen, None)

    def _full(self, assignment: Sequence[int], held: Sequence[Sequence[int]], limit: int) -> list[tuple[int, int, int]]:
        """(start, stop, bytes) of the times at which an assignment exceeds the limit. held: of each excess, per
        span.
        """
        delta: dict[int, int] = {}
        usages = [
            (u.start, u.stop, int(u.amounts[k])) for own, k in zip(self.own, assignment, strict=True) for u in own
        ]
        for excess, amounts in zip(self.excesses, held, strict=True):
            usages += [(a, b, n) for (a, b), n in zip(excess.spans, amounts, strict=True)]
        for start, stop, amount in usages:
            delta[start] = delta.get(start, 0) + amount
            delta[stop] = delta.get(stop, 0) - amount
        times = sorted(delta)
        live = np.cumsum([delta[t] for t in times]).tolist()
        return [(a, b, n) for a, b, n in zip(times, times[1:], live, strict=False) if n > limit]

    def _at(
        self, full: Sequence[Span], chosen: Chosen, held: Sequence[Sequence[int]] | None
    ) -> dict[int, frozenset[int]]:
        """`chosen`, and the excesses at these times; where `held` is given, only those that hold something."""
        out = dict(chosen)
        for k, excess in enumerate(self.excesses):
            more = {
                s
                for s, (c, d) in enumerate(excess.spans)
                if (held is None or held[k][s] > 0) and any(a < d and c < b for a, b in full)
            }
            if more:
                out[k] = out.get(k, frozenset()) | more
        return out

    def _whole(self, assignment: Sequence[int]) -> list[int]:
        out = [int(x) for x in assignment]
        for cut in self.q.cuts:
            out.append(cut.state(out))
        return out

    def _cuts(self, parts: Iterable[Excess]) -> list[Cut]:
        """The nodes that excesses depend on, each behind the nodes that it depends on itself."""
        needed = {node for part in parts for node in part.amounts.nodes}
        out: list[Cut] = []
        for cut in reversed(self.q.cuts):
            if cut.node in needed:
                needed.update(cut.quantity.nodes)
                out.append(cut)
        return out[::-1]


def _over(spans: Sequence[Span], excess: Excess) -> np.ndarray:
    """For every value of an excess what it holds in spans that are parts of its own, or lie outside of them."""
    begins, none = [start for start, _ in excess.spans], len(excess.spans)
    last = [bisect_right(begins, start) - 1 for start, _ in spans]
    places = [k if k >= 0 and start < excess.spans[k][1] else none for k, (start, _) in zip(last, spans, strict=True)]
    rows = np.zeros((len(excess.amounts.values), none + 1), np.int64)
    for row, value in zip(rows, excess.amounts.values, strict=True):
        if value is not FREE:
            row[:none] = value
    return rows[:, places]


def left_by(network: CostNetwork) -> list[np.ndarray]:
    """Per node, which states may be chosen within the limit, with the least amounts of all other nodes.

    Raises `Infeasible` where a node has none.
    """
    work = from_network(network)
    while usage_consistency(work) or arc_consistency(work):
        pass
    out = []
    for node, costs in enumerate(network.costs):
        left = np.zeros(len(costs), bool)
        left[work.domains[node]] = True
        out.append(left)
    return out


def leaves_something(network: CostNetwork) -> bool:
    """Whether every node has a state left within the limit, by the simple test of `left_by`."""
    try:
        left_by(network)
    except Infeasible:
        return False
    return True


def in_units(network: CostNetwork, limit: int) -> CostNetwork:
    """The network within a limit, in the largest unit that divides all amounts, so that engines add small numbers."""
    unit = 0
    for usages in network.usages:
        for usage in usages:
            unit = int(np.gcd(unit, np.gcd.reduce(usage.amounts)))
    unit = max(1, unit)
    usages = tuple(tuple(Usage(u.start, u.stop, u.amounts // unit) for u in us) for us in network.usages)
    return CostNetwork(network.costs, network.edges, usages, limit // unit, network.facets)
