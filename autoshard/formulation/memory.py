"""Memory in the network: what every decision holds, and nodes for what depends on several decisions.

What a plan holds is a sum of quantities (see `formulation.lifetimes`). Of each, the part that one decision holds whatever
the others are goes to the node of that decision. What is left depends on several: it is the *excess*, and a node of its
own stands for it, whose states are boxes of choices with the bytes that they hold. The search takes the cheapest box that
allows what is chosen, and there is one that says just what the simulation says. Without some of these nodes a network
holds less than the simulation, never more.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from autoshard.formulation.boxes import Box, least_boxes
from autoshard.formulation.lifetimes import Holding
from autoshard.formulation.quantities import FREE, Cut, Quantities, Quantity
from autoshard.solver.network import IMPOSSIBLE, CostNetwork, Edge, Usage

Span = tuple[int, int]
MOST_CELLS = 20_000
"""Excesses over the same nodes are added up to one node where their table has at most so many cells."""


@dataclass(eq=False)
class Excess:
    """Bytes over the choices of several nodes, at moments in [breaks[k], breaks[k + 1]).

    classes: per node, state -> class. amounts: [class of the first node, ..., moment]. free: choices that the network
    forbids.
    """

    nodes: tuple[int, ...]
    classes: tuple[np.ndarray, ...]
    breaks: tuple[int, ...]
    amounts: np.ndarray
    free: np.ndarray
    _boxes: "tuple[list[Box], np.ndarray] | None" = field(default=None, repr=False)

    def at(self, assignment: Sequence[int]) -> np.ndarray:
        """[moment] bytes where these states are chosen."""
        return self.amounts[tuple(int(c[assignment[n]]) for n, c in zip(self.nodes, self.classes, strict=True))]

    def boxes(self) -> tuple[list[Box], np.ndarray]:
        """Boxes of choices, those that hold least first, and what each holds at every moment."""
        if self._boxes is None:
            cells = self.amounts.reshape(-1, self.amounts.shape[-1])
            rows, inverse = np.unique(cells, axis=0, return_inverse=True)
            ids = np.where(self.free, len(rows), inverse.reshape(self.free.shape))
            amounts = np.concatenate([rows, np.zeros((1, rows.shape[1]), rows.dtype)])
            free = np.array([False] * len(rows) + [True])
            boxes, values = least_boxes(ids, amounts, free)
            order = sorted(range(len(boxes)), key=lambda k: (int(amounts[values[k]].sum()), k))
            self._boxes = [boxes[k] for k in order], amounts[[values[k] for k in order]]
        return self._boxes

    def state(self, assignment: Sequence[int]) -> int:
        """The box that says just what these choices hold."""
        cell = [int(c[assignment[n]]) for n, c in zip(self.nodes, self.classes, strict=True)]
        boxes, _ = self.boxes()
        return next((k for k, box in enumerate(boxes) if all(s[c] for s, c in zip(box, cell, strict=True))), 0)

    def moments(self) -> list[Span]:
        """The moments, as spans of time, at which some choice holds something."""
        some = self.amounts.reshape(-1, self.amounts.shape[-1]).any(0)
        return [(a, b) for a, b, s in zip(self.breaks, self.breaks[1:], some, strict=False) if s]


class Memory:
    """What the plans of a network hold: per decision, and the excesses that nodes can be made for."""

    def __init__(self, base: CostNetwork, holdings: Iterable[Holding], quantities: Quantities) -> None:
        self.base, self.holdings, self.q = base, tuple(holdings), quantities
        self._own: list[dict[Span, np.ndarray]] = [{} for _ in range(base.n_nodes)]
        grouped: dict[tuple[int, ...], list[Excess]] = {}
        for holding in self.holdings:
            for part in self._parted(holding.held):
                grouped.setdefault(part.nodes, []).append(part)
        self.excesses = [e for nodes in sorted(grouped) for e in self._joined(grouped[nodes])]
        self.own = tuple(
            tuple(Usage(a, b, amounts) for (a, b), amounts in sorted(own.items())) for own in self._own
        )

    # -- from quantities to usages and excesses ---------------------------------------------------------

    def _parted(self, held: Quantity) -> list[Excess]:
        """What a quantity holds, less what goes to single decisions."""
        spans = [v for v in held.values if v is not FREE and v is not None]
        if not spans:
            return []
        breaks = tuple(sorted({t for start, stop, _ in spans for t in (start, stop)}))
        rows = np.zeros((len(held.values), len(breaks) - 1), np.int64)
        for row, value in zip(rows, held.values, strict=True):
            if value is not FREE and value is not None:
                row[breaks.index(value[0]) : breaks.index(value[1])] = value[2]
        amounts = rows[held.ids]
        free = np.array([v is FREE for v in held.values], bool)[held.ids]
        if not held.nodes:
            self._give(0, np.zeros(len(self.base.costs[0]), np.int64), breaks, amounts[None])
            return []
        return self._split(held.nodes, held.classes, breaks, amounts, free)

    def _split(
        self,
        nodes: tuple[int, ...],
        classes: tuple[np.ndarray, ...],
        breaks: tuple[int, ...],
        amounts: np.ndarray,
        free: np.ndarray,
    ) -> list[Excess]:
        """Take from `amounts` what each of its nodes holds whatever the others choose."""
        out: list[Excess] = []
        huge = np.iinfo(np.int64).max
        for axis, node in enumerate(nodes):
            others = tuple(k for k in range(len(nodes)) if k != axis)
            least = np.where(free[..., None], huge, amounts).min(axis=others) if others else amounts
            least = np.where(least == huge, 0, least)
            if not least.any():
                continue
            shape = [1] * len(nodes) + [least.shape[1]]
            shape[axis] = least.shape[0]
            amounts = np.where(free[..., None], 0, amounts - least.reshape(shape))
            if node < self.base.n_nodes:
                self._give(node, classes[axis], breaks, least)
            else:
                none = np.zeros(len(least), bool)
                out.append(Excess((node,), (classes[axis],), breaks, least, none))
        if amounts.any():
            out.append(Excess(nodes, classes, breaks, amounts, free))
        return out

    def _give(self, node: int, classes: np.ndarray, breaks: Sequence[int], amounts: np.ndarray) -> None:
        own = self._own[node]
        for k, span in enumerate(zip(breaks, breaks[1:], strict=False)):
            if amounts[:, k].any():
                more = amounts[classes, k]
                own[span] = own[span] + more if span in own else more

    def _joined(self, parts: Sequence[Excess]) -> list[Excess]:
        """Excesses over the same nodes as few: their sums."""
        out: list[Excess] = []
        for part in parts:
            joint = self._sum(out[-1], part) if out else None
            if joint is None:
                out.append(part)
            else:
                out[-1] = joint
        return out

    def _sum(self, one: Excess, other: Excess) -> Excess | None:
        joints = [self.q.refined([a, b]) for a, b in zip(one.classes, other.classes, strict=True)]
        if np.prod([len(first) for _, first in joints]) > MOST_CELLS:
            return None
        breaks = tuple(sorted({*one.breaks, *other.breaks}))
        amounts = np.zeros((*(len(first) for _, first in joints), len(breaks) - 1), np.int64)
        free = np.zeros(amounts.shape[:-1], bool)
        for part in (one, other):
            index = np.ix_(*(c[first] for c, (_, first) in zip(part.classes, joints, strict=True)))
            free |= part.free[index]
            for k, (a, b) in enumerate(zip(part.breaks, part.breaks[1:], strict=False)):
                amounts[..., breaks.index(a) : breaks.index(b)] += part.amounts[..., k][index][..., None]
        amounts[free] = 0
        return Excess(one.nodes, tuple(c for c, _ in joints), breaks, amounts, free)

    # -- networks ---------------------------------------------------------------------------------------

    def network(self, chosen: Collection[int] = ()) -> CostNetwork:
        """The network with nodes for these excesses (numbers of `excesses`), and those that they need."""
        base = self.base
        number = {node: node for node in range(base.n_nodes)}
        costs, edges = list(base.costs), list(base.edges)
        usages: list[list[Usage]] = [list(own) for own in self.own]
        facets = list(base.facets) if base.facets else []

        def add(nodes: Sequence[int], classes: Sequence[np.ndarray], boxes: Sequence[Box]) -> int:
            costs.append(np.zeros(len(boxes), np.int64))
            usages.append([])
            if base.facets:
                facets.append(None)
            for axis, (node, states) in enumerate(zip(nodes, classes, strict=True)):
                allowed = np.array([box[axis] for box in boxes])[:, states].T
                if not allowed.all():
                    edges.append(Edge(number[node], len(costs) - 1, np.where(allowed, 0, IMPOSSIBLE).astype(np.int64)))
            return len(costs) - 1

        for cut in self._cuts(chosen):
            number[cut.node] = add(cut.quantity.nodes, cut.quantity.classes, cut.boxes)
        for k in sorted(chosen):
            excess = self.excesses[k]
            if len(excess.nodes) == 1:
                node, amounts = number[excess.nodes[0]], excess.amounts[excess.classes[0]]
            else:
                boxes, amounts = excess.boxes()
                node = add(excess.nodes, excess.classes, boxes)
            for moment, (a, b) in enumerate(zip(excess.breaks, excess.breaks[1:], strict=False)):
                if amounts[:, moment].any():
                    usages[node].append(Usage(a, b, np.ascontiguousarray(amounts[:, moment])))
        return CostNetwork(tuple(costs), tuple(edges), tuple(map(tuple, usages)), None, tuple(facets))

    def extended(self, assignment: Sequence[int], chosen: Collection[int] = ()) -> tuple[int, ...]:
        """The assignment of `network(chosen)` that goes with one of the base network."""
        whole = self._whole(assignment)
        out = [int(x) for x in assignment]
        out += [whole[cut.node] for cut in self._cuts(chosen)]
        out += [self.excesses[k].state(whole) for k in sorted(chosen) if len(self.excesses[k].nodes) > 1]
        return tuple(out)

    def states(self, chosen: Collection[int]) -> int:
        """States of the nodes that would be added."""
        return sum(len(self.excesses[k].boxes()[0]) for k in chosen) + sum(len(c.boxes) for c in self._cuts(chosen))

    def left_out(self, assignment: Sequence[int], limit: int, chosen: Collection[int]) -> list[int]:
        """Excesses without nodes that may hold something at the moments at which an assignment holds more than `limit`."""
        whole = self._whole(assignment)
        delta: dict[int, int] = {}
        for own, state in zip(self.own, assignment, strict=True):
            for usage in own:
                delta[usage.start] = delta.get(usage.start, 0) + int(usage.amounts[state])
                delta[usage.stop] = delta.get(usage.stop, 0) - int(usage.amounts[state])
        for excess in self.excesses:
            for a, b, amount in zip(excess.breaks, excess.breaks[1:], excess.at(whole).tolist(), strict=False):
                delta[a] = delta.get(a, 0) + amount
                delta[b] = delta.get(b, 0) - amount
        times = sorted(delta)
        live = np.cumsum([delta[t] for t in times])
        full = [(a, b) for a, b, n in zip(times, times[1:], live.tolist(), strict=False) if n > limit]
        return [
            k
            for k, excess in enumerate(self.excesses)
            if k not in chosen and any(a < d and c < b for a, b in full for c, d in excess.moments())
        ]

    def _whole(self, assignment: Sequence[int]) -> list[int]:
        out = [int(x) for x in assignment]
        for cut in self.q.cuts:
            out.append(cut.state(out))
        return out

    def _cuts(self, chosen: Iterable[int]) -> list[Cut]:
        """The nodes that excesses depend on, those before that they themselves depend on."""
        needed = {node for k in chosen for node in self.excesses[k].nodes}
        out: list[Cut] = []
        for cut in reversed(self.q.cuts):
            if cut.node in needed:
                needed.update(cut.quantity.nodes)
                out.append(cut)
        return out[::-1]
